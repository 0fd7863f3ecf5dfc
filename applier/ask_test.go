package applier_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
)

func goodAsk() applier.Ask {
	return applier.Ask{
		Want:   applier.Binding{Repository: "https://git.example.com/shop", Branch: "main"},
		Commit: strings.Repeat("a", 40),
		Token:  "token",
	}
}

func TestAnAskIsRefusedForWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mutate func(*applier.Ask)
		says   string
	}{
		"good":                          {mutate: func(*applier.Ask) {}},
		"a commit of sha256":            {mutate: func(a *applier.Ask) { a.Commit = strings.Repeat("0", 64) }},
		"no commit: the branch is gone": {mutate: func(a *applier.Ask) { a.Commit = "" }},
		"a full branch":                 {mutate: func(a *applier.Ask) { a.Want.Branch = "refs/heads/main" }},
		"each reason":                   {mutate: func(a *applier.Ask) { a.Reason = applier.Repair }},
		"no token":                      {mutate: func(a *applier.Ask) { a.Token = "" }, says: "the ask has no token: set Ask.Token to a value used once, such as NewToken()"},
		"no repository":                 {mutate: func(a *applier.Ask) { a.Want.Repository = "" }, says: "the ask names no repository: set Ask.Want.Repository"},
		"no branch":                     {mutate: func(a *applier.Ask) { a.Want.Branch = "" }, says: "the ask names no branch: set Ask.Want.Branch"},
		"a short commit":                {mutate: func(a *applier.Ask) { a.Commit = "c408ce6b" }, says: `the ask's commit "c408ce6b" is not a full hash of 40 or 64 lower-case hex digits: resolve it in the repository first`},
		"an upper-case commit":          {mutate: func(a *applier.Ask) { a.Commit = strings.Repeat("A", 40) }, says: "is not a full hash"},
		"a commit with an algorithm":    {mutate: func(a *applier.Ask) { a.Commit = "sha1:" + strings.Repeat("a", 40) }, says: "is not a full hash"},
		"a branch as a commit":          {mutate: func(a *applier.Ask) { a.Commit = "main" }, says: "is not a full hash"},
		"a tag as a branch":             {mutate: func(a *applier.Ask) { a.Want.Branch = "refs/tags/v1" }, says: "the ask's branch: "},
		"HEAD as a branch":              {mutate: func(a *applier.Ask) { a.Want.Branch = "HEAD" }, says: "the ask's branch: "},
		"a commit as a branch":          {mutate: func(a *applier.Ask) { a.Want.Branch = strings.Repeat("a", 40) }, says: "the ask's branch: "},
		"an unknown reason":             {mutate: func(a *applier.Ask) { a.Reason = "Whim" }, says: `the ask's reason "Whim" is unknown: use one of the ApplyReason constants`},
		"the zero value":                {mutate: func(a *applier.Ask) { *a = applier.Ask{} }, says: "the ask has no token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := goodAsk()
			test.mutate(&ask)
			err := ask.Validate()
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
			assert.True(t, applier.IsPermanent(err))
		})
	}
}

func TestAReasonDecidesWhetherAnAppliedCommitRunsAgain(t *testing.T) {
	t.Parallel()
	for reason, needsRun := range map[applier.ApplyReason]bool{
		"": true, applier.Commit: true, applier.Refusal: true, applier.Repair: true, applier.CatchUp: false, applier.ForeignCommit: false,
	} {
		assert.Equal(t, needsRun, reason.NeedsRun(), reason)
		ask := goodAsk()
		ask.Reason = reason
		assert.NoError(t, ask.Validate())
	}
}

func TestADecisionThatNobodyRevokesHolds(t *testing.T) {
	t.Parallel()
	assert.True(t, applier.Ask{}.IsCurrent())
	assert.False(t, applier.Ask{Current: func() bool { return false }}.IsCurrent())
	assert.True(t, applier.Ask{Current: func() bool { return true }}.IsCurrent())
}

func TestACommitIsDescribedByItsFirstDigits(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "commit abcabcabcabc", applier.DescribeCommit(strings.Repeat("abc", 13)+"a"))
	assert.Equal(t, "no commit (the branch does not exist)", applier.DescribeCommit(""))
}

func TestAnOperationIsOverOnlyOnceItSucceededOrFailed(t *testing.T) {
	t.Parallel()
	for state, ended := range map[applier.State]bool{
		"": false, applier.StateRequested: false, applier.StateRunning: false, applier.StateSettling: false,
		applier.StateSucceeded: true, applier.StateFailed: true,
	} {
		assert.Equal(t, ended, state.Ended(), state)
	}
}
