package lab

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

func newEtcd(e *environment, path string, ports [2]int) *Process {
	client, peer := "http://"+address(ports[0]), "http://"+address(ports[1])
	p := e.process(path, ports[:],
		[]string{
			"--name=lab",
			"--data-dir=" + filepath.Join(e.dir, "etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=lab=" + peer,
			// The data need not survive a crash of the machine.
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
		[]string{},
		httpReady(http.DefaultClient, client+"/readyz", ""))
	p.grace = time.Second
	return p
}

// httpReady is a readiness check by GET, which 200 passes.
func httpReady(client *http.Client, url, token string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}
