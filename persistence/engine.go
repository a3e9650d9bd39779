package persistence

import (
	"fmt"
	"hash/crc32"
)

// An Engine holds keys and values in key order and applies one batch at a time. [Store] makes a journal of it: versions,
// conditions, numbers and joining commits are the store's business, disks and locks are the engine's.
type Engine interface {
	// View calls fn with a reader of what has been applied; it does not change while fn runs. It may be called from many
	// goroutines, also while a batch is applied. It returns fn's error.
	View(fn func(r Reader) error) error
	// Apply makes the batch durable, all of it or nothing. The store has one batch under way at a time. Any error means that
	// the outcome cannot be known, or that this engine is no longer the one that may write; the store stops at it. The
	// engine may keep the slices of the batch.
	Apply(b *Batch) error
	// Limits bound a batch.
	Limits() Limits
	// Space says how much room there is. It is called for each batch and has to be cheap.
	Space() Space
	// Close is called once, when nothing else is under way.
	Close() error
}

// Reader reads from an engine. What it returns is valid until its View ends, and must not be changed.
type Reader interface {
	// Get returns the value of key, or ErrNotFound.
	Get(key []byte) ([]byte, error)
	// Has tells whether there is a value.
	Has(key []byte) (bool, error)
	// Scan calls fn for each key from from up to below to, in falling order if back, until fn returns false. Key and value
	// are valid during the call only. A nil to is the end of all keys.
	Scan(from, to []byte, back bool, fn func(key, value []byte) bool) error
}

// Limits are what one batch of an engine may hold.
type Limits struct {
	Bytes    int // of keys and values, and PerEntry for each of them
	Entries  int
	PerEntry int
}

// Space is the room that is left, and the marks below which commits are refused by class.
type Space struct {
	Free    uint64
	NewWork uint64 // below: no new work
	Data    uint64 // below: endings only
	Hard    uint64 // below: nothing, for the engine could no longer hold what it has promised
}

// check returns ErrNoSpace, with the numbers, where the class may not write.
func (s Space) check(class Class) error {
	mark := s.Hard
	switch class {
	case ClassNewWork:
		mark = max(s.Hard, s.Data, s.NewWork)
	case ClassData:
		mark = max(s.Hard, s.Data)
	case ClassEnding:
	}
	if s.Free >= mark {
		return nil
	}
	return fmt.Errorf("%w: %d MiB free, %d MiB needed", ErrNoSpace, s.Free>>20, mark>>20)
}

// Head names the last batch of a store: how many there have been, and a hash over all of them.
type Head struct {
	Number uint64
	Hash   uint64
}

// An Entry is one key of a batch: a value, or its removal.
type Entry struct {
	Key    []byte
	Value  []byte
	Delete bool
}

// A Batch is what one Apply writes. Of entries with the same key the last one counts.
type Batch struct {
	Entries []Entry
	// Head is that of the store once the batch has been applied. It stands among the entries too.
	Head Head

	bytes int
	sum   uint32
}

// Put adds a value.
func (b *Batch) Put(key, value []byte) {
	b.Entries = append(b.Entries, Entry{Key: key, Value: value})
	b.add(key, value)
}

// Delete adds a removal.
func (b *Batch) Delete(key []byte) {
	b.Entries = append(b.Entries, Entry{Key: key, Delete: true})
	b.add(key, nil)
}

func (b *Batch) add(key, value []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	b.sum = crc32.Update(crc32.Update(b.sum, table, key), table, value)
	b.bytes += len(key) + len(value)
}

func (b *Batch) reset() {
	clear(b.Entries)
	b.Entries, b.bytes, b.sum, b.Head = b.Entries[:0], 0, 0, Head{}
}
