package argocdtest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// Application-controller 3.2.11 merges the record of an operation into that of the one before, and works from the mixture from its
// second pass on: after a wave, a hook or a retry.
func TestWhatThePreviousOperationLeftChangesNothing(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	manifests := func(text string) string {
		u := &unstructured.Unstructured{Object: object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "second"}, "data": object{"key": text},
		}}
		encoded, err := json.Marshal(u)
		require.NoError(t, err)
		return string(encoded)
	}
	for name, previous := range map[string]object{
		"a selective sync":          {"sync": object{"resources": []any{object{"kind": "ConfigMap", "name": "cm"}}}},
		"a dry run":                 {"sync": object{"dryRun": true}},
		"a sync that pruned":        {"sync": object{"prune": true}},
		"a sync with other options": {"sync": object{"syncOptions": []any{"ServerSideApply=true", "Replace=true"}}},
		"a sync that ran no hooks":  {"sync": object{"syncStrategy": object{"apply": object{"force": true}}}},
		"a sync of local manifests": {"sync": object{"manifests": []any{manifests("local")}}},
		"a sync with a retry":       {"retry": object{"limit": int64(7)}},
		"a sync with infos":         {"info": []any{object{"name": "reason", "value": "because"}, object{"name": "ticket", "value": "7"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newUnsynced(t, l)
			s.first = s.pushWaves(t, "one")
			s.operate(t, syncOf(object{"revision": s.first}))
			s.wait(t, lab.Synced(s.first))
			operation := syncOf(object{"revision": s.first})
			for field, value := range previous {
				merged, ok := operation[field].(object)
				if !ok {
					operation[field] = value
					continue
				}
				for inner, value := range value.(object) {
					merged[inner] = value
				}
			}
			s.operate(t, operation)
			s.wait(t, func(u *unstructured.Unstructured) bool {
				return lab.Synced(s.first)(u) && at(u.Object, "operation") == nil && at(recordOf(u), "operation", "sync", "source") == nil &&
					left(recordOf(u)["operation"], previous)
			})
			commit := s.repo.Commit(t, lab.Files{
				"cm.yaml": wave("cm", "two", "0"), "second.yaml": wave("second", "two", "1"), "third.yaml": wave("third", "two", "2"), "hook.yaml": hook,
			})
			ask := s.ask(commit)
			started := s.request(t, ask)
			s.waitForHook(t)
			s.endHook(t)

			end := s.follow(t, started)

			s.requireSynced(t, end, commit, "two")
			assert.Equal(t, "two", s.valueOf(t, "second"))
			assert.Equal(t, "two", s.valueOf(t, "third"))
			assert.Equal(t, object{
				"initiatedBy": object{"username": initiator, "automated": true},
				"info":        []any{object{"name": argocd.DefaultInfoKey, "value": ask.Token}},
				"sync":        object{"revision": commit, "source": s.get(t).Object["spec"].(object)["source"]},
				"retry":       object{"limit": int64(5)},
			}, recordOf(s.get(t))["operation"], "the record speaks of another operation, too")
		})
	}
}

// left reports whether an operation has the fields of another.
func left(operation any, fields object) bool {
	o, _ := operation.(object)
	for field, value := range fields {
		inner, ok := value.(object)
		switch {
		case !ok && o[field] == nil:
			return false
		case ok && !left(o[field], inner):
			return false
		}
	}
	return o != nil
}

// A dry run is recorded as a success at its revision, and nothing was applied.
func TestADryRunUnderOurTokenIsNotTakenForOurSync(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	commit := s.push(t, "two")
	started := s.request(t, s.ask(commit))
	s.wait(t, lab.Synced(commit))
	// Without info and without the clear, the record keeps those of the operation before (3.2.11).
	s.patch(t, object{"operation": object{"sync": object{"revision": commit, "dryRun": true}}})
	inherited := s.wait(t, func(u *unstructured.Unstructured) bool {
		return at(recordOf(u), "operation", "sync", "dryRun") == true && lab.Synced(commit)(u)
	})
	require.Equal(t, started.Token, tokenOf(recordOf(inherited)["operation"]), "the controller does not merge any more")

	end := s.follow(t, started)

	assert.Equal(t, applier.StateFailed, end.State, "%+v", end)
	assert.Equal(t, applier.ReasonSuperseded, end.Reason)
	assert.Contains(t, end.Message, "a dry run")
}
