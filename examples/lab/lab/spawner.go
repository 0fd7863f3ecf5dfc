package lab

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts child processes from one thread that lives until close. On
// Linux a child dies with the thread that started it, not with the process,
// and Go ends threads as it pleases.
type spawner struct {
	work   chan func()
	closed chan struct{}
	once   sync.Once
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), closed: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case f := <-s.work:
				f()
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	select {
	case s.work <- func() { result <- cmd.Start() }:
		return <-result
	case <-s.closed:
		return errors.New("the lab was stopped")
	}
}

func (s *spawner) close() { s.once.Do(func() { close(s.closed) }) }
