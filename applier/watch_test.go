package applier_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// resource is a resource with one object, which a test changes.
type resource struct {
	dynamic.ResourceInterface
	start time.Time

	mu       sync.Mutex
	object   *unstructured.Unstructured // nil is not found
	silent   bool                       // a watch does not begin with what stands
	refuse   error                      // of the watch
	unread   error                      // of the read
	opened   []time.Duration            // watches, since the start
	open     int                        // watches
	reads    int
	selected string
	watcher  *watch.RaceFreeFakeWatcher
}

func (r *resource) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, time.Since(r.start))
	r.selected = options.FieldSelector
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.watcher = watch.NewRaceFreeFake()
	if r.object != nil && !r.silent {
		r.watcher.Add(r.object)
	}
	r.open++
	return stopping{r.watcher, r}, nil
}

// stopping counts the watches that are stopped.
type stopping struct {
	watch.Interface
	resource *resource
}

func (s stopping) Stop() {
	s.Interface.Stop()
	s.resource.set(func(r *resource) { r.open-- })
}

func (r *resource) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	switch {
	case r.unread != nil:
		return nil, r.unread
	case r.object == nil:
		return nil, apierrors.NewNotFound(apps, "app")
	}
	return r.object, nil
}

func (r *resource) set(change func(*resource)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// send is what the API server says of a change.
func (r *resource) send(kind watch.EventType, object runtime.Object) {
	r.set(func(r *resource) { r.watcher.Action(kind, object) })
}

func version(n int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetName("app")
	u.SetResourceVersion(strconv.Itoa(n))
	return u
}

// watchOf watches a resource until the test ends.
func watchOf(t *testing.T, r *resource) (<-chan *unstructured.Unstructured, context.CancelFunc) {
	r.start = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	return applier.WatchObject(ctx, r, "app"), cancel
}

// next is what the watch shows, or fails the test where it shows nothing.
func next(t *testing.T, shown <-chan *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	synctest.Wait()
	select {
	case object, ok := <-shown:
		require.True(t, ok, "the watch was closed")
		return object
	default:
		require.Fail(t, "nothing is shown")
		return nil
	}
}

func requireNothing(t *testing.T, shown <-chan *unstructured.Unstructured) {
	t.Helper()
	synctest.Wait()
	select {
	case object := <-shown:
		require.Fail(t, "something is shown", "%v", object)
	default:
	}
}

func requireShown(t *testing.T, want int, shown <-chan *unstructured.Unstructured) {
	t.Helper()
	object := next(t, shown)
	require.NotNil(t, object)
	require.Equal(t, strconv.Itoa(want), object.GetResourceVersion())
}

func TestAWatchShowsWhatStandsAndThenEachChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{object: version(5)}
		shown, cancel := watchOf(t, r)

		requireShown(t, 5, shown)
		r.send(watch.Modified, version(6))
		requireShown(t, 6, shown)
		r.send(watch.Deleted, version(7))
		assert.Nil(t, next(t, shown), "it is gone")
		r.send(watch.Added, version(8))
		requireShown(t, 8, shown)

		cancel()
		synctest.Wait()
		_, ok := <-shown
		assert.False(t, ok, "closed")
		r.set(func(r *resource) {
			assert.Zero(t, r.open, "the watch was stopped")
			assert.Zero(t, r.reads)
			assert.Equal(t, "metadata.name=app", r.selected)
		})
	})
}

func TestAWatchThatSaysNothingIsHelpedByOneRead(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]*unstructured.Unstructured{
		"the object is not there":             nil,
		"the server does not say what stands": version(5),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{object: object, silent: true}
				shown, cancel := watchOf(t, r)
				defer cancel()
				requireNothing(t, shown)
				time.Sleep(time.Second)
				assert.Same(t, object, next(t, shown))
				time.Sleep(time.Minute)
				requireNothing(t, shown)
				r.set(func(r *resource) { assert.Equal(t, 1, r.reads, "and is quiet then") })
			})
		})
	}
}

func TestAReadForAWatchThatSaysNothingIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{unread: errLost}
		shown, cancel := watchOf(t, r)
		defer cancel()
		time.Sleep(10 * time.Second)
		requireNothing(t, shown)
		r.set(func(r *resource) {
			assert.Equal(t, 10, r.reads)
			r.unread = nil
		})
		time.Sleep(time.Second)
		assert.Nil(t, next(t, shown))
		time.Sleep(time.Minute)
		r.set(func(r *resource) { assert.Equal(t, 11, r.reads) })
	})
}

func TestAWatchKeepsTheNewestStateForWhoIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{object: version(1)}
		shown, cancel := watchOf(t, r)
		defer cancel()
		synctest.Wait()
		for n := 2; n < 90; n++ {
			r.send(watch.Modified, version(n))
		}
		requireShown(t, 89, shown)
		requireNothing(t, shown)
	})
}

func TestAWatchShowsNoOlderStateAndNoOtherObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{object: version(10)}
		shown, cancel := watchOf(t, r)
		defer cancel()
		requireShown(t, 10, shown)
		r.send(watch.Added, version(9)) // replayed
		other := version(11)
		other.SetName("other") // a server that knows no field selector
		r.send(watch.Modified, other)
		r.send(watch.Deleted, other)
		r.send(watch.Bookmark, version(12))
		r.send(watch.Modified, &metav1.Status{})
		requireNothing(t, shown)
		r.send(watch.Modified, version(13))
		requireShown(t, 13, shown)
	})
}

