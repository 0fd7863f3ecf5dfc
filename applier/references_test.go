package applier_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestNames(t *testing.T) {
	t.Parallel()
	trigger := triggerAt("team-a", 1, func(t *applier.Trigger) { t.Ref.UID = "u" })
	for name, test := range map[string]struct {
		change func(*applier.Target)
		want   bool
	}{
		"the trigger":                      {func(*applier.Target) {}, true},
		"the trigger, while it is deleted": {isDeleted, true},
		"no trigger":                       {func(t *applier.Target) { t.Trigger = applier.TriggerRef{} }, false},
		"another trigger":                  {func(t *applier.Target) { t.Trigger.Name = "cart" }, false},
		"one of that name elsewhere":       {func(t *applier.Target) { t.Trigger.Namespace = "team-b" }, false},
		"a trigger of another namespace":   {func(t *applier.Target) { t.Ref.Namespace = "team-b" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, applier.Names(targetOf(trigger, test.change), trigger))
		})
	}
	assert.False(t, applier.Names(applier.Target{}, applier.Trigger{}), "no trigger names nothing")
}

func TestNamingTargets(t *testing.T) {
	t.Parallel()
	var store fake.Store
	trigger := store.PutTrigger(triggerAt("team-a", 1))
	named := func(name string) func(*applier.Target) { return func(t *applier.Target) { t.Ref.Name = name } }
	second := store.PutTarget(targetOf(trigger, named("second")))
	first := store.PutTarget(targetOf(trigger, named("first")))
	store.PutTarget(targetOf(trigger, named("deleted"), isDeleted))
	store.PutTarget(targetOf(trigger, named("elsewhere"), func(t *applier.Target) { t.Ref.Namespace = "team-b" }))
	store.PutTarget(targetOf(trigger, named("another"), func(t *applier.Target) { t.Trigger.Name = "cart" }))

	targets, err := applier.NamingTargets(t.Context(), &store, trigger)
	require.NoError(t, err)
	var refs []applier.TargetRef
	for _, target := range targets {
		refs = append(refs, target.Ref)
	}
	assert.Equal(t, []applier.TargetRef{first.Ref, second.Ref}, refs, "by name, in its namespace, and not being deleted")

	down := errors.New("the API server is down")
	store.Inject(fake.StoreFault{Err: down})
	_, err = applier.NamingTargets(t.Context(), &store, trigger)
	require.ErrorIs(t, err, down, "so that the caller keeps what it published")
}

func TestJudgeReferences(t *testing.T) {
	t.Parallel()
	trigger := triggerAt("team-a", 1)
	source := &shopSource.Source
	const another = "Kustomization flux-system/shop in cluster prod applies branch main of https://git.example.com/acme/shop, not "
	for name, test := range map[string]struct {
		target applier.Target
		source *applier.Source
		want   applier.Reference
	}{
		"one that is admitted and writes what the applier fetches is eligible": {
			targetOf(trigger), source, applier.Reference{State: applier.ReferenceEligible}},
		"a spelling of the same repository and branch is the same": {
			targetOf(trigger, writes("ssh://git@git.example.com/acme/shop.git", "refs/heads/main")), source, applier.Reference{State: applier.ReferenceEligible}},
		"one that is not admitted is refused": {
			targetOf(trigger, isRefused), source,
			applier.Reference{State: applier.ReferenceRefused, Reason: "NamespaceNotAuthorized", Message: "namespace team-a may not use cluster prod"}},
		"one that is not admitted is refused before the source was read": {
			targetOf(trigger, isRefused), nil,
			applier.Reference{State: applier.ReferenceRefused, Reason: "NamespaceNotAuthorized", Message: "namespace team-a may not use cluster prod"}},
		"one that is not admitted and nobody says why": {
			targetOf(trigger, func(t *applier.Target) { t.Admission = applier.Admission{State: applier.NotAdmitted} }), source,
			applier.Reference{State: applier.ReferenceRefused, Reason: "NotAdmitted", Message: "it may not use cluster prod"}},
		"one that writes another branch is refused": {
			targetOf(trigger, writes(shopBinding.Repository, "dev")), source,
			applier.Reference{State: applier.ReferenceRefused, Reason: applier.ReasonSourceMismatch, Message: another + "branch dev of https://git.example.com/acme/shop: make them the same"}},
		"one that writes another repository is refused, without its password": {
			targetOf(trigger, writes("https://me:secret@git.example.com/acme/cart", "main")), source,
			applier.Reference{State: applier.ReferenceRefused, Reason: applier.ReasonSourceMismatch, Message: another + "branch main of https://git.example.com/acme/cart: make them the same"}},
		"one that writes another branch is refused, also before it is admitted": {
			targetOf(trigger, isUndecided, writes(shopBinding.Repository, "dev")), source,
			applier.Reference{State: applier.ReferenceRefused, Reason: applier.ReasonSourceMismatch, Message: another + "branch dev of https://git.example.com/acme/shop: make them the same"}},
		"one whose applier follows no branch is refused": {
			targetOf(trigger), &applier.Source{URL: shopBinding.Repository, Revision: "HEAD"},
			applier.Reference{State: applier.ReferenceRefused, Reason: applier.ReasonSourceMismatch, Message: `Kustomization flux-system/shop in cluster prod applies from https://git.example.com/acme/shop, and follows no branch: ` +
				`revision "HEAD" follows the repository's default branch, which nobody named: name the branch`}},
		"one whose admission is not decided is undecided": {
			targetOf(trigger, func(t *applier.Target) { t.Admission = applier.Admission{Message: "ClusterProvider prod is missing"} }), source,
			applier.Reference{Message: "ClusterProvider prod is missing"}},
		"one that nobody judged is undecided": {
			targetOf(trigger, isUndecided), source, applier.Reference{Message: "it is not known yet whether it may use cluster prod"}},
		"one with an admission of no known word is undecided": {
			targetOf(trigger, func(t *applier.Target) { t.Admission.State = "admitted" }), source,
			applier.Reference{Message: "it is not known yet whether it may use cluster prod"}},
		"one whose repository is not known yet is undecided": {
			targetOf(trigger, writes("", "")), source, applier.Reference{Message: "it is not known yet which repository and branch are written for it"}},
		"one that is admitted is undecided before the source was read": {
			targetOf(trigger), nil, applier.Reference{Message: "it is not known yet what Kustomization flux-system/shop in cluster prod applies from"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.Target = test.target.Ref
			assert.Equal(t, applier.References{test.want}, applier.JudgeReferences(trigger, []applier.Target{test.target}, test.source, nil))
		})
	}
}

