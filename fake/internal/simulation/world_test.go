package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

const (
	team        = "team-a"
	clusterName = "prod"
	hostName    = "acme"
	infoKey     = argocd.DefaultInfoKey
)

// A mode is how an applier is asked.
type mode string

const (
	held   mode = "held"
	live   mode = "live"
	synced mode = "synced"
)

// A world is one run: a cluster with both engines, repositories, the records of a host, and its processes.
type world struct {
	t       testing.TB
	seed    uint64
	broken  mutation
	cluster *fake.Cluster
	flux    *fake.Flux
	argo    *fake.ArgoCD
	store   *fake.Store
	history *history

	versions versions
	subjects []*subject
	repos    []*repo
	// processes are all that ever ran, in the order of their starts.
	processes []*process
	// chaos is whether faults strike.
	chaos atomic.Bool
	// hands undo what other people did and is to be undone in the end.
	undo []func()
	// cache is that of a store that reads from one.
	cache sync.Map
	// quiet is since when nothing changes.
	quiet time.Time
	// late are those who act later by themselves.
	late sync.WaitGroup

	mu       sync.Mutex
	attempts []*attempt
	// records are the operations that were recorded, by token, and starts the writes that were to start them.
	records map[string]*record
	starts  map[string][]start
	// asked is which attempt has which token.
	asked   map[string]*attempt
	targets map[applier.TargetRef][]targetVersion
}

// A subject is an applier.
type subject struct {
	name   string
	mode   mode
	repo   *repo
	source string
}

func (s *subject) ref() applier.ApplierRef {
	kind := flux.Kind
	if s.mode == synced {
		kind = argocd.Kind
	}
	return applier.ApplierRef{Cluster: clusterName, Group: kind.Group, Kind: kind.Kind, Namespace: team, Name: s.name}
}

// A repo is a repository whose every commit has a value of its own for every applier.
type repo struct {
	*fake.Repository
	name string
	// source is its GitRepository.
	source string

	mu      sync.Mutex
	commits map[string]string // the commit of a value
	values  map[string]string // the value of a commit
	broken  map[string]string // the applier that a commit is broken for
}

// inWorld runs a simulation in a bubble. Whatever it starts has to be over when the cluster has stopped.
func inWorld(t *testing.T, seed uint64, run func(w *world)) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = &world{
			t: t, seed: seed, store: new(fake.Store), history: newHistory(),
			versions: versions{of: make(map[objectKey][]version)},
			records:  make(map[string]*record), starts: make(map[string][]start), asked: make(map[string]*attempt), targets: make(map[applier.TargetRef][]targetVersion),
		}
		w.cluster = fake.NewCluster(fake.Options{Namespaces: []string{team}})
		defer func() {
			w.cluster.Stop()
			w.versions.ended.Wait()
		}()
		remote := fake.NewRemote()
		w.flux = fake.StartFlux(w.cluster, fake.FluxOptions{Remote: remote, Workers: 1})
		w.argo = fake.StartArgoCD(w.cluster, fake.ArgoCDOptions{Remote: remote})
		require.NoError(t, w.watchVersions(t.Context()))
		run(w)
	})
	return w
}

// roll returns a number of a thousand that depends on the seed and what it is for, and not on what else happens.
func (w *world) roll(what ...any) int { return int(w.hash(what...) % 1000) }

func (w *world) hash(what ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, w.seed)
	for _, one := range what {
		fmt.Fprint(h, "/", one)
	}
	return rand.NewPCG(h.Sum64(), w.seed).Uint64()
}

func (w *world) ctx() context.Context { return w.t.Context() }

// repository makes a repository with a GitRepository that fetches it.
func (w *world) repository() *repo {
	name := fmt.Sprintf("repo-%d", len(w.repos))
	r := &repo{
		Repository: w.flux.Remote().Repository("https://git.example.com/acme/" + name), name: name, source: name,
		commits: make(map[string]string), values: make(map[string]string), broken: make(map[string]string),
	}
	w.repos = append(w.repos, r)
	return r
}

