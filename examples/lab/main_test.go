package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestUpRunsUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, writer, []string{"up"})
		writer.CloseWithError(err)
		ended <- err
	}()
	var printed bytes.Buffer
	for lines := bufio.NewScanner(io.TeeReader(reader, &printed)); lines.Scan(); {
		if bytes.HasPrefix(lines.Bytes(), []byte("Ctrl-C")) {
			break
		}
	}
	go io.Copy(io.Discard, reader)

	match := regexp.MustCompile(`export KUBECONFIG=(\S+)`).FindSubmatch(printed.Bytes())
	require.NotNil(t, match, "%s", printed.String())
	kubeconfig := string(match[1])
	assert.Regexp(t, `git clone http://127\.0\.0\.1:\d+/app\.git`, printed.String())

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		_, err := client.Resource(lab.ConfigMaps).Namespace(fluxNamespace).Get(t.Context(), "greeting", metav1.GetOptions{})
		return err == nil
	}, lab.WaitTimeout, 100*time.Millisecond, "the seeded Kustomization is not applied")

	interrupt()
	assert.NoError(t, <-ended)
	_, err = os.Stat(kubeconfig)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = client.Resource(lab.Namespaces).List(t.Context(), metav1.ListOptions{})
	assert.ErrorContains(t, err, "connection refused")
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		err  string
	}{
		{"no command", nil, "no command given"},
		{"unknown command", []string{"down"}, `there is no command "down"`},
		{"argument where none is taken", []string{"up", "now"}, `lab up takes no arguments, got ["now"]`},
		{"file missing", []string{"schemas"}, "schemas needs -out FILE"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			assert.EqualError(t, run(t.Context(), io.Discard, test.args), test.err)
		})
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, []string{"help"}))
	for _, c := range commands {
		assert.Contains(t, out.String(), c.name)
	}
}

func TestStripDescriptionsKeepsAPropertyOfThatName(t *testing.T) {
	t.Parallel()
	schema := map[string]any{
		"description": "text",
		"properties": map[string]any{
			"description": map[string]any{"type": "string", "description": "text"},
		},
	}
	stripDescriptions(schema)
	assert.Equal(t, map[string]any{
		"properties": map[string]any{"description": map[string]any{"type": "string"}},
	}, schema)
}
