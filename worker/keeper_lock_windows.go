package worker

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// holdKeeperLock takes a share of the lock. It belongs to the process, so that a keeper takes one of its own.
func holdKeeperLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := windows.LockFileEx(windows.Handle(f.Fd()), 0, 0, 1, 0, new(windows.Overlapped)); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// tryKeeperLock takes the whole lock, or returns nil if somebody has a share of it.
func tryKeeperLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING):
		return nil, f.Close()
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
}

// joinKeeperLock takes the keeper's own share of the lock.
func joinKeeperLock(path string) (*os.File, error) { return holdKeeperLock(path) }
