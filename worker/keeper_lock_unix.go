//go:build linux || darwin

package worker

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// holdKeeperLock takes a share of the lock. It belongs to the open file, which a keeper inherits: there is no moment
// at which a keeper lives and nobody has the lock.
func holdKeeperLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH) //nolint:gosec // a descriptor
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(os.NewSyscallError("flock "+path, err), f.Close())
		}
	}
}

// tryKeeperLock takes the whole lock, or returns nil if somebody has a share of it.
func tryKeeperLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR):
		return nil, f.Close()
	default:
		return nil, errors.Join(os.NewSyscallError("flock "+path, err), f.Close())
	}
}

// joinKeeperLock returns the keeper's own share of the lock, which it was started with.
func joinKeeperLock(path string) (*os.File, error) { return os.NewFile(lockDescriptor, path), nil }
