package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// findRedis returns the path of redis-server. No Go module builds it, so it
// comes from the distribution's package, which is installed where this process
// may do so.
func findRedis(ctx context.Context, progress io.Writer) (string, error) {
	path, missing := exec.LookPath("redis-server")
	if missing == nil {
		return path, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("Argo CD needs redis-server, which is not on the PATH; "+
			"install the package of that name (as root: apt-get install redis-server): %w", missing)
	}
	fmt.Fprintln(progress, "lab: installing the package redis-server, which Argo CD needs")
	for _, args := range [][]string{{"update"}, {"install", "--yes", "--no-install-recommends", "redis-server"}} {
		cmd := exec.CommandContext(ctx, apt, args...)
		// At run level 1 the package does not start a server of its own.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-tailBytes):])
		}
	}
	return exec.LookPath("redis-server")
}

func newRedis(e *environment, path string, port int) (*Process, error) {
	dir := filepath.Join(e.dir, "redis")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return e.process(path, []int{port},
		[]string{
			"--bind", "127.0.0.1",
			"--port", fmt.Sprint(port),
			"--dir", dir,
			"--save", "", // it is a cache
			"--daemonize", "no",
		},
		[]string{},
		func(ctx context.Context) error { return pingRedis(ctx, address(port)) }), nil
}

func pingRedis(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(connection, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "+PONG" {
		err = errors.New("it answers " + strings.TrimSpace(answer))
	}
	return err
}
