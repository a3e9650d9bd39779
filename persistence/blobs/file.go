package blobs

import (
	"errors"
	"os"
	"path/filepath"
)

// file is a body that is being written.
type file struct {
	store *Store
	path  string
	temp  string // its name until it is whole; empty: it is extended
	file  *os.File
	begin int64 // where writing began
	at    int64
	ended bool
}

// Write implements persistence.BlobFile.
func (f *file) Write(p []byte) (int, error) {
	if err := f.store.use(); err != nil {
		return 0, err
	}
	defer f.store.mu.RUnlock()
	n, err := f.file.WriteAt(p, f.at)
	f.at += int64(n)
	return n, f.store.full(err)
}

// Commit implements persistence.BlobFile.
func (f *file) Commit() error {
	if err := f.store.use(); err != nil {
		return err
	}
	defer f.store.mu.RUnlock()
	if err := f.store.sync(f.file.Sync()); err != nil {
		return err
	}
	if f.temp == "" {
		f.ended = true
		return f.file.Close()
	}
	if err := f.file.Close(); err != nil { // some systems rename no file that is open
		return err
	}
	if err := os.Rename(f.temp, f.path); err != nil {
		return f.store.full(err)
	}
	f.ended = true
	return f.store.sync(f.store.cfg.SyncDir(filepath.Dir(f.path)))
}

// Discard implements persistence.BlobFile.
func (f *file) Discard() error {
	if f.ended {
		return nil
	}
	f.ended = true
	if err := f.store.use(); err != nil {
		return f.close() // the folder may be another process's by now, and it sweeps what is left
	}
	defer f.store.mu.RUnlock()
	if f.temp != "" {
		err := f.close()
		if rerr := os.Remove(f.temp); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	return errors.Join(f.file.Truncate(f.begin), f.close())
}

// close closes the file, if a Commit that failed has not done so.
func (f *file) close() error {
	if err := f.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
