package fake

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"crypto/sha256"

	"k8s.io/apimachinery/pkg/types"
)

// artifactHost is where source-controller serves artifacts in a Flux installation.
const artifactHost = "http://source-controller.flux-system.svc.cluster.local./"

// artifacts are the files that source-controller keeps and serves, by their URL. They outlive the controller.
type artifacts struct {
	mu    sync.Mutex
	files map[string]Files
}

// artifactPath is where the artifact of a commit lies.
func artifactPath(source types.NamespacedName, commit string) string {
	return path.Join("gitrepository", source.Namespace, source.Name, commit+".tar.gz")
}

// store keeps the files of a commit and returns what the status says of them, time and metadata aside.
func (a *artifacts) store(source types.NamespacedName, commit, revision string, files Files) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := artifactPath(source, commit)
	a.files[artifactHost+at] = files
	sum := sha256.New()
	size := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n, _ := fmt.Fprintf(sum, "%q %q\n", name, files[name])
		size += n
	}
	return map[string]any{
		"path": at, "url": artifactHost + at, "revision": revision,
		"digest": fmt.Sprintf("sha256:%x", sum.Sum(nil)), "size": int64(size),
	}
}

func (a *artifacts) get(url string) (Files, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	files, ok := a.files[url]
	return files, ok
}

// drop removes the artifacts of a source, and reports whether it had any.
func (a *artifacts) drop(source types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	prefix := artifactHost + path.Dir(artifactPath(source, "any")) + "/"
	held := len(a.files)
	maps.DeleteFunc(a.files, func(url string, _ Files) bool { return strings.HasPrefix(url, prefix) })
	return len(a.files) < held
}
