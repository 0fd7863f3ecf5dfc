package argocd

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestAnOperationIsThatOfAutomatedSyncPinnedToTheCommit(t *testing.T) {
	t.Parallel()
	source := object{"repoURL": repository, "path": "apps/shop", "targetRevision": "main"}
	info := []any{object{"name": DefaultInfoKey, "value": token}}
	automated := object{"username": "host", "automated": true}
	for _, test := range []struct {
		name    string
		options Options
		changes []change
		want    object
	}{
		{
			name: "an Application without a syncPolicy",
			want: object{
				"initiatedBy": automated, "info": info, "retry": object{"limit": int64(5)},
				"sync": object{"revision": commitB, "source": source},
			},
		},
		{
			name: "its syncOptions and its whole retry are taken over, but for the refresh",
			changes: []change{
				set("spec.syncPolicy.syncOptions", []any{"CreateNamespace=true", "ServerSideApply=true"}),
				set("spec.syncPolicy.retry", object{"limit": int64(2), "refresh": true, "backoff": object{"duration": "3s", "factor": int64(2), "maxDuration": "1m"}}),
			},
			want: object{
				"initiatedBy": automated, "info": info,
				"retry": object{"limit": int64(2), "backoff": object{"duration": "3s", "factor": int64(2), "maxDuration": "1m"}},
				"sync":  object{"revision": commitB, "source": source, "syncOptions": []any{"CreateNamespace=true", "ServerSideApply=true"}},
			},
		},
		{
			name:    "a retry that says nothing means none",
			changes: []change{set("spec.syncPolicy.retry", object{})},
			want: object{
				"initiatedBy": automated, "info": info, "retry": object{},
				"sync": object{"revision": commitB, "source": source},
			},
		},
		{
			name:    "a disabled automated sync says whether to prune",
			changes: []change{set("spec.syncPolicy.automated", object{"enabled": false, "prune": true, "selfHeal": true})},
			want: object{
				"initiatedBy": automated, "info": info, "retry": object{"limit": int64(5)},
				"sync": object{"revision": commitB, "source": source, "prune": true},
			},
		},
		{
			name:    "the host prunes, by hand, under a key of its own",
			options: Options{Initiator: "promoter", Manual: true, Prune: true, InfoKey: "request"},
			want: object{
				"initiatedBy": object{"username": "promoter"}, "info": []any{object{"name": "request", "value": token}}, "retry": object{"limit": int64(5)},
				"sync": object{"revision": commitB, "source": source, "prune": true},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			app := parse(t, test.changes...)
			before := app.read.DeepCopy()
			r := &request{client: newClient(t, test.options), ask: applier.Ask{Commit: commitB, Token: token}}

			u := r.update(app)

			assert.Equal(t, test.want, u.Object["operation"])
			assert.Equal(t, before, app.read, "what was read was changed")
			delete(u.Object, "operation")
			want := before.DeepCopy()
			remove("status.operationState")(want.Object)
			assert.Equal(t, want, u, "something else was changed")
			u.Object["spec"].(object)["source"].(object)["targetRevision"] = "moved"
			assert.Equal(t, test.want["sync"], r.operation(app)["sync"], "the operation shares memory with the spec")
		})
	}
}

func TestAStartedOperationSaysWhatStoodBefore(t *testing.T) {
	t.Parallel()
	r := &request{client: newClient(t, Options{}), ask: applier.Ask{Commit: commitB, Token: token}}

	app := parse(t)
	assert.Equal(t, baseline{ResourceVersion: "1", State: fingerprint(app.state.identity())}.String(), r.started(app, false).Baseline)

	fresh := parse(t, remove("status"))
	assert.Equal(t, baseline{ResourceVersion: "1"}.String(), r.started(fresh, false).Baseline)

	left := parse(t, set("status.operationState.phase", "Running"))
	assert.Equal(t, baseline{ResourceVersion: "1", State: fingerprint(left.state.identity()), Replaced: "alice"}.String(), r.started(left, true).Baseline)

	started := r.started(app, false)
	assert.Equal(t, applier.OutcomeSyncRequested, started.Outcome)
	assert.Equal(t, token, started.Token)
	assert.Equal(t, commitB, started.Commit)
	assert.EqualValues(t, "uid", started.UID)
	assert.False(t, started.RequestedAt.IsZero())
}
