package appliertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// manager is the name under which the reference backend holds.
const manager = "host"

// reference is a small backend that keeps the whole contract, for the Deployers of engine. A mutation breaks it in one
// place. It holds its appliers, or, synced, asks them as they are.
type reference struct {
	api     dynamic.Interface
	allowed applier.AccessCheck
	synced  bool
	mutation

	// state is what only mutations keep between calls.
	state struct {
		sync.Mutex
		verdict *applier.Verdict
		token   string
		ref     types.NamespacedName
		known   map[string]bool
	}
}

// newReference returns the client that the harness's NewClient makes: one with the capabilities of its mode.
func newReference(api dynamic.Interface, synced bool, mutation mutation) applier.Client {
	r := &reference{api: api, synced: synced, mutation: mutation, allowed: applier.SelfSubjectAccessCheck(api)}
	r.state.known = make(map[string]bool)
	if synced {
		return struct {
			applier.Client
			applier.Watcher
			applier.Prefetcher
		}{r, r, r}
	}
	return r
}

func (r *reference) objects(ref types.NamespacedName) dynamic.ResourceInterface {
	return r.api.Resource(deployers).Namespace(ref.Namespace)
}

// errorf names the applier and its cluster.
func (r *reference) errorf(ref types.NamespacedName, err error) error {
	switch {
	case err == nil:
		return nil
	case r.is("errors without a name"):
		return err
	case r.is("errors without their cause") && !errors.Is(err, applier.ErrUnconfirmed):
		return errors.New("Deployer " + ref.String() + " in cluster prod: " + err.Error())
	}
	return fmt.Errorf("Deployer %s in cluster prod: %w", ref, err)
}

// verdict refuses for what a failed read established.
func (r *reference) verdict(ref types.NamespacedName, err error) applier.Verdict {
	name := fmt.Sprintf("Deployer %s in cluster prod", ref)
	absence := applier.AbsenceOf(err)
	switch {
	case absence == applier.AbsenceNotFound && r.is("a missing applier is a failed check"):
		absence = applier.AbsenceUnknown
	case absence == applier.AbsenceNotServed && r.is("a kind not served is a missing object"):
		absence = applier.AbsenceNotFound
	case absence == applier.AbsenceForbidden && r.is("forbidden is a missing object"):
		absence = applier.AbsenceNotFound
	case absence == applier.AbsenceUnknown && r.is("no answer is a missing object"):
		absence = applier.AbsenceNotFound
	}
	switch absence {
	case applier.AbsenceNotFound:
		return applier.Verdict{Reason: applier.ReasonApplierNotFound, Message: name + " does not exist"}
	case applier.AbsenceNotServed:
		return applier.Verdict{Reason: applier.ReasonApplierNotFound, Message: name + ": the kind is not served"}
	case applier.AbsenceForbidden:
		return applier.Verdict{Reason: applier.ReasonForbidden, Message: name + ": this identity may not read it"}
	default:
		return applier.Verdict{Reason: applier.ReasonCheckFailed, Message: name + " could not be read: " + err.Error(), Err: err}
	}
}

func (r *reference) Validate(ctx context.Context, ref types.NamespacedName) applier.Verdict {
	verdict := r.validate(ctx, ref)
	r.state.Lock()
	defer r.state.Unlock()
	if r.state.verdict == nil || !r.is("Validate remembers") {
		r.state.verdict = &verdict
	}
	return *r.state.verdict
}

func (r *reference) validate(ctx context.Context, ref types.NamespacedName) applier.Verdict {
	if r.is("Validate refuses") {
		return applier.Verdict{Reason: applier.ReasonUnsupportedSource, Message: "no"}
	}
	object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return r.verdict(ref, err)
	}
	source := &applier.Source{
		URL: gitref.Redact(field(object, "spec", "repository")), Revision: field(object, "spec", "branch"),
		GitRepository: types.NamespacedName{Namespace: ref.Namespace, Name: field(object, "spec", "source")},
	}
	if r.is("Validate reports no source") {
		source = nil
	}
	if r.is("Validate writes") {
		_, _ = r.objects(ref).Update(ctx, object, metav1.UpdateOptions{})
	}
	allowed, err := r.allowed(ctx, authorizationv1.ResourceAttributes{Namespace: ref.Namespace, Name: ref.Name, Verb: "update", Group: deployers.Group, Resource: deployers.Resource})
	if err != nil {
		verdict := r.verdict(ref, err)
		verdict.Source = source
		return verdict
	}
	if !allowed {
		if r.is("a refusal forgets the source") {
			source = nil
		}
		return applier.Verdict{Reason: applier.ReasonForbidden, Message: fmt.Sprintf("Deployer %s in cluster prod: this identity may not update it", ref), Source: source}
	}
	return applier.Verdict{OK: true, Reason: applier.ReasonSucceeded, Message: "it may be asked", Source: source}
}

func (r *reference) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	if r.is("Request ignores its context") {
		ctx = context.WithoutCancel(ctx)
	}
	if r.is("Request works on after it returned") {
		go r.haunt(ctx, ref)
	}
	started, err := r.request(ctx, ref, ask)
	r.state.Lock()
	defer r.state.Unlock()
	r.state.known[ask.Token], r.state.ref = true, ref
	return started, r.errorf(ref, err)
}

