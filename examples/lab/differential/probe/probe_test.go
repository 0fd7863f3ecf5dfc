package probe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestProbe(t *testing.T) {
	l, err := lab.Up(context.Background(), lab.Options{Parts: lab.CRDs})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	cfg := l.RESTConfig()
	c, _ := rest.HTTPClientFor(cfg)
	for _, p := range []string{
		"GET /apis/nope.io/v1/foos", "GET /apis/kustomize.toolkit.fluxcd.io/v1/foos", "GET /apis/kustomize.toolkit.fluxcd.io/v9/kustomizations", "GET /api/v1/foos", "GET /apis/apps/v1/foos",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x/foo", "GET /api/v1/namespaces/default/configmaps/x/status",
		"POST /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations", "POST /api/v1/configmaps", "DELETE /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations", "GET /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations/x",
		"POST /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x", "PUT /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x", "POST /api/v1/namespaces/default/configmaps/x", "PUT /api/v1/namespaces/default/configmaps",
		"PATCH /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x", "DELETE /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x/status",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&resourceVersion=abc", "GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?resourceVersion=abc",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?resourceVersion=99999999", "GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/x?resourceVersion=99999999",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?resourceVersion=1&watch=1&timeoutSeconds=1",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?resourceVersion=2&resourceVersionMatch=Exact",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?continue=xx",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&timeoutSeconds=1&allowWatchBookmarks=true",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"GET /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&timeoutSeconds=1&resourceVersion=99999999",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?fieldSelector=spec.x%3D1",
		"GET /api/v1/namespaces/default/configmaps?fieldSelector=spec.x%3D1", "GET /api/v1/namespaces/default/events?fieldSelector=spec.x%3D1", "GET /apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D1",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations?labelSelector=%3D%3D1",
		"GET /apis/kustomize.toolkit.fluxcd.io/v1/namespaces/missing/kustomizations", "GET /api/v1/namespaces/missing/configmaps", "GET /api/v1/namespaces/default/configmaps?limit=1",
		"GET /api", "GET /apis", "GET /apis/kustomize.toolkit.fluxcd.io", "GET /apis/kustomize.toolkit.fluxcd.io/v1", "GET /version", "GET /api/v1",
	} {
		method, path, _ := strings.Cut(p, " ")
		var body io.Reader
		if method == "POST" || method == "PUT" || method == "PATCH" {
			body = strings.NewReader(`{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{"name":"x"}}`)
		}
		req, _ := http.NewRequest(method, cfg.Host+path, body)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		if err != nil {
			fmt.Println(p, "->", err)
			continue
		}
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if len(data) > 1500 {
			data = data[:1500]
		}
		fmt.Printf("%s\n   -> %d %s %q\n   %s\n", p, resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Values("Retry-After"), data)
	}
}
