package fake

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// argoComponent is what the application-controller calls itself in Events.
const argoComponent = "argocd-application-controller"

// event writes an Event about an Application, unless the controller is being stopped. Each is a new one: the
// application-controller counts nothing and combines nothing.
func (c *applicationController) event(ctx context.Context, app *unstructured.Unstructured, kind, reason, message string) {
	if ctx.Err() != nil {
		return
	}
	log := c.argo.cluster.events
	event := log.newEvent(argoComponent, app, kind, reason, message)
	destination, _, _ := unstructured.NestedStringMap(app.Object, "spec", "destination")
	event.Annotations = map[string]string{"dest-server": destination["server"], "dest-namespace": destination["namespace"]}
	log.create(event)
}

// report says how an operation ended.
func (p *pass) report(ctx context.Context) {
	message := "Sync operation"
	if sync := p.state.Operation.Sync; sync != nil && len(sync.Resources) > 0 {
		message = "Partial sync operation"
	}
	if p.state.SyncResult != nil {
		message += " to " + p.state.SyncResult.Revision
	}
	if p.state.Phase == argoSucceeded {
		p.event(ctx, p.app, corev1.EventTypeNormal, "OperationCompleted", message+" succeeded")
		return
	}
	p.event(ctx, p.app, corev1.EventTypeWarning, "OperationCompleted", message+" failed: "+p.state.Message)
}

// reportChanges says what a comparison found otherwise than the one before.
func (c *applicationController) reportChanges(ctx context.Context, app *unstructured.Unstructured, found comparison) {
	for _, field := range []struct{ name, now string }{{"sync", found.status}, {"health", found.health}} {
		if before, _, _ := unstructured.NestedString(app.Object, "status", field.name, "status"); before != field.now {
			c.event(ctx, app, corev1.EventTypeNormal, "ResourceUpdated", fmt.Sprintf("Updated %s status: %s -> %s", field.name, before, field.now))
		}
	}
}
