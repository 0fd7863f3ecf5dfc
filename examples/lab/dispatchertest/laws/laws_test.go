package laws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	commit = "1111111111111111111111111111111111111111"
	other  = "2222222222222222222222222222222222222222"
)

type object = map[string]any

// story is a made-up audit log, one request after another, a second apart.
type story struct {
	lines     []object
	decisions []Decision
}

var begin = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// at is when the n-th line was received.
func at(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }

// request is a line of the log. Its sender is a host if it is named so.
func request(agent, verb, resource, name string, code int, sent, left object) object {
	user := "lab-admin"
	if strings.HasPrefix(agent, "host") {
		user = "system:serviceaccount:hosts:host"
	}
	return object{
		"stage": "ResponseComplete", "verb": verb, "userAgent": agent + "/v1", "user": object{"username": user},
		"requestURI":     "/apis/x?fieldManager=lib&force=true",
		"objectRef":      object{"resource": resource, "namespace": "team", "name": name},
		"responseStatus": object{"code": code}, "requestObject": sent, "responseObject": left,
	}
}

// stored is an object in a version.
func stored(version int, parts ...object) object {
	u := object{"metadata": object{"name": "app", "namespace": "team", "uid": "u1", "resourceVersion": fmt.Sprint(version)}}
	for _, part := range parts {
		merge(u, part)
	}
	return u
}

func merge(into, from object) {
	for key, value := range from {
		if inner, ok := value.(object); ok {
			if _, ok := into[key].(object); !ok {
				into[key] = object{}
			}
			merge(into[key].(object), inner)
			continue
		}
		into[key] = value
	}
}

func requested(token string) object {
	return object{"metadata": object{"annotations": object{"reconcile.fluxcd.io/requestedAt": token}}}
}

func suspend(is bool) object { return object{"spec": object{"suspend": is}} }

func handled(token string) object { return object{"status": object{"lastHandledReconcileAt": token}} }

func applied(commit string) object {
	return object{"status": object{"lastAppliedRevision": "main@sha1:" + commit}}
}

// record is a trigger that shows an operation.
func record(version int, kind, outcome string, progress object) object {
	operation := object{
		"applier":  object{"cluster": "lab", "kind": kind, "namespace": "team", "name": "app"},
		"started":  object{"token": "go", "outcome": outcome, "commit": commit, "uid": "u1"},
		"progress": progress,
	}
	return stored(version, object{"status": object{"record": object{"operation": operation}}})
}

func fetched(version int) object {
	return stored(version, object{"status": object{"artifact": object{"revision": "main@sha1:" + commit}}})
}

// apply is what a host sends to an object of Flux's.
func apply(version string, parts ...object) object {
	u := object{"apiVersion": "v1", "kind": "K", "metadata": object{"name": "app", "namespace": "team", "uid": "u1"}}
	if version != "" {
		u["metadata"].(object)["resourceVersion"] = version
	}
	for _, part := range parts {
		merge(u, part)
	}
	return u
}

// The steps of a held Kustomization's story.
const (
	heldFetched = iota
	heldRecorded
	heldResumed
	heldApplied
	heldSuspended
	heldHandled
	heldEnded
)

func held() *story {
	succeeded := object{
		"state": "Succeeded", "reason": "ReconciliationSucceeded", "suspendToken": "stop", "appliedCommit": commit,
	}
	return (&story{lines: []object{
		request("source-controller", "patch", gitRepositories, "app", 200, nil, fetched(10)),
		request("host-1", "update", "triggers", "app", 200, nil, record(11, "Kustomization", "Resumed", object{"state": "Requested"})),
		request("host-1", "patch", kustomizations, "app", 200, apply("9", requested("go"), suspend(false)),
			stored(12, requested("go"), suspend(false))),
		request("kustomize-controller", "patch", kustomizations, "app", 200, nil,
			stored(13, requested("go"), suspend(false), handled("go"), applied(commit))),
		request("host-1", "patch", kustomizations, "app", 200, apply("13", requested("stop"), suspend(true)),
			stored(14, requested("stop"), suspend(true), handled("go"), applied(commit))),
		request("kustomize-controller", "patch", kustomizations, "app", 200, nil,
			stored(15, requested("stop"), suspend(true), handled("stop"), applied(commit))),
		request("host-1", "update", "triggers", "app", 200, nil, record(16, "Kustomization", "Resumed", succeeded)),
	}}).decided()
}

