package persistence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swampd/swampd/messages"
)

// quarantine counts stored values that do not decode, each once.
type quarantine struct {
	logger *slog.Logger

	mu   sync.Mutex
	seen map[string]struct{}
}

// note counts a value and warns of it, unless it is known already.
func (q *quarantine) note(key []byte, err error) {
	q.mu.Lock()
	_, known := q.seen[string(key)]
	if !known {
		q.seen[string(key)] = struct{}{}
	}
	q.mu.Unlock()
	if !known {
		kind, id := describeKey(key)
		q.logger.Warn("record set aside, it cannot be decoded",
			messages.KeyKind, kind, messages.KeyErr, fmt.Errorf("%q: %w", id, err))
	}
}

func (q *quarantine) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.seen)
}

// describeKey tells what a key is about, for a person.
func describeKey(key []byte) (kind, id string) {
	if stream, last, ok := splitNumbered(key, prefixEvents); ok {
		return "event", fmt.Sprintf("%s/%d", stream, last)
	}
	if name, ok := recordAt(key); ok {
		return string(name.kind), name.id
	}
	for _, k := range [...]Kind{KindWorker, KindToken} {
		if id, version, ok := splitNumbered(key, infoOf(k).history); ok {
			return string(k), fmt.Sprintf("%s@%d", id, version)
		}
	}
	return "", string(key)
}

// recordAt is the record whose key this is.
func recordAt(key []byte) (name recordKey, ok bool) {
	for code := byte(1); code < kindCodes; code++ {
		kind := kindOf(code)
		info := infoOf(kind)
		for _, prefix := range [...]string{info.prefix, info.ended} {
			if id, ok := bytes.CutPrefix(key, []byte(prefix)); ok && prefix != "" {
				return recordKey{kind, string(id)}, true
			}
		}
	}
	return recordKey{}, false
}

// decodeRecordAt decodes the envelope of what stands under key, and checks that it belongs there.
func decodeRecordAt(key, value []byte) (header, error) {
	h, err := decodeHeader(value)
	if err != nil {
		return header{}, err
	}
	info := infoOf(h.kind)
	for _, prefix := range [...]string{info.prefix, info.ended} {
		if prefix != "" && len(key) == len(prefix)+len(h.id) && string(key[:len(prefix)]) == prefix && bytes.Equal(key[len(prefix):], h.id) {
			return h, nil
		}
	}
	if info.history != "" && string(key) == string(numberedKey(info.history, string(h.id), h.version)) {
		return h, nil
	}
	return header{}, &DecodeError{What: fmt.Sprintf("it is %s %q", h.kind, h.id)}
}

// checkValue tells why what stands under key does not decode.
func checkValue(key, value []byte) error {
	if _, last, ok := splitNumbered(key, prefixEvents); ok {
		return decodePack(value, last, func(Event) {})
	}
	_, err := decodeRecordAt(key, value)
	return err
}

// setAside moves a value that does not decode out of the way. Events leave an empty pack behind, so that their numbers are
// not given again.
func (w *workspace) setAside(key, value []byte, err error) {
	w.corrupt(key, err)
	kept := append([]byte(prefixQuarantine), key...)
	w.batch.Put(kept, bytes.Clone(value))
	if bytes.HasPrefix(key, []byte(prefixEvents)) {
		empty := beginPack(nil, 0)
		seal(empty)
		w.batch.Put(bytes.Clone(key), empty)
		return
	}
	w.batch.Delete(bytes.Clone(key))
	if name, ok := recordAt(key); ok {
		w.records.set(name, recordState{}) // whether it has ended is to be asked
	}
}

// setAside has the committer move values that a reader came across. Where that is not possible now, they stay where they
// are, and the next reader skips them as this one did.
func (s *Store) setAside(strays []stray) error {
	if len(strays) == 0 {
		return nil
	}
	op := s.committer.pool.Get().(*operation)
	op.class, op.strays = ClassEnding, strays
	_, err := s.committer.wait(context.Background(), op)
	if err == nil || OfOperation(err) || errors.Is(err, ErrClosed) {
		return nil
	}
	return fmt.Errorf("set records aside: %w", err)
}

func (s *Store) foundStray(key []byte, err error) stray {
	s.quarantine.note(key, err)
	return stray{key: bytes.Clone(key)}
}
