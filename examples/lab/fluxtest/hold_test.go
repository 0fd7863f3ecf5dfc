package fluxtest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

func TestSuspendHoldsAKustomizationOnceItsTokenIsHandled(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	before, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	assert.Equal(t, applier.StateSucceeded, before.Applied.State)
	before.Applied = applier.Progress{}
	assert.Equal(t, applier.Suspension{}, before, "nobody suspended it, and no token was ever asked for")

	token, err := s.client.Suspend(t.Context(), s.ref)
	require.NoError(t, err)
	u := s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Handled(token))

	assert.Equal(t, token, u.GetAnnotations()[requestedAt])
	assert.Equal(t, map[string]string{manager: "Apply"}, managersOf(t, u, "f:spec", "f:suspend"))
	after, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	assert.Equal(t, applier.Suspension{
		Suspended: true, Held: true, Handled: true,
		Applied: applier.Progress{
			State: applier.StateSucceeded, Reason: "ReconciliationSucceeded", Message: after.Applied.Message,
			AppliedRevision: "main@sha1:" + s.first, AppliedCommit: s.first,
		},
	}, after)

	again, err := s.client.Suspend(t.Context(), s.ref)
	require.NoError(t, err)
	assert.NotEqual(t, token, again, "a token is used once")
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Handled(again))
	s.requireHeld(t)
}

// Flux never looks at what is suspended from birth: no condition, and observedGeneration stays -1 (kustomize-controller v1.9.6).
func TestAKustomizationCreatedSuspendedIsHeldAndAsked(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := unapplied(t, l, lab.Set(true, "spec", "suspend"))
	before, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	assert.Equal(t, applier.Suspension{Suspended: true}, before)
	_, err = s.client.Request(t.Context(), s.ref, s.ask(s.first))
	assert.ErrorIs(t, err, applier.ErrNotHeld, "somebody else suspended it")

	s.hold(t)

	after, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	assert.Equal(t, applier.Suspension{Suspended: true, Held: true, Handled: true}, after)
	ask := s.ask(s.first)
	ask.Reason = applier.CatchUp
	end, err := s.apply(t, ask)
	require.NoError(t, err)
	assert.Equal(t, s.first, end.AppliedCommit)
	s.requireHeld(t)
}

func TestSuspendDuringAnOperationSuspendsAtOnce(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t), waits)
	started := s.startUnready(t)

	token, err := s.client.Suspend(t.Context(), s.ref)
	require.NoError(t, err)

	suspension, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	assert.True(t, suspension.Suspended && suspension.Held)
	assert.False(t, suspension.Handled, "the run of before is still going on")
	assert.Equal(t, applier.StateRunning, suspension.Applied.State)
	s.becomeReady(t)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Handled(token))
	end := s.followed(t, &started, nil)
	assert.Equal(t, applier.StateSucceeded, end.State, end.Message)
	assert.Equal(t, started.Commit, end.AppliedCommit)
	s.requireHeld(t)
}

func TestSuspendIsRefusedWhereAnotherManagerAppliesTheField(t *testing.T) {
	t.Parallel()
	for name, suspend := range map[string]bool{"suspended": true, "resumed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			s.applyAs(t, "parent", suspend)
			before := s.get(t)

			_, err := s.client.Suspend(t.Context(), s.ref)

			s.requireOwnedElsewhere(t, err)
			assert.Equal(t, before.GetAnnotations(), s.get(t).GetAnnotations(), "nothing was written")
		})
	}
	t.Run("since it was read", func(t *testing.T) {
		t.Parallel()
		s := live(t, lab.Start(t))
		faults := lab.NewTransport()
		faults.On(lab.To("apply", "kustomizations"), 1, lab.Before(func() { s.applyAs(t, "parent", false) }))

		_, err := s.through(t, faults).Suspend(t.Context(), s.ref)

		s.requireOwnedElsewhere(t, err)
		assert.Equal(t, map[string]string{"parent": "Apply"}, managersOf(t, s.get(t), "f:spec", "f:suspend"))
	})
}

func (s *subject) requireOwnedElsewhere(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, applier.ReasonSuspendOwnedElsewhere, applier.VerdictReason(err))
	assert.True(t, applier.IsPermanent(err))
	assert.EqualError(t, err, "the spec.suspend of Kustomization "+s.ref.String()+" in cluster lab is applied by field manager parent, "+
		"which would set it again: remove spec.suspend from the manifest that it applies; "+
		"if it is another program that holds it, let that release it; if it is a former name of this one, list it in FormerFieldManagers")
}

