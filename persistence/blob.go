package persistence

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// A BlobWriter writes one body. The order is: write, Commit, then the commit of the record that names the key. So a crash
// leaves all of the body or a file that no record names, which is removed later. It is for one goroutine.
//
// Write is ErrNoSpace where too little space is left for [ClassData], or for the file system. After an error of Write or
// Commit there is only Discard.
type BlobWriter interface {
	io.Writer
	// Commit makes what was written durable, under the key that it returns, and ends the writer.
	Commit() (key string, err error)
	// Discard gives up what was written and ends the writer, unless it has ended already. What was there before an extension
	// stays.
	Discard() error
}

// A BlobReader reads a body. It stays whole also when the body is deleted meanwhile.
type BlobReader interface {
	io.ReaderAt
	io.ReadSeekCloser
	// Size is the length that the body had when it was opened. Of one that is extended it is at least what records say.
	Size() int64
}

// Blobs holds the bodies of an engine's records, each under a key that is a plain file name of [BlobKeySize] hexadecimal
// digits. It is safe for concurrent use. Errors that wrap [ErrNoSpace] and [ErrClosed] belong to one operation, and so do
// all others but those that wrap [ErrSync].
type Blobs interface {
	// Create begins a body. There is none of that key.
	Create(key string) (BlobFile, error)
	// Extend cuts a body off behind its first at bytes and goes on there. See [Journal.ExtendBlob] for its errors.
	Extend(key string, at int64) (BlobFile, error)
	// Open opens a body, or returns ErrNotFound.
	Open(key string) (BlobReader, error)
	// Remove removes a body, or what there is of one that was never finished. One that does not exist is no error.
	Remove(key string) error
	// List calls fn for each body, and with whole unset for what is left of those that were never finished, until it returns
	// false.
	List(fn func(key string, whole bool) bool) error
	// Close ends the use of all. Whoever reads may go on.
	Close() error
}

// A BlobFile is a body that is being written.
type BlobFile interface {
	io.Writer
	// Commit makes it durable: its bytes, and then its name.
	Commit() error
	// Discard gives up what was written, if there was no Commit.
	Discard() error
}

const (
	// BlobKeySize is how many digits a key has: random ones, and those of the boot that made it.
	BlobKeySize   = blobKeyRandom + blobKeyEpoch
	blobKeyRandom = 32
	blobKeyEpoch  = 6 // holds maxEpoch

	// blobPiece is how much is written between two looks at the free space.
	blobPiece = 1 << 20
)

// newBlobKey mints the key of a body that this boot begins.
func newBlobKey(epoch uint64) string {
	var random [blobKeyRandom / 2]byte
	_, _ = rand.Read(random[:]) // it never fails: the process ends instead
	return fmt.Sprintf("%x%0*x", random, blobKeyEpoch, epoch)
}

// blobEpoch is the boot that began a body.
func blobEpoch(key string) uint64 {
	epoch, err := strconv.ParseUint(key[blobKeyRandom:], 16, 64)
	if err != nil {
		return maxEpoch // no key that is listed looks like this
	}
	return epoch
}

