package laws

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Operation is what the log has of one operation.
type Operation struct {
	Token string
	// Applier is the object that was written to, or that the record names.
	Applier Object
	// Trigger is the object that has the record; zero if none has.
	Trigger Object
	// Records are the writes after which the trigger shows the operation, in order. Unanswered are those of hosts that say
	// so, of which nobody knows whether they were made.
	Records, Unanswered []*Event
	// Starts are the writes of hosts that may start it, refused ones included.
	Starts []*Event
}

// asked returns the commit that was asked for, as recorded last; empty if nothing is.
func (o *Operation) asked() string {
	if len(o.Records) == 0 {
		return ""
	}
	return o.Records[len(o.Records)-1].Left.Record.Started.Commit
}

// Started returns the write that started it, or may have; nil if none did.
func (o *Operation) Started() *Event {
	for _, start := range o.Starts {
		if start.Made() {
			return start
		}
	}
	for _, start := range o.Starts {
		if start.Unanswered() {
			return start
		}
	}
	return nil
}

// ended returns the first write that recorded its end, and that end; nil if none did.
func (o *Operation) ended() (*Event, *applier.Operation) {
	for _, e := range o.Records {
		if e.Left.Record.Completed() {
			return e, e.Left.Record
		}
	}
	return nil, nil
}

// Operations returns the operations that hosts recorded or started, by token.
func (l *Log) Operations() []*Operation {
	byToken := make(map[string]*Operation)
	operation := func(token string, applier Object) *Operation {
		if byToken[token] == nil {
			byToken[token] = &Operation{Token: token, Applier: applier}
		}
		return byToken[token]
	}
	for _, e := range l.Events {
		switch token := e.starts(); {
		case token != "":
			o := operation(token, e.Object)
			o.Starts = append(o.Starts, e)
		case e.Made() && e.Left.Record != nil:
			o := operation(e.Left.Record.Started.Token, objectOf(e.Left.Record.Applier))
			o.Trigger, o.Records = e.Object, append(o.Records, e)
		case e.Unanswered() && e.Sent != nil && e.Sent.Record != nil:
			o := operation(e.Sent.Record.Started.Token, objectOf(e.Sent.Record.Applier))
			o.Trigger, o.Unanswered = e.Object, append(o.Unanswered, e)
		}
	}
	var all []*Operation
	for _, o := range byToken {
		slices.SortStableFunc(o.Records, byVersion)
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *Operation) int { return strings.Compare(a.Token, b.Token) })
	return all
}

// starts returns the token of a write that may start an operation, or "".
func (e *Event) starts() string {
	switch {
	case !e.Host || e.Sent == nil:
	case e.Object.Resource == kustomizations && (e.Sent.Suspend == nil || !*e.Sent.Suspend):
		return e.Sent.Requested
	case e.Object.Resource == applications:
		return e.Sent.Operation
	}
	return ""
}

func objectOf(ref applier.ApplierRef) Object {
	resource := kustomizations
	if ref.Kind == "Application" {
		resource = applications
	}
	return Object{resource, ref.Namespace, ref.Name}
}

// byVersion puts writes that were made in the order in which they were.
func byVersion(a, b *Event) int {
	x, _ := strconv.ParseUint(a.Left.Version, 10, 64)
	y, _ := strconv.ParseUint(b.Left.Version, 10, 64)
	return cmp.Compare(x, y)
}

// History is what happened to the applier and the trigger of an operation around its time, for people.
func (l *Log) History(o *Operation) string {
	own := slices.Concat(o.Records, o.Unanswered, o.Starts)
	if len(own) == 0 {
		return "    nothing\n"
	}
	first := slices.MinFunc(own, byTime).At.Add(-5 * time.Second)
	last := slices.MaxFunc(own, byTime).At.Add(10 * time.Second)
	var about []*Event
	for _, e := range l.Events {
		if (e.Object == o.Applier || e.Object == o.Trigger) && !e.At.Before(first) && !e.At.After(last) {
			about = append(about, e)
		}
	}
	slices.SortStableFunc(about, byTime)
	var b strings.Builder
	for _, e := range about {
		fmt.Fprintf(&b, "    %s\n", e)
	}
	return b.String()
}

func byTime(a, b *Event) int { return a.At.Compare(b.At) }

// String is the event on one line.
func (e *Event) String() string {
	object := e.Object
	if e.Subresource != "" {
		object.Resource += "/" + e.Subresource
	}
	line := fmt.Sprintf("%s %s %s %s %d", e.At.Format("15:04:05.000000"), e.Agent, e.Verb, object, e.Code)
	if e.Sent != nil && e.Left == nil {
		line += " sent " + e.Sent.String()
	}
	if e.Left != nil {
		line += " " + e.Left.String()
	}
	return line
}
