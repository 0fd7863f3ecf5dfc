package fluxtest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

func TestValidateSaysWhyAKustomizationCannotBeAsked(t *testing.T) {
	t.Parallel()
	source := func(field string, value any) func(*testing.T, *subject) {
		return func(t *testing.T, s *subject) {
			s.lab.GitRepository(t, s.ns, "pinned", s.repo, lab.Set(map[string]any{field: value}, "spec", "ref"))
			s.as(t, "kubectl", `{"spec":{"sourceRef":{"name":"pinned"}}}`)
		}
	}
	pinned := "GitRepository {ns}/pinned in cluster lab, which Kustomization {ref} in cluster lab applies, follows no branch: "
	for name, test := range map[string]struct {
		given    func(t *testing.T, s *subject)
		reason   string // "" is OK
		message  string
		revision string // "" has no source
	}{
		"it can": {
			message: "Kustomization {ref} in cluster lab can be asked to apply", revision: "main",
		},
		"it can while somebody has it suspended by an update": {
			given:   func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) },
			message: "Kustomization {ref} in cluster lab can be asked to apply", revision: "main",
		},
		"it can while it is held": {
			given:   func(t *testing.T, s *subject) { s.hold(t) },
			message: "Kustomization {ref} in cluster lab can be asked to apply", revision: "main",
		},
		"it can by the full name of a branch": {
			given:   source("name", "refs/heads/main"),
			message: "Kustomization {ref} in cluster lab can be asked to apply", revision: "main",
		},
		"it can by no ref, which is master": {
			given: func(t *testing.T, s *subject) {
				s.patchSource(t, `{"spec":{"ref":null}}`)
			},
			message: "Kustomization {ref} in cluster lab can be asked to apply", revision: "master",
		},
		"it does not exist": {
			given:  func(t *testing.T, s *subject) { s.delete(t) },
			reason: applier.ReasonApplierNotFound, message: "Kustomization {ref} in cluster lab does not exist",
		},
		"it is in a namespace that does not exist": {
			given:  func(t *testing.T, s *subject) { s.ref.Namespace = "nowhere" },
			reason: applier.ReasonApplierNotFound, message: "Kustomization {ref} in cluster lab does not exist",
		},
		"it is being deleted": {
			given: func(t *testing.T, s *subject) {
				s.as(t, "kubectl", `{"metadata":{"finalizers":["example.com/wait"]}}`)
				require.NoError(t, s.kustomizations().Delete(t.Context(), s.ref.Name, metav1.DeleteOptions{}))
				t.Cleanup(func() { s.as(t, "kubectl", `{"metadata":{"finalizers":null}}`) })
			},
			reason: applier.ReasonDeleting, message: "Kustomization {ref} in cluster lab is being deleted",
		},
		"it applies no GitRepository": {
			given:  func(t *testing.T, s *subject) { s.as(t, "kubectl", `{"spec":{"sourceRef":{"kind":"OCIRepository"}}}`) },
			reason: applier.ReasonUnsupportedSource,
			message: "Kustomization {ref} in cluster lab applies OCIRepository {ref}: only a GitRepository of source.toolkit.fluxcd.io " +
				"can be asked for a commit",
		},
		"it applies a GitRepository of somebody else's": {
			given: func(t *testing.T, s *subject) {
				s.as(t, "kubectl", `{"spec":{"sourceRef":{"apiVersion":"example.com/v1"}}}`)
			},
			reason: applier.ReasonUnsupportedSource,
			message: "Kustomization {ref} in cluster lab applies GitRepository.example.com {ref}: only a GitRepository of source.toolkit.fluxcd.io " +
				"can be asked for a commit",
		},
		"its GitRepository does not exist": {
			given:   func(t *testing.T, s *subject) { s.as(t, "kubectl", `{"spec":{"sourceRef":{"name":"missing"}}}`) },
			reason:  applier.ReasonUnsupportedSource,
			message: "Kustomization {ref} in cluster lab: GitRepository {ns}/missing in cluster lab does not exist",
		},
		"its GitRepository is pinned to a commit": {
			given: source("commit", strings.Repeat("a", 40)), reason: applier.ReasonUnsupportedSource, revision: "-",
			message: pinned + "spec.ref.commit pins it to " + strings.Repeat("a", 40) + ". Set spec.ref.branch alone",
		},
		"its GitRepository is pinned to a tag": {
			given: source("tag", "v1"), reason: applier.ReasonUnsupportedSource, revision: "-",
			message: pinned + "spec.ref.tag pins it to tag v1. Set spec.ref.branch alone",
		},
		"its GitRepository is pinned to a tag by name": {
			given: source("name", "refs/tags/v1"), reason: applier.ReasonUnsupportedSource, revision: "-",
			message: pinned + "spec.ref.name is refs/tags/v1, which does not start with refs/heads/. Set spec.ref.branch alone",
		},
		"its GitRepository follows versions": {
			given: source("semver", ">=1.0.0"), reason: applier.ReasonUnsupportedSource, revision: "-",
			message: pinned + "spec.ref.semver follows tags (>=1.0.0). Set spec.ref.branch alone",
		},
		"another manager applies spec.suspend": {
			given:  func(t *testing.T, s *subject) { s.applyAs(t, "parent", false) },
			reason: applier.ReasonSuspendOwnedElsewhere, revision: "main",
			message: "the spec.suspend of Kustomization {ref} in cluster lab is applied by field manager parent, " +
				"which would set it again: remove spec.suspend from the manifest that it applies; " +
				"if it is another program that holds it, let that release it; if it is a former name of this one, list it in FormerFieldManagers",
		},
		"another manager applies spec.suspend beside us": {
			given: func(t *testing.T, s *subject) {
				s.hold(t)
				s.applyAs(t, "parent", true)
			},
			reason: applier.ReasonSuspendOwnedElsewhere, revision: "main",
			message: "the spec.suspend of Kustomization {ref} in cluster lab is applied by field manager parent, " +
				"which would set it again: remove spec.suspend from the manifest that it applies; " +
				"if it is another program that holds it, let that release it; if it is a former name of this one, list it in FormerFieldManagers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			if test.given != nil {
				test.given(t, s)
			}
			faults := lab.NewTransport()

			verdict := s.through(t, faults).Validate(t.Context(), s.ref)

			assert.Equal(t, test.reason == "", verdict.OK)
			if test.reason == "" {
				test.reason = applier.ReasonSucceeded
			}
			assert.Equal(t, test.reason, verdict.Reason)
			assert.Equal(t, strings.NewReplacer("{ref}", s.ref.String(), "{ns}", s.ns).Replace(test.message), verdict.Message)
			assert.NoError(t, verdict.Err)
			if test.revision == "" {
				assert.Nil(t, verdict.Source)
			} else if assert.NotNil(t, verdict.Source) {
				assert.Equal(t, s.repo.URL(), verdict.Source.URL)
				assert.Equal(t, s.ns, verdict.Source.GitRepository.Namespace)
				assert.Equal(t, strings.Trim(test.revision, "-"), verdict.Source.Revision)
			}
			assert.Zero(t, faults.Count(lab.Writes))
		})
	}
}

