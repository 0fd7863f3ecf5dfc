package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const reviews = "selfsubjectaccessreviews"

func isReview(r *Request) bool {
	return r.Group == authorizationv1.GroupName && r.Version == "v1" && r.Resource == reviews && r.Subresource == "" && r.Name == ""
}

// review answers what the requester may do, by the same rule that its requests are judged by.
func (s *Server) review(r *Request) *Response {
	if r.Verb != "create" {
		return ErrorResponse(apierrors.NewMethodNotSupported(r.groupResource(), r.Verb))
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(r.Body, &review); err != nil {
		return ErrorResponse(apierrors.NewBadRequest("SelfSubjectAccessReview in version \"v1\" cannot be handled as a SelfSubjectAccessReview: " + err.Error()))
	}
	resource, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	if (resource == nil) == (path == nil) {
		return ErrorResponse(apierrors.NewInvalid(schema.GroupKind{Group: r.Group, Kind: "SelfSubjectAccessReview"}, "", field.ErrorList{
			field.Invalid(field.NewPath("spec.resourceAttributes"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
		}))
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: resource == nil || r.Allowed == nil || r.Allowed(*resource)}
	return encode(http.StatusCreated, review)
}

// discover answers the paths that say what is served.
func (s *Server) discover(r *Request) *Response {
	parts := splitPath(r.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Verb != "get":
		return notFoundPage()
	case len(parts) == 1 && parts[0] == "version":
		return encode(http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"})
	case len(parts) == 1 && (parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz"):
		return &Response{Code: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("ok")}
	case len(parts) == 1 && parts[0] == "api":
		return encode(http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case len(parts) == 1 && parts[0] == "apis":
		return encode(http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()})
	case len(parts) == 2 && parts[0] == "apis":
		for _, group := range s.groups() {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return encode(http.StatusOK, group)
			}
		}
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return notFoundPage()
}

func (s *Server) groups() []metav1.APIGroup {
	groups := []metav1.APIGroup{apiGroup(authorizationv1.GroupName, "v1")}
	for _, k := range s.served {
		if k.group == "" {
			continue
		}
		at := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == k.group })
		if at < 0 {
			at = len(groups)
			groups = append(groups, apiGroup(k.group, k.storage.name))
			groups[at].Versions = nil
		}
		for _, v := range k.versions {
			gv := metav1.GroupVersionForDiscovery{GroupVersion: v.apiVersion(), Version: v.name}
			if !slices.Contains(groups[at].Versions, gv) {
				groups[at].Versions = append(groups[at].Versions, gv)
			}
		}
	}
	return groups
}

func apiGroup(name, version string) metav1.APIGroup {
	gv := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv}
}

func (s *Server) resources(gv schema.GroupVersion) *Response {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.served {
		for _, v := range k.versions {
			if v.gvk().GroupVersion() != gv {
				continue
			}
			resource := metav1.APIResource{
				Name: k.names.Plural, SingularName: k.names.Singular, Kind: k.names.Kind, Namespaced: k.namespaced,
				ShortNames: k.names.ShortNames, Categories: k.names.Categories, Verbs: k.verbs(),
			}
			list.APIResources = append(list.APIResources, resource)
			for _, subresource := range v.subresources {
				list.APIResources = append(list.APIResources, metav1.APIResource{
					Name: k.names.Plural + "/" + subresource, Kind: k.names.Kind, Namespaced: k.namespaced,
					Verbs: metav1.Verbs{"get", "patch", "update"},
				})
			}
		}
	}
	if gv == authorizationv1.SchemeGroupVersion {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: reviews, Kind: "SelfSubjectAccessReview", Verbs: metav1.Verbs{"create"},
		})
	}
	if len(list.APIResources) == 0 {
		return notFoundPage()
	}
	return encode(http.StatusOK, list)
}