// haunt is a goroutine that outlives its call; the suite's bubble ends with its harness.
func (r *reference) haunt(ctx context.Context, ref types.NamespacedName) {
	for range 100 {
		<-time.After(time.Second)
		_, _ = r.objects(ref).Get(context.WithoutCancel(ctx), ref.Name, metav1.GetOptions{})
	}
}

func (r *reference) request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	if err := ask.Validate(); err != nil && !r.is("bad asks are read for") {
		return applier.Started{}, err
	}
	if r.is("Request remembers the token") {
		r.state.Lock()
		overlap := time.Millisecond
		if r.state.token != "" {
			overlap *= 2
		}
		r.state.token = ask.Token
		r.state.Unlock()
		<-time.After(overlap)
		r.state.Lock()
		ask.Token = r.state.token
		r.state.Unlock()
	}
	var s applier.Started
	var recorded string
	var recording time.Time
	wait, waited, conflicts := ask.Wait, time.Duration(0), 0
	if wait < 0 && r.is("a negative wait is the default one") {
		wait = time.Minute
	}
	for range 10000 {
		object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return applier.Started{}, r.refusal(ref, err)
		}
		if s.Token != "" && r.seen(object, s.Token) && !r.is("a conflict is not read again") && !r.is("an unconfirmed start is sent again") {
			return s, nil
		}
		if err := r.fits(object, ask); err != nil {
			return applier.Started{}, err
		}
		if r.needsNothing(object, ask) {
			return applier.Started{Outcome: applier.OutcomeCurrent, Commit: ask.Commit}, nil
		}
		switch busy, err := r.ready(object); {
		case err != nil:
			return applier.Started{}, err
		case busy && waited >= wait && r.is("an operation in progress is permanent"):
			return applier.Started{}, applier.Permanent(applier.ErrBusy)
		case busy && waited >= wait && !r.is("operations in progress are replaced"):
			return applier.Started{}, applier.ErrBusy
		case busy && r.is("operations in progress are not waited for"):
			return applier.Started{}, applier.ErrBusy
		case busy && !r.is("operations in progress are replaced"):
			if r.is("a wait ignores its context") {
				ctx = context.WithoutCancel(ctx)
			}
			if !r.is("waits are never over") {
				waited += 10 * time.Millisecond
			}
			pause(ctx, 10*time.Millisecond)
			continue
		}
		if s.Token != "" && object.GetUID() != s.UID {
			return applier.Started{}, errors.New("another object has its name now")
		}
		if s.Token != "" && !r.synced && field(object, "spec", "token") != recorded && !r.is("a suspend since the record is passed over") {
			return applier.Started{}, fmt.Errorf("%w: it was suspended anew since the operation was recorded", applier.ErrStale)
		}
		if s.Token == "" {
			s, recorded, recording = r.started(object, ask), field(object, "spec", "token"), time.Now()
			if !r.is("Record comes after the write") {
				if err := r.decide(ctx, ask, s); err != nil {
					return applier.Started{}, err
				}
			}
		}
		if time.Since(recording) > 30*time.Second && !r.is("a start is sent at any time") {
			return applier.Started{}, errors.New("more than half a minute has passed since its record was begun: ask again")
		}
		if !r.is("Current is not asked after Record") && !ask.IsCurrent() {
			return applier.Started{}, applier.ErrStale
		}
		err = r.start(ctx, ref, object, ask, s)
		if r.is("Record comes after the write") {
			_ = r.decide(ctx, ask, s)
		}
		switch {
		case err == nil:
			return s, nil
		case apierrors.IsConflict(err) && r.is("a conflict is permanent"):
			return applier.Started{}, applier.Permanent(err)
		case apierrors.IsConflict(err) && conflicts < 100:
			conflicts++
			continue
		case !errors.Is(err, applier.ErrUnconfirmed), r.is("an unconfirmed start is an error"):
			return applier.Started{}, err
		case apierrors.IsInternalError(err) && r.is("500 means that nothing was written"):
			return applier.Started{}, err
		case r.is("an unconfirmed start is sent again"):
			continue
		}
		s.Unconfirmed = r.errorf(ref, err)
		return s, nil
	}
	return applier.Started{}, errors.New("it is busy all the time")
}

// refusal is the error of a read.
func (r *reference) refusal(ref types.NamespacedName, err error) error {
	if r.is("no answer is permanent") && errors.Is(err, context.DeadlineExceeded) || r.is("500 is permanent") && apierrors.IsInternalError(err) || r.is("429 is permanent") && apierrors.IsTooManyRequests(err) {
		return applier.Permanent(err)
	}
	refused := r.verdict(ref, err).AsError()
	if r.is("refusals are not permanent") {
		return fmt.Errorf("%w, %s", errors.Unwrap(refused), "try again")
	}
	if r.is("a missing applier is created") && apierrors.IsNotFound(err) {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Deployer", "spec": map[string]any{}}}
		object.SetName(ref.Name)
		_, _ = r.objects(ref).Create(context.Background(), object, metav1.CreateOptions{})
	}
	return refused
}