func TestJudgeReferencesComparesRepositoriesAsTheHostDoes(t *testing.T) {
	t.Parallel()
	trigger := triggerAt("team-a", 1)
	targets := []applier.Target{targetOf(trigger, writes("https://mirror.example.com/shop", "main"))}
	assert.True(t, applier.JudgeReferences(trigger, targets, &shopSource.Source, nil).Refused())
	mirrored := func(a, b string) bool { return a == shopSource.URL && b == "https://mirror.example.com/shop" }
	assert.True(t, applier.JudgeReferences(trigger, targets, &shopSource.Source, mirrored).Eligible())
}

func TestAReferenceIsUndecidedBeforeItIsJudged(t *testing.T) {
	t.Parallel()
	var zero applier.Reference
	assert.Equal(t, applier.ReferenceUndecided, zero.State)
}

func TestReferences(t *testing.T) {
	t.Parallel()
	eligible := applier.Reference{Target: applier.TargetRef{Namespace: "team-a", Name: "eligible"}, State: applier.ReferenceEligible}
	undecided := applier.Reference{Target: applier.TargetRef{Namespace: "team-a", Name: "undecided"}, Message: "not known"}
	mismatch := applier.Reference{Target: applier.TargetRef{Namespace: "team-a", Name: "mismatch"}, State: applier.ReferenceRefused, Reason: applier.ReasonSourceMismatch, Message: "another branch"}
	unauthorized := applier.Reference{Target: applier.TargetRef{Namespace: "team-a", Name: "unauthorized"}, State: applier.ReferenceRefused, Reason: "NamespaceNotAuthorized", Message: "not yours"}
	for name, test := range map[string]struct {
		refs                     applier.References
		named, eligible, refused bool
		reason, message          string
	}{
		"no target names the trigger": {nil, false, false, false, applier.ReasonNotReferenced, "no target names the trigger"},
		"at least one is eligible": {
			applier.References{mismatch, eligible, undecided}, true, true, false, "", "target team-a/mismatch: another branch; target team-a/undecided: not known"},
		"one cannot be judged yet": {
			applier.References{mismatch, undecided}, true, false, false, applier.ReasonNotBound, "target team-a/mismatch: another branch; target team-a/undecided: not known"},
		"each is refused for the same reason": {
			applier.References{mismatch, mismatch}, true, false, true, applier.ReasonSourceMismatch, "target team-a/mismatch: another branch; target team-a/mismatch: another branch"},
		"each is refused for another reason": {
			applier.References{mismatch, unauthorized}, true, false, true, applier.ReasonNotBound, "target team-a/mismatch: another branch; target team-a/unauthorized: not yours"},
		"every one is eligible": {applier.References{eligible}, true, true, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.named, test.refs.Named())
			assert.Equal(t, test.eligible, test.refs.Eligible())
			assert.Equal(t, test.refused, test.refs.Refused())
			assert.Equal(t, test.reason, test.refs.Reason())
			assert.Equal(t, test.message, test.refs.Message())
		})
	}
}

func TestBindingMismatch(t *testing.T) {
	t.Parallel()
	trigger := triggerAt("team-a", 1)
	for name, test := range map[string]struct {
		trigger applier.Trigger
		want    applier.Binding
		says    string
	}{
		"the source is what is wanted": {trigger, shopBinding, ""},
		"however it is spelled":        {trigger, applier.Binding{Repository: "git@git.example.com:acme/shop", Branch: "refs/heads/main"}, ""},
		"another branch": {trigger, applier.Binding{Repository: shopBinding.Repository, Branch: "dev"},
			"Kustomization flux-system/shop in cluster prod applies branch main of https://git.example.com/acme/shop, not branch dev of https://git.example.com/acme/shop: make them the same"},
		"a source that was not read": {triggerAt("team-a", 1, notRead), shopBinding,
			"it is not known yet what Kustomization flux-system/shop in cluster prod applies from"},
		"nothing that is wanted": {trigger, applier.Binding{},
			"Kustomization flux-system/shop in cluster prod applies branch main of https://git.example.com/acme/shop, and it is not known yet what is wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.says, applier.BindingMismatch(test.trigger, test.want, nil))
		})
	}
}
