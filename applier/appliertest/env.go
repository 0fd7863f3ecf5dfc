package appliertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/gitops-applier/gitops-applier/applier"
)

// env is what a check works with.
type env struct {
	t       testing.TB
	harness Harness
	// untouched is an applier that was made and not used yet.
	untouched *Applier
}

// applier makes an applier, unless there is one that nothing was done to.
func (e *env) applier() *Applier {
	if a := e.untouched; a != nil {
		e.untouched = nil
		return a
	}
	return e.harness.New(e.t)
}

// subject is one applier, and the process that asks it.
type subject struct {
	*Applier
	env *env
	*process
	// spectator is a client of the suite's own, whose requests are neither counted nor broken.
	spectator applier.Client
	// follower follows operations, and says how often the suite looks again at what it waits for.
	follower applier.Follower
	// like is the applier as it stood before it was asked, which replace puts in its place.
	like *unstructured.Unstructured
}

// subject makes an applier that is ready to be asked: one that is held, where its client holds.
func (e *env) subject(ctx context.Context) (*subject, error) {
	a := e.applier()
	p, err := a.process()
	if err != nil {
		return nil, err
	}
	spectator, err := a.NewClient(a.reach())
	if err != nil {
		return nil, err
	}
	s := &subject{Applier: a, env: e, process: p, spectator: spectator, follower: applier.Follower{PollInterval: pollInterval}}
	if a.can(p.client, Holder) {
		if err := s.hold(ctx); err != nil {
			return nil, fmt.Errorf("cannot hold the new applier: %w", err)
		}
	}
	return s, nil
}

// pushed returns a new subject, and a commit that was pushed for it.
func (e *env) pushed(ctx context.Context) (s *subject, commit string, err error) {
	if s, err = e.subject(ctx); err != nil {
		return nil, "", err
	}
	commit, err = s.Push(ctx)
	return s, commit, err
}

