//go:build linux || darwin

package worker

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks f for this process alone, until f is closed. It does not wait.
func lockFile(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}

// syncDir makes what was created in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