func TestAHoldIsNotMadeOnWhatIsGoneOrReplacedSinceItWasRead(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, s *subject, client *flux.Client) error{
		"Suspend": func(ctx context.Context, s *subject, client *flux.Client) error {
			_, err := client.Suspend(ctx, s.ref)
			return err
		},
		"Release": func(ctx context.Context, s *subject, client *flux.Client) error {
			_, err := client.Release(ctx, s.ref)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name+" of one that is deleted meanwhile", func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t))
			faults := lab.NewTransport()
			faults.On(lab.To("apply", "kustomizations"), 1, lab.Before(func() { s.delete(t) }))

			err := call(t.Context(), s, s.through(t, faults))

			if name == "Release" {
				require.NoError(t, err, "what is gone needs no release")
			} else {
				require.Error(t, err)
				assert.Equal(t, applier.ReasonApplierNotFound, applier.VerdictReason(err))
				assert.EqualError(t, err, "Kustomization "+s.ref.String()+" in cluster lab does not exist")
			}
			s.requireAbsent(t)
		})
		t.Run(name+" of one that is replaced meanwhile", func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t))
			faults := lab.NewTransport()
			faults.On(lab.To("apply", "kustomizations"), 1, lab.Before(func() {
				s.delete(t)
				s.lab.Kustomization(t, s.ns, "app", "app", lab.Set(true, "spec", "suspend"))
			}))

			err := call(t.Context(), s, s.through(t, faults))

			if name == "Suspend" {
				require.ErrorContains(t, err, "was replaced meanwhile")
			} else {
				require.NoError(t, err)
			}
			after := s.get(t)
			assert.NotContains(t, managersOf(t, after, "f:spec", "f:suspend"), manager)
			assert.Empty(t, after.GetAnnotations())
		})
	}
}

func TestSuspendRefusesAKustomizationThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	s.as(t, "kubectl", `{"metadata":{"finalizers":["example.com/wait"]}}`)
	require.NoError(t, s.kustomizations().Delete(t.Context(), s.ref.Name, metav1.DeleteOptions{}))
	t.Cleanup(func() { s.as(t, "kubectl", `{"metadata":{"finalizers":null}}`) })

	_, err := s.client.Suspend(t.Context(), s.ref)

	require.EqualError(t, err, "Kustomization "+s.ref.String()+" in cluster lab is being deleted")
	assert.Equal(t, applier.ReasonDeleting, applier.VerdictReason(err))
	keeper, err := s.client.Release(t.Context(), s.ref)
	require.NoError(t, err)
	assert.Empty(t, keeper)
}

func TestALostAnswerOfAHoldIsUnconfirmedAndMendedByCallingAgain(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]lab.Action{
		"the request is lost": lab.Fail(nil),
		"the answer is lost":  lab.LoseResponse(),
		"500 after the write": lab.AnswerAfter(500, metav1.StatusReasonInternalError, 0),
		"504 before it":       lab.Answer(504, metav1.StatusReasonTimeout, 0),
	} {
		t.Run("Suspend, "+name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			faults := lab.NewTransport()
			faults.On(lab.To("apply", "kustomizations"), 1, fault)
			client := s.through(t, faults)

			_, err := client.Suspend(t.Context(), s.ref)

			require.ErrorIs(t, err, applier.ErrUnconfirmed)
			assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab was not suspended")
			assert.False(t, applier.IsPermanent(err))
			token, err := client.Suspend(t.Context(), s.ref)
			require.NoError(t, err)
			s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Handled(token))
			s.requireHeld(t)
			requireUID(t, faults, s.get(t).GetUID())
		})
		// Taking a flux suspend back needs two writes.
		for n := range 2 {
			t.Run("Release, write "+string(rune('1'+n))+", "+name, func(t *testing.T) {
				t.Parallel()
				s := live(t, lab.Start(t))
				s.as(t, "flux", suspendPatch)
				s.hold(t)
				faults := lab.NewTransport()
				faults.On(lab.To("apply", "kustomizations"), n+1, fault)
				client := s.through(t, faults)

				_, err := client.Release(t.Context(), s.ref)

				require.ErrorIs(t, err, applier.ErrUnconfirmed)
				assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab was not released")
				keeper, err := client.Release(t.Context(), s.ref)
				require.NoError(t, err)
				assert.Empty(t, keeper)
				after := s.get(t)
				assert.Empty(t, managersOf(t, after, "f:spec", "f:suspend"))
				requireUID(t, faults, after.GetUID())
			})
		}
	}
}

