package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	trackingAnnotation = "argocd.argoproj.io/tracking-id"
	refreshAnnotation  = "argocd.argoproj.io/refresh"
	skipAnnotation     = "argocd.argoproj.io/skip-reconcile"
	argoFinalizer      = "resources-finalizer.argocd.argoproj.io"

	// The flags' defaults of 3.2.11.
	operationProcessors = 10
	statusProcessors    = 20
)

// An applicationController is one run of the application-controller. Operations and comparisons have queues of their own: an
// Application is compared also while an operation on it goes on.
type applicationController struct {
	argo *ArgoCD
	identity
	operations, comparisons *queue
}

func newApplicationController(argo *ArgoCD, id identity) *applicationController {
	return &applicationController{
		argo: argo, identity: id,
		operations: newQueue(minRetryDelay, maxRetryDelay), comparisons: newQueue(minRetryDelay, maxRetryDelay),
	}
}

func (c *applicationController) run(ctx context.Context) {
	applications := newMirror(c.client.Resource(applicationResource), c.changed)
	jobs := newMirror(c.client.Resource(jobResource), func(old, current *unstructured.Unstructured) {
		if name, ok := trackedBy(either(current, old)); ok {
			c.operations.add(name, 0)
		}
	})
	c.argo.mu.Lock()
	c.argo.again = func() {
		for _, app := range applications.list() {
			c.operations.add(nameOf(app), 0)
			c.comparisons.add(nameOf(app), 0)
		}
	}
	c.argo.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() {
		(&work{queue: c.comparisons, workers: statusProcessors, reconcile: c.compare}).run(ctx)
	})
	(&work{queue: c.operations, mirrors: []*mirror{applications, jobs}, workers: operationProcessors, reconcile: c.operate}).run(ctx)
	running.Wait()
}

// changed looks at an Application that changed.
func (c *applicationController) changed(old, current *unstructured.Unstructured) {
	if current == nil {
		return
	}
	if current.Object["operation"] != nil || current.GetDeletionTimestamp() != nil {
		c.operations.add(nameOf(current), 0)
	}
	_, asked := current.GetAnnotations()[refreshAnnotation]
	if old == nil || asked || !reflect.DeepEqual(old.Object["spec"], current.Object["spec"]) {
		c.comparisons.add(nameOf(current), 0)
	}
}

func (c *applicationController) get(ctx context.Context, name types.NamespacedName) (*unstructured.Unstructured, error) {
	return c.client.Resource(applicationResource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}

// patch changes an Application as it is now. One that is gone is none of its concern.
func (c *applicationController) patch(ctx context.Context, name types.NamespacedName, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.client.Resource(applicationResource).Namespace(name.Namespace).
		Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: argoManager})
	return ignoreNotFound(err)
}

// skipped reports whether an Application says that the controller is to pass it over.
func skipped(app *unstructured.Unstructured) bool {
	skip, _ := strconv.ParseBool(app.GetAnnotations()[skipAnnotation])
	return skip
}

// operate does one pass over the operation of an Application. One that is being deleted is finalized once it has none.
func (c *applicationController) operate(ctx context.Context, name types.NamespacedName) (next, error) {
	defer c.view.ResetRequests()
	app, err := c.get(ctx, name)
	switch {
	case err != nil:
		return next{}, ignoreNotFound(err)
	case skipped(app):
		return next{}, nil
	case app.Object["operation"] != nil:
		return c.process(ctx, app)
	case app.GetDeletionTimestamp() != nil:
		return next{}, c.finalize(ctx, app)
	}
	return next{}, nil
}

// A pass is one pass over an operation. It works from the record as it was at the start, whatever is written there meanwhile.
type pass struct {
	*applicationController
	app   *unstructured.Unstructured
	state *argoState
	// written is the record as it was read or written last.
	written []byte
}

func (c *applicationController) process(ctx context.Context, app *unstructured.Unstructured) (next, error) {
	p := &pass{applicationController: c, app: app}
	recorded, err := fieldOf[argoState](app, "status", "operationState")
	if err != nil {
		return next{}, err
	}
	if recorded == nil || recorded.completed() {
		err = p.begin(ctx)
	} else {
		p.state = recorded
		p.written, err = json.Marshal(recorded)
	}
	if err != nil {
		return next{}, err
	}
	if p.state.Phase == argoRunning && p.state.FinishedAt != "" {
		if wait, err := p.retry(ctx); err != nil || wait > 0 || p.state.completed() {
			return next{after: wait}, err
		}
	}
	terminating := p.state.Phase == argoTerminating
	p.sync(ctx)
	// A controller that is being stopped writes nothing more.
	if ctx.Err() != nil {
		return next{}, ctx.Err()
	}
	if err := p.conclude(ctx, terminating); err != nil {
		return next{}, err
	}
	if p.state.completed() {
		c.comparisons.add(nameOf(app), 0)
	}
	return next{}, nil
}

