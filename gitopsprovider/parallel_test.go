package gitopsprovider_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// gauge counts the reads that are made at a time. Each takes a second.
type gauge struct {
	mu             sync.Mutex
	now, most, all int
}

func (g *gauge) read() {
	g.add(1)
	time.Sleep(time.Second)
	g.add(-1)
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.all += max(n, 0)
	g.most = max(g.most, g.now)
}

// slowCluster is a cluster that takes a second for each answer.
type slowCluster struct {
	*memory
	gauge
}

func (s *slowCluster) Get(ctx context.Context, w gitopsprovider.Workload) (gitopsprovider.Object, error) {
	s.read()
	return s.memory.Get(ctx, w)
}

func (s *slowCluster) List(ctx context.Context, kind gitopsprovider.Kind, namespace string, each func(gitopsprovider.Object)) error {
	s.read()
	return s.memory.List(ctx, kind, namespace, each)
}

// slowRepository takes a second for each history.
type slowRepository struct {
	repository
	gauge
}

func (s *slowRepository) History(ctx context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	s.read()
	return s.repository.History(ctx, q)
}

func TestReadsRunInBoundedParallel(t *testing.T) {
	t.Parallel()
	objects := []gitopsprovider.Object{repo("ns/r", shopURL), app("ns/all")}
	for i := range 20 {
		objects = append(objects, app(fmt.Sprintf("ns/a%02d", i), applies("Repo ns/r", fmt.Sprint(i), commitA)))
		dependsOn(fmt.Sprintf("ns/a%02d", i))(&objects[1])
	}
	charted := slices.Concat(objects, []gitopsprovider.Object{app("ns/c", applies("Chart ns/c", "", "1"))})
	for name, test := range map[string]struct {
		objects []gitopsprovider.Object
		view    func(context.Context, *gitopsprovider.Views) error
		// reads of the cluster and of repositories in all, and at most at a time.
		reads, readsAtATime, histories, historiesAtATime int
		took                                             time.Duration
	}{
		"the objects of one depth of a tree": {
			objects: objects, reads: 22, readsAtATime: 8, took: 5 * time.Second, // 1, 20 in three rounds, and their source
			view: func(ctx context.Context, v *gitopsprovider.Views) error {
				_, err := v.DependencyTree(ctx, workload("App", "ns/all"))
				return err
			},
		},
		"the lists of sources": {
			objects: charted, reads: 3, readsAtATime: 2, took: 2 * time.Second,
			view: func(ctx context.Context, v *gitopsprovider.Views) error {
				_, err := v.Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
				return err
			},
		},
		"the histories of a window": {
			objects: objects, reads: 2, readsAtATime: 1, histories: 20, historiesAtATime: 8, took: 5 * time.Second, // two lists, and three rounds
			view: func(ctx context.Context, v *gitopsprovider.Views) error {
				_, err := v.Changes(ctx, lastHours, gitopsprovider.Selector{})
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster, repository := &slowCluster{memory: newMemory(test.objects...)}, &slowRepository{}
				began := time.Now()
				require.NoError(t, test.view(t.Context(), views(t, repository, cluster)))
				assert.Equal(t, test.took, time.Since(began))
				assert.Equal(t, []int{test.reads, test.readsAtATime}, []int{cluster.all, cluster.most})
				assert.Equal(t, []int{test.histories, test.historiesAtATime}, []int{repository.all, repository.most})
			})
		})
	}
}