// commit pushes one that changes what every applier applies. Of those that are broken it holds what cannot be built.
func (w *world) commit(r *repo, broken ...*subject) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	value := fmt.Sprintf("%s-%d", r.name, len(r.commits)+1)
	files := fake.Files{}
	for _, s := range w.subjects {
		files[s.name+"/cm.yaml"] = fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {key: %s}}", s.name, value)
	}
	for _, s := range broken {
		files[s.name+"/cm.yaml"] = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s"
	}
	commit := r.Commit(files)
	r.commits[value], r.values[commit] = commit, value
	for _, s := range broken {
		r.broken[commit] = s.name
	}
	w.history.note("git", "%s is %s, broken for %d appliers", value, commit[:7], len(broken))
	return commit
}

// valueOf is what an applier's ConfigMap holds once a commit is applied.
func (w *world) valueOf(commit string) string {
	for _, r := range w.repos {
		r.mu.Lock()
		value := r.values[commit]
		r.mu.Unlock()
		if value != "" {
			return value
		}
	}
	return ""
}

// found makes the repositories' first commits, and the objects in the cluster.
func (w *world) found() {
	for _, r := range w.repos {
		w.commit(r)
		w.createSource(r)
	}
	synctest.Wait()
	for _, s := range w.subjects {
		w.create(s)
	}
	synctest.Wait()
}

func (w *world) createSource(r *repo) {
	_, err := w.cluster.Resource(gitRepositories).Namespace(team).Create(w.ctx(), fake.NewGitRepository(team, r.source, r.URL()), metav1.CreateOptions{FieldManager: "creator"})
	if err != nil {
		w.history.note("creator", "GitRepository %s: %v", r.source, err)
	}
}

// create creates the applier's object.
func (w *world) create(s *subject) {
	resource, object := kustomizations, fake.NewKustomization(team, s.name, s.source)
	if s.mode == synced {
		resource, object = applications, fake.NewApplication(team, s.name, s.repo.URL())
		source := object.Object["spec"].(map[string]any)["source"].(map[string]any)
		source["path"] = s.name
		object.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{
			"retry": map[string]any{"limit": int64(1), "backoff": map[string]any{"duration": "1s", "maxDuration": "1s"}},
		}
	} else {
		object.Object["spec"].(map[string]any)["path"] = "./" + s.name
	}
	_, err := w.cluster.Resource(resource).Namespace(team).Create(w.ctx(), object, metav1.CreateOptions{FieldManager: "creator"})
	w.history.note("creator", "creates %s: %v", s.name, err)
}

func (w *world) subjectOf(ref applier.ApplierRef) *subject {
	for _, s := range w.subjects {
		if s.ref() == ref {
			return s
		}
	}
	return nil
}

// trigger puts a trigger for an applier, with a target, into the host's records.
func (w *world) trigger(name string, s *subject) {
	t := w.store.PutTrigger(applier.Trigger{
		Ref: applier.TriggerRef{Namespace: team, Name: name}, Applier: s.ref(), Live: s.mode == live, Created: time.Now(),
	})
	w.target(name, t.Ref.Name, s)
}

// target puts a target for a trigger into the host's records.
func (w *world) target(name, trigger string, s *subject) {
	t := w.store.PutTarget(applier.Target{
		Ref: applier.TargetRef{Namespace: team, Name: name}, Trigger: applier.TriggerRef{Namespace: team, Name: trigger},
		Writes:    applier.Binding{Repository: s.repo.URL(), Branch: "main"},
		Admission: applier.Admission{State: applier.Admitted}, RefusalConsent: true,
	})
	w.targetChanged(t, false)
}

// A targetVersion is a target as it stood from a moment on.
type targetVersion struct {
	at     time.Time
	target applier.Target
	gone   bool
}

func (w *world) targetChanged(t applier.Target, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets[t.Ref] = append(w.targets[t.Ref], targetVersion{time.Now(), t, gone})
}

// changeTarget changes a target as the host's users do.
func (w *world) changeTarget(name string, change func(*applier.Target)) {
	ref := applier.TargetRef{Namespace: team, Name: name}
	if w.store.ChangeTarget(ref, change) != nil {
		return
	}
	if t, err := w.store.Process().Target(w.ctx(), ref); err == nil {
		w.targetChanged(t, false)
	}
}

// A record is an operation that was recorded.
type record struct {
	at      time.Time
	process *process
	trigger applier.TriggerRef
	first   applier.Operation
	attempt *attempt
	// completed is when and how it was first recorded as completed.
	completedAt time.Time
	completed   *applier.Operation
}

// A start is a write that was sent to start an operation.
type start struct {
	at      time.Time
	process *process
	body    string
}