func TestValidateNamesTheRightThatAnIdentityLacks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules  []rbacv1.PolicyRule
		reason string
		prefix string
	}{
		"none": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "get", "patch"), may(lab.GitRepositories, "get", "patch")},
			reason: applier.ReasonSucceeded, prefix: "Kustomization {ref} in cluster lab can be asked to apply",
		},
		"get of Kustomizations": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "list", "watch", "patch"), may(lab.GitRepositories, "get", "patch")},
			reason: applier.ReasonForbidden,
			prefix: "this identity may not read Kustomization {ref} in cluster lab: grant it the verb get on kustomizations.kustomize.toolkit.fluxcd.io: ",
		},
		"get of GitRepositories": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "get", "patch"), may(lab.GitRepositories, "patch")},
			reason: applier.ReasonForbidden,
			prefix: "Kustomization {ref} in cluster lab: this identity may not read GitRepository {ref} in cluster lab: grant it the verb get on gitrepositories.source.toolkit.fluxcd.io: ",
		},
		"patch of Kustomizations": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "get", "update"), may(lab.GitRepositories, "get", "patch")},
			reason: applier.ReasonForbidden,
			prefix: "this identity may not patch Kustomization {ref} in cluster lab: grant it the verb patch on kustomizations.kustomize.toolkit.fluxcd.io",
		},
		"patch of GitRepositories": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "get", "patch"), may(lab.GitRepositories, "get")},
			reason: applier.ReasonForbidden,
			prefix: "Kustomization {ref} in cluster lab: this identity may not patch GitRepository {ref} in cluster lab: grant it the verb patch on gitrepositories.source.toolkit.fluxcd.io",
		},
		"patch of this Kustomization": {
			rules:  []rbacv1.PolicyRule{may(lab.Kustomizations, "get"), named(may(lab.Kustomizations, "patch"), "other"), may(lab.GitRepositories, "get", "patch")},
			reason: applier.ReasonForbidden,
			prefix: "this identity may not patch Kustomization {ref} in cluster lab: grant it the verb patch on kustomizations.kustomize.toolkit.fluxcd.io",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			limited := client(t, s.lab.ServiceAccount(t, s.ns, test.rules...))

			verdict := limited.Validate(t.Context(), s.ref)

			assert.Equal(t, test.reason, verdict.Reason)
			assert.Equal(t, test.reason == applier.ReasonSucceeded, verdict.OK)
			assert.Regexp(t, "^"+strings.ReplaceAll(test.prefix, "{ref}", s.ref.String()), verdict.Message)
			assert.NoError(t, verdict.Err, "it is known")
			assert.Equal(t, test.reason != applier.ReasonSucceeded, applier.IsPermanent(verdict.AsError()))
			if strings.HasPrefix(name, "patch") {
				assert.NotNil(t, verdict.Source)
			}
		})
	}
}

