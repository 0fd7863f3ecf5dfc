package laws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/argocd"
)

// State is what matters of an object, as sent or as stored.
type State struct {
	UID, Version string

	// Of Flux's objects: requestedAt, which token was handled last, and spec.suspend, nil if it is not stated.
	Requested, Handled string
	Suspend            *bool
	// Ready is status and reason of a Kustomization's condition, and Applied the commit that it applied last.
	Ready, Applied string
	// Fetched is the commit of a GitRepository's artifact.
	Fetched string

	// Of an Application: the token and commit of .operation, and those of the record of one with its phase. A token is
	// anonymous where there is an operation without one, and empty where there is none.
	Operation, OperationCommit string
	Phase, Synced, SyncedToken string

	// Record is the operation on a trigger; nil if it shows none.
	Record *applier.Operation

	// Fields are the paths of all values that were sent of an object of Flux's, and Rest is all of an Application but what a
	// request may change.
	Fields []string
	Rest   string
}

func readState(text []byte, resource, triggers string, sent bool) (*State, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return nil, err
	}
	s := &State{UID: string(u.GetUID()), Version: u.GetResourceVersion()}
	switch resource {
	case kustomizations, gitRepositories:
		s.readFlux(u)
		if sent {
			s.Fields = paths(u.Object, "")
		}
	case applications:
		return s, s.readApplication(u)
	case triggers:
		return s, s.readTrigger(u)
	}
	return s, nil
}

func (s *State) readFlux(u *unstructured.Unstructured) {
	s.Requested = u.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
	s.Handled = text(u.Object, "status", "lastHandledReconcileAt")
	if suspend, found, err := unstructured.NestedBool(u.Object, "spec", "suspend"); found && err == nil {
		s.Suspend = &suspend
	}
	s.Applied = gitref.CommitOf(text(u.Object, "status", "lastAppliedRevision"))
	s.Fetched = gitref.CommitOf(text(u.Object, "status", "artifact", "revision"))
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == fluxmeta.ReadyCondition {
			s.Ready = fmt.Sprintf("%v/%v", c["status"], c["reason"])
		}
	}
}

// paths returns the path of each value in object.
func paths(object map[string]any, prefix string) []string {
	var all []string
	for key, value := range object {
		if inner, ok := value.(map[string]any); ok {
			all = append(all, paths(inner, prefix+key+"/")...)
		} else {
			all = append(all, prefix+key)
		}
	}
	slices.Sort(all)
	return all
}

func (s *State) readApplication(u *unstructured.Unstructured) error {
	s.Operation = tokenOf(u.Object, "operation")
	s.OperationCommit = text(u.Object, "operation", "sync", "revision")
	s.Phase = text(u.Object, "status", "operationState", "phase")
	s.SyncedToken = tokenOf(u.Object, "status", "operationState", "operation")
	s.Synced = text(u.Object, "status", "operationState", "syncResult", "revision")
	for _, path := range [][]string{
		{"operation"}, {"status", "operationState"},
		{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"},
	} {
		unstructured.RemoveNestedField(u.Object, path...)
	}
	rest, err := json.Marshal(u.Object)
	s.Rest = string(rest)
	return err
}

// anonymous stands for the token of an operation that has none.
const anonymous = "anonymous"

func tokenOf(object map[string]any, path ...string) string {
	if operation, found, _ := unstructured.NestedMap(object, path...); !found || operation == nil {
		return ""
	}
	info, _, _ := unstructured.NestedSlice(object, append(path, "info")...)
	for _, entry := range info {
		if entry, ok := entry.(map[string]any); ok && entry["name"] == argocd.DefaultInfoKey {
			return fmt.Sprint(entry["value"])
		}
	}
	return anonymous
}

func (s *State) readTrigger(u *unstructured.Unstructured) error {
	operation, found, err := unstructured.NestedMap(u.Object, "status", "record", "operation")
	if !found || err != nil {
		return err
	}
	record, err := json.Marshal(operation)
	if err != nil {
		return err
	}
	return json.Unmarshal(record, &s.Record)
}

func text(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...)
	return value
}

// String says what the state shows, on one line.
func (s *State) String() string {
	var b strings.Builder
	show := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%s", name, value)
		}
	}
	show("rv", s.Version)
	show("uid", s.UID)
	if s.Suspend != nil {
		show("suspend", fmt.Sprint(*s.Suspend))
	}
	show("requested", s.Requested)
	show("handled", s.Handled)
	show("Ready", s.Ready)
	show("applied", gitref.Short(s.Applied))
	show("fetched", gitref.Short(s.Fetched))
	show("operation", s.Operation)
	show("of", gitref.Short(s.OperationCommit))
	show("phase", s.Phase)
	show("synced", gitref.Short(s.Synced))
	show("for", s.SyncedToken)
	if s.Record != nil {
		show("record", s.Record.Started.Token)
		show("state", string(s.Record.Progress.State))
		show("reason", s.Record.Progress.Reason)
		show("suspendToken", s.Record.Progress.SuspendToken)
		show("commit", gitref.Short(s.Record.Progress.AppliedCommit))
	}
	return strings.TrimSpace(b.String())
}
