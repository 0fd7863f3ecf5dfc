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

func TestACommitJustPushedIsSynced(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for name, prepare := range map[string]func(*testing.T, *lab.Lab) *subject{
		"for the first time": func(t *testing.T, l *lab.Lab) *subject { return newUnsynced(t, l) },
		"after another":      func(t *testing.T, l *lab.Lab) *subject { return newSubject(t, l) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			before := s.get(t)
			commit := s.push(t, "two")

			end, err := s.apply(t, s.ask(commit))

			require.NoError(t, err)
			s.requireSynced(t, end, commit, "two")
			conflicts := tr.Count(lab.Writes) - 1 // with the controller's own writes, of which each costs two requests
			assert.LessOrEqual(t, len(tr.Requests()), 4+2*conflicts, "%v", tr.Requests())
			after := s.get(t)
			assert.Equal(t, before.Object["spec"], after.Object["spec"])
			assert.Equal(t, before.GetAnnotations(), after.GetAnnotations())
		})
	}
}

func TestARepositoryWithSHA256IsAnErrorOfTheController(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := &subject{lab: l, ns: l.Namespace(t), repo: l.RepositoryOf(t, lab.SHA256), client: client(t, l.RESTConfig(), argocd.Options{})}
	s.ref.Namespace, s.ref.Name = s.ns, "app"
	commit := s.push(t, "one")
	require.Len(t, commit, 64)
	l.Application(t, s.ns, "app", s.repo, retries(0, false))

	end, err := s.apply(t, s.ask(commit))

	// Argo CD 3.2.11 cannot read such a repository.
	require.ErrorIs(t, err, applier.ErrFailed)
	assert.Equal(t, "Error", end.Reason)
	assert.Contains(t, end.Message, "failed to list refs")
}

func TestAnOlderCommitIsSyncedAndStays(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	second := s.push(t, "two")
	end, err := s.apply(t, s.ask(second))
	require.NoError(t, err)
	s.requireSynced(t, end, second, "two")

	end, err = s.apply(t, s.ask(s.first))

	require.NoError(t, err)
	s.requireSynced(t, end, s.first, "one")
}

func TestTheSameCommitIsSyncedAgainWhateverTheReason(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	tokens := map[string]bool{}
	for _, reason := range []applier.ApplyReason{"", applier.Commit, applier.ForeignCommit, applier.CatchUp, applier.Refusal, applier.Repair} {
		before := s.syncs(t)
		ask := s.ask(s.first)
		ask.Reason = reason
		end, err := s.apply(t, ask)
		require.NoError(t, err)
		s.requireSynced(t, end, s.first, "one")
		assert.Equal(t, before+1, s.syncs(t))
		record := recordOf(s.get(t))
		assert.Equal(t, ask.Token, tokenOf(record["operation"]))
		tokens[ask.Token] = true
	}
	assert.Len(t, tokens, 6)
}

// policy is a syncPolicy with everything that automated sync takes into an operation.
func policy(enabled bool) func(*unstructured.Unstructured) {
	return lab.Set(object{
		"automated":   object{"enabled": enabled, "prune": true, "selfHeal": false},
		"syncOptions": []any{"CreateNamespace=true", "ServerSideApply=true", "PruneLast=true"},
		"retry":       object{"limit": int64(3), "refresh": true, "backoff": object{"duration": "1s", "factor": int64(2), "maxDuration": "10s"}},
	}, "spec", "syncPolicy")
}

// What the controller itself sets is the measure: the same Application is synced by automated sync, and by us.
func TestTheOperationIsTheOneThatAutomatedSyncSets(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for name, mutate := range map[string]func(enabled bool) []func(*unstructured.Unstructured){
		"with a whole policy": func(enabled bool) []func(*unstructured.Unstructured) {
			return []func(*unstructured.Unstructured){policy(enabled)}
		},
		"with no policy": func(enabled bool) []func(*unstructured.Unstructured) {
			if !enabled {
				return nil
			}
			return []func(*unstructured.Unstructured){lab.Set(object{}, "spec", "syncPolicy", "automated")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			automated := newUnsynced(t, l, mutate(true)...)
			want, ok := recordOf(automated.wait(t, lab.Synced(automated.first)))["operation"].(object)
			require.True(t, ok)
			s := newUnsynced(t, l, mutate(false)...)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			ask := s.ask(s.first)

			end, err := s.apply(t, ask)

			require.NoError(t, err)
			s.requireSynced(t, end, s.first, "one")
			want["initiatedBy"].(object)["username"] = initiator
			want["info"] = []any{object{"name": argocd.DefaultInfoKey, "value": ask.Token}}
			want["sync"].(object)["revision"] = s.first
			want["sync"].(object)["source"] = s.get(t).Object["spec"].(object)["source"]
			delete(want["retry"].(object), "refresh")
			assert.Equal(t, want, recordOf(s.get(t))["operation"], "as the controller carried it out")
			assert.Equal(t, want, written(t, tr)["operation"], "as it was written")
			assert.Nil(t, at(written(t, tr), "status", "operationState"))
		})
	}
}

