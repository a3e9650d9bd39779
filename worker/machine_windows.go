package worker

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks f for this process alone, until f is closed. It does not wait. The locked byte lies behind the end of
// the file, as a locked one could not be read.
func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: math.MaxUint32 - 1})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// syncDir does nothing: Windows writes directories through.
func syncDir(string) error { return nil }
