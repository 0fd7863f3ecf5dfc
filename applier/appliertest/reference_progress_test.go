package appliertest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

type consumer = fluxmeta.NamespacedObjectKindReference

func (r *reference) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if s.Outcome != applier.OutcomeResumed && s.Outcome != applier.OutcomeSyncRequested && !r.is("any operation is followed") {
		return applier.Progress{}, r.errorf(ref, applier.Permanent(errors.New("the operation is another backend's")))
	}
	r.state.Lock()
	known := r.state.known[s.Token]
	if r.is("Progress remembers the applier") && known {
		ref = r.state.ref
	}
	r.state.Unlock()
	if r.is("Progress remembers operations") && !known {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonNotRun}, nil
	}
	object := s.Observed
	if !r.is("Observed is left") {
		s.Observed = nil
	}
	if r.is("only Observed is read") && object == nil {
		return applier.Progress{State: applier.StateRunning}, nil
	}
	switch {
	case object == nil || r.seen(object, latest(s)):
	case r.is("Observed is always new") && field(object, "spec", "token") == field(object, "status", "handled"):
		return r.end(object, s), nil
	default:
		object = nil // It may be older than our own last write.
	}
	if object == nil || r.is("Observed is not read") || r.is("Progress remembers the applier") {
		var err error
		object, err = r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case r.gone(err):
			return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonGone, SuspendToken: s.SuspendToken}, nil
		case err != nil && r.is("Progress reports beside an error"):
			return applier.Progress{State: applier.StateRunning}, r.errorf(ref, err)
		case err != nil:
			return applier.Progress{}, r.errorf(ref, err)
		}
	}
	progress, err := r.progress(ctx, ref, object, s)
	if err != nil {
		return applier.Progress{}, r.errorf(ref, err)
	}
	progress.SuspendToken = s.SuspendToken
	return progress, nil
}

// gone reports whether a read established that the applier is no more.
func (r *reference) gone(err error) bool {
	switch applier.AbsenceOf(err) {
	case applier.AbsenceNotFound:
		return !r.is("gone is an error")
	case applier.AbsenceNotServed:
		return r.is("a kind not served is gone")
	case applier.AbsenceForbidden:
		return r.is("forbidden is gone")
	}
	return false
}

// latest is the token of the last write.
func latest(s *applier.Started) string {
	if s.SuspendToken != "" {
		return s.SuspendToken
	}
	return s.Token
}

func (r *reference) progress(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured, s *applier.Started) (applier.Progress, error) {
	if s.UID != "" && object.GetUID() != s.UID && !r.is("writes are not guarded") {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonReplaced}, nil
	}
	if r.is("success is assumed") {
		return applier.Progress{State: applier.StateSucceeded, Reason: "Applied", AppliedRevision: "main@sha1:" + s.Commit, AppliedCommit: s.Commit}, nil
	}
	lost := !r.seen(object, s.Token)
	if lost && s.SuspendToken == "" && (s.Recovered && r.is("a recovered operation is started") || s.Unconfirmed != nil && r.is("an unconfirmed operation is started")) {
		return applier.Progress{State: applier.StateRequested}, r.start(ctx, ref, object, applier.Ask{Commit: s.Commit}, *s)
	}
	switch {
	case r.is("the baseline is to be that of the write") && field(object, "spec", "baseline") != s.Baseline:
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonInterrupted}, nil
	case lost && s.Recovered && r.is("a lost operation never ends"):
		return applier.Progress{State: applier.StateRequested}, nil
	}
	if lost && r.is("only our own token counts") {
		return applier.Progress{State: applier.StateRunning}, nil
	}
	early := s.Recovered && r.is("a recovered operation that is not seen has ended") || s.Unconfirmed != nil && r.is("an unconfirmed operation that is not seen has ended")
	switch doubtful := s.Recovered || s.Unconfirmed != nil; {
	case lost && early && s.SuspendToken == "":
		return r.end(object, s), nil
	case lost && r.synced && doubtful && !s.Overdue:
		return applier.Progress{State: applier.StateRequested}, nil // It may be started yet.
	}
	running := field(object, "status", "running") == s.Token
	if running && suspended(object) && r.is("a suspend ends what runs") {
		return r.end(object, s), nil
	}
	if running && r.is("a running apply is taken for a failed one") {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonInterrupted}, nil
	}
	over := lost && !running || entryOf(object, s.Token) != nil || field(object, "status", "handled") == s.Token
	hurry := s.Overdue && !r.synced && !r.is("Overdue waits")
	if s.SuspendToken == "" && !over && !hurry {
		if running {
			return applier.Progress{State: applier.StateRunning}, nil
		}
		return applier.Progress{State: applier.StateRequested}, nil
	}
	if r.synced || s.Recovered && r.is("a recovered operation is not suspended") {
		return r.end(object, s), nil
	}
	return r.settle(ctx, ref, object, s)
}

