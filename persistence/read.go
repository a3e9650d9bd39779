package persistence

import (
	"bytes"
	"errors"
	"fmt"
)

// A scan reads in pages, so that no view of the engine stays open while somebody else's code runs: the first ones are
// small, for callers that want a few records only.
const (
	firstPage = 32
	lastPage  = 512
	pageBytes = 1 << 20
)

// Get implements [Journal]. A record that cannot be decoded is set aside and not found.
func (s *Store) Get(kind Kind, id string) (Record, error) {
	if err := checkRecordKey(kind, id); err != nil {
		return Record{}, err
	}
	if err := s.enter(); err != nil {
		return Record{}, err
	}
	defer s.leave()
	info := infoOf(kind)
	var record Record
	var strays []stray
	err := s.engine.View(func(r Reader) error {
		for _, prefix := range [...]string{info.prefix, info.ended} {
			if prefix == "" {
				continue
			}
			key := appendKey(make([]byte, 0, len(prefix)+len(id)), prefix, id)
			value, err := r.Get(key)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			h, err := decodeRecordAt(key, value)
			if err != nil {
				strays = append(strays, s.foundStray(key, err))
				continue
			}
			record = h.record(id)
			return nil
		}
		return ErrNotFound
	})
	if serr := s.setAside(strays); serr != nil {
		return Record{}, serr
	}
	if err != nil {
		return Record{}, fmt.Errorf("get %s %q: %w", kind, id, err)
	}
	return record, nil
}

// record is what the caller may keep: a copy of what lies in the engine.
func (h *header) record(id string) Record {
	return Record{
		Kind: h.kind, ID: id, Version: h.version, Epoch: h.epoch, State: string(h.state), Ended: h.ended,
		Time: timeOf(h.time), Body: bytes.Clone(h.body),
	}
}

// Scan implements [Journal]. fn may use the journal. Records that are written meanwhile may be seen or not; none is seen
// twice.
func (s *Store) Scan(kind Kind, ended bool, prefix, after string, fn func(Record) bool) error {
	return s.scan(kind, ended, prefix, func(from, to []byte, base string) ([]byte, []byte) {
		if after == "" {
			return from, to
		}
		if above := append(appendKey(nil, base, after), 0); bytes.Compare(above, from) > 0 {
			from = above
		}
		return from, to
	}, false, fn)
}

// ScanBack implements [Journal].
func (s *Store) ScanBack(kind Kind, ended bool, prefix, before string, fn func(Record) bool) error {
	return s.scan(kind, ended, prefix, func(from, to []byte, base string) ([]byte, []byte) {
		if before == "" {
			return from, to
		}
		if below := appendKey(nil, base, before); to == nil || bytes.Compare(below, to) < 0 {
			to = below
		}
		return from, to
	}, true, fn)
}

func (s *Store) scan(
	kind Kind, ended bool, prefix string, narrow func(from, to []byte, base string) ([]byte, []byte), back bool, fn func(Record) bool,
) error {
	info := infoOf(kind)
	base := info.prefix
	if ended {
		base = info.ended
	}
	switch {
	case info.prefix == "":
		return fmt.Errorf("persistence: unknown kind %q", kind)
	case base == "":
		return nil
	}
	from := appendKey(nil, base, prefix)
	from, to := narrow(from, prefixEnd(from), base)
	decode := func(key, value []byte) (Record, error) {
		h, err := decodeRecordAt(key, value)
		if err != nil {
			return Record{}, err
		}
		return h.record(string(h.id)), nil
	}
	if err := pages(s, from, to, back, decode, fn); err != nil {
		return fmt.Errorf("scan %ss: %w", kind, err)
	}
	return nil
}

// pages calls fn for each decoded value between from and to, outside of any view.
func pages[T any](s *Store, from, to []byte, back bool, decode func(key, value []byte) (T, error), fn func(T) bool) error {
	for size := firstPage; ; size = min(2*size, lastPage) {
		page, last, full, err := readPage(s, from, to, back, size, decode)
		if err != nil {
			return err
		}
		for _, item := range page {
			if !fn(item) {
				return nil
			}
		}
		if !full {
			return nil
		}
		if back {
			to = last
		} else {
			from = append(bytes.Clone(last), 0)
		}
	}
}

// readPage returns up to size items and the last key it saw; full: there may be more.
func readPage[T any](
	s *Store, from, to []byte, back bool, size int, decode func(key, value []byte) (T, error),
) (page []T, last []byte, full bool, err error) {
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil, nil, false, nil
	}
	if err := s.enter(); err != nil {
		return nil, nil, false, err
	}
	defer s.leave()
	var strays []stray
	page = make([]T, 0, size)
	err = s.engine.View(func(r Reader) error {
		seen, bytesSeen := 0, 0
		return r.Scan(from, to, back, func(key, value []byte) bool {
			item, err := decode(key, value)
			if err != nil {
				strays = append(strays, s.foundStray(key, err))
			} else {
				page = append(page, item)
			}
			seen++
			bytesSeen += len(value)
			if full = seen >= size || bytesSeen >= pageBytes; full {
				last = bytes.Clone(key)
			}
			return !full
		})
	})
	if err != nil {
		return nil, nil, false, err
	}
	return page, last, full, s.setAside(strays)
}

// History implements [Journal].
func (s *Store) History(kind Kind, id string) ([]Record, error) {
	if err := checkRecordKey(kind, id); err != nil {
		return nil, err
	}
	info := infoOf(kind)
	if info.history == "" {
		return nil, nil
	}
	from := numberedKey(info.history, id, 0)
	var records []Record
	decode := func(key, value []byte) (Record, error) {
		h, err := decodeRecordAt(key, value)
		if err != nil {
			return Record{}, err
		}
		return h.record(id), nil
	}
	err := pages(s, from, prefixEnd(from[:len(from)-8]), true, decode, func(r Record) bool {
		records = append(records, r)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s %q: %w", kind, id, err)
	}
	return records, nil
}

// Events implements [Journal]. The bodies are the caller's.
func (s *Store) Events(stream string, after uint64, limit int) ([]Event, error) {
	if limit <= 0 || after == 1<<64-1 {
		return nil, nil
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	from := numberedKey(prefixEvents, stream, after+1)
	to := prefixEnd(from[:len(from)-8])
	var events []Event
	var strays []stray
	err := s.engine.View(func(r Reader) error {
		return r.Scan(from, to, false, func(key, value []byte) bool {
			before := len(events)
			err := decodePack(bytes.Clone(value), number(key), func(e Event) {
				if e.Seq > after && len(events) < limit {
					events = append(events, e)
				}
			})
			if err != nil {
				events = events[:before]
				strays = append(strays, s.foundStray(key, err))
			}
			return len(events) < limit
		})
	})
	if serr := s.setAside(strays); serr != nil {
		return nil, serr
	}
	if err != nil {
		return nil, fmt.Errorf("events of %q: %w", stream, err)
	}
	return events, nil
}
