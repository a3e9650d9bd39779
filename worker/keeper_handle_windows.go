package worker

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detachKeeper puts the keeper into a group of its own, out of reach of a Ctrl-C at the worker's terminal.
func detachKeeper(cmd *exec.Cmd, _ *os.File) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
