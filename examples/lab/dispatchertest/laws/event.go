package laws

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Policy makes an API server record what this package reads: every write to the appliers, their sources and the host's
// records, and of service accounts, which the hosts use, every request. It takes the API group of the host's records.
func Policy(group string) string {
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: kustomize.toolkit.fluxcd.io
  - group: source.toolkit.fluxcd.io
  - {group: argoproj.io, resources: [applications]}
  - group: %s
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`, group)
}

// The resources that the log is read for.
const (
	kustomizations  = "kustomizations"
	gitRepositories = "gitrepositories"
	applications    = "applications"
)

// Object names an object.
type Object struct{ Resource, Namespace, Name string }

func (o Object) String() string { return o.Resource + " " + o.Namespace + "/" + o.Name }

// Event is one request that was answered.
type Event struct {
	// At is when the API server received it.
	At time.Time
	// Agent is the client, up to the first slash of its user agent. Host is whether it is a host's.
	Agent string
	Host  bool
	// Verb is that of the authorizer: a server-side apply is a patch.
	Verb        string
	Object      Object
	Subresource string
	// Manager is the field manager, if the client named it.
	Manager string
	Code    int
	// Sent is what a host sent, and Left what the object was afterwards; nil where there is none, such as after a
	// refusal.
	Sent, Left *State
}

// Writes reports whether the event may have changed something.
func (e *Event) Writes() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Made reports whether the event is a write that was made.
func (e *Event) Made() bool { return e.Writes() && e.Code/100 == 2 && e.Left != nil }

// Unanswered reports whether the event is a write of which nobody knows whether it was made: the API server gave up on it,
// or its client was gone (504), or it stopped.
func (e *Event) Unanswered() bool { return e.Writes() && (e.Code == 0 || e.Code >= 500) }

// line is one line of the log, an Event of audit.k8s.io/v1.
type line struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
	Received       time.Time       `json:"requestReceivedTimestamp"`
}

// Log is what was read of an audit log.
type Log struct {
	// Events are in the order of the log.
	Events []*Event
}

// Read reads an audit log. Users whose names begin with host are hosts; triggers is the resource of their records.
func Read(r io.Reader, host, triggers string) (*Log, error) {
	log := &Log{}
	lines := bufio.NewReaderSize(r, 1<<20)
	for number := 1; ; number++ {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 && err == nil { // the last one may still be being written
			e, err := readEvent(text, host, triggers)
			if err != nil {
				return nil, fmt.Errorf("line %d of the audit log: %w", number, err)
			}
			if e != nil {
				log.Events = append(log.Events, e)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return log, nil
		case err != nil:
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
	}
}

func readEvent(text []byte, host, triggers string) (*Event, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	if l.Stage != "ResponseComplete" && l.Stage != "Panic" {
		return nil, nil
	}
	agent, _, _ := strings.Cut(l.UserAgent, "/")
	e := &Event{
		At: l.Received, Agent: agent, Host: strings.HasPrefix(l.User.Username, host),
		Verb:        l.Verb,
		Object:      Object{l.ObjectRef.Resource, l.ObjectRef.Namespace, l.ObjectRef.Name},
		Subresource: l.ObjectRef.Subresource,
		Code:        l.ResponseStatus.Code,
	}
	if uri, err := url.Parse(l.URI); err == nil {
		e.Manager = uri.Query().Get("fieldManager")
	}
	if !e.Writes() {
		return e, nil
	}
	var err error
	if e.Host && len(l.RequestObject) > 0 {
		if e.Sent, err = readState(l.RequestObject, e.Object.Resource, triggers, true); err != nil {
			return nil, err
		}
	}
	if e.Code/100 == 2 && len(l.ResponseObject) > 0 {
		e.Left, err = readState(l.ResponseObject, e.Object.Resource, triggers, false)
	}
	return e, err
}

// before reports whether resourceVersion a is older than b. None is older or newer than none.
func before(a, b string) bool {
	x, xErr := strconv.ParseUint(a, 10, 64)
	y, yErr := strconv.ParseUint(b, 10, 64)
	return xErr == nil && yErr == nil && x < y
}
