package argocd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gitops-applier/gitops-applier/applier"
)

// automatedRetryLimit is how often Argo CD retries an automated sync of an Application that says nothing of it
// (3.2.11, controller/appcontroller.go autoSync).
const automatedRetryLimit = 5

// update returns app with the operation set and the record of the previous one removed.
func (r *request) update(app application) *unstructured.Unstructured {
	u := app.read.DeepCopy()
	u.Object["operation"] = r.operation(app)
	unstructured.RemoveNestedField(u.Object, "status", "operationState")
	return u
}

// operation is what automated sync would set (3.2.11, controller/appcontroller.go autoSync), with the commit for the
// revision, and without a refresh on retry, which would sync whatever the branch leads to by then.
func (r *request) operation(app application) map[string]any {
	o := r.client.options
	initiator := map[string]any{"username": o.Initiator}
	if !o.Manual {
		initiator["automated"] = true
	}
	sync := map[string]any{"revision": r.ask.Commit}
	if source, ok := app.field("spec", "source").(map[string]any); ok {
		sync["source"] = source
	}
	if o.Prune || app.policy.prune {
		sync["prune"] = true
	}
	if len(app.policy.options) > 0 {
		sync["syncOptions"] = runtime.DeepCopyJSONValue(app.policy.options)
	}
	retry := map[string]any{"limit": int64(automatedRetryLimit)}
	if app.policy.retry != nil {
		retry = runtime.DeepCopyJSON(app.policy.retry)
		delete(retry, "refresh")
	}
	return map[string]any{
		"initiatedBy": initiator,
		"info":        []any{map[string]any{"name": o.InfoKey, "value": r.ask.Token}},
		"sync":        sync,
		"retry":       retry,
	}
}

// field returns a copy of a field of app as read.
func (app application) field(path ...string) any {
	value, _, _ := unstructured.NestedFieldCopy(app.read.Object, path...)
	return value
}

// started is the operation that ask starts on app as read.
func (r *request) started(app application, orphan bool) applier.Started {
	before := baseline{ResourceVersion: app.resourceVersion, State: fingerprint(app.state.identity())}
	if orphan {
		before.Replaced = app.state.operation.initiator
		if before.Replaced == "" {
			before.Replaced = "somebody who left no name"
		}
	}
	return applier.Started{
		Outcome:     applier.OutcomeSyncRequested,
		Token:       r.ask.Token,
		Commit:      r.ask.Commit,
		UID:         app.uid,
		Baseline:    before.String(),
		RequestedAt: metav1.NewMicroTime(r.client.options.Now()),
	}
}
