package lab

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var accounts atomic.Int64

// ServiceAccount makes a ServiceAccount that may do what the rules say within
// its namespace, by a Role, and nothing else. It returns a configuration that
// acts as that account, once the API server grants the rules.
func (l *Lab) ServiceAccount(t testing.TB, namespace string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	a := l.account(t, namespace)
	role := metav1.ObjectMeta{Namespace: namespace, Name: a.name}
	_, err := a.client.RbacV1().Roles(namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: role, Rules: rules}, metav1.CreateOptions{})
	a.check(t, err)
	_, err = a.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: role,
		Subjects:   []rbacv1.Subject{a.subject()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.name},
	}, metav1.CreateOptions{})
	a.check(t, err)
	a.waitGranted(t, namespace, rules)
	return a.config(t)
}

// ClusterServiceAccount is ServiceAccount with a ClusterRole: the rules hold in
// all namespaces, and for kinds that live in none.
func (l *Lab) ClusterServiceAccount(t testing.TB, namespace string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	a := l.account(t, namespace)
	role := metav1.ObjectMeta{Name: namespace + "-" + a.name}
	_, err := a.client.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: role, Rules: rules}, metav1.CreateOptions{})
	a.check(t, err)
	_, err = a.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role,
		Subjects:   []rbacv1.Subject{a.subject()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{})
	a.check(t, err)
	a.waitGranted(t, "", rules)
	return a.config(t)
}

// account is a ServiceAccount in the making.
type account struct {
	lab             *Lab
	client          kubernetes.Interface
	namespace, name string
}

func (l *Lab) account(t testing.TB, namespace string) *account {
	t.Helper()
	client, err := kubernetes.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	a := &account{lab: l, client: client, namespace: namespace, name: fmt.Sprintf("account-%d", accounts.Add(1))}
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.name}}, metav1.CreateOptions{})
	a.check(t, err)
	return a
}

func (a *account) check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("make ServiceAccount %s/%s: %v", a.namespace, a.name, err)
	}
}

func (a *account) subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: a.name}
}

func (a *account) config(t testing.TB) *rest.Config {
	t.Helper()
	token, err := a.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(t.Context(), a.name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	a.check(t, err)
	return a.lab.credentials.config(a.lab.APIServer.ports[0], token.Status.Token)
}

// waitGranted waits until the authorizer, which learns of roles by watching,
// has seen them. It asks once for each rule, since they arrive together.
func (a *account) waitGranted(t testing.TB, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range rules {
		if len(rule.APIGroups) == 0 || len(rule.Resources) == 0 || len(rule.Verbs) == 0 {
			continue
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + a.namespace + ":" + a.name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0],
			},
		}}
		attributes := review.Spec.ResourceAttributes
		attributes.Resource, attributes.Subresource, _ = strings.Cut(rule.Resources[0], "/")
		if len(rule.ResourceNames) > 0 {
			attributes.Name = rule.ResourceNames[0]
		}
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			answer, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			a.check(t, err)
			if answer.Status.Allowed {
				break
			}
			if time.Since(start) > 10*time.Second {
				t.Fatalf("the API server does not grant %v to ServiceAccount %s/%s", rule, a.namespace, a.name)
			}
		}
	}
}