// The steps of an Application's story.
const (
	appStands = iota
	appRecorded
	appAsked
	appSynced
	appEnded
)

func application() *story {
	operation := object{
		"info": []any{object{"name": "gitops-applier.github.io/token", "value": "go"}},
		"sync": object{"revision": commit},
	}
	spec := object{"spec": object{"project": "default"}}
	state := object{"status": object{"operationState": object{
		"phase": "Succeeded", "operation": operation, "syncResult": object{"revision": commit},
	}}}
	succeeded := object{"state": "Succeeded", "reason": "Succeeded", "appliedCommit": commit}
	return (&story{lines: []object{
		request("argocd-application-controller", "patch", applications, "app", 200, nil, stored(10, spec)),
		request("host-1", "update", "triggers", "app", 200, nil, record(11, "Application", "SyncRequested", object{"state": "Requested"})),
		request("host-1", "update", applications, "app", 200, stored(10, spec, object{"operation": operation}),
			stored(12, spec, object{"operation": operation})),
		request("argocd-application-controller", "patch", applications, "app", 200, nil, stored(13, spec, state)),
		request("host-1", "update", "triggers", "app", 200, nil, record(14, "Application", "SyncRequested", succeeded)),
	}}).decided()
}

// decided lets the worker of host-1 say that its decision holds right before each of the first lines.
func (s *story) decided() *story {
	for i := range s.lines {
		s.decisions = append(s.decisions, Decision{
			At: at(i).Add(-time.Millisecond), Agent: "host-1", Trigger: Object{"triggers", "team", "app"}, Commit: commit, Holds: true,
		})
	}
	return s
}

// read writes the story as a log, and reads that.
func (s *story) read(t *testing.T) *Log {
	t.Helper()
	var text bytes.Buffer
	for i, l := range s.lines {
		l["requestReceivedTimestamp"] = at(i)
		require.NoError(t, json.NewEncoder(&text).Encode(l))
	}
	log, err := Read(&text, "system:serviceaccount:hosts:", "triggers")
	require.NoError(t, err)
	require.Len(t, log.Events, len(s.lines))
	return log
}

// set sets a field of a line.
func (s *story) set(n int, value any, path ...string) {
	inner := s.lines[n]
	for _, key := range path[:len(path)-1] {
		inner = inner[key].(object)
	}
	inner[path[len(path)-1]] = value
}

func (s *story) unset(n int, path ...string) {
	inner := s.lines[n]
	for _, key := range path[:len(path)-1] {
		inner = inner[key].(object)
	}
	delete(inner, path[len(path)-1])
}

// drop leaves out a line. The times of the others stay.
func (s *story) drop(n int) {
	s.lines[n] = request("somebody", "get", "nodes", "n", 200, nil, nil)
}

func (s *story) add(line object) { s.lines = append(s.lines, line) }

func lawsOf(violations []Violation) []int {
	var laws []int
	for _, v := range violations {
		laws = append(laws, v.Law)
	}
	slices.Sort(laws)
	return slices.Compact(laws)
}

func TestAStoryThatKeepsTheLawsViolatesNone(t *testing.T) {
	t.Parallel()
	live := held()
	for _, n := range []int{heldRecorded, heldEnded} {
		live.set(n, "Stamped", "responseObject", "status", "record", "operation", "started", "outcome")
	}
	live.unset(heldResumed, "requestObject", "spec")
	live.drop(heldSuspended)
	live.drop(heldHandled)
	for name, s := range map[string]*story{"held": held(), "live": live, "application": application()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := s.read(t)
			assert.Empty(t, log.Check(s.decisions, nil))
			operations := log.Operations()
			require.Len(t, operations, 1)
			assert.Equal(t, "go", operations[0].Token)
			assert.Len(t, operations[0].Starts, 1)
			assert.Contains(t, log.History(operations[0]), "record=go state=Succeeded")
		})
	}
}