// begin takes up a new operation. Its record is merged into the one that stood before, if any did.
func (p *pass) begin(ctx context.Context) error {
	operation, err := fieldOf[argoOperation](p.app, "operation")
	if err != nil {
		return err
	}
	p.state = &argoState{Operation: *operation, Phase: argoRunning, StartedAt: argoNow()}
	return p.write(ctx)
}

// retry starts an operation that failed anew, once it has waited for long enough.
func (p *pass) retry(ctx context.Context) (wait time.Duration, err error) {
	s := p.state
	finished, err := time.Parse(time.RFC3339, s.FinishedAt)
	if err != nil {
		return 0, err
	}
	wait, err = s.Operation.Retry.wait(s.RetryCount)
	if err != nil {
		s.end(argoError, "%s", err)
		return 0, p.write(ctx)
	}
	if wait = time.Until(finished.Add(wait)); wait > 0 {
		return wait, nil
	}
	what := "operation"
	if s.Operation.Retry.Refresh && s.Operation.Sync != nil {
		what = "operation with latest revisions"
		s.Operation.Sync.Revision = ""
	}
	s.Message, s.FinishedAt, s.SyncResult = fmt.Sprintf("Retrying %s. Attempt #%d", what, s.RetryCount), "", nil
	return 0, p.write(ctx)
}

// conclude writes how a pass ended. One that failed is tried again as often as the operation says, unless it was terminated.
func (p *pass) conclude(ctx context.Context, terminating bool) error {
	s := p.state
	switch {
	case s.Phase == argoRunning:
		now, err := p.get(ctx, nameOf(p.app))
		if err != nil {
			return ignoreNotFound(err)
		}
		if phase, _, _ := unstructured.NestedString(now.Object, "status", "operationState", "phase"); phase == argoTerminating {
			s.end(argoTerminating, "operation is terminating")
		}
	case s.Phase != argoFailed && s.Phase != argoError:
	case !terminating && (s.RetryCount < s.Operation.Retry.Limit || s.Operation.Retry.Limit < 0):
		wait, err := s.Operation.Retry.wait(s.RetryCount)
		if err != nil {
			s.end(argoError, "%s (failed to retry: %s)", s.Message, err)
			break
		}
		s.RetryCount++
		s.FinishedAt = argoNow()
		s.end(argoRunning, "%s. Retrying attempt #%d at %s.", s.Message, s.RetryCount, time.Now().Add(wait).Format(time.Kitchen))
	case s.RetryCount > 0:
		s.Message = fmt.Sprintf("%s (retried %d times).", s.Message, s.RetryCount)
	}
	return p.write(ctx)
}

// write merges the record into what stands there, and removes the operation with the same patch once it has completed,
// whichever operation that is by now.
func (p *pass) write(ctx context.Context) error {
	if p.state.completed() {
		p.state.FinishedAt = argoNow()
	}
	text, err := json.Marshal(p.state)
	if err != nil || bytes.Equal(text, p.written) {
		return err
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		return err
	}
	if p.state.FinishedAt == "" {
		record["finishedAt"] = nil
	}
	patch := map[string]any{"status": map[string]any{"operationState": record}}
	if p.state.completed() {
		patch["operation"] = nil
	}
	p.written = text
	if err := p.patch(ctx, nameOf(p.app), patch); err != nil {
		return err
	}
	if p.state.completed() {
		p.report(ctx)
	}
	return nil
}

// finalize deletes what an Application has applied, where its finalizer says so, and lets it go.
func (c *applicationController) finalize(ctx context.Context, app *unstructured.Unstructured) error {
	var finalizers []any
	found := false
	for _, finalizer := range app.GetFinalizers() {
		if strings.HasPrefix(finalizer, argoFinalizer) {
			found = true
		} else {
			finalizers = append(finalizers, finalizer)
		}
	}
	if !found {
		return nil
	}
	tracked, err := c.tracked(ctx, app)
	if err != nil {
		return err
	}
	for _, object := range tracked {
		if err := c.delete(ctx, object); err != nil {
			c.event(ctx, app, corev1.EventTypeWarning, "StatusRefreshed", "Unable to delete application resources: "+err.Error())
			return err
		}
	}
	err = c.patch(ctx, nameOf(app), map[string]any{"metadata": map[string]any{"resourceVersion": app.GetResourceVersion(), "finalizers": finalizers}})
	if apierrors.IsConflict(err) {
		c.operations.add(nameOf(app), 0)
		return nil
	}
	return err
}
