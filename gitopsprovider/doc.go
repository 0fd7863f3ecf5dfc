// Package gitopsprovider tells what a GitOps engine applies in a cluster: which change from where, its diff, what
// depends on what, what manages an object, and what fails and why. It reads and never writes.
//
//	views, err := gitopsprovider.New("prod", differ, flux.NewReader(client), argocd.NewReader(client))
//	changes, err := views.Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: "team-a"})
//	diff, err := views.Diff(ctx, changes.Changes[0])
//
// [Provider] is the contract, and [Views] the one implementation, for every engine at once. It works over two small
// interfaces: a [Reader] for each engine, which reads its objects and presents them in the words of this package, and a
// [Differ], which reads Git repositories. Packages flux and argocd have the Readers, package gitdiff the Differ, and
// [NoDiffer] does without one.
//
// # What is not known
//
// A read can find an object, or find that it is absent, that its kind is not served, that this identity may not
// look, or get no answer. These are five different [Answer] values, and every view carries those that it rests on. An
// empty list with an Answer of NotServed says that the engine is not installed; with Forbidden it says nothing.
// Nothing negative is kept: a kind that was not served a moment ago is asked for again.
//
// A method of [Views] fails only where it has nothing to tell at all: an invalid argument, or a context that ended.
//
// # What the views need
//
// The verbs get and list on the kinds of the Readers and on Events, and watch for [Views.WatchFailures]. Lists are of the
// whole cluster, since an applier may deploy into another namespace than its own; an identity that may list one
// namespace alone gets that one, if the Selector names it. Lists are read in pages of 500 objects. Nothing is kept
// between calls but the version in which a kind was last served.
//
// # Words
//
//	our word      Flux                                       Argo CD
//	applier       Kustomization, HelmRelease                 Application
//	source        GitRepository, OCIRepository, Bucket, …    spec.source, spec.sources
//	generator     none                                       ApplicationSet
//	deployment    an entry of status.history                 an entry of status.history
//	Ready         the condition                              the last operation, the conditions and health together
//
// # A Reader of one's own
//
// A third engine needs a table of its kinds, a function that describes one object, and a function that recognises its
// mark on the objects it manages: a [Dialect]. [NewClusterReader] makes the Reader, with paged lists, versions found by
// trying, watches that reconnect, and Events. A test needs no cluster at all: [Reader] has exported value types only.
//
// # Secrets
//
// URLs and messages are stripped of user info. Diffs hide the values of Secrets unless the Differ is told otherwise.
package gitopsprovider
