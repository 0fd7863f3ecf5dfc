package gitopsprovider_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func TestADiffInJSONIsNamedLikeTheOtherAnswers(t *testing.T) {
	t.Parallel()
	encoded, err := json.Marshal(gitopsprovider.Diff{
		Repository: "https://git.example.com/acme/shop", Path: "apps/shop", From: commitA, To: commitB,
		Commit: gitopsprovider.Commit{Hash: commitB, Parents: []string{commitA}, Subject: "Change", Author: "A <a@b>", When: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)},
		Files: []gitopsprovider.FileDiff{{
			Path: "apps/shop/cm.yaml", Status: gitopsprovider.FileModified, OldMode: gitopsprovider.ModeRegular, NewMode: gitopsprovider.ModeExecutable,
			Patch: "diff --git …", SecretsHidden: true,
		}},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"repository": "https://git.example.com/acme/shop", "path": "apps/shop", "from": "`+commitA+`", "to": "`+commitB+`",
		"commit": {"hash": "`+commitB+`", "parents": ["`+commitA+`"], "subject": "Change", "author": "A <a@b>", "when": "2026-05-04T12:00:00Z"},
		"files": [{"path": "apps/shop/cm.yaml", "status": "Modified", "oldMode": "100644", "newMode": "100755", "patch": "diff --git …", "secretsHidden": true}]
	}`, string(encoded))

	encoded, err = json.Marshal(gitopsprovider.History{Commits: []gitopsprovider.Commit{{Hash: commitA}}, Cut: true})
	require.NoError(t, err)
	assert.JSONEq(t, `{"commits": [{"hash": "`+commitA+`", "subject": "", "author": ""}], "cut": true}`, string(encoded))
}
