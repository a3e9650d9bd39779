//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func brokenPipe() []os.Signal { return []os.Signal{syscall.SIGPIPE} }

func hangup() []os.Signal { return []os.Signal{syscall.SIGHUP} }

func isHangup(s os.Signal) bool { return s == syscall.SIGHUP }

// ownGroup keeps the signals of the terminal away from a child process.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// askToStop asks a process to end well.
func askToStop(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// reexec is [Host.Reexec] of the real machine. The process keeps its id, its parent and its standard streams.
func reexec(r Restart) error {
	args := append([]string{os.Args[0]}, r.Args...)
	if r.Secret != "" {
		in, err := secretPipe(r.Secret.Reveal())
		if err != nil {
			return err
		}
		args = append(args, fmt.Sprintf("--%s=%d", flagTokenFD, in))
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	err = syscall.Exec(self, args, r.Env)
	if errors.Is(err, syscall.ENOENT) { // it was replaced while it ran
		err = syscall.Exec("/proc/self/exe", args, r.Env)
	}
	return fmt.Errorf("start %s anew without credentials in its environment: %w", self, err)
}

// secretPipe returns the reading end of a pipe that holds the secret and is inherited by the next program.
func secretPipe(secret string) (int, error) {
	if len(secret) > 4096 { // what any pipe takes without a reader
		return 0, errors.New("hand the token over: it is longer than 4096 bytes")
	}
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		return 0, fmt.Errorf("hand the token over: %w", err)
	}
	unix.CloseOnExec(fds[1])
	if _, err := unix.Write(fds[1], []byte(secret)); err != nil {
		return 0, fmt.Errorf("hand the token over: %w", err)
	}
	if err := unix.Close(fds[1]); err != nil {
		return 0, fmt.Errorf("hand the token over: %w", err)
	}
	return fds[0], nil
}
