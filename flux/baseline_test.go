package flux

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestABaselineTellsWhatChangedSince(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		since       []change
		ran, judged bool
	}{
		"nothing":                              {},
		"a resume":                             {since: []change{resumed}},
		"a token":                              {since: []change{stamped(foreign), handled(foreign)}},
		"a run that succeeded":                 {since: []change{ran(commitA)}, ran: true, judged: true},
		"a run that failed":                    {since: []change{failedAt(commitB, "BuildFailed", "bad")}, judged: true},
		"a run that goes on":                   {since: []change{running}, judged: true},
		"the same Ready at a later generation": {since: []change{func(ks *kustomization) { ks.ready.observedGeneration++ }}, judged: true},
		"the same Ready at another time":       {since: []change{func(ks *kustomization) { ks.ready.lastTransitionTime = "later" }}, judged: true},
		"another message, which names a temporary directory": {since: []change{func(ks *kustomization) { ks.ready.message = "/tmp/2" }}},
		"no Ready any more": {since: []change{func(ks *kustomization) { ks.ready = condition{} }}, judged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, known, err := parseBaseline(baselineOf(after()).String())
			require.NoError(t, err)
			require.True(t, known)
			assert.Equal(t, baselineOf(after()), before)
			assert.Equal(t, test.ran, before.ranSince(after(test.since...)))
			assert.Equal(t, test.judged, before.judgedSince(after(test.since...)))
		})
	}
}

// Others choose the length of tokens, messages and history entries.
func TestABaselineFitsIntoOneKiB(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x00é\"", 100_000)
	ks := kustomization{
		object:  object{resourceVersion: strings.Repeat("9", 64), requested: long, handled: long, ready: condition{status: long, reason: long, message: long}},
		lastRun: long,
	}
	assert.LessOrEqual(t, len(baselineOf(ks).String()), 1024)
}

func TestABaselineThatIsNotOursIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"garbage", "{", "{}", "null", "[]", `"text"`, "7", `{"resourceVersion": 7}`, `{"requested": "x"}`, `{"resourceVersion": ""}`, "\x00",
	} {
		_, known, err := parseBaseline(text)
		require.ErrorContains(t, err, "the operation's baseline is not one of package flux", text)
		assert.False(t, known, text)
	}
	_, known, err := parseBaseline("")
	require.NoError(t, err, "a record may have lost it")
	assert.False(t, known)
}
