package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// environment is what the processes of one control plane have in common: a
// folder for their state, removed when the lab stops, and the thread that
// starts them.
type environment struct {
	dir     string
	spawner *spawner
	guard   *exec.Cmd // see removeWhenWeDie
	release io.Closer
}

func newEnvironment() (*environment, error) {
	dir, err := os.MkdirTemp("", "gitops-applier-lab-")
	if err != nil {
		return nil, err
	}
	e := &environment{dir: dir, spawner: newSpawner()}
	if err := e.removeWhenWeDie(); err != nil {
		e.spawner.close()
		os.RemoveAll(dir)
		return nil, fmt.Errorf("guard the lab's state: %w", err)
	}
	for _, sub := range []string{e.tmp(), e.logs()} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			return nil, errors.Join(err, e.remove())
		}
	}
	return e, nil
}

func (e *environment) tmp() string { return filepath.Join(e.dir, "tmp") }

func (e *environment) logs() string { return filepath.Join(e.dir, "logs") }

func (e *environment) process(path string, ports []int, args, env []string, ready func(context.Context) error) *Process {
	return e.role(filepath.Base(path), path, ports, args, env, ready)
}

// role is a process of a program that takes the role its environment names.
func (e *environment) role(name, path string, ports []int, args, env []string, ready func(context.Context) error) *Process {
	return &Process{
		name: name, path: path, args: args, env: env, ports: ports,
		log:   filepath.Join(e.logs(), name+".log"),
		ready: ready, grace: stopGrace, spawner: e.spawner,
	}
}

// removeWhenWeDie starts a shell that waits for this process to end, by
// whatever cause, and then removes the state. A test binary that panics or is
// killed has no chance to.
func (e *environment) removeWhenWeDie() error {
	cmd := exec.Command("/bin/sh", "-c", `cat >/dev/null; rm -rf "$1" || { sleep 1; rm -rf "$1"; }`, "sh", e.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's Ctrl-C is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	e.guard, e.release = cmd, pipe
	return cmd.Start()
}

// remove deletes the state. All processes have ended by then.
func (e *environment) remove() error {
	e.spawner.close()
	err := os.RemoveAll(e.dir)
	e.release.Close()
	return errors.Join(err, e.guard.Wait())
}
