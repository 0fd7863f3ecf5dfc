package dispatchertest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/dispatchertest/laws"
	"github.com/gitops-applier/gitops-applier/examples/lab/hoststore"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// cluster is the hosts' name for the lab.
const cluster = "lab"

// world is what outlives every host: repositories, appliers, records, and what was pushed and is to be applied.
type world struct {
	lab *lab.Lab
	// ns is where all objects are.
	ns string
	// identity is that of the hosts.
	identity *rest.Config
	subjects []*subject

	// answers tells of each change that was answered.
	answers chan *subject

	mu        sync.Mutex
	decisions []laws.Decision
	// ends counts how attempts ended.
	ends map[string]int
}

// subject is a trigger, the applier that it names, and the folder of a repository that this applies.
type subject struct {
	// name is that of the trigger, the target, the applier, the folder and the ConfigMap in it.
	name    string
	trigger applier.TriggerRef
	target  applier.TargetRef
	applier applier.ApplierRef
	live    bool
	branch  *branch
	// turn has room for one change that is to be pushed.
	turn chan struct{}

	mu sync.Mutex
	// pushed is the number of the change that was pushed last, and answered of the one last seen applied.
	pushed, answered int
}

func (s *subject) isFlux() bool { return s.applier.Kind == flux.Kind.Kind }

func (s *subject) isHeld() bool { return s.isFlux() && !s.live }

// resource is the applier's.
func (s *subject) resource() schema.GroupVersionResource {
	if s.isFlux() {
		return lab.Kustomizations
	}
	return lab.Applications
}

func (s *subject) want() applier.Binding {
	return applier.Binding{Repository: s.branch.repo.URL(), Branch: lab.DefaultBranch}
}

// answeredBy takes note that a subject has a change applied, and returns whether that is the one pushed last.
func (w *world) answeredBy(s *subject, change int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change < s.pushed {
		return false
	}
	if s.answered < s.pushed {
		s.answered = s.pushed
		w.answers <- s
	}
	return true
}

// isAnswered reports whether what was pushed last was seen applied.
func (s *subject) isAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered == s.pushed
}

// push pushes the next change to the subject's folder.
func (s *subject) push(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.branch.push(ctx, s.name, s.pushed+1); err != nil {
		return err
	}
	s.pushed++
	return nil
}

// branch is the main branch of a repository, in which several subjects have a folder each.
type branch struct {
	repo *lab.Repository

	mu   sync.Mutex
	head string
	// changes are the numbers of the changes that each commit has, by folder.
	changes map[string]map[string]int
}

func (b *branch) push(ctx context.Context, folder string, change int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	commit, err := b.repo.Write(ctx, lab.Files{folder + "/cm.yaml": lab.ConfigMap(folder, "change", fmt.Sprint(change))})
	if err != nil {
		return err
	}
	changes := maps.Clone(b.changes[b.head])
	if changes == nil {
		changes = make(map[string]int)
	}
	changes[folder] = change
	b.changes[commit], b.head = changes, commit
	return nil
}

func (b *branch) tip() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head
}

// change is the number of the change to a folder that a commit has.
func (b *branch) change(commit, folder string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes[commit][folder]
}

// ofOneRepository is how many subjects share a repository. Most of those that Flux applies share a GitRepository too.
const ofOneRepository = 10

