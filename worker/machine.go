package worker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// machineFile holds the machine id, and is locked by the worker that uses it.
const machineFile = "machine-id"

// errLocked says that another process holds a lock.
var errLocked = errors.New("locked by another process")

// DefaultCacheDir is where a worker keeps its machine id if nobody says otherwise: $XDG_CACHE_HOME/swamp-worker, or
// .cache/swamp-worker in the home directory; on Windows below %LocalAppData%.
func DefaultCacheDir() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "swamp-worker"), nil
	}
	if runtime.GOOS == "windows" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache directory: %w; name one with --cache-dir", err)
		}
		return filepath.Join(dir, "swamp-worker"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w; name one with --cache-dir", err)
	}
	return filepath.Join(home, ".cache", "swamp-worker"), nil
}

// machine is this machine as orchestrators know it, for as long as one worker uses it.
type machine struct {
	id   string
	file *os.File // holds the lock
}

// openMachine reads the machine id in dir, makes one at the first time, and locks it: two workers with one identity
// would throw each other out.
func openMachine(dir string) (*machine, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make cache directory: %w", err)
	}
	path := filepath.Join(dir, machineFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeMachineFile(dir, path); err != nil {
			return nil, fmt.Errorf("make machine id: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("read machine id: %w", err)
	}
	m := &machine{file: f}
	if err := m.lockAndRead(); err != nil {
		m.close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("another worker uses the cache directory %s: give each worker its own with --cache-dir", dir)
		}
		return nil, fmt.Errorf("machine id in %s: %w", path, err)
	}
	return m, nil
}

func (m *machine) lockAndRead() error {
	if err := lockFile(m.file); err != nil {
		return err
	}
	// Where the file system knows no links, another process may have put its own file there in the meantime.
	ours, err := m.file.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(m.file.Name()); err != nil || !os.SameFile(ours, there) {
		return errLocked
	}
	data, err := io.ReadAll(io.LimitReader(m.file, 1<<10))
	if err != nil {
		return err
	}
	m.id = strings.TrimSpace(string(data))
	if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(m.id) {
		return errors.New("the file is damaged; remove it to enroll as a new machine")
	}
	return nil
}

// close gives the lock back.
func (m *machine) close() { _ = m.file.Close() }

// makeMachineFile puts a new id at path, whole and durable, or leaves one alone that another process put there.
func makeMachineFile(dir, path string) error {
	f, err := os.CreateTemp(dir, machineFile+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.WriteString(newUUID() + "\n"); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link does not replace what is there, unlike a rename; some file systems have none.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(f.Name(), path); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
