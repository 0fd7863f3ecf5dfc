package lab

import (
	"net/http"
	"os"
	"path/filepath"
)

func newSourceController(e *environment, path, kubeconfig string, ports [3]int) (*Process, error) {
	storage := filepath.Join(e.dir, "artifacts")
	if err := os.MkdirAll(storage, 0o700); err != nil {
		return nil, err
	}
	return e.process(path, ports[:],
		append(controllerArgs(ports[0], ports[1]),
			"--storage-path="+storage,
			"--storage-addr="+address(ports[2]),
			"--storage-adv-addr="+address(ports[2]),
			// One repository that does not answer must not stall the others.
			"--concurrent=8",
		),
		controllerEnv(e, kubeconfig),
		httpReady(http.DefaultClient, "http://"+address(ports[1])+"/readyz", "")), nil
}

func newKustomizeController(e *environment, path, kubeconfig string, ports [2]int) *Process {
	return e.process(path, ports[:],
		append(controllerArgs(ports[0], ports[1]),
			// A health check occupies a worker until it ends. With the default
			// of 4 workers a few tests would stall all others.
			"--concurrent=32",
		),
		controllerEnv(e, kubeconfig),
		httpReady(http.DefaultClient, "http://"+address(ports[1])+"/readyz", ""))
}

func newHelmController(e *environment, path, kubeconfig string, ports [2]int) *Process {
	return e.process(path, ports[:],
		append(controllerArgs(ports[0], ports[1]),
			// A release occupies a worker until its objects are ready.
			"--concurrent=16",
		),
		controllerEnv(e, kubeconfig),
		httpReady(http.DefaultClient, "http://"+address(ports[1])+"/readyz", ""))
}

func controllerArgs(metrics, health int) []string {
	return []string{
		"--metrics-addr=" + address(metrics),
		"--health-addr=" + address(health),
		"--events-addr=",
		"--enable-leader-election=false",
		"--watch-all-namespaces=true",
		"--log-level=info",
		"--log-encoding=json",
	}
}

func controllerEnv(e *environment, kubeconfig string) []string {
	return append(os.Environ(), // for proxies, should a repository be elsewhere
		"KUBECONFIG="+kubeconfig,
		"RUNTIME_NAMESPACE=flux-system",
		"HOME="+e.dir,
		"TMPDIR="+e.tmp(),
	)
}
