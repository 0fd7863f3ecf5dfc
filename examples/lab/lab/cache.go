package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// CacheVariable names the environment variable that moves the cache of built
// programs. Unset, it is the folder gitops-applier-lab in [os.UserCacheDir].
const CacheVariable = "GITOPS_APPLIER_LAB_CACHE"

// cache holds what was built, one folder for each combination of program,
// version, tool chain and pinned dependencies. Several processes may share it.
type cache struct {
	dir      string
	tools    string
	progress io.Writer
}

func openCache(ctx context.Context, progress io.Writer) (*cache, error) {
	tools, err := toolsDir(ctx)
	if err != nil {
		return nil, err
	}
	dir := os.Getenv(CacheVariable)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no folder to keep the lab's programs in; set %s to one: %w", CacheVariable, err)
		}
		dir = filepath.Join(base, "gitops-applier-lab")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &cache{dir: dir, tools: tools, progress: progress}, nil
}

// ensure returns the path of each program's executable, in the order given,
// and builds those that are missing.
func (c *cache) ensure(ctx context.Context, programs ...program) ([]string, error) {
	paths := make([]string, len(programs))
	for i, p := range programs {
		key, version, err := c.key(ctx, p.tool, p.module)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		entry := filepath.Join(c.dir, p.name, key)
		paths[i] = filepath.Join(entry, p.name)
		err = c.fill(ctx, entry, func(dir string) error {
			return c.build(ctx, p, version, dir, fmt.Sprintf("%d/%d", i+1, len(programs)))
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// crds returns the folders with the CRDs of all modules.
func (c *cache) crds(ctx context.Context) ([]string, error) {
	dirs := make([]string, len(crdModules))
	for i, m := range crdModules {
		key, _, err := c.key(ctx, m.tool, m.module, m.files...)
		if err != nil {
			return nil, err
		}
		entry := filepath.Join(c.dir, "crds", filepath.FromSlash(m.module), key)
		dirs[i] = entry
		err = c.fill(ctx, entry, func(dir string) error {
			return copyCRDs(ctx, filepath.Join(c.tools, m.tool), m, dir)
		})
		if err != nil {
			return nil, fmt.Errorf("the CRDs of %s: %w", m.module, err)
		}
	}
	return dirs, nil
}

// key names a cache entry: the module's version, the tool chain, and a hash of
// all that decides the result: what the tool pins, and what else is given.
func (c *cache) key(ctx context.Context, tool, module string, also ...string) (key, version string, err error) {
	dir := filepath.Join(c.tools, tool)
	toolchain, err := goCommand(ctx, dir, "env", "GOVERSION")
	if err != nil {
		return "", "", err
	}
	toolchain = strings.TrimSpace(toolchain)
	hash := sha256.New()
	fmt.Fprintln(hash, toolchain, runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if name == "main.go" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		if name == "go.mod" {
			if version, err = requiredVersion(content, module); err != nil {
				return "", "", fmt.Errorf("%s: %w", dir, err)
			}
		}
	}
	for _, s := range also {
		fmt.Fprintln(hash, s)
	}
	return version + "-" + toolchain + "-" + hex.EncodeToString(hash.Sum(nil))[:12], version, nil
}

// fill calls produce with an empty folder and makes that folder the entry,
// unless the entry is there already. The entry appears whole or not at all,
// and of several processes one produces while the others wait.
func (c *cache) fill(ctx context.Context, entry string, produce func(dir string) error) error {
	if _, err := os.Stat(entry); err == nil {
		return nil
	}
	parent := filepath.Dir(entry)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("the lab's cache: %w", err)
	}
	unlock, err := c.lock(ctx, entry+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(entry); err == nil {
		return nil
	}
	partial, err := os.MkdirTemp(parent, "partial-")
	if err != nil {
		return fmt.Errorf("the lab's cache: %w", err)
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	if err := produce(partial); err != nil {
		return err
	}
	return os.Rename(partial, entry)
}

// lock takes an exclusive lock on a file and returns what gives it back. The
// kernel gives it back too when the process ends.
func (c *cache) lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the lab's cache: %w", err)
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintf(c.progress, "lab: another process is building into %s, waiting for it\n", filepath.Dir(path))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// build compiles one program into dir and shows how it goes.
func (c *cache) build(ctx context.Context, p program, version, dir, position string) error {
	start := time.Now()
	elapsed := func() time.Duration { return time.Since(start).Round(time.Second) }
	fmt.Fprintf(c.progress, "lab: building %s %s (%s); the first time takes minutes\n", p.name, version, position)

	stop := make(chan struct{})
	defer close(stop)
	go func() {
		ticks := time.NewTicker(30 * time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				fmt.Fprintf(c.progress, "lab: still building %s (%s), %s so far\n", p.name, position, elapsed())
			}
		}
	}()

	ldflags := "-s -w"
	if p.ldflags != nil {
		ldflags += " " + p.ldflags(version)
	}
	_, err := goCommand(ctx, filepath.Join(c.tools, p.tool), "build", "-trimpath",
		"-ldflags="+ldflags, "-o", filepath.Join(dir, p.name), p.importPath)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("building %s was cancelled after %s: %w", p.name, elapsed(), cause)
		}
		return fmt.Errorf("%s %s did not build. The lab needs the Go tool chain, about 6 GB of disk, "+
			"and the module proxy or modules downloaded before (GOPROXY): %w", p.name, version, err)
	}
	fmt.Fprintf(c.progress, "lab: built %s (%s) in %s\n", p.name, position, elapsed())
	return nil
}
