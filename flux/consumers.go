package flux

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// listLimit is how many objects one page of a list holds.
const listLimit = 500

// Consumers lists the objects of the cluster that apply the GitRepository source, sorted: Kustomizations whose
// spec.sourceRef names it, and HelmReleases whose chart is built from it, by spec.chart.spec.sourceRef, or by a
// HelmChart that spec.chartRef names.
//
// After any error nothing is known, and the source is to be treated as shared. A kind that the cluster does not
// serve has no objects; but where HelmReleases v2 are not served and a HelmChart is built from the source, a
// release of another version may apply it, so that is an error. A GitRepository that includes the source is not listed.
func (c *Client) Consumers(ctx context.Context, source types.NamespacedName) ([]fluxmeta.NamespacedObjectKindReference, error) {
	var consumers []fluxmeta.NamespacedObjectKindReference
	_, err := c.each(ctx, kustomizationKind, func(name types.NamespacedName, f *applier.Fields) {
		if sourceRef(f, name.Namespace, "spec", "sourceRef") == gitSource(source) {
			consumers = append(consumers, reference(kustomizationKind, name))
		}
	})
	if err != nil {
		return nil, err
	}
	charts := map[types.NamespacedName]bool{}
	_, err = c.each(ctx, helmChartKind, func(name types.NamespacedName, f *applier.Fields) {
		if sourceRef(f, name.Namespace, "spec", "sourceRef") == gitSource(source) {
			charts[name] = true
		}
	})
	if err != nil {
		return nil, err
	}
	served, err := c.each(ctx, helmReleaseKind, func(name types.NamespacedName, f *applier.Fields) {
		chart := sourceRef(f, name.Namespace, "spec", "chartRef")
		if sourceRef(f, name.Namespace, "spec", "chart", "spec", "sourceRef") == gitSource(source) ||
			chart.kind == helmChartKind.name && charts[chart.name] {
			consumers = append(consumers, reference(helmReleaseKind, name))
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !served && len(charts) > 0:
		return nil, fmt.Errorf("who applies %s is not known: a HelmChart is built from it, and the cluster does not serve %s %s",
			c.named("GitRepository", source), helmReleases.GroupResource(), helmReleases.Version)
	}
	slices.SortFunc(consumers, func(a, b fluxmeta.NamespacedObjectKindReference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return consumers, nil
}

var (
	helmChartKind   = kind{"HelmChart", helmCharts}
	helmReleaseKind = kind{"HelmRelease", helmReleases}
)

// sourceReference is what a sourceRef or a chartRef names.
type sourceReference struct {
	kind string
	name types.NamespacedName
}

func gitSource(name types.NamespacedName) sourceReference {
	return sourceReference{gitRepositoryKind.name, name}
}

// sourceRef reads a reference; an empty namespace is that of the object that holds it.
func sourceRef(f *applier.Fields, namespace string, path ...string) sourceReference {
	at := func(field string) string { return applier.Field[string](f, append(slices.Clone(path), field)...) }
	return sourceReference{at("kind"), types.NamespacedName{Namespace: cmp.Or(at("namespace"), namespace), Name: at("name")}}
}

func reference(k kind, name types.NamespacedName) fluxmeta.NamespacedObjectKindReference {
	return fluxmeta.NamespacedObjectKindReference{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name, Namespace: name.Namespace, Name: name.Name,
	}
}

// each reads every object of a kind in the cluster, page by page. It is not served where the cluster does not know
// the kind.
func (c *Client) each(ctx context.Context, k kind, visit func(types.NamespacedName, *applier.Fields)) (served bool, err error) {
	options := metav1.ListOptions{Limit: listLimit}
	for {
		page, err := c.dynamic.Resource(k.resource).List(ctx, options)
		if applier.AbsenceOf(err) == applier.AbsenceNotServed {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("cannot list the objects of kind %s in cluster %s: %w", k.name, c.cluster, err)
		}
		if err := c.eachOf(page, k, visit); err != nil {
			return false, err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return true, nil
		}
	}
}

func (c *Client) eachOf(page *unstructured.UnstructuredList, k kind, visit func(types.NamespacedName, *applier.Fields)) error {
	for i := range page.Items {
		name := types.NamespacedName{Namespace: page.Items[i].GetNamespace(), Name: page.Items[i].GetName()}
		f := applier.FieldsOf(&page.Items[i])
		visit(name, f)
		if err := f.Err(); err != nil {
			return fmt.Errorf("%s: %w", c.named(k.name, name), err)
		}
	}
	return nil
}
