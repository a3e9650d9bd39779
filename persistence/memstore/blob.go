package memstore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/swampd/swampd/persistence"
)

// blobFiles are the bodies of one moment. What stands in a body is not changed, but replaced.
type blobFiles struct {
	whole      map[string][]byte
	unfinished map[string]struct{}
}

func (f blobFiles) clone() blobFiles {
	next := blobFiles{whole: maps.Clone(f.whole), unfinished: maps.Clone(f.unfinished)}
	if next.whole == nil {
		next.whole = make(map[string][]byte)
	}
	if next.unfinished == nil {
		next.unfinished = make(map[string]struct{})
	}
	return next
}

// blobStore keeps bodies as a folder does: one that is begun is there, unfinished, until it is named, and an extension cuts
// at once.
type blobStore struct {
	mu     sync.Mutex
	files  blobFiles
	fenced bool
	failed error // of every Commit; for tests
}

var _ persistence.Blobs = (*blobStore)(nil)

func newBlobStore(from Snapshot) *blobStore { return &blobStore{files: from.blobs.clone()} }

// change runs fn unless the process is dead.
func (s *blobStore) change(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced {
		return persistence.ErrClosed
	}
	return fn()
}

func (s *blobStore) Create(key string) (persistence.BlobFile, error) {
	err := s.change(func() error {
		s.files.unfinished[key] = struct{}{}
		return nil
	})
	return &blobFile{store: s, key: key}, err
}

func (s *blobStore) Extend(key string, at int64) (persistence.BlobFile, error) {
	err := s.change(func() error {
		body, there := s.files.whole[key]
		switch {
		case !there:
			return persistence.ErrNotFound
		case int64(len(body)) < at:
			return &persistence.BlobError{Key: key, What: fmt.Sprintf("it has %d bytes, and there were %d", len(body), at)}
		}
		s.files.whole[key] = body[:at:at]
		return nil
	})
	return &blobFile{store: s, key: key, extends: true, at: at}, err
}

func (s *blobStore) Open(key string) (persistence.BlobReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, there := s.files.whole[key]
	if !there {
		return nil, persistence.ErrNotFound
	}
	return blobReader{bytes.NewReader(body)}, nil
}

func (s *blobStore) Remove(key string) error {
	return s.change(func() error {
		delete(s.files.whole, key)
		delete(s.files.unfinished, key)
		return nil
	})
}

func (s *blobStore) List(fn func(key string, whole bool) bool) error {
	s.mu.Lock()
	files := s.files.clone()
	s.mu.Unlock()
	keys := slices.AppendSeq(slices.Collect(maps.Keys(files.whole)), maps.Keys(files.unfinished))
	slices.Sort(keys)
	for _, key := range keys {
		if _, whole := files.whole[key]; !fn(key, whole) {
			break
		}
	}
	return nil
}

// failCommit makes every Commit from now on fail, as a disk would.
func (s *blobStore) failCommit(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (s *blobStore) Close() error { return nil }

func (s *blobStore) snapshot(fence bool) blobFiles {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = s.fenced || fence
	return s.files.clone()
}

type blobReader struct{ *bytes.Reader }

func (blobReader) Close() error { return nil }

type blobFile struct {
	store   *blobStore
	key     string
	extends bool
	at      int64
	data    []byte
}

func (f *blobFile) Write(p []byte) (int, error) {
	err := f.store.change(func() error { return nil })
	if err != nil {
		return 0, err
	}
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *blobFile) Commit() error {
	return f.store.change(func() error {
		if f.store.failed != nil {
			return f.store.failed
		}
		files := f.store.files
		before, there := files.whole[f.key]
		if f.extends && !there { // it was removed meanwhile: what is written to such a file is gone
			return nil
		}
		files.whole[f.key] = slices.Concat(before[:f.at], f.data)
		delete(files.unfinished, f.key)
		return nil
	})
}

// Discard leaves everything as it is where the process is dead: its disk keeps what it held.
func (f *blobFile) Discard() error {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if !f.store.fenced {
		delete(f.store.files.unfinished, f.key)
	}
	return nil
}
