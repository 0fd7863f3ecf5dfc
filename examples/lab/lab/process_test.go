package lab_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestProcessesComeBackAfterTheirEnd(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	stop, kill := (*lab.Process).Stop, (*lab.Process).Kill
	tests := []struct {
		process *lab.Process
		how     string
		end     func(*lab.Process, testing.TB)
		works   func(t *testing.T, l *lab.Lab, old string)
	}{
		{l.KustomizeController, "stopped", stop, appliesACommit},
		{l.KustomizeController, "killed", kill, appliesACommit},
		{l.SourceController, "stopped", stop, appliesACommit},
		{l.SourceController, "killed", kill, appliesACommit},
		{l.APIServer, "stopped", stop, keepsItsData},
		{l.APIServer, "killed", kill, keepsItsData},
		{l.Etcd, "stopped", stop, keepsItsData},
		{l.Etcd, "killed", kill, keepsItsData},
	}
	ns := l.Namespace(t)
	for _, test := range tests {
		t.Run(test.process.Name()+" "+test.how, func(t *testing.T) {
			test.end(test.process, t)
			for _, port := range test.process.Ports() {
				_, err := net.Dial("tcp", loopback(port))
				assert.Error(t, err, "somebody still listens on port %d", port)
			}
			test.process.Start(t)
			test.works(t, l, ns)
		})
	}
}

func TestAloneRestoresWhatATestLeftStopped(t *testing.T) {
	t.Parallel()
	t.Run("a test that leaves nothing as it was", func(t *testing.T) {
		l := lab.Alone(t)
		l.SourceController.Kill(t)
		l.KustomizeController.Freeze(t)
		l.APIServer.Kill(t)
	})
	l := lab.Start(t)
	appliesACommit(t, l, "")
}

// keepsItsData reads a namespace from before and makes a new one.
func keepsItsData(t *testing.T, l *lab.Lab, old string) {
	t.Helper()
	l.Get(t, lab.Namespaces, "", old)
	l.Namespace(t)
}

func appliesACommit(t *testing.T, l *lab.Lab, _ string) {
	t.Helper()
	ns, repo := l.Namespace(t), l.Repository(t)
	commit := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
	l.GitRepository(t, ns, "app", repo)
	l.Kustomization(t, ns, "app", "app")
	l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Applied(commit))
}

func TestFrozenAPIServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	config := l.RESTConfig()
	config.Timeout = 200 * time.Millisecond
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	list := func() error {
		_, err := client.Resource(lab.ConfigMaps).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	l.APIServer.Freeze(t)
	assert.ErrorContains(t, list(), "exceeded")
	l.APIServer.Thaw(t)
	assert.Eventually(t, func() bool { return list() == nil }, 10*time.Second, 50*time.Millisecond)
}

func TestPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	p := lab.Alone(t).SourceController
	p.Stop(t)
	port := p.Ports()[0]
	listener, err := net.Listen("tcp", loopback(port))
	require.NoError(t, err)
	err = lab.StartProcess(t.Context(), p)
	listener.Close()
	assert.ErrorContains(t, err, "source-controller needs port "+strconv.Itoa(port)+" on 127.0.0.1")
	assert.ErrorContains(t, err, "stop that process")
}

func TestProcessThatEndsAtItsStartShowsWhatItSaid(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	l.KustomizeController.Stop(t)
	l.APIServer.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := lab.StartProcess(ctx, l.KustomizeController)
	assert.ErrorContains(t, err, "kustomize-controller did not start")
	assert.ErrorContains(t, err, "connection refused")
}

func TestSignalToAStoppedProcessIsAnError(t *testing.T) {
	t.Parallel()
	p := lab.Alone(t).SourceController
	p.Stop(t)
	p.Stop(t) // stopping twice is none
	assert.Equal(t, "source-controller does not run, so it cannot be sent signal 19 (stopped (signal))",
		failureOf(t, func(t testing.TB) { p.Freeze(t) }))
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