func TestEachLawIsSeenToBeBroken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		law   int
		story *story
		but   func(*story)
	}{
		{"the decision no longer held", 1, held(), func(s *story) { s.decisions[heldResumed].Holds = false }},
		{"nobody decided", 1, held(), func(s *story) { s.decisions = nil }},
		{"another host decided", 1, held(), func(s *story) {
			for i := range s.decisions {
				s.decisions[i].Agent = "host-2"
			}
		}},
		{"another commit was decided", 1, held(), func(s *story) { s.decisions[heldResumed].Commit = other }},
		{"no source held the commit", 1, held(), func(s *story) { s.drop(heldFetched) }},
		{"the source held the commit after the resume", 1, held(), func(s *story) {
			s.set(heldFetched, "17", "responseObject", "metadata", "resourceVersion")
		}},
		{"another commit was asked for", 1, application(), func(s *story) {
			s.set(appAsked, other, "requestObject", "operation", "sync", "revision")
		}},
		{"an Application was asked against the decision", 1, application(), func(s *story) { s.decisions[appAsked].Holds = false }},

		{"a resume was not recorded", 2, held(), func(s *story) { s.drop(heldRecorded) }},
		{"a resume was recorded after it", 2, held(), func(s *story) {
			s.lines[heldRecorded], s.lines[heldResumed] = s.lines[heldResumed], s.lines[heldRecorded]
		}},
		{"a resume was recorded in a later version", 2, held(), func(s *story) {
			s.set(heldRecorded, "13", "responseObject", "metadata", "resourceVersion")
		}},
		{"a refused resume was not recorded", 2, held(), func(s *story) {
			s.add(request("host-1", "patch", kustomizations, "app", 409, apply("9", requested("again"), suspend(false)), nil))
		}},
		{"another incarnation was recorded", 2, held(), func(s *story) {
			s.set(heldRecorded, "u0", "responseObject", "status", "record", "operation", "started", "uid")
		}},
		{"another applier was recorded", 2, held(), func(s *story) {
			s.set(heldRecorded, "app-2", "responseObject", "status", "record", "operation", "applier", "name")
		}},
		{"a sync was not recorded", 2, application(), func(s *story) { s.drop(appRecorded) }},

		{"it was left resumed", 3, held(), func(s *story) {
			s.drop(heldSuspended)
			s.set(heldHandled, false, "responseObject", "spec", "suspend")
			s.drop(heldEnded)
		}},
		{"the suspend was refused", 3, held(), func(s *story) {
			s.set(heldSuspended, 409, "responseStatus", "code")
			s.set(heldHandled, false, "responseObject", "spec", "suspend")
			s.drop(heldEnded)
		}},
		{"it was resumed again without a suspend", 3, held(), func(s *story) {
			again := s.lines[heldResumed]
			s.lines[heldSuspended] = request("host-1", "patch", kustomizations, "app", 200, again["requestObject"].(object),
				stored(14, requested("go"), suspend(false)))
			s.add(request("host-1", "patch", kustomizations, "app", 200, apply("17", requested("stop"), suspend(true)),
				stored(18, requested("stop"), suspend(true))))
		}},
		{"it ended before the suspend was handled", 3, held(), func(s *story) { s.drop(heldHandled) }},
		{"it ended in a version before the suspend was handled", 3, held(), func(s *story) {
			s.set(heldHandled, "17", "responseObject", "metadata", "resourceVersion")
		}},
		{"it ended without a suspend", 3, held(), func(s *story) { s.drop(heldSuspended) }},
		{"it ended when an earlier suspend was handled", 3, held(), func(s *story) {
			s.set(heldHandled, "earlier", "responseObject", "status", "lastHandledReconcileAt")
		}},

		{"a resume without a UID", 4, held(), func(s *story) { s.unset(heldResumed, "requestObject", "metadata", "uid") }},
		{"a resume without a resourceVersion", 4, held(), func(s *story) {
			s.unset(heldResumed, "requestObject", "metadata", "resourceVersion")
		}},
		{"a suspend without a UID", 4, held(), func(s *story) { s.unset(heldSuspended, "requestObject", "metadata", "uid") }},
		{"a field that is somebody else's", 4, held(), func(s *story) {
			s.set(heldSuspended, "1m", "requestObject", "spec", "interval")
		}},
		{"another field manager", 4, held(), func(s *story) { s.set(heldResumed, "/apis/x?fieldManager=kubectl", "requestURI") }},
		{"a field of a source", 4, held(), func(s *story) {
			s.add(request("host-1", "patch", gitRepositories, "app", 200, apply("", requested("now"), suspend(false)), fetched(18)))
		}},
		{"a delete", 4, held(), func(s *story) { s.add(request("host-1", "delete", kustomizations, "app", 200, nil, nil)) }},
		{"an update that changes the spec", 4, application(), func(s *story) {
			s.set(appAsked, "other", "requestObject", "spec", "project")
		}},
		{"an update of an older version", 4, application(), func(s *story) {
			s.add(request("alice", "patch", applications, "app", 200, nil, stored(11)))
		}},
		{"an update without a resourceVersion", 4, application(), func(s *story) {
			s.unset(appAsked, "requestObject", "metadata", "resourceVersion")
		}},
		{"an update in place of an operation without a token", 4, application(), func(s *story) {
			s.set(appStands, object{"sync": object{"revision": other}}, "responseObject", "operation")
		}},
		{"an update in place of another's operation", 4, application(), func(s *story) {
			s.set(appStands, object{"info": []any{object{"name": "gitops-applier.github.io/token", "value": "alices"}}}, "responseObject", "operation")
		}},

		{"no end was recorded", 5, held(), func(s *story) { s.drop(heldEnded) }},
		{"a record was left open", 5, held(), func(s *story) { s.drop(heldResumed); s.drop(heldEnded) }},
		{"two ends were recorded", 5, held(), func(s *story) {
			s.add(request("host-2", "update", "triggers", "app", 200, nil,
				record(17, "Kustomization", "Resumed", object{"state": "Failed", "reason": "Interrupted", "suspendToken": "stop"})))
		}},
		{"an end was taken back", 5, held(), func(s *story) {
			s.add(request("host-2", "update", "triggers", "app", 200, nil, record(17, "Kustomization", "Resumed", object{"state": "Running"})))
		}},

		{"it did run", 6, held(), func(s *story) {
			s.set(heldEnded, object{"state": "Failed", "reason": "NotRun", "suspendToken": "stop"},
				"responseObject", "status", "record", "operation", "progress")
		}},
		{"it was synced", 6, application(), func(s *story) {
			s.set(appEnded, object{"state": "Failed", "reason": "NotRun"}, "responseObject", "status", "record", "operation", "progress")
		}},

		{"another commit was applied", 7, held(), func(s *story) {
			for _, n := range []int{heldApplied, heldSuspended, heldHandled} {
				s.set(n, "main@sha1:"+other, "responseObject", "status", "lastAppliedRevision")
			}
		}},
		{"another commit is not called so", 7, held(), func(s *story) {
			s.set(heldEnded, other, "responseObject", "status", "record", "operation", "progress", "appliedCommit")
		}},
		{"it was not asked", 7, held(), func(s *story) { s.drop(heldResumed) }},
		{"it applied only after the end", 7, held(), func(s *story) {
			s.set(heldEnded, "13", "responseObject", "metadata", "resourceVersion")
		}},
		{"the sync was another's", 7, application(), func(s *story) {
			s.unset(appSynced, "responseObject", "status", "operationState", "operation")
		}},
		{"another commit was synced", 7, application(), func(s *story) {
			s.set(appSynced, other, "responseObject", "status", "operationState", "syncResult", "revision")
		}},
		{"the sync failed", 7, application(), func(s *story) {
			s.set(appSynced, "Failed", "responseObject", "status", "operationState", "phase")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.but(test.story)
			log := test.story.read(t)
			violations := log.Check(test.story.decisions, nil)
			assert.Contains(t, lawsOf(violations), test.law, "%v", violations)
		})
	}
}