// newWorld makes the subjects: of ten six are held Kustomizations, two live ones, and two Applications.
func newWorld(t *testing.T, l *lab.Lab, triggers int) *world {
	t.Helper()
	w := &world{lab: l, ns: l.Namespace(t), ends: make(map[string]int), answers: make(chan *subject, 2*triggers)}
	installRecords(t, l)
	w.identity = l.ClusterServiceAccount(t, w.ns, append(recordRules,
		rbacv1.PolicyRule{APIGroups: []string{lab.Kustomizations.Group}, Resources: []string{"kustomizations"}, Verbs: []string{"get", "list", "watch", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{lab.GitRepositories.Group}, Resources: []string{"gitrepositories"}, Verbs: []string{"get", "watch", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{lab.Applications.Group}, Resources: []string{"applications"}, Verbs: []string{"get", "list", "watch", "update"}},
	)...)
	var b *branch
	for i := range triggers {
		if i%ofOneRepository == 0 {
			b = &branch{repo: l.Repository(t), changes: make(map[string]map[string]int)}
		}
		w.subjects = append(w.subjects, w.newSubject(t, b, i))
	}
	w.hold(t)
	return w
}

// foreign is a label of somebody else's, which is to stay.
var foreign = lab.Set("alice", "metadata", "labels", "owner")

func (w *world) newSubject(t *testing.T, b *branch, i int) *subject {
	t.Helper()
	s := &subject{name: fmt.Sprintf("app-%03d", i), branch: b, turn: make(chan struct{}, 1)}
	s.applier = applier.ApplierRef{Cluster: cluster, Group: flux.Kind.Group, Kind: flux.Kind.Kind, Namespace: w.ns, Name: s.name}
	require.NoError(t, s.push(t.Context()))
	s.answered = s.pushed // Nobody is to wait for it.
	place := i % ofOneRepository
	source := fmt.Sprintf("shared-%03d", i/ofOneRepository)
	switch place {
	case 4, 9:
		s.applier.Group, s.applier.Kind = argocd.Kind.Group, argocd.Kind.Kind
		w.lab.Application(t, w.ns, s.name, b.repo, foreign, lab.Set(s.name, "spec", "source", "path"))
	default:
		s.live = place == 3 || place == 8
		if place > 5 {
			source = s.name
		}
		if place == 0 || place > 5 {
			w.lab.GitRepository(t, w.ns, source, b.repo, foreign)
		}
		w.lab.Kustomization(t, w.ns, s.name, source, foreign, lab.Set("./"+s.name, "spec", "path"))
	}
	w.createRecords(t, s)
	return s
}

// hold makes the Kustomizations that are to be held be so, as the host's reconciler would.
func (w *world) hold(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(w.identity)
	config.UserAgent = "host-0"
	connection, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	client, err := flux.New(cluster, connection, flux.Options{FieldManager: laws.Manager})
	require.NoError(t, err)
	store := hoststore.New(connection)
	for _, s := range w.subjects {
		if s.isHeld() {
			_, err = client.Suspend(t.Context(), s.applier.NamespacedName())
			require.NoError(t, err)
		}
	}
	for _, s := range w.subjects {
		if !s.isHeld() {
			continue
		}
		w.lab.WaitFor(t, lab.Kustomizations, w.ns, s.name, isHeld)
		require.NoError(t, store.UpdateStatus(t.Context(), s.trigger, func(trigger *applier.Trigger) error {
			trigger.Status.Held = true
			return nil
		}))
	}
}

// isHeld reports whether a Kustomization is suspended, and that is handled.
func isHeld(u *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	handled, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	return suspended && handled == u.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
}

// decided notes what the worker of a subject says of its decision.
func (w *world) decided(agent string, s *subject, commit string, holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decisions = append(w.decisions, laws.Decision{
		At: time.Now(), Agent: agent, Trigger: laws.Object{Resource: hoststore.Triggers.Resource, Namespace: s.trigger.Namespace, Name: s.trigger.Name},
		Commit: commit, Holds: holds,
	})
}

// change reads the number of the change that the cluster has of a subject's folder; 0 if it has none.
func (w *world) change(ctx context.Context, s *subject) (int, error) {
	u, err := w.lab.Dynamic().Resource(lab.ConfigMaps).Namespace(w.ns).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	text, _, err := unstructured.NestedString(u.Object, "data", "change")
	if err != nil {
		return 0, err
	}
	var change int
	_, err = fmt.Sscan(text, &change)
	return change, err
}

// ended counts one end of an attempt.
func (w *world) ended(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[how]++
}

// howEnded returns how many attempts ended how.
func (w *world) howEnded() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ends)
}
