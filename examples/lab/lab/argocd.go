package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ArgoCDNamespace is where Argo CD has its settings and projects. Applications
// may be in any namespace.
const ArgoCDNamespace = "argocd"

// addArgoCD makes what Argo CD expects to find, and its processes, of which it
// starts Redis: the others need it.
func (l *Lab) addArgoCD(ctx context.Context, x *executables, ports [4]int) error {
	for _, object := range argoCDObjects() {
		if err := l.install(ctx, object); err != nil {
			return fmt.Errorf("prepare Argo CD: %w", err)
		}
	}
	redis, repoServer, repoServerMetrics, controllerMetrics := ports[0], ports[1], ports[2], ports[3]
	e := l.environment
	var err error
	if l.Redis, err = newRedis(e, x.redis, redis); err != nil {
		return err
	}
	if l.RepoServer, err = newRepoServer(e, x.argoCD, redis, [2]int{repoServer, repoServerMetrics}); err != nil {
		return err
	}
	l.ApplicationController = newApplicationController(e, x.argoCD, l.Kubeconfig(), redis, repoServer, controllerMetrics)
	return startInTime(ctx, l.Redis)
}

func newRepoServer(e *environment, path string, redis int, ports [2]int) (*Process, error) {
	home := filepath.Join(e.dir, "repo-server")
	for _, sub := range []string{"tls", "ssh"} {
		if err := os.MkdirAll(filepath.Join(home, sub), 0o700); err != nil {
			return nil, err
		}
	}
	return argoCDProcess(e, "argocd-repo-server", path, ports[:],
		[]string{
			"--address=127.0.0.1",
			fmt.Sprintf("--port=%d", ports[0]),
			"--metrics-address=127.0.0.1",
			fmt.Sprintf("--metrics-port=%d", ports[1]),
			"--redis=" + address(redis),
			"--disable-tls",
		},
		[]string{
			"ARGOCD_GPG_ENABLED=false",
			"ARGOCD_TLS_DATA_PATH=" + filepath.Join(home, "tls"),
			"ARGOCD_SSH_DATA_PATH=" + filepath.Join(home, "ssh"),
			// Its default is one path for the whole machine.
			"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(home, "ask-pass.sock"),
		},
		"http://"+address(ports[1])+"/healthz?full=true"), nil
}

func newApplicationController(e *environment, path, kubeconfig string, redis, repoServer, metrics int) *Process {
	return argoCDProcess(e, "argocd-application-controller", path, []int{metrics},
		[]string{
			"--namespace=" + ArgoCDNamespace,
			"--application-namespaces=*",
			"--redis=" + address(redis),
			"--repo-server=" + address(repoServer),
			"--repo-server-plaintext",
			fmt.Sprintf("--metrics-port=%d", metrics),
			// A pass over an operation with several waves occupies a processor
			// for seconds. With the default of 10 a few tests would stall others.
			"--operation-processors=32",
			// 3.2.11 can write an older state of an Application back over the one that its informer holds
			// (PatchAppWithWriteBack, controller/appcontroller.go), and so not see an operation that was just set. It makes up
			// for it at the first resync that finds the last comparison older than this: within twice this time. The
			// default of two minutes outlasts a test's patience.
			"--app-resync=60",
			"--app-resync-jitter=0",
		},
		[]string{
			"KUBECONFIG=" + kubeconfig,
			// It then reaches kubernetes.default.svc by the kubeconfig.
			"ARGOCD_FAKE_IN_CLUSTER=true",
		},
		"http://"+address(metrics)+"/healthz")
}

func newApplicationSetController(e *environment, path, kubeconfig string, repoServer int, ports [3]int) *Process {
	metrics, probe, webhook := ports[0], ports[1], ports[2]
	return argoCDProcess(e, "argocd-applicationset-controller", path, ports[:],
		[]string{
			"--namespace=" + ArgoCDNamespace,
			"--applicationset-namespaces=*",
			// In all namespaces it insists on this, or on a list of providers.
			"--enable-scm-providers=false",
			"--argocd-repo-server=" + address(repoServer),
			"--repo-server-plaintext",
			"--metrics-addr=" + address(metrics),
			"--probe-addr=" + address(probe),
			"--webhook-addr=" + address(webhook),
		},
		[]string{"KUBECONFIG=" + kubeconfig},
		// Of health it answers nothing.
		"http://"+address(metrics)+"/metrics")
}

// argoCDProcess is a role of Argo CD's one program.
func argoCDProcess(e *environment, role, path string, ports []int, args, env []string, health string) *Process {
	return e.role(role, path, ports, args,
		append(append(os.Environ(), // for proxies, should a repository be elsewhere
			"ARGOCD_BINARY_NAME="+role,
			"HOME="+e.dir,
			"TMPDIR="+e.tmp(),
		), env...),
		httpReady(http.DefaultClient, health, ""))
}

// argoCDObjects are the settings that the controllers refuse to start without,
// and the project default, which lets Applications of any namespace do
// anything.
func argoCDObjects() []*unstructured.Unstructured {
	configMap := func(name string) *unstructured.Unstructured {
		return settings("v1", "ConfigMap", name, nil)
	}
	return []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ArgoCDNamespace}}},
		configMap("argocd-cm"),
		configMap("argocd-cmd-params-cm"),
		configMap("argocd-rbac-cm"),
		configMap("argocd-tls-certs-cm"),
		configMap("argocd-ssh-known-hosts-cm"),
		configMap("argocd-gpg-keys-cm"),
		settings("v1", "Secret", "argocd-secret", map[string]any{
			"stringData": map[string]any{"server.secretkey": rand.Text()},
		}),
		NewAppProject("default"),
	}
}

func settings(apiVersion, kind, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	if content == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(ArgoCDNamespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"app.kubernetes.io/part-of": "argocd"})
	return u
}

// install creates one of argoCDObjects.
func (l *Lab) install(ctx context.Context, object *unstructured.Unstructured) error {
	resources := map[string]schema.GroupVersionResource{
		"Namespace":  Namespaces,
		"ConfigMap":  ConfigMaps,
		"Secret":     {Version: "v1", Resource: "secrets"},
		"AppProject": AppProjects,
	}
	_, err := l.dynamic.Resource(resources[object.GetKind()]).Namespace(object.GetNamespace()).
		Create(ctx, object, metav1.CreateOptions{})
	return err
}