func TestAResumeThatWasNotMadeNeedsNoEnd(t *testing.T) {
	t.Parallel()
	s := held()
	s.set(heldResumed, 409, "responseStatus", "code")
	s.lines = s.lines[:heldResumed+1]
	s.add(request("host-1", "update", "triggers", "app", 200, nil, stored(13))) // it is withdrawn
	assert.Empty(t, s.read(t).Check(s.decisions, nil))
}

// An API server that is busy turns requests away before it reads them.
func TestAWriteThatWasTurnedAwayUnreadIsNoViolation(t *testing.T) {
	t.Parallel()
	s := held()
	s.add(request("host-1", "patch", "gitrepositories", "app", 429, nil, nil))
	s.unset(len(s.lines)-1, "requestObject")
	assert.Empty(t, s.read(t).Check(s.decisions, nil))
}

// An API server that is stopped, and a client that is, leave writes of which nobody knows whether they were made.
func TestWhatCannotBeKnownIsNoViolation(t *testing.T) {
	t.Parallel()
	unanswered := func(n int) func(*story) {
		return func(s *story) {
			s.set(n, 504, "responseStatus", "code")
			s.unset(n, "responseObject")
		}
	}
	for name, but := range map[string]func(*story){
		"the resume":                        unanswered(heldResumed),
		"the suspend":                       unanswered(heldSuspended),
		"the status after the run":          unanswered(heldApplied),
		"the status that handles a suspend": unanswered(heldHandled),
		"the end, which was seen there later": func(s *story) {
			unanswered(heldEnded)(s)
			succeeded := object{"state": "Succeeded", "reason": "ReconciliationSucceeded", "suspendToken": "stop", "appliedCommit": commit}
			s.add(request("alice", "patch", "triggers", "app", 200, nil, record(17, "Kustomization", "Resumed", succeeded)))
		},
		"the end, over which the next was recorded": func(s *story) {
			s.set(heldEnded, s.lines[heldEnded]["responseObject"], "requestObject")
			unanswered(heldEnded)(s)
			s.add(request("alice", "patch", "triggers", "app", 200, nil, stored(17)))
		},
		"the status of the source before it": unanswered(heldFetched),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held()
			but(s)
			assert.Empty(t, s.read(t).Check(s.decisions, nil))
		})
	}
}

