package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (s *Server) get(r *Request, v *version) (*Response, error) {
	var options metav1.GetOptions
	if err := r.options(&options); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.notOlderThan(options.ResourceVersion); err != nil {
		return nil, err
	}
	e := s.stores[v.kind.store()].objects[objectKey(v.namespaceOf(r), r.Name)]
	if e == nil {
		return nil, apierrors.NewNotFound(r.groupResource(), r.Name)
	}
	return entryResponse(http.StatusOK, v, e)
}

// A query is what a list or watch asks for.
type query struct {
	options  internalversion.ListOptions
	label    labels.Selector
	field    fields.Selector
	fieldsOf func(*entry) fields.Set
}

func (r *Request) query(v *version) (*query, error) {
	q := &query{label: labels.Everything(), field: fields.Everything()}
	if err := r.options(&q.options); err != nil {
		return nil, err
	}
	internalversion.SetListOptionsDefaults(&q.options, true)
	if errs := internalvalidation.ValidateListOptions(&q.options, true); len(errs) > 0 {
		return nil, invalidOptions("ListOptions", errs)
	}
	if q.options.LabelSelector != nil {
		q.label = q.options.LabelSelector
	}
	q.fieldsOf = func(e *entry) fields.Set { return selectable(v, e) }
	if q.options.FieldSelector != nil {
		q.field = q.options.FieldSelector
		known := v.kind.rules.selectableFields(v, map[string]any{})
		for _, requirement := range q.field.Requirements() {
			name := requirement.Field
			if _, ok := known[name]; !ok && name != "metadata.name" && name != "metadata.namespace" {
				return nil, apierrors.NewBadRequest(unknownField(v, name))
			}
		}
	}
	return q, nil
}

func unknownField(v *version, name string) string {
	if r, builtin := v.kind.rules.(*builtinRules); builtin && r.selectable == nil {
		return fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name)
	}
	return "field label not supported: " + name
}

func selectable(v *version, e *entry) fields.Set {
	set := fields.Set{"metadata.name": e.meta().GetName()}
	if v.kind.namespaced {
		set["metadata.namespace"] = e.meta().GetNamespace()
	}
	object := e.object
	if v != v.kind.store().storage {
		if u, err := e.as(v); err == nil {
			object = u.Object
		}
	}
	for name, value := range v.kind.rules.selectableFields(v, object) {
		set[name] = value
	}
	return set
}

func (q *query) matches(e *entry) bool {
	if !q.label.Empty() && !q.label.Matches(e.labels()) {
		return false
	}
	return q.field.Empty() || q.field.Matches(q.fieldsOf(e))
}

func (q *query) selects() bool { return !q.label.Empty() || !q.field.Empty() }

func (s *Server) list(r *Request, v *version) (*Response, error) {
	q, err := r.query(v)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response, _, err := s.listed(r, v, q)
	return response, err
}

func (s *Server) listed(r *Request, v *version, q *query) (*Response, []*entry, error) {
	all, start, revision, err := s.snapshot(r, v, q)
	if err != nil {
		return nil, nil, err
	}
	if name, ok := q.field.RequiresExactMatch("metadata.name"); ok && (r.Namespace != "" || !v.kind.namespaced) {
		// The real server then reads that one object, and has no pages.
		all = slices.DeleteFunc(slices.Clone(all), func(e *entry) bool { return e.meta().GetName() != name })
	}
	from := sort.Search(len(all), func(i int) bool { return all[i].key >= start })
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}
	var page []*entry
	for i, e := range all[from:] {
		// A full page has a next one if there are more objects, selected or not.
		if q.options.Limit > 0 && int64(len(page)) == q.options.Limit {
			meta.Continue = continueToken{Revision: int64(revision), Start: all[from+i-1].key + "\x00"}.encode()
			if remaining := int64(len(all) - from - i); !q.selects() {
				meta.RemainingItemCount = &remaining
			}
			break
		}
		if q.matches(e) {
			page = append(page, e)
		}
	}
	body, err := listBody(v, meta, page)
	if err != nil {
		return nil, nil, err
	}
	return jsonResponse(http.StatusOK, body), page, nil
}

// snapshot gives the objects a list is about as they were at the revision it is for, and the key to start at.
func (s *Server) snapshot(r *Request, v *version, q *query) (all []*entry, start string, revision uint64, err error) {
	st := s.stores[v.kind.store()]
	namespace := v.namespaceOf(r)
	if q.options.Continue != "" {
		return s.continued(st, namespace, q)
	}
	revision, err = s.notOlderThan(q.options.ResourceVersion)
	if err != nil {
		return nil, "", 0, err
	}
	exact := q.options.ResourceVersionMatch == metav1.ResourceVersionMatchExact
	paged := q.options.Limit > 0 && q.options.ResourceVersionMatch == "" && q.options.ResourceVersion != "" && q.options.ResourceVersion != "0"
	if !exact && !paged {
		return st.current(namespace), "", s.revision, nil
	}
	all, ok := st.past(namespace, revision)
	if !ok {
		return nil, "", 0, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return all, "", revision, nil
}

// notOlderThan parses the revision a read must not be older than. A server cannot have a revision from the future.
func (s *Server) notOlderThan(text string) (uint64, error) {
	if text == "" || text == "0" {
		return s.revision, nil
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid resource version: " + invalidRevision(text, err).Error())
	}
	if revision > s.revision {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, s.revision), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{
			Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
		}}
		return 0, err
	}
	return revision, nil
}

func invalidRevision(text string, err error) error {
	return field.Invalid(field.NewPath("resourceVersion"), text, err.Error())
}

func (s *Server) continued(st *store, namespace string, q *query) ([]*entry, string, uint64, error) {
	token, err := decodeContinue(q.options.Continue)
	if err != nil {
		return nil, "", 0, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	if q.options.ResourceVersion != "" && q.options.ResourceVersion != "0" {
		return nil, "", 0, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if token.Revision < 0 {
		return st.current(namespace), token.Start, s.revision, nil
	}
	all, ok := st.past(namespace, uint64(token.Revision))
	if !ok {
		err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
			"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
		err.ErrStatus.ListMeta.Continue = continueToken{Revision: -1, Start: token.Start}.encode()
		return nil, "", 0, err
	}
	return all, token.Start, uint64(token.Revision), nil
}

// A continueToken says where the next page of a list starts, and at which revision. A negative one means the latest.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

func (t continueToken) encode() string {
	t.Version = "meta.k8s.io/v1"
	data, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeContinue(text string) (t continueToken, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	if t.Revision == 0 || t.Start == "" {
		return t, fmt.Errorf("continue key is not valid")
	}
	return t, nil
}

func listBody(v *version, meta metav1.ListMeta, page []*entry) ([]byte, error) {
	head, err := json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   metav1.ListMeta `json:"metadata"`
	}{v.apiVersion(), v.kind.names.ListKind, meta})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(head[:len(head)-1])
	b.WriteString(`,"items":[`)
	for i, e := range page {
		if i > 0 {
			b.WriteByte(',')
		}
		item, err := e.json(v)
		if err != nil {
			return nil, err
		}
		b.Write(item)
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}
