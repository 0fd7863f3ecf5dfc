package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// program is one of the lab's executables and where its source comes from.
type program struct {
	name       string // of the executable, and in messages
	tool       string // the folder under tools/ whose go.mod pins it
	module     string // the module whose version is the program's version
	importPath string // what go build is given, in the tool's folder
	ldflags    func(version string) string
}

var (
	etcdProgram = program{
		name: "etcd", tool: "etcd",
		module: "go.etcd.io/etcd/server/v3", importPath: "go.etcd.io/etcd/server/v3",
	}
	apiServerProgram = program{
		name: "kube-apiserver", tool: "kubernetes",
		module: "k8s.io/kubernetes", importPath: ".",
		ldflags: kubernetesVersionFlags,
	}
	sourceControllerProgram = program{
		name: "source-controller", tool: "flux",
		module: "github.com/fluxcd/source-controller", importPath: "github.com/fluxcd/source-controller",
	}
	kustomizeControllerProgram = program{
		name: "kustomize-controller", tool: "flux",
		module: "github.com/fluxcd/kustomize-controller", importPath: "github.com/fluxcd/kustomize-controller",
	}
	helmControllerProgram = program{
		name: "helm-controller", tool: "helm",
		module: "github.com/fluxcd/helm-controller", importPath: "github.com/fluxcd/helm-controller",
	}
	argoCDProgram = program{
		name: "argocd", tool: "argocd",
		module: "github.com/argoproj/argo-cd/v3", importPath: "github.com/argoproj/argo-cd/v3/cmd",
	}
)

// kubernetesVersionFlags makes the API server report the version it was built
// from. Unstamped it calls itself v0.0.0-master.
func kubernetesVersionFlags(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const pkg = "k8s.io/component-base/version."
	return fmt.Sprintf("-X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s",
		pkg, version, pkg, parts[0], pkg, parts[1])
}

// crdModule is a module that carries CRDs.
type crdModule struct {
	tool   string
	module string
	files  []string // patterns, below the module's folder
}

// bases is where controller-gen puts CRDs.
var bases = []string{"config/crd/bases/*.yaml"}

var crdModules = []crdModule{
	{tool: "flux", module: "github.com/fluxcd/source-controller", files: bases},
	{tool: "flux", module: "github.com/fluxcd/kustomize-controller", files: bases},
	{tool: "helm", module: "github.com/fluxcd/helm-controller", files: bases},
	{tool: "argocd", module: "github.com/argoproj/argo-cd/v3", files: []string{"manifests/crds/*-crd.yaml"}},
}

// toolsDir is the folder with the nested modules that pin the programs. They
// are no part of this module, so they exist only in a checkout of it.
func toolsDir(ctx context.Context) (string, error) {
	const module = "github.com/gitops-applier/gitops-applier/examples/lab"
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", fmt.Errorf("find the folder of module %s: %w", module, err)
	}
	dir := filepath.Join(strings.TrimSpace(out), "tools")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the lab needs a checkout of its repository, and %s has no tools folder: %w",
			module, err)
	}
	return dir, nil
}

// requiredVersion reads the version of a module from the text of a go.mod.
func requiredVersion(gomod []byte, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\S+)`)
	match := line.FindSubmatch(gomod)
	if match == nil {
		return "", fmt.Errorf("go.mod does not require %s", module)
	}
	return string(match[1]), nil
}

// goCommand runs the go command in dir and returns what it printed. The error
// carries its complaint.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace or flags of the user's would change what is built.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var stderr tail
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append([]byte(nil), t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.kept)) }
