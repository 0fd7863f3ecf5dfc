package fake_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
)

func TestRequestsAreRecordedPerView(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	other := c.As("controller", nil)
	createShop(t, c)
	newShops(t, c).mustApply("lib", true, body(nil, suspend(true)))
	_, err := other.Resource(kustomizations).Namespace(team).Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)

	requests := c.Requests()
	require.Len(t, requests, 2, "not those of another view")
	create, apply := requests[0], requests[1]
	assert.Equal(t, "#1 create kustomizations.kustomize.toolkit.fluxcd.io team-a/shop -> 201", create.String())
	assert.Equal(t, `#2 patch kustomizations.kustomize.toolkit.fluxcd.io team-a/shop (application/apply-patch+yaml by "lib") -> 200`, apply.String())
	assert.Equal(t, types.ApplyPatchType, apply.PatchType)
	assert.True(t, apply.Force)
	assert.JSONEq(t, `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{"name":"shop"},"spec":{"suspend":true}}`, string(apply.Body))
	assert.Len(t, other.Requests(), 1)
}

func TestAFaultStrikesTheRequestsThatMatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	other := c.As("controller", nil)
	s := newShops(t, c)
	refuse := apierrors.NewInternalError(errors.New("out of order"))
	remove := c.Inject(fake.Fault{Verb: "patch", Resource: "kustomizations", Name: "shop", Subresource: "-", Nth: 2, Err: refuse})

	s.mustApply("lib", true, body(nil, suspend(true)))
	s.get()
	_, err := other.Resource(kustomizations).Namespace(team).Patch(t.Context(), "shop", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	require.NoError(t, err, "another view")
	_, err = s.client.Patch(t.Context(), "shop", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err, "a subresource")
	_, err = s.apply("lib", true, body(nil, suspend(false)))
	assert.True(t, apierrors.IsInternalError(err))
	assert.Equal(t, true, field(s.get(), "spec", "suspend"), "it was not processed")
	s.mustApply("lib", true, body(nil, suspend(false)))

	remove()
	every := c.Inject(fake.Fault{Err: refuse})
	for range 2 {
		_, err = s.client.Get(t.Context(), "shop", metav1.GetOptions{})
		assert.Error(t, err)
	}
	every()
	s.get()
}

func TestALostResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	c.Inject(fake.Fault{Verb: "patch", Nth: 1, Lost: io.ErrUnexpectedEOF})
	_, err := s.apply("lib", true, body(nil, suspend(true)))
	var lost *url.Error
	require.ErrorAs(t, err, &lost, "as net/http reports it")
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, true, field(s.get(), "spec", "suspend"), "it was processed")
}

func TestSomebodyActsAroundARequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	created := createShop(t, c)
	s := newShops(t, c)
	somebody := shops{t: t, client: c.As("somebody", nil).Resource(kustomizations).Namespace(team)}
	c.Inject(fake.Fault{Verb: "update", Nth: 1, Before: func(fake.Request) { somebody.merge("somebody", `{"spec":{"path":"./x"}}`) }})
	_, err := s.client.Update(t.Context(), created, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsConflict(err))

	c.Inject(fake.Fault{Verb: "get", Nth: 1, After: func(r fake.Request) { s.merge("same", `{"spec":{"path":"./y"}}`) }})
	assert.Equal(t, "./x", field(s.get(), "spec", "path"), "the answer is of before")
	assert.Equal(t, "./y", field(s.get(), "spec", "path"))
}

func TestClientsRetryWhatTheServerAsksThemTo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		createShop(t, c)
		c.ResetRequests()
		c.Inject(fake.Fault{Verb: "patch", Nth: 1, Err: apierrors.NewTooManyRequests("later", 7)})
		start := time.Now()
		newShops(t, c).mustApply("lib", true, body(nil, suspend(true)))
		assert.Equal(t, 7*time.Second, time.Since(start))
		assert.Len(t, c.Requests(), 2, "each attempt is a request")
	})
}

func TestADelayedRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		createShop(t, c)
		s := newShops(t, c)
		c.Inject(fake.Fault{Verb: "get", Delay: time.Hour})
		start := time.Now()
		s.get()
		assert.Equal(t, time.Hour, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.client.Get(ctx, "shop", metav1.GetOptions{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAWatchIsCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault fake.Fault
		then  string
	}{
		{"and ends", fake.Fault{Verb: "watch", EndWatch: true, Events: 1}, "closed"},
		{"and falls silent", fake.Fault{Verb: "watch", SilenceWatch: true, Events: 1}, "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, c *fake.Cluster) {
				c.Inject(tc.fault)
				w := startWatch(t, c, metav1.ListOptions{})
				defer w.Stop()
				putMap(t, c, "a", "x")
				putMap(t, c, "b", "x")
				assert.Equal(t, "ADDED a", next(t, w))
				assert.Equal(t, tc.then, next(t, w))
			})
		})
	}
}

func TestAViewIsCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		createShop(t, c)
		client := c.As("client", nil)
		w := startWatch(t, client, metav1.ListOptions{})
		s := shops{t: t, client: client.Resource(kustomizations).Namespace(team)}
		client.Inject(fake.Fault{Verb: "patch", Nth: 1, After: func(fake.Request) { client.Cut() }})

		_, err := s.apply("lib", true, body(nil, suspend(true)))
		assert.ErrorIs(t, err, fake.ErrCut, "the answer of the request it strikes is lost")
		assert.Equal(t, true, field(newShops(t, c).get(), "spec", "suspend"), "but it was processed")
		for range w.ResultChan() {
		}
		_, err = s.client.Get(t.Context(), "shop", metav1.GetOptions{})
		assert.ErrorIs(t, err, fake.ErrCut)

		client.Mend()
		s.get()
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	// A bubble whose goroutines do not all end fails its test.
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewCluster(fake.Options{Namespaces: []string{team}})
		for range 3 {
			startWatch(t, c, metav1.ListOptions{})
		}
		c.Stop()
	})
}
