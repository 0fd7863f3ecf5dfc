// Package flux asks Flux Kustomizations to apply: a backend of package applier.
//
//	client, err := flux.New("prod", dynamicClient, flux.Options{FieldManager: "my-operator"})
//
// A [Client] reaches the Kustomizations of one cluster over client-go's dynamic client, which is all it needs. Flux
// 2.7 is the oldest that it works with: kustomize-controller 1.7 is the first to keep status.history. What is said
// here of the controllers was measured on kustomize-controller 1.9.6 and source-controller 1.9.4.
//
// # Two ways to ask
//
// A held Kustomization is suspended between operations, under the client's field manager, and applies only when asked.
// [Client.Suspend] holds it, [Client.Release] hands it back, and a request resumes it for one apply:
//
//  1. The GitRepository is made to hold the commit, unless it does: a new reconcile.fluxcd.io/requestedAt makes
//     source-controller fetch.
//  2. The Kustomization is resumed with the request's token, if nothing changed since it was read.
//  3. Once the run that read the token has ended, the Kustomization is suspended again, with another token.
//  4. Once that is handled, nothing can be running any more, and what stands is the outcome.
//
// A live Kustomization is one that Flux reconciles as ever. An Ask with Live set takes step 1, stamps the token, and
// follows it to the end of its run. Nothing is suspended, so Flux may apply the commit on its own before, and another
// one right after.
//
// # What tells that a commit is applied
//
// Neither Ready alone nor the handled token alone: Flux marks a token as handled also when it is suspended, has
// failed, or waits, and a suspended Kustomization keeps an old Ready. A success is Ready True and a run since the
// request, which status.history shows, and names lastAppliedRevision, whatever that is: a newer commit can arrive
// between the resume and the suspend, and then the end says so (applier.ReasonAppliedOther). Tokens are compared for
// equality and times are not compared at all.
//
// An end that is a failure has Flux's own reason (BuildFailed, ReconciliationFailed, HealthCheckFailed,
// DependencyNotReady, ArtifactFailed, AccessDenied, …) and message, or one of these.
// Progress.AskAgain tells under which the same request may be made anew:
//
//	PathNotFound           the commit does not have spec.path; ArtifactFailed in Flux's words
//	AttemptedOther         the run failed at another revision than the commit
//	HealthCheckCanceled    something newer ended the wait for health
//	Interrupted            the controller was stopped in the middle of the run
//	NotRun                 nothing ran for this request
//	Superseded             another request followed before the end of this one was read, or its token was removed
//	Gone, Replaced, Deleting, SuspendOwnedElsewhere
//
// A run that had to wait for something, a dependency or an artifact, ends Failed with that reason. What it failed at may
// be applied in part.
//
// # What is written
//
// Only spec.suspend and the annotation reconcile.fluxcd.io/requestedAt of the Kustomization, and that annotation of
// its GitRepository, by server-side apply with force. Every apply carries the object's UID, so it can neither create
// an object nor land on another one of that name. The ones that start something carry the resourceVersion too. A
// spec.suspend that another manager applies, such as the manifest of a parent Kustomization, is refused, because it
// would come back.
//
// # Access
//
//	kustomize.toolkit.fluxcd.io  kustomizations   get, watch, patch; list for Consumers
//	source.toolkit.fluxcd.io     gitrepositories  get, watch, patch
//	source.toolkit.fluxcd.io     helmcharts       list for Consumers
//	helm.toolkit.fluxcd.io       helmreleases     list for Consumers
//
// Without watch, objects are polled.
package flux
