package memstore

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/swampd/swampd/persistence"
)

// Options are all optional.
type Options struct {
	// Logger gets the journal's warnings. Default: none.
	Logger *slog.Logger
	// Now is the clock of the records. Default: time.Now.
	Now func() time.Time
	// Before sees each batch before it is applied, the boot's own included; an error means that it is not applied, and
	// poisons the journal as a disk's error would. It may sleep, and it may call Crash.
	Before func(*persistence.Batch) error
	// After is the same once the batch is applied: an error leaves its outcome unknown to those who wait.
	After func(*persistence.Batch) error
	// Remember is how many states before the newest one a snapshot can go back to.
	Remember int
}

// Snapshot is what a store held at one moment. It never changes, and any number of stores may be opened from it. The zero
// Snapshot is an empty disk.
type Snapshot struct {
	root   *node
	past   []*node
	output map[string][]persistence.Chunk
	blobs  blobFiles
}

// Behind is the snapshot without its last n batches: a disk that lied about them. It panics where the store was not told
// to remember that many.
func (s Snapshot) Behind(n int) Snapshot {
	if n == 0 {
		return s
	}
	at := len(s.past) - n
	if at < 0 {
		panic(fmt.Sprintf("memstore: %d batches behind, but only %d are remembered", n, len(s.past)))
	}
	return Snapshot{root: s.past[at], past: s.past[:at:at], output: s.output, blobs: s.blobs}
}

// Remembered is how many batches behind the snapshot can go.
func (s Snapshot) Remembered() int { return len(s.past) }

// Store is a journal in memory. It has to be closed, also after a crash.
type Store struct {
	*persistence.Store
	engine *engine
	output *outputLog
	blobs  *blobStore
}

// New returns an empty store.
func New(options Options) (*Store, error) { return Open(Snapshot{}, options) }

// Open returns a store that begins its next boot with what the snapshot holds.
func Open(from Snapshot, options Options) (*Store, error) {
	e, o, b := newEngine(options, from), newOutputLog(from), newBlobStore(from)
	s, err := persistence.NewStore(persistence.StoreConfig{
		Engine: e, Output: o, Blobs: b, StoreID: "memory", Generation: 1, Logger: options.Logger, Now: options.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("open the journal in memory: %w", err)
	}
	return &Store{Store: s, engine: e, output: o, blobs: b}, nil
}

// Snapshot returns what the store holds now. The store goes on.
func (s *Store) Snapshot() Snapshot { return s.take(false) }

// Crash ends the store as the death of its process would: what was applied is in the snapshot, whether or not somebody was
// told, and nothing is applied any more. Whoever waits or comes later gets ErrClosed. It does not wait, and may be called
// from anywhere, also from a hook; Close has to follow.
func (s *Store) Crash() Snapshot {
	snapshot := s.take(true)
	s.BeginClose()
	return snapshot
}

func (s *Store) take(fence bool) Snapshot {
	root, past := s.engine.snapshot(fence)
	return Snapshot{root: root, past: past, output: s.output.snapshot(fence), blobs: s.blobs.snapshot(fence)}
}

// SetSpace sets what the disk has left, and its marks.
func (s *Store) SetSpace(space persistence.Space) { s.engine.setSpace(space) }
