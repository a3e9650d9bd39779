package cli

import (
	"os"
	"syscall"
)

func brokenPipe() []os.Signal { return nil }

func hangup() []os.Signal { return nil }

func isHangup(os.Signal) bool { return false }

// ownGroup keeps the signals of the console away from a child process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// askToStop ends a process: a process that has no console of its own cannot be asked.
func askToStop(p *os.Process) error { return p.Kill() }

// reexec is [Host.Reexec] of the real machine. Windows has no way to replace a process, nor one to read the environment
// of a parent that has been cleared: it is enough that this process forgets the credentials.
func reexec(Restart) error { return errNoReexec }