func TestWhatTheAPIServerWasDoingWhenItWasStoppedMayBeMissing(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{
		"the resume": heldResumed, "the suspend": heldSuspended, "the status after the run": heldApplied, "the status that handles the suspend": heldHandled, "the end": heldEnded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held()
			s.drop(n)
			s.add(request("host-2", "update", "triggers", "app", 200, nil, stored(17))) // the next one
			log := s.read(t)
			stops := []time.Time{at(n).Add(-time.Millisecond)}
			assert.Empty(t, log.Check(s.decisions, stops))
			if n != heldApplied { // which the later ones show too
				assert.NotEmpty(t, log.Check(s.decisions, nil))
				assert.NotEmpty(t, log.Check(s.decisions, []time.Time{begin}), "another time explains nothing")
			}
		})
	}
}

// A record has to be known to be there before anything starts.
func TestARecordThatMayNotHaveBeenMadeIsNone(t *testing.T) {
	t.Parallel()
	s := held()
	s.set(heldRecorded, 504, "responseStatus", "code")
	assert.Contains(t, lawsOf(s.read(t).Check(s.decisions, nil)), 2)
}

func TestARequestInTheQuietIsSeen(t *testing.T) {
	t.Parallel()
	s := &story{}
	s.add(request("host-1", "get", kustomizations, "app", 200, nil, nil))
	s.add(request("host-1", "watch", kustomizations, "", 200, nil, nil))
	s.add(request("kustomize-controller", "get", kustomizations, "app", 200, nil, nil))
	log := s.read(t)
	assert.Empty(t, log.Quiet(at(0).Add(time.Millisecond), at(9)), "renewing a watch is none, and others may")
	require.Len(t, log.Quiet(at(0).Add(-time.Millisecond), at(9)), 1)
	assert.Contains(t, log.Quiet(begin.Add(-time.Second), at(9))[0].String(), "law 8: a request while nothing changes: 15:00:00.000000 host-1 get")
}

func TestALogThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	_, err := Read(strings.NewReader("{\n"), "", "")
	assert.ErrorContains(t, err, "line 1 of the audit log")
}
