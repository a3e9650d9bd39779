package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks a file for this process, until it is closed, or fails at once. The byte that is locked lies far behind
// all content, for a lock keeps others from reading.
func lockFile(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
}

// syncFolder does nothing: here names are durable with their files.
func syncFolder(string) error { return nil }
