package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that Linux and macOS hand out to outgoing
// connections. A client that keeps dialing a stopped server's port could
// otherwise be given that very port for its own end, and then the server could
// not start again.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different ports that nobody listens on at this moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	seen := make(map[int]bool)
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		if !seen[port] && portFree(port) {
			ports = append(ports, port)
		}
		seen[port] = true
	}
	return nil, fmt.Errorf("found no %d free ports between %d and %d on 127.0.0.1", n, firstPort, lastPort)
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portInUse says that a process could not listen where it had to.
type portInUse struct {
	process string
	port    int
}

func (e *portInUse) Error() string {
	return fmt.Sprintf("%s needs port %d on 127.0.0.1, and another process listens there; "+
		"stop that process (ss -ltnp 'sport = :%d' shows it) and start again", e.process, e.port, e.port)
}