// client-go sends a write again that was answered by 429 or 5xx with a Retry-After; the second one then conflicts with the first.
func TestASuspendThatClientGoResentIsRecognisedAsMade(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	faults := lab.NewTransport()
	faults.On(lab.To("apply", "kustomizations"), 1, lab.AnswerAfter(503, metav1.StatusReasonServiceUnavailable, 1e9))

	token, err := s.through(t, faults).Suspend(t.Context(), s.ref)

	require.NoError(t, err)
	assert.Equal(t, 2, faults.Count(lab.To("apply", "kustomizations")), "sent twice, and not a third time")
	assert.Equal(t, token, s.get(t).GetAnnotations()[requestedAt])
}

// Another program writes to the Kustomization before each write of ours.
func TestAHoldLandsHoweverOftenItsKustomizationChanges(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	faults := lab.NewTransport()
	changes := 0
	faults.On(lab.To("apply", "kustomizations"), 0, lab.Before(func() {
		changes++
		s.as(t, "busy", `{"metadata":{"labels":{"busy":"`+string(rune('a'+changes))+`"}}}`)
	}))
	client := s.through(t, faults)

	token, err := client.Suspend(t.Context(), s.ref)

	require.NoError(t, err)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Handled(token))
	s.requireHeld(t)
	assert.Equal(t, 6, changes, "five guarded tries, and one that has to land")
	_, err = client.Release(t.Context(), s.ref)
	require.ErrorContains(t, err, "was not released: it changed at each of ")
	assert.NotErrorIs(t, err, applier.ErrUnconfirmed)
	s.requireHeld(t)
}

const (
	requestedAt  = "reconcile.fluxcd.io/requestedAt"
	suspendPatch = `{"spec":{"suspend":true}}`
)

// unapplied returns a Kustomization that has applied nothing yet.
func unapplied(t *testing.T, l *lab.Lab, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := &subject{lab: l, ns: l.Namespace(t), repo: l.Repository(t), client: client(t, l.RESTConfig())}
	s.ref = types.NamespacedName{Namespace: s.ns, Name: "app"}
	s.first = s.push(t, "one")
	l.GitRepository(t, s.ns, "app", s.repo)
	l.Kustomization(t, s.ns, "app", "app", mutate...)
	return s
}

func (s *subject) kustomizations() dynamic.ResourceInterface {
	return s.lab.Dynamic().Resource(lab.Kustomizations).Namespace(s.ns)
}

// applyAs applies spec.suspend under another field manager, as a parent Kustomization or Helm does.
func (s *subject) applyAs(t testing.TB, fieldManager string, suspend bool) {
	t.Helper()
	_, err := s.kustomizations().Apply(context.Background(), s.ref.Name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.Kustomizations.GroupVersion().String(), "kind": "Kustomization",
		"metadata": map[string]any{"name": s.ref.Name, "namespace": s.ns},
		"spec":     map[string]any{"suspend": suspend},
	}}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	assert.NoError(t, err)
}

// delete deletes the Kustomization and returns once it is gone.
func (s *subject) delete(t testing.TB) {
	t.Helper()
	err := s.kustomizations().Delete(context.Background(), s.ref.Name, metav1.DeleteOptions{})
	assert.NoError(t, err)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Gone)
}

// lookForCommits makes the GitRepository look for commits, as flux reconcile does.
func (s *subject) lookForCommits(t testing.TB) {
	t.Helper()
	patch := `{"metadata":{"annotations":{"` + requestedAt + `":"` + applier.NewToken() + `"}}}`
	_, err := s.lab.Dynamic().Resource(lab.GitRepositories).Namespace(s.ns).
		Patch(context.Background(), "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "flux"})
	assert.NoError(t, err)
}

func (s *subject) requireAbsent(t *testing.T) {
	t.Helper()
	_, err := s.kustomizations().Get(t.Context(), s.ref.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "a Kustomization came to be: %v", err)
}

// requireUID fails the test unless each write through faults carries the UID of the object that it was meant for.
func requireUID(t *testing.T, faults *lab.Transport, uid types.UID) {
	t.Helper()
	for _, request := range faults.Requests() {
		if !request.Writes() {
			continue
		}
		var body metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(request.Body, &body), request)
		assert.Equal(t, uid, body.UID, request)
	}
}
