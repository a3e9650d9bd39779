package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/swampd/swampd/persistence"
)

// Config says where the bodies are, and lends what differs between systems.
type Config struct {
	// Dir is the folder. It is made with the first body. Required.
	Dir string
	// SyncDir makes the names in a folder durable. Required.
	SyncDir func(dir string) error
	// DiskFull tells whether an error says that the disk is full. Required.
	DiskFull func(err error) bool
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("no folder")
	case c.SyncDir == nil, c.DiskFull == nil:
		return errors.New("no way to sync folders, or to tell a full disk")
	}
	return nil
}

const tempSuffix = ".tmp"

// Store is the folder.
type Store struct {
	cfg Config

	// mu is held for reading while something in the folder is changed, and for writing to end that: behind it another
	// process may own the folder.
	mu     sync.RWMutex
	closed bool

	making sync.Mutex
	made   map[string]struct{} // folders whose names are durable, as far as this process knows
}

var _ persistence.Blobs = (*Store)(nil)

// New returns the bodies in a folder, which nobody else may write to.
func New(config Config) (*Store, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("open the blobs: %w", err)
	}
	return &Store{cfg: config, made: make(map[string]struct{})}, nil
}

func (s *Store) path(key string) string { return filepath.Join(s.cfg.Dir, key[:2], key) }

// use begins a change; where it returns nil, s.mu.RUnlock has to follow.
func (s *Store) use() error {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return persistence.ErrClosed
	}
	return nil
}

// full says ErrNoSpace where an error says that the disk is full.
func (s *Store) full(err error) error {
	if err != nil && s.cfg.DiskFull(err) {
		return fmt.Errorf("%w: %w", persistence.ErrNoSpace, err)
	}
	return err
}

// sync says ErrSync of any other failure.
func (s *Store) sync(err error) error {
	switch {
	case err == nil:
		return nil
	case s.cfg.DiskFull(err):
		return s.full(err)
	default:
		return fmt.Errorf("%w: %w", persistence.ErrSync, err)
	}
}

// Create implements persistence.Blobs.
func (s *Store) Create(key string) (persistence.BlobFile, error) {
	if err := s.use(); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	path := s.path(key)
	if err := s.makeFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+tempSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, s.full(err)
	}
	return &file{store: s, path: path, temp: path + tempSuffix, file: f}, nil
}

// makeFolder makes a folder of bodies. Its name is durable when makeFolder returns, whoever made it, and when.
func (s *Store) makeFolder(folder string) error {
	s.making.Lock()
	defer s.making.Unlock()
	for _, dir := range []string{s.cfg.Dir, folder} {
		if _, made := s.made[dir]; made {
			continue
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return s.full(err)
		}
		if err := s.sync(s.cfg.SyncDir(filepath.Dir(dir))); err != nil {
			return err
		}
		s.made[dir] = struct{}{}
	}
	return nil
}

// Extend implements persistence.Blobs.
func (s *Store) Extend(key string, at int64) (persistence.BlobFile, error) {
	if err := s.use(); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	f, err := os.OpenFile(s.path(key), os.O_RDWR, 0)
	if err != nil {
		return nil, missing(err)
	}
	if err := cut(f, key, at); err != nil {
		return nil, errors.Join(s.full(err), f.Close())
	}
	return &file{store: s, path: s.path(key), file: f, begin: at, at: at}, nil
}

// cut removes what stands behind at.
func cut(f *os.File, key string, at int64) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < at:
		return &persistence.BlobError{Key: key, What: fmt.Sprintf("it has %d bytes, and there were %d", info.Size(), at)}
	case info.Size() == at:
		return nil
	}
	return f.Truncate(at)
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return persistence.ErrNotFound
	}
	return err
}

// Open implements persistence.Blobs.
func (s *Store) Open(key string) (persistence.BlobReader, error) {
	if err := s.use(); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, missing(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &persistence.BlobError{Key: key, What: "it is no file"}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return reader{f, info.Size()}, nil
}

type reader struct {
	*os.File
	size int64
}

func (r reader) Size() int64 { return r.size }

// Remove implements persistence.Blobs.
func (s *Store) Remove(key string) error {
	if err := s.use(); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	for _, path := range []string{s.path(key), s.path(key) + tempSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// List implements persistence.Blobs. It passes over what is none of its files, see [Store.Strays].
func (s *Store) List(fn func(key string, whole bool) bool) error {
	return s.walk(func(_, key string, whole bool) bool { return key == "" || fn(key, whole) })
}

// Strays returns the paths, below the folder, of what stands there and is no body.
func (s *Store) Strays() ([]string, error) {
	var strays []string
	err := s.walk(func(name, key string, _ bool) bool {
		if key == "" {
			strays = append(strays, name)
		}
		return true
	})
	return strays, err
}

// walk calls fn for each file, in order, with an empty key where it is none of a body.
func (s *Store) walk(fn func(name, key string, whole bool) bool) error {
	if err := s.use(); err != nil {
		return err
	}
	s.mu.RUnlock() // it changes nothing
	folders, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			if !fn(folder.Name(), "", false) {
				return nil
			}
			continue
		}
		files, err := os.ReadDir(filepath.Join(s.cfg.Dir, folder.Name()))
		if err != nil {
			return err
		}
		for _, f := range files {
			key, temp := strings.CutSuffix(f.Name(), tempSuffix)
			if !persistence.IsBlobKey(key) || key[:2] != folder.Name() || f.IsDir() {
				key = ""
			}
			if !fn(filepath.Join(folder.Name(), f.Name()), key, !temp) {
				return nil
			}
		}
	}
	return nil
}

// Close implements persistence.Blobs. What is being written then stays unfinished.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
