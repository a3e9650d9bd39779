package badgerstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/swampd/swampd/persistence"
)

const (
	// memTableSize is Badger's unit: of memory, of a transaction (15 % of it) and of what it writes in one go.
	memTableSize = 8 << 20
	// entryOverhead is what Badger counts for an entry beyond key and value.
	entryOverhead = 16
)

func engineOptions(dir string) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false). // the committer is the only writer
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithValueLogFileSize(16 << 20).
		WithMetricsEnabled(false).
		WithChecksumVerificationMode(options.OnTableRead)
}

// engine is the persistence.Engine over Badger.
type engine struct {
	db    *badger.DB
	head  *head
	space *space
}

var _ persistence.Engine = (*engine)(nil)

func openEngine(config Config, h *head, s *space) (*engine, error) {
	dir := filepath.Join(config.Dir, journalDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal's directory: %w", err)
	}
	logger := &engineLogger{logger: config.Logger}
	db, err := openBadger(engineOptions(dir).WithLogger(logger))
	switch {
	case err == nil:
		logger.opened.Store(true)
		return &engine{db: db, head: h, space: s}, nil
	case isBadgerLocked(err):
		// Something that is not this program holds Badger's own lock.
		pid, _ := os.ReadFile(filepath.Join(dir, "LOCK"))
		return nil, &persistence.LockedError{Dir: config.Dir, PID: parsePID(pid)}
	case errors.Is(err, os.ErrPermission), isDiskFull(err):
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	default:
		return nil, &persistence.DamagedError{
			Dir: config.Dir, What: fmt.Sprintf("the journal cannot be opened: %v", err), Next: whatToDoIfDamaged,
		}
	}
}

// openBadger opens Badger, and tries again for a moment where its own lock is held: ours says that no orchestrator is there,
// but a process that one was just starting as it closed may still have Badger's lock open.
func openBadger(options badger.Options) (*badger.DB, error) {
	const tries, pause = 20, 25 * time.Millisecond
	for try := 1; ; try++ {
		db, err := badger.Open(options)
		if err == nil || !isBadgerLocked(err) || try == tries {
			return db, err
		}
		<-time.After(pause) // nothing tells that somebody has given a lock up
	}
}

// isBadgerLocked tells whether Badger's own lock is held, which has no other mark.
func isBadgerLocked(err error) bool {
	return strings.Contains(err.Error(), "Cannot acquire directory lock")
}

// View implements persistence.Engine.
func (e *engine) View(fn func(r persistence.Reader) error) error {
	txn := e.db.NewTransaction(false)
	defer txn.Discard()
	return fn(reader{txn})
}

// Apply implements persistence.Engine.
func (e *engine) Apply(b *persistence.Batch) error {
	txn := e.db.NewTransaction(true)
	defer txn.Discard()
	for i := range b.Entries {
		entry := &b.Entries[i]
		var err error
		if entry.Delete {
			err = txn.Delete(entry.Key)
		} else {
			err = txn.Set(entry.Key, entry.Value)
		}
		if err != nil {
			// Not committed: what fitted would become durable without the rest.
			return fmt.Errorf("stage a batch of %d entries: %w", len(b.Entries), err)
		}
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("commit a batch of %d entries: %w", len(b.Entries), err)
	}
	return e.head.applied(b.Head)
}

// Limits implements persistence.Engine.
func (e *engine) Limits() persistence.Limits {
	return persistence.Limits{
		Bytes: int(e.db.MaxBatchSize()) - 1, Entries: int(e.db.MaxBatchCount()) - 1, PerEntry: entryOverhead,
	}
}

// Space implements persistence.Engine.
func (e *engine) Space() persistence.Space { return e.space.report() }

// Close implements persistence.Engine.
func (e *engine) Close() error {
	e.space.close()
	err := e.db.Close()
	if err == nil {
		err = e.head.closed()
	}
	return errors.Join(err, e.head.file.Close())
}

// abandon closes what was opened, without a claim that the store is whole.
func (e *engine) abandon() error { return errors.Join(e.db.Close(), e.head.file.Close()) }

type reader struct{ txn *badger.Txn }

func (r reader) Get(key []byte) ([]byte, error) {
	item, err := r.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, persistence.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var value []byte
	err = item.Value(func(v []byte) error {
		value = v // of the item's own memory, which nobody uses again
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return value, nil
}

func (r reader) Has(key []byte) (bool, error) {
	switch _, err := r.txn.Get(key); {
	case errors.Is(err, badger.ErrKeyNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the journal: %w", err)
	}
	return true, nil
}

func (r reader) Scan(from, to []byte, back bool, fn func(key, value []byte) bool) error {
	opts := badger.IteratorOptions{Reverse: back, Prefix: commonPrefix(from, to)}
	if back {
		opts.Prefix = nil // Badger would look for the end of the prefix by itself, and not find it
	}
	it := r.txn.NewIterator(opts)
	defer it.Close()
	if back {
		it.Seek(to) // at or below; an empty key is the end
	} else {
		it.Seek(from)
	}
	for ; it.Valid(); it.Next() {
		item := it.Item()
		key := item.Key()
		switch {
		case back && to != nil && bytes.Compare(key, to) >= 0:
			continue
		case back && bytes.Compare(key, from) < 0:
			return nil
		case !back && to != nil && bytes.Compare(key, to) >= 0:
			return nil
		}
		more := false
		err := item.Value(func(value []byte) error {
			more = fn(key, value)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// commonPrefix lets Badger leave out the tables that hold nothing of the range.
func commonPrefix(from, to []byte) []byte {
	n := 0
	for n < len(from) && n < len(to) && from[n] == to[n] {
		n++
	}
	return from[:n]
}
