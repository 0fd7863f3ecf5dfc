package gitopsprovider_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func status(t *testing.T, m *memory, w gitopsprovider.Workload) gitopsprovider.ResourceStatus {
	t.Helper()
	status, err := views(t, gitopsprovider.NoDiffer{}, m).ResourceStatus(t.Context(), w)
	require.NoError(t, err)
	return status
}

func TestAResourceStatusShowsWhatTheObjectSaysAndItsEvents(t *testing.T) {
	t.Parallel()
	object := app("ns/a", is(failing("BuildFailed", "no such file")))
	object.Suspended, object.Deleting = true, true
	object.References = []gitopsprovider.Reference{{Field: "source", Value: "Repo ns/r"}}
	m := newMemory(object)
	m.events = []gitopsprovider.Event{{Reason: "First"}, {Reason: "Second"}}

	assert.Equal(t, gitopsprovider.ResourceStatus{
		Workload: object.Workload, Engine: "Delivery", Answer: gitopsprovider.AnswerFound, Ready: object.Ready,
		Suspended: true, Deleting: true, References: object.References, Events: m.events, EventsAnswer: gitopsprovider.AnswerFound,
	}, status(t, m, object.Workload))
	assert.Equal(t, 1, m.gets[object.Workload])
}

func TestAResourceStatusHoldsTheNewestEvents(t *testing.T) {
	t.Parallel()
	m := newMemory(app("ns/a"))
	for i := range 100 {
		m.events = append(m.events, gitopsprovider.Event{Reason: fmt.Sprint(i)})
	}
	events := status(t, m, workload("App", "ns/a")).Events
	require.Len(t, events, gitopsprovider.MaxEvents)
	assert.Equal(t, "99", events[len(events)-1].Reason)
}

func TestAResourceStatusSaysWhatTheReadEstablished(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		answer gitopsprovider.Answer
		says   string
		events bool
	}{
		"absent":     {nil, gitopsprovider.AnswerAbsent, "App ns/gone in cluster test does not exist", true},
		"not served": {notServed(), gitopsprovider.AnswerNotServed, "does not serve this kind: is what defines it installed there?", false},
		"forbidden":  {forbidden("apps"), gitopsprovider.AnswerForbidden, "this identity may not read App ns/gone in cluster test", true},
		"no answer":  {errSilent, gitopsprovider.AnswerUnknown, "App ns/gone in cluster test could not be read: connection refused", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			m.failing["App"] = test.err
			m.events = []gitopsprovider.Event{{Reason: "Deleted"}}
			got := status(t, m, workload("App", "ns/gone"))

			assert.Equal(t, test.answer, got.Answer)
			assert.Contains(t, got.Message, test.says)
			assert.Equal(t, gitopsprovider.StateUnknown, got.Ready.State)
			assert.Equal(t, test.events, len(got.Events) == 1, "its Events may tell where it went")
			assert.Equal(t, test.err != nil || test.answer == gitopsprovider.AnswerAbsent, got.Err != nil)
		})
	}
}

func TestEventsThatCannotBeReadAreNotNone(t *testing.T) {
	t.Parallel()
	m := newMemory(app("ns/a"))
	m.failing["Event"] = forbidden("events")
	got := status(t, m, workload("App", "ns/a"))
	assert.Equal(t, gitopsprovider.AnswerFound, got.Answer)
	assert.Equal(t, gitopsprovider.AnswerForbidden, got.EventsAnswer)
	assert.Contains(t, got.EventsMessage, "may not read the Events of App ns/a in cluster test")
}

func TestAMalformedFieldIsSaid(t *testing.T) {
	t.Parallel()
	object := app("ns/a")
	object.Err = fmt.Errorf("field .spec.path is int64, not string")
	m := newMemory(object)
	got := status(t, m, object.Workload)
	assert.Equal(t, gitopsprovider.AnswerFound, got.Answer)
	assert.Equal(t, "App ns/a in cluster test: field .spec.path is int64, not string", got.Message)
	assert.Equal(t, got.Message, tree(t, m, object.Workload).Message)
}

func TestAResourceStatusEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	_, err := views(t, gitopsprovider.NoDiffer{}, newMemory()).ResourceStatus(ctx, workload("App", "ns/a"))
	require.ErrorIs(t, err, errSilent)
}

// What is named in part is asked for as another kind of object, which no cluster serves.
func TestWhatIsNamedInPartIsToldWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		w    gitopsprovider.Workload
		want string
	}{
		"no group":                 {gitopsprovider.Workload{Kind: "Deployment", Namespace: "a", Name: "web"}, "set Workload.Group, unless the kind is of the core group; or"},
		"no namespace":             {gitopsprovider.Workload{Kind: "App", Name: "web"}, ": set Workload.Namespace, unless the kind has none; or"},
		"neither of them":          {gitopsprovider.Workload{Kind: "Pod", Name: "web"}, "set Workload.Group, unless the kind is of the core group; set Workload.Namespace, unless"},
		"both, of a kind it lacks": {workload("App", "a/web"), "does not serve this kind: is what defines it installed there?"},
	} {
		for what, err := range map[string]error{"": notServed(), "by a guess": &gitopsprovider.AnswerError{Answer: gitopsprovider.AnswerUnknown, Err: notServed()}} {
			if what != "" && test.w.Group != "" {
				continue
			}
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				m := newMemory()
				m.failing[test.w.Kind] = err
				status, err := views(t, gitopsprovider.NoDiffer{}, m).ResourceStatus(t.Context(), test.w)
				require.NoError(t, err)
				assert.Contains(t, status.Message, test.want)
				tree, err := views(t, gitopsprovider.NoDiffer{}, m).DependencyTree(t.Context(), test.w)
				require.NoError(t, err)
				assert.Equal(t, status.Message, tree.Message)
			})
		}
	}
}

func TestAKindIsFoundInWhateverCaseItIsWritten(t *testing.T) {
	t.Parallel()
	m := newMemory(app("ns/a", applies("Repo ns/r", "", commitA)), repo("ns/r", shopURL))
	status, err := views(t, gitopsprovider.NoDiffer{}, m).ResourceStatus(t.Context(), gitopsprovider.Workload{Kind: "aPP", Namespace: "ns", Name: "a"})
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.AnswerFound, status.Answer)
	assert.Equal(t, workload("App", "ns/a"), status.Workload)
	assert.Len(t, changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Kind: "app"}).Changes, 1)
}
