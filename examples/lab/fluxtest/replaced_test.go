package fluxtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// change is what happens to the Kustomization between two requests of ours.
type change struct {
	name string
	make func(*testing.T, *subject)
	// refused checks the error of a request that had not started anything, of a flow that is held or live. Nil, where a live flow
	// goes on.
	refused map[bool]func(*testing.T, error)
	// ends are the reasons with which an operation may end that had started, other than success.
	ends []string
	// check checks what stands in the end.
	check func(*testing.T, *changed)
}

// changed is an attempt with the Kustomization as it stood right after the change, nil if it is gone.
type changed struct {
	*attempt
	made    bool
	started bool
	after   *unstructured.Unstructured
}

var changes = []change{
	{
		name:    "deleted",
		make:    func(t *testing.T, s *subject) { s.delete(t) },
		refused: either(verdict(applier.ReasonApplierNotFound, "does not exist")),
		ends:    []string{applier.ReasonGone, applier.ReasonDeleting},
		check:   func(t *testing.T, c *changed) { assert.Empty(t, c.all(t), "a Kustomization came to be") },
	},
	{
		name: "being deleted",
		make: func(t *testing.T, s *subject) {
			s.as(t, "tester", `{"metadata":{"finalizers":["finalizers.fluxcd.io","lab.example.com/keep"]}}`)
			assert.NoError(t, s.kustomizations().Delete(t.Context(), s.ref.Name, metav1.DeleteOptions{}))
		},
		refused: either(verdict(applier.ReasonDeleting, "is being deleted")),
		ends:    []string{applier.ReasonDeleting},
		check:   func(t *testing.T, c *changed) { c.requireUnwritten(t) },
	},
	{
		name:    "replaced",
		make:    func(t *testing.T, s *subject) { s.delete(t); s.create(t) },
		refused: either(replacedOrNotHeld),
		ends:    []string{applier.ReasonGone, applier.ReasonDeleting, applier.ReasonReplaced},
		check:   func(t *testing.T, c *changed) { c.requireUnwritten(t) },
	},
	{
		name: "replaced by one that carries its token",
		make: func(t *testing.T, s *subject) {
			token := requested(s.get(t))
			s.delete(t)
			s.create(t, lab.Set(token, "metadata", "annotations", fluxmeta.ReconcileRequestAnnotation))
		},
		refused: either(replacedOrNotHeld),
		ends:    []string{applier.ReasonGone, applier.ReasonDeleting, applier.ReasonReplaced},
		check:   func(t *testing.T, c *changed) { c.requireUnwritten(t) },
	},
	{
		name:    "pointed to another repository",
		make:    func(t *testing.T, s *subject) { s.as(t, "tester", `{"spec":{"sourceRef":{"name":"other"}}}`) },
		refused: either(verdict(applier.ReasonSourceMismatch, "applies branch main of")),
		check:   func(t *testing.T, c *changed) { c.requireLeft(t) },
	},
	{
		name:    "pointed to another branch",
		make:    func(t *testing.T, s *subject) { s.as(t, "tester", `{"spec":{"sourceRef":{"name":"branch"}}}`) },
		refused: either(verdict(applier.ReasonSourceMismatch, "applies branch other of")),
		check:   func(t *testing.T, c *changed) { c.requireLeft(t) },
	},
	{
		name: "suspended by another that applies spec.suspend",
		make: func(t *testing.T, s *subject) { s.applyAs(t, "parent", true) },
		refused: map[bool]func(*testing.T, error){
			false: verdict(applier.ReasonSuspendOwnedElsewhere, "is applied by field manager parent"),
			true:  func(t *testing.T, err error) { assert.ErrorIs(t, err, applier.ErrSuspended) },
		},
		ends:  []string{applier.ReasonSuspendOwnedElsewhere, applier.ReasonNotRun},
		check: func(t *testing.T, c *changed) { assert.True(t, suspended(c.get(t)), "fought over spec.suspend") },
	},
	{
		name: "resumed by another that applies spec.suspend",
		make: func(t *testing.T, s *subject) { s.applyAs(t, "parent", false) },
		refused: map[bool]func(*testing.T, error){
			false: verdict(applier.ReasonSuspendOwnedElsewhere, "is applied by field manager parent"),
		},
		ends:  []string{applier.ReasonSuspendOwnedElsewhere},
		check: func(t *testing.T, c *changed) { assert.False(t, suspended(c.get(t)), "fought over spec.suspend") },
	},
}

func either(check func(*testing.T, error)) map[bool]func(*testing.T, error) {
	return map[bool]func(*testing.T, error){false: check, true: check}
}

func verdict(reason, message string) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		assert.Equal(t, reason, applier.VerdictReason(err), "%v", err)
		assert.True(t, applier.IsPermanent(err), "%v", err)
		assert.ErrorContains(t, err, message)
	}
}

// replacedOrNotHeld is what is said of an object of the same name, which nobody holds.
func replacedOrNotHeld(t *testing.T, err error) {
	t.Helper()
	switch applier.IsPermanent(err) {
	case true:
		assert.ErrorIs(t, err, applier.ErrNotHeld)
	case false:
		assert.ErrorIs(t, err, applier.ErrStale)
		assert.ErrorContains(t, err, "was replaced meanwhile")
	}
}

