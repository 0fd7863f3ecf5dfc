package flux

import (
	"context"
	"encoding/json"
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// kind is a kind that this package reads.
type kind struct {
	name     string
	resource schema.GroupVersionResource
}

var (
	kustomizationKind = kind{"Kustomization", kustomizations}
	gitRepositoryKind = kind{"GitRepository", gitRepositories}
)

// kustomization is what a Kustomization shows, as far as this package reads it.
type kustomization struct {
	object
	sourceKind  string
	sourceGroup string
	source      types.NamespacedName

	lastApplied   string
	lastAttempted string
	// lastRun is the newest entry of status.history in full. It changes with every run that came as far as
	// applying: an entry counts the runs of its digest (Flux 2.7, apis/meta history.go).
	lastRun string
	// owners are those of spec.suspend, stampers those of the token that is asked for.
	owners   owners
	stampers owners
}

func parseKustomization(u *unstructured.Unstructured) (kustomization, error) {
	f := applier.FieldsOf(u)
	ks := kustomization{
		object:        objectOf(f, u),
		sourceKind:    applier.Field[string](f, "spec", "sourceRef", "kind"),
		lastApplied:   applier.Field[string](f, "status", "lastAppliedRevision"),
		lastAttempted: applier.Field[string](f, "status", "lastAttemptedRevision"),
	}
	ks.ready.message = gitref.RedactText(ks.ready.message)
	if apiVersion := applier.Field[string](f, "spec", "sourceRef", "apiVersion"); apiVersion != "" {
		version, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			f.Fail(fmt.Sprintf("is %q: %v", apiVersion, err), "spec", "sourceRef", "apiVersion")
		}
		ks.sourceGroup = version.Group
	}
	ks.source = types.NamespacedName{
		Namespace: applier.Field[string](f, "spec", "sourceRef", "namespace"),
		Name:      applier.Field[string](f, "spec", "sourceRef", "name"),
	}
	if ks.source.Namespace == "" {
		ks.source.Namespace = ks.name.Namespace
	}
	if history := applier.Field[[]any](f, "status", "history"); len(history) > 0 {
		entry, err := json.Marshal(history[0])
		if err != nil {
			f.Fail(fmt.Sprintf("cannot be read: %v", err), "status", "history")
		}
		ks.lastRun = string(entry)
	}
	ks.owners = ownersOf(f, "f:spec", "f:suspend")
	ks.stampers = ownersOf(f, "f:metadata", "f:annotations", "f:"+fluxmeta.ReconcileRequestAnnotation)
	return ks, f.Err()
}

// kustomization reads the Kustomization ref. The error is the API server's own, or one of a malformed object.
func (c *Client) kustomization(ctx context.Context, ref types.NamespacedName) (kustomization, error) {
	u, err := c.get(ctx, kustomizationKind, ref)
	if err != nil {
		return kustomization{}, err
	}
	return parseKustomization(u)
}

// handledLatest reports whether the token last asked for is handled: no run that started before it
// was written is still going on, because reconciles of one object do not overlap.
func (o object) handledLatest() bool { return o.requested != "" && o.requested == o.handled }
