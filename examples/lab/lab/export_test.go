package lab

import (
	"context"
	"io"
)

// BuildProgram builds the program probe from the folder of that name in tools.
func BuildProgram(ctx context.Context, tools, cacheDir string, progress io.Writer) error {
	c := &cache{dir: cacheDir, tools: tools, progress: progress}
	_, err := c.ensure(ctx, program{name: "probe", tool: "probe", module: "example.org/pinned", importPath: "."})
	return err
}

// NewGitServer starts a Git server and stops it again.
func NewGitServer(dir string) error {
	s, err := newGitServer(dir)
	if err != nil {
		return err
	}
	return s.close()
}

// StartProcess is Process.Start without a test to fail.
func StartProcess(ctx context.Context, p *Process) error { return p.start(ctx) }

// PID is the process's number.
func PID(p *Process) int { return p.cmd.Process.Pid }
