package dispatchertest

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/hoststore"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// recordRules are what a host may do to its records.
var recordRules = []rbacv1.PolicyRule{
	{
		APIGroups: []string{hoststore.Triggers.Group}, Verbs: []string{"get", "list"},
		Resources: []string{hoststore.Triggers.Resource, hoststore.Targets.Resource},
	},
	{APIGroups: []string{hoststore.Triggers.Group}, Verbs: []string{"update"}, Resources: []string{hoststore.Triggers.Resource + "/status"}},
}

// installRecords makes the API server serve the hosts' kinds.
func installRecords(t *testing.T, l *lab.Lab) {
	t.Helper()
	crds, err := hoststore.Definitions()
	require.NoError(t, err)
	for _, crd := range crds {
		l.Create(t, schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, crd)
	}
	for _, resource := range []schema.GroupVersionResource{hoststore.Triggers, hoststore.Targets} {
		require.Eventually(t, func() bool {
			_, err := l.Dynamic().Resource(resource).List(t.Context(), metav1.ListOptions{})
			return err == nil
		}, lab.WaitTimeout, pauseAfterFailure)
	}
}

// createRecords creates the trigger and the target of a subject, as the host's users and its own controllers would.
func (w *world) createRecords(t *testing.T, s *subject) {
	t.Helper()
	trigger := w.lab.Create(t, hoststore.Triggers, hoststore.NewTrigger(applier.Trigger{
		Ref: applier.TriggerRef{Namespace: w.ns, Name: s.name}, Applier: s.applier, Live: s.live, Holding: s.isHeld(),
	}))
	s.trigger = applier.TriggerRef{Namespace: w.ns, Name: s.name, UID: trigger.GetUID()}
	said := hoststore.NewTarget(applier.Target{
		Ref: applier.TargetRef{Namespace: w.ns, Name: s.name}, Trigger: s.trigger, Writes: s.want(),
		Admission: applier.Admission{State: applier.Admitted},
	})
	target := w.lab.Create(t, hoststore.Targets, said.DeepCopy())
	s.target = applier.TargetRef{Namespace: w.ns, Name: s.name, UID: target.GetUID()}
	target.Object["status"] = said.Object["status"]
	_, err := w.lab.Dynamic().Resource(hoststore.Targets).Namespace(w.ns).UpdateStatus(t.Context(), target, metav1.UpdateOptions{})
	require.NoError(t, err)
}
