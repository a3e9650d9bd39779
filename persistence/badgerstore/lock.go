package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/swampd/swampd/persistence"
)

const lockFile = "lock"

// errLockHeld is what the platform's tryLock returns when another process has the lock.
var errLockHeld = errors.New("lock is held")

// lock is the directory's, for as long as the process lives. Badger has one of its own, but that comes after the looks at
// its files, which must not see another process at work.
type lock struct{ file *os.File }

func acquireLock(dir string) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s is not writable: %w: choose another --data-dir, or give it to this user", dir, err)
	}
	if err := tryLock(f); err != nil {
		if errors.Is(err, errLockHeld) {
			err = &persistence.LockedError{Dir: dir, PID: readPID(f)}
		} else {
			err = fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s is not writable: %w", dir, err), f.Close())
	}
	return &lock{file: f}, nil
}

// release gives the directory free. The file stays: to remove it would race with the next process.
func (l *lock) release() error {
	err := errors.Join(unlock(l.file), l.file.Close())
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID returns 0 where the holder has not written its pid yet.
func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	return parsePID(buf[:n])
}

func parsePID(text []byte) int {
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
