package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// A trouble is what happens to some of the requests of a process.
type trouble struct {
	name string
	// often is how often, of a thousand.
	often int
	// die is what is thrown for it: of several with the same one, at most one strikes a request.
	die   string
	fault fake.Fault
}

var errLate = errors.New("fake: the connection broke while the write was under way")

// disturb lets requests and calls get into trouble as long as there is chaos.
func (p *process) disturb() {
	passed := make(map[string]int) // what the troubles before it take of a die's thousand
	conflict := apierrors.NewConflict(schema.GroupResource{Group: "any", Resource: "objects"}, "one", errors.New("it changed"))
	for _, t := range []trouble{
		{"refused", 15, "answer", fake.Fault{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}},
		{"internal", 15, "answer", fake.Fault{Err: apierrors.NewInternalError(errors.New("leader changed"))}},
		{"busy", 10, "answer", fake.Fault{Err: apierrors.NewTooManyRequests("slow down", 1)}},
		{"lost", 25, "answer", fake.Fault{Lost: io.ErrUnexpectedEOF}},
		{"hangs", 4, "answer", fake.Fault{Delay: 2 * time.Minute}},
		{"stalls", 10, "answer", fake.Fault{Delay: 8 * time.Second}},
		{"conflict", 25, "answer", fake.Fault{Err: conflict, Match: writes}},
		{"late", 12, "answer", fake.Fault{Err: errLate, Match: writes, Before: p.landsLate}},
		{"overtaken", 40, "overtaken", fake.Fault{Match: writes, Before: p.overtaken}},
		{"watch ends", 80, "watch ends", fake.Fault{EndWatch: true, Events: 1, Verb: "watch"}},
		{"watch is silent", 80, "watch is silent", fake.Fault{SilenceWatch: true, Events: 2, Verb: "watch"}},
	} {
		fault, matches := t.fault, t.fault.Match
		from := passed[t.die]
		passed[t.die] += t.often
		fault.Match = func(r fake.Request) bool {
			if !p.w.chaos.Load() || matches != nil && !matches(r) {
				return false
			}
			roll := p.w.roll(t.die, p.name, r.Verb, r.Resource, r.Name, r.Time.UnixNano())
			return from <= roll && roll < from+t.often
		}
		before := t.fault.Before
		fault.Before = func(r fake.Request) {
			p.w.history.note(p.name, "  in trouble: %s: %v", t.name, r)
			if before != nil {
				before(r)
			}
		}
		p.view.Inject(fault)
	}
	for _, t := range []struct {
		name  string
		often int
		fault fake.StoreFault
	}{
		{"fails", 15, fake.StoreFault{Err: errors.New("the store is away")}},
		{"hangs", 3, fake.StoreFault{Delay: 2 * time.Minute}},
		{"dropped", 15, fake.StoreFault{Method: "UpdateStatus", Dropped: io.ErrUnexpectedEOF}},
		{"lost", 20, fake.StoreFault{Lost: io.ErrUnexpectedEOF}},
		{"overtaken", 30, fake.StoreFault{Method: "UpdateStatus", Between: func(c fake.StoreCall) {
			_ = p.w.store.ChangeTrigger(c.Trigger, func(t *applier.Trigger) { t.Status.RepairPending = !t.Status.RepairPending })
		}}},
	} {
		fault := t.fault
		fault.Match = func(c fake.StoreCall) bool {
			return p.w.chaos.Load() && p.w.roll(t.name, p.name, c.Method, c.Trigger.Name, c.Target.Name, time.Now().UnixNano()) < t.often
		}
		fault.Before = func(c fake.StoreCall) { p.w.history.note(p.name, "  in trouble: the store %s: %v", t.name, c) }
		p.records.Inject(fault)
	}
}

func writes(r fake.Request) bool { return r.Verb == "patch" || r.Verb == "update" }

// overtaken lets somebody else act on the object that is about to be written.
func (p *process) overtaken(r fake.Request) {
	for _, s := range p.w.subjects {
		if s.name == r.Name && s.resource().Resource == r.Resource {
			p.w.overtake(s, p.w.roll("overtakes", r.Name, r.Time.UnixNano()))
		}
	}
}

// landsLate makes a write arrive after the client has given it up, up to five seconds later, whoever lives then.
func (p *process) landsLate(r fake.Request) {
	w, late := p.w, time.Duration(p.w.hash("late", r.Name, r.Time.UnixNano())%5000)*time.Millisecond
	w.late.Go(func() {
		time.Sleep(late)
		var object unstructured.Unstructured
		if json.Unmarshal(r.Body, &object.Object) != nil {
			return
		}
		resource := w.cluster.Resource(schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}).Namespace(r.Namespace)
		var err error
		if r.Verb == "patch" {
			_, err = resource.Apply(context.Background(), r.Name, &object, metav1.ApplyOptions{FieldManager: r.FieldManager, Force: r.Force})
		} else {
			_, err = resource.Update(context.Background(), &object, metav1.UpdateOptions{FieldManager: r.FieldManager})
		}
		w.history.note(p.name, "  arrives late: %v: %v", r, err)
	})
}
