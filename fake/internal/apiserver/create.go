package apiserver

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

func (s *Server) create(r *Request, v *version) (*Response, error) {
	var options metav1.CreateOptions
	if err := r.options(&options); err != nil {
		return nil, err
	}
	if errs := validation.ValidateCreateOptions(&options); len(errs) > 0 {
		return nil, invalidOptions("CreateOptions", errs)
	}
	object, err := r.object(v, options.FieldValidation)
	if err != nil {
		return nil, err
	}
	wipeSystemFields(object)
	if err := matchNamespace(v.namespaceOf(r), object); err != nil {
		return nil, err
	}
	r.dropRepeatedOwners(object, "")
	live, _ := conversion{v.kind}.New(v.gvk())
	object = v.managers("").UpdateNoErrors(live, object, r.manager(options.FieldManager)).(*unstructured.Unstructured)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admitCreate(r, v, object.GetName()); err != nil {
		return nil, err
	}
	written, err := s.createNamed(r, v, object, len(options.DryRun) > 0)
	if err != nil {
		return nil, err
	}
	return entryResponse(http.StatusCreated, v, written)
}

// nameAttempts is how often a generated name that is taken is generated anew.
const nameAttempts = 8

func (s *Server) createNamed(r *Request, v *version, object *unstructured.Unstructured, dryRun bool) (*entry, error) {
	if object.GetName() != "" || object.GetGenerateName() == "" {
		return s.createOnce(r, v, object, dryRun)
	}
	var err error
	for range nameAttempts {
		attempt := object.DeepCopy()
		attempt.SetName(generatedName(object.GetGenerateName()))
		var written *entry
		if written, err = s.createOnce(r, v, attempt, dryRun); !apierrors.IsAlreadyExists(err) {
			return written, err
		}
	}
	return nil, err
}

// generatedName appends five random characters, as far as a name may be long.
func generatedName(base string) string {
	const longest, random = 63, 5
	return base[:min(len(base), longest-random)] + rand.String(random)
}

func (s *Server) createOnce(r *Request, v *version, object *unstructured.Unstructured, dryRun bool) (*entry, error) {
	if err := prepareNew(r, v, object); err != nil {
		return nil, err
	}
	st := s.stores[v.kind.store()]
	key := objectKey(object.GetNamespace(), object.GetName())
	if version, err := resourceVersion(object); err == nil && version != 0 && !dryRun {
		return nil, fmt.Errorf("resourceVersion should not be set on objects to be created")
	}
	if existing := st.objects[key]; existing != nil {
		err := apierrors.NewAlreadyExists(r.groupResource(), object.GetName())
		if object.GetGenerateName() != "" {
			err = apierrors.NewGenerateNameConflict(r.groupResource(), object.GetName(), 1)
		}
		if existing.meta().GetDeletionTimestamp() != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	return s.put(st, key, object.Object, dryRun)
}

// prepareNew makes of what was sent an object that can be stored, or says why it cannot.
func prepareNew(r *Request, v *version, object *unstructured.Unstructured) error {
	fillSystemFields(object)
	if err := matchNamespace(v.namespaceOf(r), object); err != nil {
		return err
	}
	v.kind.rules.prepareCreate(v, object.Object)
	if errs := v.kind.rules.validate(v, object.Object); len(errs) > 0 {
		return apierrors.NewInvalid(groupKind(object), object.GetName(), errs)
	}
	errs := apivalidation.ValidateObjectMetaAccessor(object, v.kind.namespaced, validSegment, field.NewPath("metadata"))
	if len(errs) > 0 {
		return apierrors.NewInvalid(groupKind(object), object.GetName(), errs)
	}
	r.warn(v.kind.rules.warnings(object.Object, nil)...)
	return nil
}

// groupKind is what an object says it is, even where the request is for another kind.
func groupKind(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

func validSegment(name string, prefix bool) []string {
	if prefix {
		return path.IsValidPathSegmentPrefix(name)
	}
	return path.IsValidPathSegmentName(name)
}

// namespaceOf is the namespace that an object of this kind gets from a request.
func (v *version) namespaceOf(r *Request) string {
	if !v.kind.namespaced {
		return ""
	}
	return r.Namespace
}

func invalidOptions(name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: name}, "", errs)
}