func TestAWatchThatBreaksIsOpenedAgainByItself(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *resource){
		"closed":        func(r *resource) { r.set(func(r *resource) { r.watcher.Stop() }) },
		"with an error": func(r *resource) { r.send(watch.Error, &metav1.Status{Code: 410}) },
		"grown old":     func(*resource) { time.Sleep(5 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{object: version(1)}
				shown, cancel := watchOf(t, r)
				defer cancel()
				requireShown(t, 1, shown)
				r.set(func(r *resource) { r.object = version(2) }) // while nobody watches
				end(r)
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				requireShown(t, 2, shown)
				r.send(watch.Modified, version(3))
				requireShown(t, 3, shown)
				r.set(func(r *resource) {
					assert.Len(t, r.opened, 2)
					assert.Equal(t, 1, r.open)
				})
			})
		})
	}
}

func TestAWatchThatCannotBeOpenedIsTriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]error{"no answer": errLost, "the kind is not served": notServed()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{refuse: refuse, object: version(1)}
				shown, cancel := watchOf(t, r)
				defer cancel()
				time.Sleep(time.Minute)
				requireShown(t, 1, shown)
				requireNothing(t, shown)
				r.set(func(r *resource) {
					assert.Greater(t, len(r.opened), 8, "it is not given up")
					assert.Less(t, len(r.opened), 30)
					for i, at := range r.opened[1:] {
						gap := at - r.opened[i]
						assert.GreaterOrEqual(t, gap, 50*time.Millisecond)
						assert.LessOrEqual(t, gap, 6*time.Second)
					}
					r.refuse = nil
				})
				time.Sleep(6 * time.Second)
				r.send(watch.Modified, version(2))
				requireShown(t, 2, shown)
			})
		})
	}
}

func TestAWatchThatIsRefusedIsClosed(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(apps, "app", nil)
	for name, test := range map[string]struct{ refuse, unread error }{
		"forbidden":             {refuse: forbidden},
		"no verb of the kind's": {refuse: apierrors.NewMethodNotSupported(apps, "watch")},
		"forbidden to read":     {unread: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{refuse: test.refuse, unread: test.unread}
				shown, cancel := watchOf(t, r)
				defer cancel()
				time.Sleep(time.Minute)
				_, ok := <-shown
				assert.False(t, ok)
				r.set(func(r *resource) {
					assert.Len(t, r.opened, 1)
					assert.Zero(t, r.open)
				})
			})
		})
	}
}

func TestAForbiddenReadEndsAnOpenWatchAfterTenSecondsAlone(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(apps, "app", nil)
	for name, test := range map[string]struct {
		meanwhile func(r *resource) // six seconds after the first forbidden read
		ends      bool              // six seconds later
	}{
		"forbidden all the time":     {meanwhile: func(*resource) {}, ends: true},
		"the watch breaks":           {meanwhile: func(r *resource) { r.set(func(r *resource) { r.watcher.Stop() }) }, ends: true},
		"the watch says what stands": {meanwhile: func(r *resource) { r.send(watch.Added, version(5)) }},
		"the watch says what stands, and is silent when opened again": {meanwhile: func(r *resource) {
			r.send(watch.Added, version(5))
			time.Sleep(4 * time.Second)
			r.set(func(r *resource) { r.watcher.Stop() })
		}},
		"what stands can be read": {meanwhile: func(r *resource) { r.set(func(r *resource) { r.unread, r.object = nil, version(5) }) }},
		"it is found to be gone":  {meanwhile: func(r *resource) { r.set(func(r *resource) { r.unread = nil }) }},
		"a read fails otherwise": {meanwhile: func(r *resource) {
			r.set(func(r *resource) { r.unread = errLost })
			time.Sleep(time.Second)
			r.set(func(r *resource) { r.unread = forbidden })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &resource{unread: forbidden, silent: true}
				shown, cancel := watchOf(t, r)
				defer cancel()
				time.Sleep(7500 * time.Millisecond) // between two reads
				requireNothing(t, shown)
				test.meanwhile(r)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				ended := false
				for waiting := true; waiting; {
					select {
					case _, open := <-shown:
						ended, waiting = !open, open
					default:
						waiting = false
					}
				}
				assert.Equal(t, test.ends, ended)
			})
		})
	}
}

func TestAWatchThatWasOpenOutlivesAMomentOfRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(apps, "app", nil)
		r := &resource{silent: true}
		shown, cancel := watchOf(t, r)
		defer cancel()
		synctest.Wait() // it is open, and has shown nothing yet
		r.set(func(r *resource) { r.refuse, r.unread, r.object = forbidden, forbidden, version(5) })
		r.set(func(r *resource) { r.watcher.Stop() })
		for _, refuse := range []error{forbidden, errLost, forbidden} {
			r.set(func(r *resource) { r.refuse, r.unread = refuse, refuse })
			time.Sleep(7 * time.Second)
			requireNothing(t, shown)
		}
		r.set(func(r *resource) { r.refuse, r.unread = nil, nil })
		time.Sleep(8 * time.Second)
		requireShown(t, 5, shown)

		r.set(func(r *resource) { r.refuse = forbidden })
		r.set(func(r *resource) { r.watcher.Stop() })
		time.Sleep(7 * time.Second)
		requireNothing(t, shown)
		time.Sleep(10 * time.Second)
		_, open := <-shown
		assert.False(t, open, "after ten seconds it is believed")
	})
}
