package fake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

// What package argocd makes of the simulated controller.

var argoApp = types.NamespacedName{Namespace: team, Name: "app"}

func (w *argoWorld) client() *argocd.Client {
	w.Helper()
	client, err := argocd.New("prod", w.cluster, argocd.Options{Initiator: "acme"})
	require.NoError(w, err)
	return client
}

// apply asks for a commit, and follows the operation to its end.
func (w *argoWorld) apply(commit string) (applier.Progress, error) {
	return applier.Apply(w.Context(), w.client(), argoApp, w.ask(commit), nil)
}

// request asks for a commit, and waits until the controller has done what there is to do by then.
func (w *argoWorld) request(commit string) applier.Started {
	w.Helper()
	started, err := w.client().Request(w.Context(), argoApp, w.ask(commit))
	require.NoError(w, err)
	w.after(0)
	return started
}

// follow follows an operation to its end.
func (w *argoWorld) follow(started applier.Started) applier.Progress {
	w.Helper()
	end, err := applier.Follower{}.Follow(w.Context(), w.client(), argoApp, &started, nil)
	require.NoError(w, err)
	return end
}

func (w *argoWorld) ask(commit string) applier.Ask {
	return applier.Ask{Want: applier.Binding{Repository: repositoryURL, Branch: "main"}, Commit: commit, Token: applier.NewToken()}
}

func TestTheClientSyncsACommitAfterAnyLeftover(t *testing.T) {
	for name, previous := range map[string]fields{
		"a selective sync":                       {"resources": []any{fields{"kind": "ConfigMap", "name": "cm"}}},
		"a dry run":                              {"dryRun": true},
		"a sync that prunes, with other options": {"prune": true, "syncOptions": []any{"ServerSideApply=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.push("one", waves("one"))
				w.application()
				w.operate(operation("first", previous))
				end, err := w.apply(w.push("two", waves("two")))
				require.NoError(w, err)
				assert.Equal(w, "two", w.called[end.AppliedCommit])
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, "two", w.data("second"))
			})
		})
	}
}

func TestTheClientNamesWhatWasNotPruned(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.repo.Commit(fake.Files{"other.yaml": configMap("other", "x")})
		end, err := w.apply(w.repo.Remove("cm.yaml"))
		require.NoError(w, err)
		assert.Equal(w, "successfully synced (all tasks run); not pruned: ConfigMap team-a/cm", end.Message)
	})
}

func TestTheClientTellsAControllerThatHasJustStartedFromABadCommit(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set(int64(0), "spec", "syncPolicy", "retry", "limit"))
		w.argo.FailNext(fake.ProjectStep, "Application referencing project default which does not exist")
		end, err := w.apply(w.push("two", value("two")))
		require.ErrorIs(w, err, applier.ErrFailed)
		assert.Equal(w, applier.ReasonInterrupted, end.Reason)
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAFailureThatPassesIsAbsorbedByTheOperationsRetry(t *testing.T) {
	for _, step := range []fake.Step{fake.ProjectStep, fake.LoadStep, fake.ApplyStep} {
		t.Run(string(step), func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.FailNext(step, "no")
				_, err := w.apply(w.push("two", value("two")))
				require.NoError(w, err)
				assert.Equal(w, "two", w.data("cm"))
			})
		})
	}
}

func TestTheControllerMayBeKilledInAnyStep(t *testing.T) {
	for _, step := range []fake.Step{fake.ProjectStep, fake.LoadStep, fake.ApplyStep, fake.WaveStep} {
		t.Run(string(step), func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.Inject(fake.StepFault{Step: step, Nth: 1, Do: func() {
					w.argo.Stop()
					time.AfterFunc(time.Minute, w.argo.Start)
				}})
				end, err := w.apply(w.push("two", waves("two")))
				require.NoError(w, err)
				assert.Equal(w, "two", w.called[end.AppliedCommit])
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, "two", w.data("second"))
			})
		})
	}
}
