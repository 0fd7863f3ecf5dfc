package hoststore

import (
	_ "embed" // crds.yaml
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/applier"
)

// The host's resources.
var (
	Triggers = schema.GroupVersionResource{Group: "delivery.example.com", Version: "v1", Resource: "applytriggers"}
	Targets  = schema.GroupVersionResource{Group: "delivery.example.com", Version: "v1", Resource: "deliverytargets"}
)

// HoldFinalizer is on an ApplyTrigger as long as it holds its applier, or has to hand it back.
const HoldFinalizer = "delivery.example.com/hold"

//go:embed crds.yaml
var definitions string

// Definitions returns the CustomResourceDefinitions of the host.
func Definitions() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(definitions, "\n---\n") {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &crd.Object); err != nil {
			return nil, err
		}
		all = append(all, crd)
	}
	return all, nil
}

// NewTrigger returns an ApplyTrigger that says what t does, but for its status.
func NewTrigger(t applier.Trigger) *unstructured.Unstructured {
	u := object("ApplyTrigger", t.Ref.Namespace, t.Ref.Name, map[string]any{
		"applier": map[string]any{
			"cluster": t.Applier.Cluster, "group": t.Applier.Group, "kind": t.Applier.Kind,
			"namespace": t.Applier.Namespace, "name": t.Applier.Name,
		},
		"live": t.Live,
	})
	if t.Holding {
		u.SetFinalizers([]string{HoldFinalizer})
	}
	return u
}

// NewTarget returns a DeliveryTarget that says what t does, with the admission that is to be written in its status.
func NewTarget(t applier.Target) *unstructured.Unstructured {
	u := object("DeliveryTarget", t.Ref.Namespace, t.Ref.Name, map[string]any{
		"trigger": t.Trigger.Name, "repository": t.Writes.Repository, "branch": t.Writes.Branch, "refusalConsent": t.RefusalConsent,
	})
	admission := make(map[string]any)
	for field, value := range map[string]string{
		"state": string(t.Admission.State), "reason": t.Admission.Reason, "message": t.Admission.Message,
	} {
		if value != "" {
			admission[field] = value
		}
	}
	u.Object["status"] = map[string]any{"admission": admission}
	return u
}

func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Triggers.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     spec,
	}}
}

// triggerOf reads an ApplyTrigger.
func triggerOf(u *unstructured.Unstructured) (applier.Trigger, error) {
	var object struct {
		Spec struct {
			Applier applier.ApplierRef `json:"applier"`
			Live    bool               `json:"live"`
		} `json:"spec"`
		Status struct {
			Record applier.TriggerStatus `json:"record"`
		} `json:"status"`
	}
	if err := decode(u, &object); err != nil {
		return applier.Trigger{}, err
	}
	return applier.Trigger{
		Ref:      applier.TriggerRef{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()},
		Created:  u.GetCreationTimestamp().Time,
		Deleting: u.GetDeletionTimestamp() != nil,
		Applier:  object.Spec.Applier,
		Live:     object.Spec.Live,
		Holding:  slices.Contains(u.GetFinalizers(), HoldFinalizer),
		Status:   object.Status.Record,
	}, nil
}

// targetOf reads a DeliveryTarget. It names an ApplyTrigger of its own namespace.
func targetOf(u *unstructured.Unstructured) (applier.Target, error) {
	var object struct {
		Spec struct {
			Trigger        string `json:"trigger"`
			Repository     string `json:"repository"`
			Branch         string `json:"branch"`
			RefusalConsent bool   `json:"refusalConsent"`
		} `json:"spec"`
		Status struct {
			Admission struct {
				State   applier.AdmissionState `json:"state"`
				Reason  string                 `json:"reason"`
				Message string                 `json:"message"`
			} `json:"admission"`
		} `json:"status"`
	}
	if err := decode(u, &object); err != nil {
		return applier.Target{}, err
	}
	return applier.Target{
		Ref:            applier.TargetRef{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()},
		Deleting:       u.GetDeletionTimestamp() != nil,
		Trigger:        applier.TriggerRef{Namespace: u.GetNamespace(), Name: object.Spec.Trigger},
		Writes:         applier.Binding{Repository: object.Spec.Repository, Branch: object.Spec.Branch},
		Admission:      applier.Admission(object.Status.Admission),
		RefusalConsent: object.Spec.RefusalConsent,
		Object:         u,
	}, nil
}

func decode(u *unstructured.Unstructured, into any) error {
	encoded, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(encoded, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s cannot be read: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// setRecord puts status into an ApplyTrigger as its record, and leaves the rest of its status.
func setRecord(u *unstructured.Unstructured, status applier.TriggerStatus) error {
	encoded, err := json.Marshal(status)
	if err != nil {
		return err
	}
	record := make(map[string]any)
	if err := json.Unmarshal(encoded, &record); err != nil {
		return err
	}
	return unstructured.SetNestedMap(u.Object, record, "status", "record")
}