// settle suspends the applier again, and waits until that is handled.
func (r *reference) settle(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured, s *applier.Started) (applier.Progress, error) {
	handled := field(object, "spec", "token") == field(object, "status", "handled")
	switch {
	case s.SuspendToken == "" || !suspended(object) && !r.is("a resumed applier is left"), r.is("every Progress suspends") && handled && len(history(object)) > 0:
		token := applier.NewToken()
		err := r.suspend(ctx, ref, object, token)
		if err != nil {
			return applier.Progress{}, err
		}
		s.SuspendToken = token
		if r.is("every Progress suspends") {
			return r.end(object, s), nil
		}
		return applier.Progress{State: applier.StateSettling}, nil
	case !handled && !r.is("the suspend is not waited for"):
		return applier.Progress{State: applier.StateSettling}, nil
	}
	return r.end(object, s), nil
}

// suspend writes until it lands on this object.
func (r *reference) suspend(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured, token string) error {
	uid := object.GetUID()
	for {
		err := r.update(ctx, ref, object, func(spec map[string]any) {
			spec["suspend"], spec["manager"], spec["token"] = true, manager, token
		})
		if !apierrors.IsConflict(err) {
			return err
		}
		if object, err = r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if object.GetUID() != uid {
			return errors.New("another object has its name now")
		}
	}
}

// end judges by what ran since the request: the last run.
func (r *reference) end(object *unstructured.Unstructured, s *applier.Started) applier.Progress {
	entry := entryOf(object, s.Token)
	if since, err := strconv.Atoi(strings.TrimSpace(s.Baseline)); err == nil && len(history(object)) > since {
		entry = lastOf(history(object))
	}
	if entry == nil {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonNotRun}
	}
	commit := entry["commit"].(string)
	if message, failed := entry["failed"].(string); failed && !r.is("a failure is a success") {
		if r.is("a failure has no message") {
			message = ""
		}
		return applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: message}
	}
	if r.is("a failure is a success") {
		commit = strings.Repeat("f", 40)
	}
	reason := "Applied"
	if commit != s.Commit {
		reason = applier.ReasonAppliedOther
	}
	return applier.Progress{State: applier.StateSucceeded, Reason: reason, AppliedRevision: "main@sha1:" + commit, AppliedCommit: commit}
}

func (r *reference) Suspend(ctx context.Context, ref types.NamespacedName) (string, error) {
	object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		if r.is("Suspend errors are plain") {
			return "", r.errorf(ref, err)
		}
		return "", r.errorf(ref, r.verdict(ref, err).AsError())
	}
	token := applier.NewToken()
	if r.is("Suspend repeats its token") {
		token = "the token"
	}
	if err := r.suspend(ctx, ref, object, token); err != nil {
		return "", r.errorf(ref, err)
	}
	return token, nil
}

func (r *reference) Suspension(ctx context.Context, ref types.NamespacedName) (applier.Suspension, error) {
	object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		if r.is("Suspension swallows errors") && !apierrors.IsNotFound(err) {
			return applier.Suspension{}, nil
		}
		return applier.Suspension{}, r.errorf(ref, r.verdict(ref, err).AsError())
	}
	stands := applier.Suspension{
		Suspended: suspended(object),
		Held:      suspended(object) && field(object, "spec", "manager") == manager,
		Handled:   field(object, "spec", "token") == field(object, "status", "handled"),
	}
	if r.is("Suspension is always good") {
		stands.Suspended, stands.Held, stands.Handled = true, true, true
	}
	if last := lastOf(history(object)); last != nil && !r.is("Suspension reports no apply") {
		s := applier.Started{Token: last["token"].(string), Commit: last["commit"].(string)}
		stands.Applied = r.end(object, &s)
	}
	return stands, nil
}

func (r *reference) Release(ctx context.Context, ref types.NamespacedName) (string, error) {
	if r.is("Release does nothing") {
		return "", nil
	}
	object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", r.errorf(ref, err)
	}
	err = r.update(ctx, ref, object, func(spec map[string]any) { spec["suspend"], spec["manager"] = false, "" })
	if r.is("an unconfirmed release is an error") && err != nil {
		err = errors.New("it was not released")
	}
	return "", r.errorf(ref, err)
}

func history(object *unstructured.Unstructured) []any {
	entries, _, _ := unstructured.NestedSlice(object.Object, "status", "history")
	return entries
}

func lastOf(entries []any) map[string]any {
	if len(entries) == 0 {
		return nil
	}
	return entries[len(entries)-1].(map[string]any)
}

func entryOf(object *unstructured.Unstructured, token string) map[string]any {
	for _, entry := range history(object) {
		if entry := entry.(map[string]any); entry["token"] == token {
			return entry
		}
	}
	return nil
}

func consumersOf(list *unstructured.UnstructuredList, source types.NamespacedName, sorted bool) []consumer {
	var all []consumer
	for _, object := range list.Items {
		if object.GetNamespace() == source.Namespace && field(&object, "spec", "source") == source.Name {
			all = append(all, consumer{Kind: "Deployer", Namespace: object.GetNamespace(), Name: object.GetName()})
		}
	}
	slices.SortFunc(all, func(a, b consumer) int { return strings.Compare(a.Name, b.Name) })
	if !sorted {
		slices.Reverse(all)
	}
	return all
}