// IsBlobKey tells whether a key looks like one of a body.
func IsBlobKey(key string) bool {
	if len(key) != BlobKeySize {
		return false
	}
	for i := range len(key) {
		if c := key[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// extending are the bodies that are extended just now.
type extending struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (e *extending) take(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.keys[key]; taken {
		return false
	}
	if e.keys == nil {
		e.keys = make(map[string]struct{})
	}
	e.keys[key] = struct{}{}
	return true
}

func (e *extending) release(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.keys, key)
}

// NewBlob implements [Journal].
func (s *Store) NewBlob() (BlobWriter, error) {
	return s.writeBlob(newBlobKey(s.epoch), false, func(key string) (BlobFile, error) { return s.blobs.Create(key) })
}

// ExtendBlob implements [Journal].
func (s *Store) ExtendBlob(key string, at int64) (BlobWriter, error) {
	if !IsBlobKey(key) {
		return nil, fmt.Errorf("body %q: %w", key, ErrNotFound)
	}
	if at < 0 {
		return nil, fmt.Errorf("extend body %s: at byte %d", key, at)
	}
	return s.writeBlob(key, true, func(key string) (BlobFile, error) { return s.blobs.Extend(key, at) })
}

func (s *Store) writeBlob(key string, extends bool, begin func(key string) (BlobFile, error)) (_ BlobWriter, err error) {
	if err := s.committer.usable(); err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.engine.Space().check(ClassData); err != nil {
		return nil, err
	}
	if extends {
		if !s.extending.take(key) {
			return nil, fmt.Errorf("extend body %s: %w", key, ErrInUse)
		}
		defer func() {
			if err != nil {
				s.extending.release(key)
			}
		}()
	}
	file, err := begin(key)
	if err != nil {
		return nil, s.blobFailed(fmt.Errorf("begin body %s: %w", key, err))
	}
	return &blobWriter{store: s, key: key, extends: extends, file: file}, nil
}

// blobFailed ends the trust in the store where an error says that something may not be durable.
func (s *Store) blobFailed(err error) error {
	if errors.Is(err, ErrSync) {
		s.committer.fail(err)
	}
	return err
}

// OpenBlob implements [Journal].
func (s *Store) OpenBlob(key string) (BlobReader, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if !IsBlobKey(key) {
		return nil, fmt.Errorf("body %q: %w", key, ErrNotFound)
	}
	r, err := s.blobs.Open(key)
	if err != nil {
		return nil, fmt.Errorf("open body %s: %w", key, err)
	}
	return r, nil
}

// DeleteBlob implements [Journal].
func (s *Store) DeleteBlob(key string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if !IsBlobKey(key) {
		return nil
	}
	return s.backups.without(func() error {
		if err := s.blobs.Remove(key); err != nil {
			return fmt.Errorf("delete body %s: %w", key, err)
		}
		return nil
	})
}

// Blobs implements [Journal].
func (s *Store) Blobs() ([]string, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	var keys []string
	err := s.blobs.List(func(key string, whole bool) bool {
		if whole {
			keys = append(keys, key)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the bodies: %w", err)
	}
	return keys, nil
}

// blobWriter watches the space, and the trust in the store, around the engine's file.
type blobWriter struct {
	store   *Store
	key     string
	extends bool
	file    BlobFile
	since   int   // bytes since it was looked at the space
	err     error // the first one; then there is only Discard
	ended   bool
}

var errBlobEnded = errors.New("persistence: the body is not written any more")

// use runs fn while the store is open. An error of it stays.
func (w *blobWriter) use(fn func() error) error {
	if w.ended {
		return errBlobEnded
	}
	if w.err != nil {
		return w.err
	}
	w.err = w.store.committer.usable()
	if w.err == nil {
		w.err = w.store.enter()
	}
	if w.err != nil {
		return w.err
	}
	defer w.store.leave()
	if err := fn(); err != nil {
		w.err = w.store.blobFailed(fmt.Errorf("write body %s: %w", w.key, err))
	}
	return w.err
}

func (w *blobWriter) Write(p []byte) (n int, err error) {
	err = w.use(func() error {
		for len(p) > 0 {
			if w.since >= blobPiece {
				if err := w.store.engine.Space().check(ClassData); err != nil {
					return err
				}
				w.since = 0
			}
			piece := p[:min(len(p), blobPiece-w.since)]
			wrote, err := w.file.Write(piece)
			n += wrote
			w.since += wrote
			if err != nil {
				return err
			}
			p = p[wrote:]
		}
		return nil
	})
	return n, err
}

func (w *blobWriter) Commit() (string, error) {
	if err := w.use(w.file.Commit); err != nil {
		return "", err
	}
	w.end()
	return w.key, nil
}

func (w *blobWriter) Discard() error {
	if w.ended {
		return nil
	}
	w.end()
	if err := w.file.Discard(); err != nil {
		return fmt.Errorf("discard body %s: %w", w.key, err)
	}
	return nil
}

func (w *blobWriter) end() {
	w.ended = true
	if w.extends {
		w.store.extending.release(w.key)
	}
}