// object decodes the request's body. By the directive, unknown and repeated fields are ignored, warned of or refused.
func (r *Request) object(v *version, directive string) (*unstructured.Unstructured, error) {
	if r.ContentType != "" && r.ContentType != runtime.ContentTypeJSON {
		return nil, unsupportedMediaType(runtime.ContentTypeJSON)
	}
	object, complaints, err := decode(v, r.Body)
	if err == nil {
		complaints, err = shape(v, object.Object, complaints)
	}
	if err != nil {
		return nil, undecodable(v, object, r.Body, err)
	}
	if directive == metav1.FieldValidationStrict && len(complaints) > 0 {
		return nil, refused(v, object, strictError(complaints))
	}
	if directive != metav1.FieldValidationIgnore {
		r.warn(complaints...)
	}
	if got, want := object.GroupVersionKind().GroupVersion(), v.gvk().GroupVersion(); got != want {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", got, want))
	}
	return object, nil
}

// shape coerces and defaults an object that was just decoded, and adds unknown fields to the list of complaints.
func shape(v *version, object map[string]any, complaints []string) ([]string, error) {
	unknown, err := v.kind.rules.coerce(v, object, true)
	if err != nil {
		return nil, err
	}
	for _, path := range unknown {
		complaints = append(complaints, fmt.Sprintf("unknown field %q", path))
	}
	v.kind.rules.setDefaults(v, object)
	return complaints, nil
}

func strictError(complaints []string) error {
	return fmt.Errorf("strict decoding error: %s", strings.Join(complaints, ", "))
}

// refused is the error for a body that was decoded, but has fields that it must not have.
func refused(v *version, object *unstructured.Unstructured, err error) error {
	as := v.kind.names.Kind
	if _, custom := v.kind.rules.(*customRules); custom {
		as = object.GetKind()
	}
	return cannotHandle(object, as, err)
}

func cannotHandle(object *unstructured.Unstructured, as string, err error) error {
	gvk := object.GroupVersionKind()
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, as, err))
}

// undecodable is the error for a body that could not be decoded; the object is what could be read of it, or nil.
func undecodable(v *version, object *unstructured.Unstructured, body []byte, err error) error {
	if object != nil && object.GetKind() != "" {
		return cannotHandle(object, v.kind.names.Kind, err)
	}
	summary := "<empty>"
	if len(body) > 0 {
		summary = string(body[:min(len(body), 30)])
		if body[0] != '{' {
			summary = hex.EncodeToString(body[:min(len(body), 30)])
		}
		if len(body) > 30 {
			summary += " ..."
		}
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", v.kind.names.Kind, err, summary))
}

// decode parses JSON and says which fields were given twice.
func decode(v *version, data []byte) (*unstructured.Unstructured, []string, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	object := map[string]any{}
	strictErrs, err := kjson.UnmarshalStrict(data, &object)
	if err != nil {
		return nil, nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if _, custom := v.kind.rules.(*customRules); !custom {
		fill(object, "kind", v.kind.names.Kind)
		fill(object, "apiVersion", v.apiVersion())
	} else if head.Kind == "" {
		return nil, nil, fmt.Errorf("Object 'Kind' is missing in '%s'", data)
	}
	var complaints []string
	for _, strictErr := range strictErrs {
		complaints = append(complaints, strictErr.Error())
	}
	return u, complaints, nil
}

func entryResponse(code int, v *version, e *entry) (*Response, error) {
	body, err := e.json(v)
	if err != nil {
		return nil, err
	}
	return jsonResponse(code, body), nil
}
