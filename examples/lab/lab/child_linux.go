package lab

import "syscall"

// childAttributes makes a child die with us, however we end, and keeps the
// terminal's Ctrl-C from it, so that we stop it in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
