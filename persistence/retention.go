package persistence

import (
	"bytes"
	"fmt"
	"sync"
)

// MaxDropped is of how many commits the events are that one drop removes at most: a commit has to stay within what one
// batch of the engine holds.
const MaxDropped = 256

// oldest returns the keys of the events that a drop removes of a stream in the engine.
func (w *workspace) oldest(stream string) ([][]byte, error) {
	from := numberedKey(prefixEvents, stream, 0)
	var keys [][]byte
	err := w.reader.Scan(from, prefixEnd(from[:len(from)-8]), false, func(key, _ []byte) bool {
		keys = append(keys, bytes.Clone(key))
		return len(keys) < MaxDropped
	})
	if err != nil {
		return nil, fmt.Errorf("look up the oldest events of %q: %w", stream, err)
	}
	return keys, nil
}

// stageDrop adds the removal of a stream's oldest events to the batch. While some are left, the numbers go on.
func (w *workspace) stageDrop(op *operation, stream string) error {
	keys, err := w.oldest(stream)
	if err != nil {
		return err
	}
	for _, key := range keys {
		w.batch.Delete(key)
	}
	if len(keys) == MaxDropped {
		return nil // there may be more, and the next drop finds out
	}
	from := numberedKey(prefixEvents, stream, 0)
	prefix := from[:len(from)-8]
	for _, e := range w.batch.Entries { // events that this batch has added
		if !e.Delete && bytes.HasPrefix(e.Key, prefix) {
			w.batch.Delete(e.Key)
		}
	}
	w.numbers.set(stream, 0)
	op.emptied = append(op.emptied, stream)
	return nil
}

// OutputLogs implements [Journal].
func (s *Store) OutputLogs() ([]string, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	logs, err := s.output.List()
	if err != nil {
		return nil, fmt.Errorf("list the output logs: %w", err)
	}
	return logs, nil
}

// DeleteOutput implements [Journal].
func (s *Store) DeleteOutput(dispatch string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.backups.without(func() error {
		if err := s.output.Remove(dispatch); err != nil {
			return fmt.Errorf("delete output of %q: %w", dispatch, err)
		}
		return nil
	})
}

// backups counts the backups that are under way. They read the records first and the logs of output after them, so a log
// must not go meanwhile.
type backups struct {
	mu    sync.Mutex
	count int
}

func (b *backups) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
}

func (b *backups) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
}

// without runs fn while there is no backup, and keeps one from beginning until it has.
func (b *backups) without(fn func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count > 0 {
		return ErrBusy
	}
	return fn()
}

// Compact implements [Journal].
func (s *Store) Compact() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	c, ok := s.engine.(interface{ Compact() error })
	if !ok {
		return nil
	}
	if err := c.Compact(); err != nil {
		return fmt.Errorf("compact the journal: %w", err)
	}
	return nil
}
