package argocd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABaselineKeepsWhatStoodBefore(t *testing.T) {
	t.Parallel()
	written := baseline{ResourceVersion: "7", State: fingerprint("record"), Replaced: "alice"}
	read, known, err := parseBaseline(written.String())
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, written, read)
}

func TestNoBaselineIsNotKnown(t *testing.T) {
	t.Parallel()
	_, known, err := parseBaseline("")
	require.NoError(t, err)
	assert.False(t, known)
}

// Others choose names, tokens and revisions.
func TestABaselineFitsIntoOneKiB(t *testing.T) {
	t.Parallel()
	for _, long := range []string{strings.Repeat("\x00", 5000), strings.Repeat("<é\"", 5000), strings.Repeat("\xff", 5000)} {
		app := parse(t, set("status.operationState", record(long, long, long, "Running", long)))
		r := &request{client: newClient(t, Options{})}
		app.resourceVersion = strings.Repeat("9", 64)
		text := r.started(app, true).Baseline
		assert.LessOrEqual(t, len(text), 1024)
		_, known, err := parseBaseline(text)
		require.NoError(t, err)
		assert.True(t, known)
	}
}

func TestABaselineThatIsNotOursIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"garbage", "{", "{}", "null", "[]", `"text"`, "7", `{"resourceVersion": 7}`, `{"state": "x"}`, "\x00"} {
		_, known, err := parseBaseline(text)
		require.ErrorContains(t, err, "the operation's baseline is not one of package argocd", text)
		assert.False(t, known, text)
	}
}

func TestTheIdentityOfARecordStaysWhileItsOperationGoesOn(t *testing.T) {
	t.Parallel()
	started := parse(t, set("status.operationState", record("host", token, commitB, "Running", ""))).state.identity()
	for name, change := range map[string]change{
		"a message":   set("status.operationState.message", "one or more tasks are running"),
		"a result":    set("status.operationState.syncResult.resources", []any{object{"kind": "Job"}}),
		"a retry":     set("status.operationState.retryCount", int64(1)),
		"a finishing": set("status.operationState.finishedAt", "2026-01-02T15:00:01Z"),
		"a phase":     set("status.operationState.phase", "Failed"),
	} {
		app := parse(t, set("status.operationState", record("host", token, commitB, "Running", "")), change)
		assert.Equal(t, started, app.state.identity(), name)
	}
	for name, change := range map[string]change{
		"another start":     set("status.operationState.startedAt", "2026-01-02T15:00:09Z"),
		"another initiator": set("status.operationState.operation.initiatedBy.username", "alice"),
		"another revision":  set("status.operationState.operation.sync.revision", commitC),
		"another token":     set("status.operationState.operation.info", []any{object{"name": DefaultInfoKey, "value": "other"}}),
		"no record":         remove("status.operationState"),
	} {
		app := parse(t, set("status.operationState", record("host", token, commitB, "Running", "")), change)
		assert.NotEqual(t, started, app.state.identity(), name)
	}
}
