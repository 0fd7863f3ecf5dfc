//go:build !linux

package lab

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from a child, so that we stop it
// in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