// fits refuses an applier that applies from elsewhere.
func (r *reference) fits(object *unstructured.Unstructured, ask applier.Ask) error {
	url, branch := field(object, "spec", "repository"), field(object, "spec", "branch")
	same := gitref.SameRepository(url, ask.Want.Repository)
	if r.is("repositories are compared as strings") {
		same = url == ask.Want.Repository
	}
	switch {
	case !same && !r.is("the repository is not compared"), !gitref.SameBranch(branch, ask.Want.Branch) && !r.is("the branch is not compared"):
		want := gitref.Redact(ask.Want.Repository)
		if r.is("errors hold secrets") {
			want = ask.Want.Repository
		}
		return applier.Verdict{Reason: applier.ReasonSourceMismatch, Message: fmt.Sprintf("it applies %s of %s instead of %s of %s", branch, url, ask.Want.Branch, want)}.AsError()
	}
	return nil
}

func (r *reference) needsNothing(object *unstructured.Unstructured, ask applier.Ask) bool {
	if ask.Commit == "" {
		return !r.is("an empty commit is asked for")
	}
	if ask.Reason.NeedsRun() {
		return false
	}
	if r.is("catching up is never needed") {
		return true
	}
	last := lastOf(history(object))
	return last != nil && last["commit"] == ask.Commit && last["failed"] == nil
}

// ready reports whether an operation is in progress that is to be waited for, or an applier that is not held.
func (r *reference) ready(object *unstructured.Unstructured) (busy bool, err error) {
	handled := field(object, "spec", "token") == field(object, "status", "handled")
	if r.synced {
		return !handled, nil
	}
	ours := field(object, "spec", "manager") == manager
	switch {
	case ours && suspended(object) && handled, r.is("nothing needs to be held"), r.is("operations in progress are replaced"):
		return false, nil
	case ours:
		return true, nil
	case r.is("not held is not permanent"):
		return false, applier.ErrNotHeld
	}
	return false, applier.Permanent(applier.ErrNotHeld)
}

func (r *reference) started(object *unstructured.Unstructured, ask applier.Ask) applier.Started {
	s := applier.Started{
		Outcome: applier.OutcomeResumed, Token: ask.Token, Commit: ask.Commit, UID: object.GetUID(),
		Baseline: strconv.Itoa(len(history(object))), RequestedAt: metav1.NowMicro(),
	}
	if r.synced {
		s.Outcome = applier.OutcomeSyncRequested
	}
	switch {
	case r.is("the baseline is the whole object"):
		s.Baseline = fmt.Sprintf("%2000s", s.Baseline)
	case r.is("the baseline is to be that of the write"):
		s.Baseline = object.GetResourceVersion()
	}
	return s
}

// decide asks and records in the contract's order.
func (r *reference) decide(ctx context.Context, ask applier.Ask, s applier.Started) error {
	if !r.is("Current is not asked before Record") && !ask.IsCurrent() {
		return applier.ErrStale
	}
	if ask.Held != nil && !r.synced && !r.is("Held is not asked") {
		if err := ask.Held(ctx); err != nil {
			return err
		}
	}
	if ask.Record == nil {
		if r.is("Record is required") {
			return errors.New("nothing to record with")
		}
		return nil
	}
	if r.is("Record is called twice") {
		_ = ask.Record(ctx, s)
	}
	if err := ask.Record(ctx, s); err != nil && !r.is("an error of Record is ignored") {
		return err
	}
	return nil
}

func (r *reference) start(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured, ask applier.Ask, s applier.Started) error {
	if r.is("the starting write is refused each time") {
		object = object.DeepCopy()
		object.SetResourceVersion("0")
	}
	return r.update(ctx, ref, object, func(spec map[string]any) {
		spec["token"], spec["commit"] = s.Token, ask.Commit
		if r.is("the baseline is to be that of the write") {
			spec["baseline"] = object.GetResourceVersion()
		}
		if r.is("the token is made up") {
			spec["token"] = "made-up-" + applier.NewToken()
		}
		if !r.synced {
			spec["suspend"] = false
		}
	})
}

// update writes the spec over the object as it was read.
func (r *reference) update(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured, change func(map[string]any)) error {
	object = object.DeepCopy()
	change(object.Object["spec"].(map[string]any))
	if r.is("writes are not guarded") {
		object.SetResourceVersion("")
	}
	_, err := r.objects(ref).Update(ctx, object, metav1.UpdateOptions{})
	if r.is("a missing applier is created") && apierrors.IsNotFound(err) {
		object.SetResourceVersion("")
		_, err = r.objects(ref).Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil && r.is("writes are never unconfirmed") {
		return err
	}
	return applier.WriteError(err)
}

// seen reports whether the token is in the object or its status.
func (r *reference) seen(object *unstructured.Unstructured, token string) bool {
	return field(object, "spec", "token") == token || field(object, "status", "running") == token || entryOf(object, token) != nil
}