// A right that is missing is told from an object that is missing, also where the kind is forbidden and does not exist.
func TestAnIdentityWithoutRightsLearnsNothingAndStartsNothing(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	nobody := client(t, s.lab.ServiceAccount(t, s.ns))
	missing := types.NamespacedName{Namespace: s.ns, Name: "missing"}
	assert.Equal(t, applier.ReasonForbidden, nobody.Validate(t.Context(), missing).Reason)

	_, err := nobody.Request(t.Context(), s.ref, s.ask(s.first))
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
	_, err = nobody.Suspend(t.Context(), s.ref)
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
	_, err = nobody.Suspension(t.Context(), s.ref)
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
	_, err = nobody.Release(t.Context(), s.ref)
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
	_, err = nobody.Progress(t.Context(), s.ref, &applier.Started{Outcome: applier.OutcomeResumed, Token: "token"})
	require.Error(t, err, "no end is known")
	assert.Equal(t, applier.AbsenceForbidden, applier.AbsenceOf(err))

	reader := client(t, s.lab.ServiceAccount(t, s.ns, may(lab.Kustomizations, "get"), may(lab.GitRepositories, "get")))
	_, err = reader.Request(t.Context(), s.ref, s.ask(s.first))
	require.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab was not asked: ")
	_, err = reader.Suspend(t.Context(), s.ref)
	require.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab was not suspended: ")
	assert.NotErrorIs(t, err, applier.ErrUnconfirmed)
	_, err = reader.Release(t.Context(), s.ref)
	require.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab was not released: ")
	s.requireHeld(t)
}

func TestAClusterWithoutFluxServesNoKustomization(t *testing.T) {
	t.Parallel()
	c := client(t, lab.StartBare(t).RESTConfig())
	ref := types.NamespacedName{Namespace: "default", Name: "app"}
	message := "Kustomization default/app in cluster lab: the cluster does not serve kustomizations.kustomize.toolkit.fluxcd.io v1: " +
		"is Flux 2.7 or later installed there?"

	verdict := c.Validate(t.Context(), ref)
	assert.Equal(t, applier.Verdict{Reason: applier.ReasonApplierNotFound, Message: message}, verdict)
	_, err := c.Request(t.Context(), ref, applier.Ask{Want: applier.Binding{Repository: "https://example.com/a", Branch: "main"}, Token: "t"})
	assert.EqualError(t, err, message)
	_, err = c.Suspend(t.Context(), ref)
	assert.EqualError(t, err, message)
	_, err = c.Suspension(t.Context(), ref)
	assert.EqualError(t, err, message)
	_, err = c.Release(t.Context(), ref)
	assert.EqualError(t, err, message, "whether it is held is not known, so this is no success")
	progress, err := c.Progress(t.Context(), ref, &applier.Started{Outcome: applier.OutcomeResumed, Token: "token"})
	require.Error(t, err, "a kind that is not served says nothing of the object: its CRD may be coming back")
	assert.Equal(t, applier.AbsenceNotServed, applier.AbsenceOf(err))
	assert.Zero(t, progress)
}

