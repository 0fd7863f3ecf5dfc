package flux_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// Law 3: an API server that forbids a suspend for a while, such as an admission webhook that is rolled out, is asked again. A
// resume that is forbidden is the verdict Forbidden, and starts nothing.
func TestASuspendThatIsForbiddenIsTriedAgainAndAResumeIsNot(t *testing.T) {
	t.Parallel()
	ref := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	kinds := schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	sourceKinds := schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	for nth, refused := range map[int]bool{1: true, 2: false} { // the resume, and the suspend after it
		synctest.Test(t, func(t *testing.T) {
			cluster := fake.NewCluster(fake.Options{Namespaces: []string{ref.Namespace}})
			defer cluster.Stop()
			repository := fake.StartFlux(cluster, fake.FluxOptions{}).Remote().Repository("https://git.example.com/acme/shop")
			_, err := cluster.Resource(sourceKinds).Namespace(ref.Namespace).
				Create(t.Context(), fake.NewGitRepository(ref.Namespace, ref.Name, repository.URL()), metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = cluster.Resource(kinds).Namespace(ref.Namespace).
				Create(t.Context(), fake.NewKustomization(ref.Namespace, ref.Name, ref.Name), metav1.CreateOptions{})
			require.NoError(t, err)
			client, err := flux.New("prod", cluster, flux.Options{FieldManager: "lib"})
			require.NoError(t, err)
			_, err = client.Suspend(t.Context(), ref)
			require.NoError(t, err)
			forbidden := apierrors.NewForbidden(kinds.GroupResource(), ref.Name, nil)
			cluster.Inject(fake.Fault{
				Resource: kinds.Resource, Nth: nth, Err: forbidden,
				Match: func(r fake.Request) bool { return r.FieldManager == "lib" },
			})

			end, err := applier.Apply(t.Context(), client, ref, applier.Ask{
				Want:   applier.Binding{Repository: repository.URL(), Branch: fake.DefaultBranch},
				Commit: repository.Commit(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}}"}),
			}, nil)

			if refused {
				assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err), "%v", err)
				assert.True(t, applier.IsPermanent(err))
			} else {
				require.NoError(t, err)
				assert.Equal(t, applier.StateSucceeded, end.State)
			}
			suspension, err := client.Suspension(t.Context(), ref)
			require.NoError(t, err)
			assert.True(t, suspension.Held && suspension.Handled, "left resumed: %+v", suspension)
		})
	}
}