// restart lets another process take over, which knows nothing of the one before.
func (s *subject) restart() error {
	p, err := s.Applier.process()
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

// hold suspends the applier and waits until that is handled.
func (s *subject) hold(ctx context.Context) error {
	holder, _ := applier.AsHolder(s.spectator)
	if _, err := holder.Suspend(ctx, s.Ref); err != nil {
		return fmt.Errorf("Suspend: %w", err)
	}
	return s.until(ctx, func() error {
		stands, err := holder.Suspension(ctx, s.Ref)
		if err == nil && (!stands.Suspended || !stands.Held || !stands.Handled) {
			err = fmt.Errorf("Suspension stays %+v after Suspend", stands)
		}
		return err
	})
}

// handBack leaves the applier ready to be asked once more, whatever somebody else did to it.
func (s *subject) handBack(ctx context.Context) error {
	if !s.can(s.client, Holder) {
		return nil
	}
	return s.hold(ctx)
}

// settled returns how the law is broken that an operation leaves the applier held.
func (s *subject) settled(ctx context.Context) error {
	if !s.can(s.client, Holder) {
		return nil
	}
	holder, _ := applier.AsHolder(s.spectator)
	stands, err := holder.Suspension(ctx, s.Ref)
	switch {
	case err != nil:
		return fmt.Errorf("after the end of the operation, Suspension: %w", err)
	case !stands.Suspended:
		return fmt.Errorf("the operation ended and left the applier resumed: %+v", stands)
	case !stands.Held || !stands.Handled:
		return fmt.Errorf("the operation ended before its suspend was held and handled: %+v", stands)
	}
	return nil
}

// unchanged returns an error when something else than before is applied although nothing was asked for. A Live applier may
// apply a commit by itself.
func (s *subject) unchanged(ctx context.Context, before, although string) error {
	if s.Live {
		return nil
	}
	after, err := s.Applied(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("%s, and %s was applied", although, after)
	}
	return err
}

// until tries again until try succeeds or the harness's timeout has passed.
func (s *subject) until(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(s.env.harness.Timeout)
	for {
		err := try()
		var final finalError
		if err == nil || ctx.Err() != nil || errors.As(err, &final) || time.Now().After(deadline) {
			return err
		}
		pause(ctx, s.follower.PollInterval)
	}
}

// told returns err for a message, also where there is none.
func told(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// finalError is one that trying again does not mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// stop makes until return err at once.
func stop(err error) error { return finalError{err} }

// How often the suite looks again at what it waits for. Where each look is struck in turn, a real cluster would take too long if
// it looked often.
const (
	pollInterval   = 50 * time.Millisecond
	strikeInterval = 500 * time.Millisecond
)

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stuck makes a commit whose apply does not end before release is called, which it is in any case.
func (s *subject) stuck(ctx context.Context) (commit string, release func() error, err error) {
	commit, let, err := s.PushStuck(ctx)
	return commit, s.released(ctx, let), err
}

// foreign starts somebody else's operation, which does not end before release is called, which it is in any case.
func (s *subject) foreign(ctx context.Context) (release func() error, err error) {
	let, err := s.ForeignOperation(ctx)
	return s.released(ctx, let), err
}

// released makes sure that let is called once.
func (s *subject) released(ctx context.Context, let func(context.Context) error) func() error {
	if let == nil {
		return func() error { return nil }
	}
	release := sync.OnceValue(func() error { return let(context.WithoutCancel(ctx)) })
	s.env.t.Cleanup(func() { _ = release() })
	return release
}

// object reads the applier as it is in the cluster.
func (s *subject) object(ctx context.Context) (*unstructured.Unstructured, error) {
	return s.API.Resource(s.Resource).Namespace(s.Ref.Namespace).Get(ctx, s.Ref.Name, metav1.GetOptions{})
}

// annotate sets an annotation of the applier, as somebody else.
func (s *subject) annotate(ctx context.Context, name, value string) error {
	objects := s.API.Resource(s.Resource).Namespace(s.Ref.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := s.object(ctx)
		if err != nil {
			return err
		}
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = make(map[string]string)
		}
		annotations[name] = value
		object.SetAnnotations(annotations)
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("the suite cannot annotate the applier: %w", err)
	}
	return nil
}

// intent returns what an object asks of its controller: all but its status and what the API server keeps of it.
func intent(object *unstructured.Unstructured) map[string]any {
	wants := maps.Clone(object.Object)
	delete(wants, "status")
	wants["metadata"] = map[string]any{"uid": string(object.GetUID()), "labels": object.GetLabels(), "annotations": object.GetAnnotations()}
	return wants
}

// show shows an object in a message.
func show(object *unstructured.Unstructured) string {
	encoded, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// remove deletes the applier as somebody else, and waits until it is gone.
func (s *subject) remove(ctx context.Context) error {
	objects := s.API.Resource(s.Resource).Namespace(s.Ref.Namespace)
	if err := objects.Delete(ctx, s.Ref.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the suite cannot delete the applier: %w", err)
	}
	return s.until(ctx, func() error {
		_, err := s.object(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("the applier that the suite deleted stays")
		}
		return err
	})
}

// replace puts another object in the applier's place, as somebody else, and returns it.
func (s *subject) replace(ctx context.Context) (*unstructured.Unstructured, error) {
	if err := s.remove(ctx); err != nil {
		return nil, err
	}
	return s.create(ctx, s.like, s.Ref.Name)
}

// create makes a copy of an applier.
func (s *subject) create(ctx context.Context, like *unstructured.Unstructured, name string) (*unstructured.Unstructured, error) {
	object := like.DeepCopy()
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	delete(object.Object, "status")
	object.Object["metadata"] = map[string]any{}
	object.SetNamespace(s.Ref.Namespace)
	object.SetName(name)
	object.SetAnnotations(annotations)
	object.SetLabels(labels)
	made, err := s.API.Resource(s.Resource).Namespace(s.Ref.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("the suite cannot create a copy of the applier: %w", err)
	}
	return made, nil
}

// names returns what is wrong with an error or a message that is to name the applier and its cluster, and to hold no
// secret. The name is quoted in the error's own words.
func (a *Applier) names(message string, ref types.NamespacedName) error {
	var missing []string
	for _, word := range []string{ref.Namespace, ref.Name, a.Cluster} {
		if !strings.Contains(message, word) {
			missing = append(missing, word)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it does not name %s: %q", strings.Join(slices.Compact(missing), " and "), message)
	}
	if strings.Contains(message, secret) {
		return fmt.Errorf("it holds a secret: %q", message)
	}
	return nil
}

// secret is a password in an address that no message may repeat.
const secret = "hunter2-s3cr3t"