func TestACheckThatGetsNoAnswerSaysNothingOfTheKustomization(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	dead := s.lab.RESTConfig()
	dead.Host = nobody.Addr().String()
	requireUnchecked(t, client(t, dead).Validate(t.Context(), s.ref), "cannot read Kustomization "+s.ref.String()+" in cluster lab: ")

	for name, test := range map[string]struct {
		request lab.Matcher
		fault   lab.Action
		prefix  string
	}{
		"the read of the Kustomization": {request: lab.To("get", "kustomizations"), prefix: "cannot read Kustomization {ref} in cluster lab: "},
		"the read of the GitRepository": {request: lab.To("get", "gitrepositories"), prefix: "Kustomization {ref} in cluster lab: cannot read GitRepository {ref} in cluster lab: "},
		"the access review": {
			request: lab.To("create", "selfsubjectaccessreviews"),
			prefix:  "cannot tell whether this identity may patch Kustomization {ref} in cluster lab: ",
		},
	} {
		for what, fault := range map[string]lab.Action{
			"is lost": lab.Fail(nil), "gets no answer": lab.LoseResponse(),
			"is answered by 500": lab.Answer(500, metav1.StatusReasonInternalError, 0),
			"is answered by 429": lab.Answer(429, metav1.StatusReasonTooManyRequests, 0),
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				faults := lab.NewTransport()
				faults.On(test.request, 1, fault)

				verdict := s.through(t, faults).Validate(t.Context(), s.ref)

				requireUnchecked(t, verdict, strings.ReplaceAll(test.prefix, "{ref}", s.ref.String()))
			})
		}
	}
	t.Run("a check of the host's own", func(t *testing.T) {
		t.Parallel()
		cause := errors.New("the review is on strike")
		c, err := flux.New("lab", s.lab.Dynamic(), flux.Options{FieldManager: manager, Access: func(context.Context, authorizationv1.ResourceAttributes) (bool, error) {
			return false, cause
		}})
		require.NoError(t, err)
		verdict := c.Validate(t.Context(), s.ref)
		requireUnchecked(t, verdict, "cannot tell whether ")
		assert.ErrorIs(t, verdict.Err, cause)
	})
}

func TestAnAPIServerThatDoesNotAnswerIsACheckFailed(t *testing.T) {
	l := lab.Alone(t)
	s := live(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	l.APIServer.Freeze(t)
	frozen := s.client.Validate(ctx, s.ref)
	l.APIServer.Thaw(t)
	requireUnchecked(t, frozen, "cannot read Kustomization "+s.ref.String()+" in cluster lab: ")
	assert.ErrorIs(t, frozen.Err, context.DeadlineExceeded)

	l.APIServer.Stop(t)
	stopped := s.client.Validate(t.Context(), s.ref)
	requireUnchecked(t, stopped, "cannot read Kustomization "+s.ref.String()+" in cluster lab: ")
	l.APIServer.Start(t)

	assert.True(t, s.client.Validate(t.Context(), s.ref).OK)
}

// Flux itself names the address when it fails to fetch.
func TestNoMessageHoldsTheUserInfoOfAnAddress(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"a token":               "http://bot:s3cr3t-tok@127.0.0.1:1/acme/shop.git",
		"an escaped token":      "http://bot:s3cr3t%2Dtok@127.0.0.1:1/acme/shop.git",
		"a token without a bot": "http://s3cr3t-tok@127.0.0.1:1/acme/shop.git",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t))
			s.patchSource(t, `{"spec":{"url":"`+address+`"}}`)
			require.Equal(t, address, s.lab.Get(t, lab.GitRepositories, s.ns, "app").Object["spec"].(map[string]any)["url"])

			verdict := s.client.Validate(t.Context(), s.ref)
			require.True(t, verdict.OK)
			assert.Equal(t, "http://127.0.0.1:1/acme/shop.git", verdict.Source.URL)

			ask := s.ask(strings.Repeat("b", 40))
			ask.Want.Repository = "https://other:s3cr3t-tok@git.example.com/acme/other"
			_, err := s.client.Request(t.Context(), s.ref, ask)
			requireNoSecret(t, err)
			assert.EqualError(t, err, "Kustomization "+s.ref.String()+" in cluster lab applies branch main of http://127.0.0.1:1/acme/shop.git, "+
				"not branch main of https://git.example.com/acme/other")

			ask.Want.Repository = address
			_, err = s.client.Request(t.Context(), s.ref, ask)
			requireNoSecret(t, err)
			assert.ErrorContains(t, err, "GitRepository "+s.ref.String()+" in cluster lab could not fetch commit bbbbbbbbbbbb: GitOperationFailed: ")
		})
	}
}

func requireNoSecret(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	for ; err != nil; err = errors.Unwrap(err) {
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

func requireUnchecked(t *testing.T, verdict applier.Verdict, prefix string) {
	t.Helper()
	assert.False(t, verdict.OK)
	assert.Equal(t, applier.ReasonCheckFailed, verdict.Reason)
	require.Error(t, verdict.Err)
	assert.True(t, strings.HasPrefix(verdict.Message, prefix), verdict.Message)
	assert.False(t, applier.IsPermanent(verdict.AsError()), "it may be mended by itself")
}

func may(resource schema.GroupVersionResource, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: verbs}
}

func named(rule rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	rule.ResourceNames = names
	return rule
}

func (s *subject) patchSource(t *testing.T, patch string) {
	t.Helper()
	_, err := s.lab.Dynamic().Resource(lab.GitRepositories).Namespace(s.ns).
		Patch(t.Context(), "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
}
