package differential_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A world is one of the two clusters while a sequence of calls runs in it. It remembers what it answered, so that a
// later step can refer to it: "the resourceVersion before the last of object a".
type world struct {
	ctx       context.Context
	client    dynamic.Interface
	namespace string

	last     map[string]*unstructured.Unstructured
	versions map[string][]string
	uids     map[string][]string

	warnings *warnings
	ends     int
	answers  []answer
}

// An answer is what one call gave: objects or an error.
type answer struct {
	call    string
	objects []*unstructured.Unstructured
	note    string
	err     error

	warnings []string
}

// warnings collects what the server warns of, between two answers.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = nil
	return text
}

func newWorld(ctx context.Context, config *rest.Config, namespace string) (*world, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	warnings := &warnings{}
	config.WarningHandler = warnings
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &world{
		ctx: ctx, client: client, namespace: namespace, warnings: warnings,
		last: map[string]*unstructured.Unstructured{}, versions: map[string][]string{}, uids: map[string][]string{},
	}, nil
}

func (w *world) of(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return w.client.Resource(resource).Namespace(w.namespace)
}

// remember keeps what later steps may refer to.
func (w *world) remember(key string, object *unstructured.Unstructured) {
	if object == nil || object.GetUID() == "" || object.GetResourceVersion() == "" {
		return
	}
	w.last[key] = object.DeepCopy()
	if rv := object.GetResourceVersion(); !slices.Contains(w.versions[key], rv) {
		w.versions[key] = append(w.versions[key], rv)
	}
	if uid := string(object.GetUID()); !slices.Contains(w.uids[key], uid) {
		w.uids[key] = append(w.uids[key], uid)
	}
}

func (w *world) answer(call string, object *unstructured.Unstructured, err error) {
	a := answer{call: call, err: err, warnings: w.warnings.take()}
	if err == nil && object != nil {
		a.objects = append(a.objects, object)
	}
	w.answers = append(w.answers, a)
}

// back gives the n-th value from the end, 0 being the last.
func back(values []string, n int, missing string) string {
	if len(values) <= n {
		return missing
	}
	return values[len(values)-1-n]
}

// transcript renders all answers in a form that is the same for equal behaviour: resourceVersions are replaced by
// their rank, UIDs by the order in which they appeared, times by T.
func (w *world) transcript() []string {
	n := newNormalizer(w.answers)
	lines := make([]string, 0, len(w.answers))
	for _, a := range w.answers {
		lines = append(lines, n.render(a))
	}
	return lines
}

type normalizer struct {
	ranks map[string]int
	uids  map[string]int
	names map[string]int
}

var generated = regexp.MustCompile(`^gen-[a-z0-9]{5}$`)

func newNormalizer(answers []answer) *normalizer {
	n := &normalizer{ranks: map[string]int{}, uids: map[string]int{}, names: map[string]int{}}
	var revisions []int
	for _, a := range answers {
		for _, object := range a.objects {
			if revision, err := strconv.Atoi(object.GetResourceVersion()); err == nil {
				revisions = append(revisions, revision)
			}
			index(n.uids, string(object.GetUID()))
			if name := object.GetName(); generated.MatchString(name) {
				index(n.names, name)
			}
		}
	}
	slices.Sort(revisions)
	for i, revision := range slices.Compact(revisions) {
		n.ranks[strconv.Itoa(revision)] = i
	}
	return n
}

func index(seen map[string]int, value string) {
	if _, found := seen[value]; !found && value != "" {
		seen[value] = len(seen)
	}
}

func (n *normalizer) render(a answer) string {
	var b strings.Builder
	b.WriteString(a.call + " -> ")
	if a.err != nil {
		b.WriteString(n.renderError(a.err))
	}
	b.WriteString(a.note)
	for _, warning := range a.warnings {
		// The real server may say this of a write that it tries again, on an object it had in its cache.
		if strings.Contains(warning, "duplicate entries after mutating admission") {
			continue
		}
		b.WriteString("\n    warning: " + n.text(warning))
	}
	for _, object := range a.objects {
		data, err := json.Marshal(n.object(object))
		if err != nil {
			data = []byte(err.Error())
		}
		b.WriteString("\n    " + string(data))
	}
	return b.String()
}

