package applier_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

var (
	kindA = schema.GroupKind{Group: "example.com", Kind: "A"}
	kindB = schema.GroupKind{Group: "example.com", Kind: "B"}
)

func backendOf(kind schema.GroupKind, made applier.Client, err error) applier.Backend {
	return applier.Backend{Kind: kind, New: func(string, dynamic.Interface) (applier.Client, error) { return made, err }}
}

func TestBackendsMakeAClientOfEachKind(t *testing.T) {
	t.Parallel()
	a, broken := &scripted{}, errors.New("broken")
	backends, err := applier.NewBackends(backendOf(kindA, a, nil), backendOf(kindB, nil, broken))
	require.NoError(t, err)

	made, err := backends.Client(kindA, "prod", nil)
	require.NoError(t, err)
	assert.Same(t, a, made)
	_, err = backends.Client(kindB, "prod", nil)
	assert.ErrorIs(t, err, broken)
	_, err = backends.Client(schema.GroupKind{Group: "other.com", Kind: "A"}, "prod", nil)
	assert.EqualError(t, err, "no backend serves A.other.com in cluster prod: pass one to NewBackends")
	assert.True(t, applier.IsPermanent(err))
	_, err = applier.Backends{}.Client(kindA, "prod", nil)
	assert.Error(t, err, "the zero value holds none")
}

func TestBackendsRefuseWhatTheyCannotTellApartOrUse(t *testing.T) {
	t.Parallel()
	bad := backendOf(kindA, nil, nil)
	bad.Err = errors.New("no name")
	for says, backends := range map[string][]applier.Backend{
		"two backends serve A.example.com: pass one":                     {backendOf(kindA, nil, nil), backendOf(kindB, nil, nil), backendOf(kindA, nil, nil)},
		"backend for A.example.com: no name":                             {bad},
		"a backend serves no kind: set Backend.Kind":                     {backendOf(schema.GroupKind{}, nil, nil)},
		"the backend for A.example.com makes no client: set Backend.New": {{Kind: kindA}},
	} {
		_, err := applier.NewBackends(backends...)
		assert.EqualError(t, err, says)
	}
	_, err := applier.NewBackends()
	assert.NoError(t, err)
}
