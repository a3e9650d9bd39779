//go:build linux || darwin

package worker

import (
	"os"
	"os/exec"
	"syscall"
)

// detachKeeper puts the keeper into a session of its own, out of reach of a Ctrl-C at the worker's terminal, and
// hands it the lock.
func detachKeeper(cmd *exec.Cmd, lock *os.File) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Dir = "/"
}