// written is the Application as the one update wrote it.
func written(t *testing.T, tr *lab.Transport) object {
	t.Helper()
	var body object
	for _, request := range tr.Requests() {
		if request.Verb == "update" && request.Resource == lab.Applications.Resource {
			require.Nil(t, body, "there are two updates")
			require.NoError(t, json.Unmarshal(request.Body, &body))
		}
	}
	require.NotNil(t, body)
	normalised, err := json.Marshal(body)
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(normalised))
	return u.Object
}

func TestSyncOptionsOfTheSpecApply(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	target := l.Namespace(t) + "-made"
	s := newUnsynced(t, l,
		lab.Set([]any{"CreateNamespace=true"}, "spec", "syncPolicy", "syncOptions"), lab.Set(target, "spec", "destination", "namespace"))

	_, err := s.apply(t, s.ask(s.first))

	require.NoError(t, err)
	l.Get(t, lab.Namespaces, "", target)
	l.Get(t, lab.ConfigMaps, target, "cm")
}

func TestPruningIsWhatTheDisabledAutomatedSyncOrTheHostSays(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, test := range []struct {
		name    string
		policy  object
		options argocd.Options
		pruned  bool
	}{
		{name: "nobody says so"},
		{name: "the disabled automated sync says so", policy: object{"enabled": false, "prune": true}, pruned: true},
		{name: "the disabled automated sync says no", policy: object{"enabled": false, "prune": false}},
		{name: "the host says so", options: argocd.Options{Prune: true}, pruned: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var mutate []func(*unstructured.Unstructured)
			if test.policy != nil {
				mutate = append(mutate, lab.Set(test.policy, "spec", "syncPolicy", "automated"))
			}
			s := newUnsynced(t, l, mutate...)
			s.client = client(t, l.RESTConfig(), test.options)
			_, err := s.apply(t, s.ask(s.repo.Commit(t, lab.Files{"extra.yaml": lab.ConfigMap("extra", "key", "one")})))
			require.NoError(t, err)

			end, err := s.apply(t, s.ask(s.repo.Remove(t, "extra.yaml")))

			require.NoError(t, err)
			assert.Equal(t, applier.StateSucceeded, end.State)
			if test.pruned {
				// Argo CD deletes in the foreground, and no garbage collector runs here.
				assert.NotNil(t, l.Get(t, lab.ConfigMaps, s.ns, "extra").GetDeletionTimestamp())
				assert.NotContains(t, end.Message, "not pruned")
				return
			}
			assert.Contains(t, end.Message, "not pruned: ConfigMap "+s.ns+"/extra")
			assert.Equal(t, "one", s.valueOf(t, "extra"))
		})
	}
}

// Argo CD says OutOfSync after a sync of an older commit for ever, and after a sync that counts as automated for minutes.
func TestWhatTheSyncStatusSaysDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	s.touch(t)
	newer := s.push(t, "two")
	s.operate(t, syncOf(object{"revision": newer}))
	s.wait(t, lab.Synced(newer))

	end, err := s.apply(t, s.ask(s.first))

	require.NoError(t, err)
	s.requireSynced(t, end, s.first, "one")
	s.wait(t, func(u *unstructured.Unstructured) bool {
		return at(u.Object, "status", "sync", "status") == "OutOfSync"
	})
}

func TestAManualSyncIsCompared(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newSubject(t, l)
	s.client = client(t, l.RESTConfig(), argocd.Options{Manual: true})
	commit := s.push(t, "two")

	_, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	assert.Equal(t, object{"username": initiator}, at(recordOf(s.get(t)), "operation", "initiatedBy"))
	s.wait(t, func(u *unstructured.Unstructured) bool {
		return at(u.Object, "status", "sync", "status") == "Synced" && at(u.Object, "status", "sync", "revision") == commit
	})
}

func TestAnApplicationThatMayNotBeWatchedIsPolled(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newSubject(t, l)
	s.client = client(t, l.ServiceAccount(t, s.ns, applicationsRule("get", "update")), argocd.Options{})
	commit := s.push(t, "two")

	end, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	s.requireSynced(t, end, commit, "two")
}
