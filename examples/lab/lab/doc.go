// Package lab runs a real Kubernetes control plane with the real controllers of
// Flux and Argo CD, as plain processes of this machine, for tests and for trying
// things out. Nothing in it is simulated: etcd, kube-apiserver with RBAC,
// source-controller, kustomize-controller, helm-controller, Argo CD's
// application-controller, ApplicationSet controller and repo-server, and a Git
// server over HTTP, each built from its Go module by the Go tool chain. The
// Redis that Argo CD needs comes from the distribution.
//
// # In a test
//
//	func TestMain(m *testing.M) { lab.Main(m) }
//
//	func TestCommitIsApplied(t *testing.T) {
//		t.Parallel()
//		l := lab.Start(t)
//		ns, repo := l.Namespace(t), l.Repository(t)
//		commit := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
//		l.GitRepository(t, ns, "app", repo)
//		l.Kustomization(t, ns, "app", "app")
//		l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Applied(commit))
//	}
//
// [Start] shares one control plane among the tests of a binary. It comes up
// with the first test that asks for it, in about five seconds, and is stopped
// by [Main]. Namespaces and repositories belong to one test. A test that stops
// a process, or measures, asks with [Alone] instead and then runs while no
// other test uses the control plane. [StartBare] gives a second, smaller one
// that serves no kind of Flux's or Argo CD's.
//
// Flux is what a test gets unless it names other parts. For Argo CD:
//
//	func TestMain(m *testing.M) { lab.Main(m, lab.ArgoCD) }
//
// and [Lab.Application] instead of GitRepository and Kustomization. Only [All]
// brings the two controllers that make objects for the others, for
// [Lab.HelmRelease] and [Lab.ApplicationSet].
//
// The programs are built at first use, which takes a quarter of an hour on two cores:
// longer than go test allows by default. Build them beforehand with
// go -C examples/lab run . build. They are kept in the user's cache folder,
// or in the one that the variable GITOPS_APPLIER_LAB_CACHE names.
//
// # In a program
//
// [Up] starts a control plane of its own and returns once it serves.
//
// # Requirements
//
// Linux or macOS, the Go tool chain, git, and the Go module proxy for the first
// build; for Argo CD also redis-server, which is installed by itself where root
// runs the lab on Debian. No containers, no privileges, and only loopback
// addresses, but for the metrics of application-controller, which knows no
// other way than all addresses. On Linux no process outlives the one that
// started it, however that one ends; elsewhere one that is killed leaves its
// children behind.
package lab
