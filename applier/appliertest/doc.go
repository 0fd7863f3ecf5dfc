// Package appliertest checks that a backend keeps the contract of package applier: every sentence of [applier.Client]
// and its optional capabilities, and every law that holds through faults, restarts and other people's hands.
//
//	func TestContract(t *testing.T) {
//		appliertest.Run(t, appliertest.Harness{
//			New:  newApplier,     // one applier in one cluster, and what a test can do to it
//			Wrap: synctest.Test,  // a cluster in memory runs in a bubble; leave it out on a real one
//		})
//	}
//
// Each clause of the contract is a subtest, such as Holder/suspends_an_overdue_operation_at_once. Its failure quotes the
// clause and says what happened instead. Many clauses break every request of an operation in turn: they are found by
// counting, so a backend says nothing about its requests, and a request that is added later is broken as well.
//
// # Writing a harness
//
// New makes an [Applier]. It is called for each case and has to give it one that nothing else touches: a new cluster in
// memory, or a new namespace of a real one. These fields are required:
//
//   - Cluster, Ref and Want name the applier and what it applies from. Every message of the backend is searched for them.
//   - NewClient makes the backend's client over the dynamic.Interface that it is handed. The suite calls it for each
//     process that it lets live and die. Whatever the client sends past that interface cannot be counted or broken.
//   - Push makes a commit that can be applied. It writes something that only this commit has.
//   - Applied reads that something back from the cluster, and says of which commit it is. It is what the backend's
//     claims are held against, so it does not look at the applier's status, which is where the backend looks.
//
// The others are worth their few lines. API and Resource are the cluster itself and the applier's kind in it: with them the
// suite injects faults, crashes processes, and deletes and replaces the applier. PushBroken, PushStuck, Retarget,
// ForeignOperation and Hands are the failing manifest, the apply that does not end, and the things that a user or a
// command-line tool does to the applier.
//
// An applier that the client can hold ([applier.Holder]) is held by the suite before it is asked. New leaves it as its user
// would create it.
//
// # What is not checked
//
// A clause that needs something the backend or the harness does not have is not checked. It says so in its log, and [Run] lists
// all of them at its end; go test -v shows it. What is missing has to be named in Harness.Lacks, or the suite fails: a
// capability that gets lost is noticed.
//
// The suite does not know a backend's own rules: which sources it refuses, how it reads its controller's status, what it
// reports when that is odd. Those are the backend's own tests.
//
// # A store
//
// [RunStore] checks a host's [applier.Store] in the same manner: every sentence of its contract is a subtest.
//
//	func TestStore(t *testing.T) {
//		appliertest.RunStore(t, appliertest.StoreHarness{New: newRecords, Parallel: true})
//	}
//
// [Records] makes stores as processes of the host do, and creates, changes and deletes triggers and targets as the host's users
// do. The suite runs several processes over the same records, lets them race, and takes their answers away where the harness
// can.
//
// # Time
//
// In a bubble of testing/synctest, waits cost nothing. On a real cluster, set Parallel, and Timeout to what an apply
// may take there. The clauses that break each request in turn run some dozens of operations each, and one waits for half a minute.
//
// Run it under the race detector: two clauses use one client from several goroutines.
package appliertest
