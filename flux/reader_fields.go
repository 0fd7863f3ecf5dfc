package flux

import (
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// readiness says how a Flux object is doing. Ready False is a failure, also of a suspended object, which keeps what it
// had. A suspended one is not waited for: it may never have had a condition, and its observedGeneration stays where it was.
func readiness(f *applier.Fields, suspended bool) gitopsprovider.Condition {
	ready := readyOf(f)
	generation := applier.Field[int64](f, "metadata", "generation")
	condition := gitopsprovider.Condition{Reason: ready.reason, Message: ready.message, Since: gitopsprovider.ParseTime(ready.lastTransitionTime)}
	switch {
	case ready.is(metav1.ConditionFalse):
		condition.State = gitopsprovider.StateFailing
	case suspended:
		condition.State = gitopsprovider.StateSuspended
	case ready.is(metav1.ConditionUnknown):
		condition.State = gitopsprovider.StateProgressing
	case ready.is(metav1.ConditionTrue) && ready.observedGeneration > 0 && ready.observedGeneration < generation:
		condition.State = gitopsprovider.StateProgressing
		condition.Reason = fluxmeta.ProgressingReason
		condition.Message = fmt.Sprintf("generation %d is not reconciled yet; of the one before: %s", generation, ready.message)
	case ready.is(metav1.ConditionTrue):
		condition.State = gitopsprovider.StateReady
	}
	return condition
}

// workload is what a reference names, in the group given.
func (r sourceReference) workload(group string) gitopsprovider.Workload {
	return gitopsprovider.Workload{Group: group, Kind: r.kind, Namespace: r.name.Namespace, Name: r.name.Name}
}

// dependsOn reads spec.dependsOn. A dependency is of the object's own kind, and in its namespace unless it says otherwise.
func dependsOn(f *applier.Fields, o *gitopsprovider.Object) {
	for _, entry := range f.Each("spec", "dependsOn") {
		to := sourceRef(entry, o.Namespace)
		to.kind = o.Kind
		o.Links = append(o.Links, gitopsprovider.Link{Relation: gitopsprovider.RelationDependsOn, To: to.workload(o.Group)})
		o.Refer("dependsOn", to.name.String())
	}
}

// inventory reads status.inventory, whose entries are written namespace_name_group_kind. A name may hold a colon,
// written as two underscores (cli-utils, object/objmetadata.go).
func inventory(f *applier.Fields, o *gitopsprovider.Object) {
	for _, entry := range f.Each("status", "inventory", "entries") {
		parts := strings.Split(applier.Field[string](entry, "id"), "_")
		last := len(parts) - 1
		if last < 3 {
			entry.Fail("is not of the form namespace_name_group_kind", "id")
			continue
		}
		o.Applies = append(o.Applies, gitopsprovider.Workload{
			Group: parts[last-1], Kind: parts[last], Namespace: parts[0],
			Name: strings.ReplaceAll(strings.Join(parts[1:last-1], "_"), "__", ":"),
		})
	}
}

// elsewhere says where spec.kubeConfig leads.
func elsewhere(f *applier.Fields) string {
	for _, ref := range []string{"secretRef", "configMapRef"} {
		if name := applier.Field[string](f, "spec", "kubeConfig", ref, "name"); name != "" {
			return "that of kubeConfig " + name
		}
	}
	return ""
}

// attempted notes what the object last failed to apply of its only source. It is what runs with the reasons given may have
// left behind in part. A run that failed before it had the content leaves the revision of the one before.
func attempted(f *applier.Fields, o *gitopsprovider.Object, inPart ...string) {
	if o.Ready.State == gitopsprovider.StateFailing {
		o.Sources[0].Attempted = applier.Field[string](f, "status", "lastAttemptedRevision")
		o.InPart = slices.Contains(inPart, o.Ready.Reason)
	}
}