func TestNothingIsStartedOrCreatedOnceTheKustomizationChangedBetweenAnyTwoRequests(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range []flow{heldFetchFlow, liveFetchFlow} { // the others make no other requests
		for _, change := range changes {
			t.Run(f.name+", "+change.name, func(t *testing.T) {
				t.Parallel()
				s := f.subject(t, l)
				s.addOtherSources(t)
				between(t, s, f, func(t *testing.T, a *attempt, p point) {
					defer s.renew(t, f)
					c := &changed{attempt: a}
					a.at(p, func() { c.change(t, change) })
					r := a.run(t)
					switch {
					case !c.made: // it needed fewer requests than the one that was counted
						a.requireSucceeded(t, r)
					case p == point{n: 1} && r.refused == nil: // it was never seen otherwise
					default:
						c.requireEnded(t, change, r)
					}
				})
			})
		}
	}
}

// change makes the change and keeps what stands before and after it.
func (c *changed) change(t *testing.T, change change) {
	u := c.get(t)
	c.made = true
	c.started = requested(u) == c.ask.Token || !c.flow.live && history(u) != history(c.before)
	change.make(t, c.subject)
	if all := c.all(t); len(all) > 0 {
		c.after = &all[0]
	}
}

// requireEnded fails the test unless the attempt ended as the change has it.
func (c *changed) requireEnded(t *testing.T, change change, r result) {
	t.Helper()
	check := change.refused[c.flow.live]
	switch {
	case !c.started && check != nil:
		require.Error(t, r.refused, "%+v", r.end)
		check(t, r.refused)
		assert.ErrorContains(t, r.refused, c.ref.String()+" in cluster lab")
		for _, u := range c.all(t) {
			assert.NotEqual(t, c.ask.Token, requested(&u))
		}
	default:
		require.NoError(t, r.refused)
		require.NoError(t, r.err)
		c.requireTrue(t, change, r.end)
	}
	change.check(t, c)
}

// requireTrue fails the test unless an end has one of the reasons of the change, or names what is applied.
func (c *changed) requireTrue(t *testing.T, change change, end applier.Progress) {
	t.Helper()
	assert.NotEmpty(t, end.Reason)
	if end.State == applier.StateFailed {
		assert.Contains(t, change.ends, end.Reason, "%+v", end)
		assert.Contains(t, end.Message, fmt.Sprintf("Kustomization %s in cluster lab", c.ref))
		return
	}
	if end.AppliedCommit != c.commit {
		assert.Equal(t, applier.ReasonAppliedOther, end.Reason)
		assert.Contains(t, end.Message, end.AppliedRevision+" instead of commit ")
	}
	if all := c.all(t); len(all) > 0 && all[0].GetUID() == c.before.GetUID() {
		applied, _, _ := unstructured.NestedString(all[0].Object, "status", "lastAppliedRevision")
		if !c.flow.live { // a live one goes on
			assert.Equal(t, applied, end.AppliedRevision)
		}
	}
}

// requireUnwritten fails the test if a write of ours landed after the change.
func (c *changed) requireUnwritten(t *testing.T) {
	t.Helper()
	u := c.get(t)
	assert.Equal(t, c.after.GetUID(), u.GetUID())
	assert.Equal(t, requested(c.after), requested(u))
	assert.Equal(t, suspended(c.after), suspended(u))
	if c.after.GetUID() != c.before.GetUID() {
		for _, entry := range u.GetManagedFields() {
			assert.NotEqual(t, manager, entry.Manager, "%s", entry.FieldsV1)
		}
	}
}

// all returns the Kustomizations of the namespace.
func (s *subject) all(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := s.kustomizations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// create creates the Kustomization as it was at first.
func (s *subject) create(t *testing.T, mutate ...func(*unstructured.Unstructured)) {
	t.Helper()
	s.lab.Kustomization(t, s.ns, s.ref.Name, "app", mutate...)
}

// renew replaces the Kustomization, whatever became of it, by one that the flow can ask.
func (s *subject) renew(t *testing.T, f flow) {
	t.Helper()
	if len(s.all(t)) > 0 {
		s.as(t, "tester", `{"metadata":{"finalizers":null}}`)
	}
	if len(s.all(t)) > 0 {
		s.delete(t)
	}
	s.create(t)
	if f.live {
		s.fetch(t, s.repo.Head(t, lab.DefaultBranch))
		s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(s.repo.Head(t, lab.DefaultBranch)))
		return
	}
	s.hold(t)
}

// addOtherSources adds a GitRepository of another repository and one of another branch.
func (s *subject) addOtherSources(t *testing.T) {
	t.Helper()
	files := lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "other")}
	repository := s.lab.Repository(t)
	other := repository.Commit(t, files)
	branch := s.repo.CommitTo(t, "other", files)
	s.lab.GitRepository(t, s.ns, "other", repository)
	s.lab.GitRepository(t, s.ns, "branch", s.repo, lab.Set("other", "spec", "ref", "branch"))
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "other", lab.Fetched(other))
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "branch", lab.Fetched(branch))
}
