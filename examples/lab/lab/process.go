package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 60 * time.Second
	stopGrace    = 10 * time.Second
)

// Process is one program of the control plane. A test that owns the control
// plane ([Alone]) may stop it and start it again; it comes back on the same
// ports, with the same data.
//
// Its methods are for one goroutine at a time.
type Process struct {
	name    string
	path    string
	args    []string
	env     []string // all of it; nothing is inherited
	ports   []int
	log     string // file that collects what it prints
	ready   func(context.Context) error
	grace   time.Duration // to end after SIGTERM
	spawner *spawner

	starts int // how often it became ready

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process that cmd started has ended
	exitErr error
	serving bool // it was ready, and nobody has asked for its end
}

// Name is the program's name, such as kustomize-controller.
func (p *Process) Name() string { return p.name }

// Ports are the loopback ports the process listens on.
func (p *Process) Ports() []int { return append([]int(nil), p.ports...) }

// Start starts the process and returns once it answers. Running already, it
// does nothing.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
	defer cancel()
	if err := p.start(ctx); err != nil {
		t.Fatal(err)
	}
}

// Stop asks the process to end (SIGTERM) and returns once it has. One that
// takes longer than ten seconds is killed; etcd and the API server after one,
// since they would wait a minute for those who watch.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process at once (SIGKILL).
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Freeze halts the process where it is (SIGSTOP). Its connections stay open
// and nobody answers on them.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// Thaw lets a frozen process go on (SIGCONT).
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	if err := p.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// Log returns the last lines the process printed.
func (p *Process) Log(lines int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *Process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *Process) start(ctx context.Context) error {
	if p.running() {
		return nil
	}
	for _, port := range p.ports {
		if !portFree(port) {
			return &portInUse{p.name, port}
		}
	}
	logged, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := p.waitReady(ctx); err != nil {
		p.end(syscall.SIGKILL)
		if port := p.portTaken(logged); port != 0 {
			return &portInUse{p.name, port}
		}
		return fmt.Errorf("%s did not start: %w\nIts last lines:\n%s", p.name, err, p.Log(20))
	}
	p.setServing(true)
	p.starts++
	return nil
}

func (p *Process) setServing(serving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = serving
}

// spawn starts the process and returns the size its log had before.
func (p *Process) spawn() (logged int64, err error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		logged = info.Size()
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := p.spawner.start(cmd); err != nil {
		return 0, err
	}
	exited := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.exited, p.serving = cmd, exited, false
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.exitErr = err
		unexpected := p.serving
		close(exited)
		p.mu.Unlock()
		if unexpected {
			fmt.Fprintf(os.Stderr, "lab: %s ended by itself: %v\n", p.name, err)
		}
	}()
	return logged, nil
}

func (p *Process) waitReady(ctx context.Context) error {
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		last = p.ready(attempt)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %s", fmt.Sprint(p.exitErr))
		case <-ctx.Done():
			return fmt.Errorf("%w; the last check said: %w", context.Cause(ctx), last)
		case <-ticks.C:
		}
	}
}

// portTaken returns the port that the process complained about in its log
// after the given offset, 0 when it did not.
func (p *Process) portTaken(offset int64) int {
	content, err := os.ReadFile(p.log)
	if err != nil || int64(len(content)) < offset || !bytes.Contains(content[offset:], []byte("address already in use")) {
		return 0
	}
	for _, port := range p.ports {
		if !portFree(port) {
			return port
		}
	}
	return 0
}

// end sends sig and waits until the process is gone. One that does not heed it
// within its grace is killed.
func (p *Process) end(sig syscall.Signal) error {
	if !p.running() {
		return nil
	}
	p.setServing(false)
	if err := p.signal(sig); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(p.grace):
	}
	if p.running() {
		if err := p.signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	<-p.exited
	return nil
}

func (p *Process) signal(sig syscall.Signal) error {
	if !p.running() {
		return fmt.Errorf("%s does not run, so it cannot be sent signal %d (%s)", p.name, sig, sig)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}