func (n *normalizer) object(object *unstructured.Unstructured) map[string]any {
	u := object.DeepCopy()
	meta, _ := u.Object["metadata"].(map[string]any)
	if rv := u.GetResourceVersion(); rv != "" {
		meta["resourceVersion"] = n.revision(rv)
	}
	if uid := u.GetUID(); uid != "" {
		meta["uid"] = fmt.Sprintf("uid-%d", n.uids[string(uid)])
	}
	if i, found := n.names[u.GetName()]; found {
		meta["name"] = fmt.Sprintf("gen-%d", i)
	}
	for _, name := range []string{"creationTimestamp", "deletionTimestamp"} {
		if _, found := meta[name]; found {
			meta[name] = "T"
		}
	}
	if entries, ok := meta["managedFields"].([]any); ok {
		meta["managedFields"] = managed(entries)
	}
	return u.Object
}

// managed orders managed fields without their times, since they are kept in the order of time.
func managed(entries []any) []any {
	text := func(entry any) string {
		data, _ := json.Marshal(entry)
		return string(data)
	}
	for _, entry := range entries {
		if m, ok := entry.(map[string]any); ok {
			m["time"] = "T"
		}
	}
	slices.SortFunc(entries, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	return entries
}

func (n *normalizer) revision(rv string) string {
	if rank, found := n.ranks[rv]; found {
		return fmt.Sprintf("rv-%d", rank)
	}
	return "rv-?"
}

var (
	unborn = regexp.MustCompile(`\bgen-[a-z0-9]{5}\b`)
	// patched is a whole object in the message about a patch. Its managed fields are in the order of time.
	patched = regexp.MustCompile(`Invalid value: "\{.*\}": `)
	quoted  = regexp.MustCompile(`resourceVersion[^\d]{1,7}\d+`)
	digits  = regexp.MustCompile(`\d+`)
)

var number = regexp.MustCompile(`\((\d+)\)`)

func (n *normalizer) text(s string) string {
	for uid, i := range n.uids {
		s = strings.ReplaceAll(s, uid, fmt.Sprintf("uid-%d", i))
	}
	for name, i := range n.names {
		s = strings.ReplaceAll(s, name, fmt.Sprintf("gen-%d", i))
	}
	s = patched.ReplaceAllString(s, "Invalid value: {…}: ")
	s = unborn.ReplaceAllString(s, "gen-?")
	s = quoted.ReplaceAllStringFunc(s, func(m string) string { return "rv=" + n.revision(digits.FindString(m)) })
	s = number.ReplaceAllStringFunc(s, func(m string) string { return "(" + n.revision(strings.Trim(m, "()")) + ")" })
	return timestamps.ReplaceAllString(s, "T")
}

// sorted orders the lines of a message that joins several errors. Of what is wrong with the types of an object the server
// names some, not always the same.
func sorted(message string) string {
	for _, prefix := range []string{"failed to create typed patch object", "failed to convert new object"} {
		if strings.HasPrefix(message, prefix) {
			return prefix
		}
	}
	lines := strings.Split(message, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var timestamps = regexp.MustCompile(`20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z|\.?\d* \+0000 UTC)`)

// renderError gives code, reason and causes; the message as well where it is not put together from several causes,
// whose order is not fixed.
func (n *normalizer) renderError(err error) string {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		return "client error: " + n.text(err.Error())
	}
	status := api.Status()
	out := fmt.Sprintf("%d %s", status.Code, status.Reason)
	var causes []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			causes = append(causes, n.text(fmt.Sprintf("%s at %q: %s", cause.Type, cause.Field, cause.Message)))
		}
		out += fmt.Sprintf(" about %q", n.text(status.Details.Group+"/"+status.Details.Kind+"/"+status.Details.Name))
	}
	slices.Sort(causes)
	if len(causes) < 2 {
		out += ": " + n.text(sorted(status.Message))
	}
	for _, cause := range causes {
		out += "\n    " + cause
	}
	return out
}
