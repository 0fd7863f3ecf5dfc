// Package fake has in-memory stand-ins for the unit tests of programs that embed this library.
//
// [Cluster] is a Kubernetes API server with the kinds of Flux and a few built-in ones. It answers as kube-apiserver
// 1.36 does: server-side apply with managed fields and conflicts, resourceVersions, generations, UIDs, pruning,
// defaults, validation, status subresources, finalizers and preconditions, selectors, paged lists and watches. A
// program under test reaches it through client-go's own dynamic client, so that retries, warnings and errors are
// the real client's.
//
//	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
//	defer cluster.Stop()
//	client := cluster.Client() // a dynamic.Interface
//
// A Cluster has no listener and no goroutine. It works inside a testing/synctest bubble and outside one; its clock
// is time.Now.
//
// # Flux
//
// [StartFlux] starts a simulated Flux in a cluster, whose controllers fetch from a [Remote] and apply what they find:
//
//	simulated := fake.StartFlux(cluster, fake.FluxOptions{})
//	commit := simulated.Remote().Repository("https://git.example.com/acme/shop").Commit(fake.Files{"cm.yaml": manifest})
//	simulated.Inject(fake.StepFault{Step: fake.BuildStep, Message: "no such base"})
//
// A [StepFault] makes a step of theirs fail, last, or wait for the test, and each [Controller] can be stopped and started. In a
// bubble, synctest.Wait returns once they have done all that there is to do by then.
//
// # Argo CD
//
// [StartArgoCD] starts a simulated Argo CD, beside a Flux or alone. The two may share a Remote:
//
//	simulated := fake.StartArgoCD(cluster, fake.ArgoCDOptions{Remote: remote})
//	simulated.FailNext(fake.ApplyStep, "no such namespace")
//	simulated.Block() // a sync window, until Unblock
//
// It does with an operation what application-controller 3.2.11 does, its faults included: see [ArgoCD].
//
// # Events
//
// Both simulated tools write the Kubernetes Events that the real ones do, of type core/v1, which events.k8s.io/v1 shows as well: what they
// applied, what failed and why, that nothing has changed. They are counted and combined by client-go, as those of the real ones are. The
// newest 2,000 are kept.
//
// # The views of package gitopsprovider
//
// A [Cluster] serves every kind that the views read, and a [Remote] answers what they ask of repositories:
//
//	views, err := gitopsprovider.New("test", remote, flux.NewReader(cluster), argocd.NewReader(cluster))
//
// # A client and a store without a cluster
//
// [Client] is an applier whose answers a test scripts, and [Store] keeps a host's triggers and targets. A test of what a host
// makes of the library's reports needs no more:
//
//	store := &fake.Store{}
//	trigger := store.PutTrigger(applier.Trigger{Ref: ref, Applier: app})
//	store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 2, Lost: io.ErrUnexpectedEOF})
//	...
//	store.History(trigger.Ref) // every status that was written
//
// # Views, requests and faults
//
// A [View] is the cluster as one client sees it. [Cluster.As] makes one for another identity, with a rule that says
// what it may do. Each view records its requests, and a [Fault] makes chosen requests of a view fail, get lost or
// wait, or lets a test act just before or after one.
//
// # What the cluster does not imitate
//
//   - Validation rules written in CEL.
//   - Admission beyond what concerns namespaces, webhooks, quotas and priorities.
//   - Controllers of its own: there is no garbage collector, no namespace controller and no scheduler. A deleted
//     namespace stays terminating, an object deleted in the foreground stays until its finalizer is removed, and
//     a Deployment has no pods.
//   - Most of what the real server checks of built-in kinds, beyond their types, names and the fields that tests of
//     GitOps tools meet. Kinds other than those listed at [Cluster] are not served.
//   - CustomResourceDefinitions as objects.
//   - Encodings other than JSON, tables, partial metadata, subresources other than status, and the log, exec and proxy verbs.
//   - A watch that sets no timeout ends after 45 minutes; the real server takes a random time from 30 to 60.
//     Bookmarks come at the end of the initial events and when the test asks for them, not by time.
package fake
