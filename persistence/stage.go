package persistence

import (
	"bytes"
	"errors"
	"fmt"
)

// HistoryKept is how many former versions of a worker or a token are kept.
const HistoryKept = 20

// workspace is the batch that the committer is filling.
type workspace struct {
	limits  Limits
	head    Head
	space   Space
	reader  Reader
	batch   Batch
	records records
	numbers numbers
	corrupt func(key []byte, err error) // told of each stored value that did not decode
}

func newWorkspace(limits Limits, head Head, corrupt func([]byte, error)) workspace {
	return workspace{
		limits: limits, head: head, records: newRecords(), numbers: newNumbers(), corrupt: corrupt,
	}
}

func (w *workspace) begin(space Space) {
	w.space = space
	w.batch.reset()
	w.records.age()
	w.numbers.age()
}

// need is what an operation adds to the batch.
type need struct{ entries, bytes int }

func (n *need) add(key, value int) {
	n.entries++
	n.bytes += key + value
}

func (w *workspace) fits(n need, alone bool) bool {
	entries := len(w.batch.Entries) + n.entries + 1 // the head
	size := w.batch.bytes + n.bytes + entries*w.limits.PerEntry
	if alone {
		return entries <= w.limits.Entries && size <= w.limits.Bytes
	}
	// A margin for what stands in no account: values that are set aside on the way.
	return entries <= w.limits.Entries/5*4 && size <= w.limits.Bytes/5*4
}

// take adds an operation to the batch, or sets its error and adds nothing. It returns false where the batch has no room
// left for it; first says that the batch is empty, so that there will never be more. Its own error is the engine's.
func (w *workspace) take(op *operation, first bool) (took bool, err error) {
	n, err := w.check(op)
	switch {
	case OfOperation(err):
		op.err = err
		return true, nil
	case err != nil:
		return false, err
	case !w.fits(n, false):
		if !first {
			return false, nil
		}
		if !w.fits(n, true) {
			op.err = fmt.Errorf("%w: %d entries of %d bytes with what they replace", ErrTooLarge, n.entries, n.bytes)
			return true, nil
		}
	}
	return true, w.stage(op)
}

// check tells whether the operation may happen, and what it needs. It changes nothing but what it had to look up, so that
// an operation that is refused leaves no trace in the batch of its neighbours.
func (w *workspace) check(op *operation) (n need, err error) {
	if err := w.space.check(op.class); err != nil {
		return n, err
	}
	for i := range op.conditions {
		if err := w.checkCondition(&op.conditions[i]); err != nil {
			return n, err
		}
	}
	for i := range op.puts {
		p := &op.puts[i]
		s, err := w.checkPut(p)
		if err != nil {
			return n, err
		}
		n.add(len(p.live), len(p.value))
		if s.live && p.ended && p.end != nil {
			n.add(len(p.live), 0)
		}
		if s.live && p.info.history != "" {
			key := len(p.info.history) + 2*len(p.id) + 10
			n.add(key, len(s.value))
			n.add(key, 0)
		}
	}
	for i := range op.deletes {
		d := &op.deletes[i]
		key := 2 * (len(prefixHistory) + len(d.Kind) + len(d.ID) + 10)
		n.add(key, 0)
		n.add(key, 0)
		if infoOf(d.Kind).history != "" {
			for range HistoryKept {
				n.add(key, 0)
			}
		}
	}
	for _, stream := range op.drops {
		keys, err := w.oldest(stream)
		if err != nil {
			return n, err
		}
		for _, key := range keys {
			n.add(len(key), 0)
		}
	}
	for i := range op.packs {
		n.add(len(op.packs[i].key), len(op.packs[i].value))
	}
	for i := range op.strays {
		value, err := w.reader.Get(op.strays[i].key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return n, err
		}
		n.add(len(op.strays[i].key), len(value)+packOverhead)
		n.add(len(op.strays[i].key), 0)
	}
	return n, nil
}

func (w *workspace) checkPut(p *preparedPut) (recordState, error) {
	s, err := w.lookup(p.kind, p.id, p.expect == 0)
	switch {
	case err != nil:
		return s, err
	case p.expect == 0 && s.live:
		return s, stale(p, "version %d", s.version)
	case p.expect == 0 && s.ended:
		return s, stale(p, "one that has ended")
	case p.expect == 0:
		return s, nil
	case !s.live:
		return s, stale(p, "none that lives")
	case s.version != p.expect:
		return s, stale(p, "version %d", s.version)
	case s.final:
		return s, stale(p, "one that has ended")
	}
	return s, nil
}

func stale(p *preparedPut, found string, args ...any) error {
	return fmt.Errorf("%w: %s %q: version %d was to be replaced, the journal has %s",
		ErrStaleWriter, p.kind, p.id, p.expect, fmt.Sprintf(found, args...))
}

func (w *workspace) checkCondition(c *Condition) error {
	s, err := w.lookup(c.Kind, c.ID, false)
	if err != nil {
		return err
	}
	switch {
	case c.Absent:
		if s.live {
			return fmt.Errorf("%w: %s %q is there", ErrConditionFailed, c.Kind, c.ID)
		}
	case !s.live:
		return fmt.Errorf("%w: %s %q is not there", ErrConditionFailed, c.Kind, c.ID)
	case c.Version != 0:
		if s.version != c.Version {
			return fmt.Errorf("%w: %s %q has version %d, not %d", ErrConditionFailed, c.Kind, c.ID, s.version, c.Version)
		}
	case s.state != c.State:
		return fmt.Errorf("%w: %s %q is %s, not %s", ErrConditionFailed, c.Kind, c.ID, s.state, c.State)
	}
	return nil
}

// lookup returns what is known of a record; withEnded: also whether it has ended.
func (w *workspace) lookup(kind Kind, id string, withEnded bool) (s recordState, err error) {
	name := recordKey{kind, id}
	s, known := w.records.get(name)
	if !known {
		fresh, err := w.records.isNew(w.reader, name)
		if err != nil {
			return s, fmt.Errorf("look up the last %s: %w", kind, err)
		}
		if fresh {
			return recordState{endedKnown: true}, nil
		}
		if s, err = w.load(kind, id); err != nil {
			return s, fmt.Errorf("look up %s %q: %w", kind, id, err)
		}
	}
	if withEnded && !s.endedKnown {
		known = false
		if s.ended, err = w.hasEnded(kind, id); err != nil {
			return s, fmt.Errorf("look up %s %q: %w", kind, id, err)
		}
		s.endedKnown = true
	}
	if !known {
		w.records.set(name, s)
	}
	return s, nil
}

// load reads a live record from the engine. One that does not decode is set aside.
func (w *workspace) load(kind Kind, id string) (s recordState, err error) {
	info := infoOf(kind)
	key := appendKey(make([]byte, 0, len(info.prefix)+len(id)), info.prefix, id)
	value, err := w.reader.Get(key)
	switch {
	case errors.Is(err, ErrNotFound):
		return s, nil
	case err != nil:
		return s, err
	}
	h, err := decodeRecordAt(key, value)
	if err != nil {
		w.setAside(key, value, err)
		return s, nil
	}
	s = recordState{live: true, version: h.version, final: h.ended, state: w.records.word(h.state)}
	if info.history != "" {
		s.value = bytes.Clone(value) // the view ends before the batch is applied
	}
	return s, nil
}

func (w *workspace) hasEnded(kind Kind, id string) (bool, error) {
	info := infoOf(kind)
	if info.ended == "" {
		return false, nil
	}
	return w.reader.Has(appendKey(make([]byte, 0, len(info.ended)+len(id)), info.ended, id))
}

// stage adds a checked operation to the batch.
func (w *workspace) stage(op *operation) error {
	for i := range op.puts {
		w.stagePut(&op.puts[i])
	}
	for i := range op.deletes {
		if err := w.stageDelete(&op.deletes[i]); err != nil {
			return err
		}
	}
	for _, stream := range op.drops {
		if err := w.stageDrop(op, stream); err != nil {
			return err
		}
	}
	for j := range op.packs {
		p := &op.packs[j]
		last, err := w.lastNumber(p)
		if err != nil {
			return err
		}
		op.number(j, last+1)
		w.numbers.set(p.stream, last+uint64(p.count))
		w.batch.Put(p.key, p.value)
	}
	for i := range op.strays {
		key := op.strays[i].key
		value, err := w.reader.Get(key)
		if err != nil {
			if errors.Is(err, ErrNotFound) {
				continue
			}
			return fmt.Errorf("look up what is to be set aside: %w", err)
		}
		if err := checkValue(key, value); err != nil {
			w.setAside(key, value, err)
		}
	}
	return nil
}

func (w *workspace) stagePut(p *preparedPut) {
	name := recordKey{p.kind, p.id}
	s, _ := w.records.get(name)
	if s.live && p.info.history != "" {
		w.batch.Put(numberedKey(p.info.history, p.id, s.version), s.value)
		if s.version > HistoryKept {
			w.batch.Delete(numberedKey(p.info.history, p.id, s.version-HistoryKept))
		}
	}
	if p.ended && p.end != nil {
		if s.live {
			w.batch.Delete(p.live)
		}
		w.batch.Put(p.end, p.value)
		w.records.set(name, recordState{ended: true, endedKnown: true})
		return
	}
	w.batch.Put(p.live, p.value)
	next := recordState{live: true, final: p.ended, version: p.expect + 1, state: p.state, endedKnown: s.endedKnown}
	if p.info.history != "" {
		next.value = bytes.Clone(p.value) // not a hold on the memory of the whole commit
	}
	w.records.set(name, next)
}

func (w *workspace) stageDelete(d *Delete) error {
	s, err := w.lookup(d.Kind, d.ID, true)
	if err != nil {
		return err
	}
	info := infoOf(d.Kind)
	if s.live {
		w.batch.Delete(appendKey(nil, info.prefix, d.ID))
	}
	if s.ended {
		w.batch.Delete(appendKey(nil, info.ended, d.ID))
	}
	w.records.set(recordKey{d.Kind, d.ID}, recordState{endedKnown: true})
	if info.history == "" {
		return nil
	}
	from := numberedKey(info.history, d.ID, 0)
	prefix := from[:len(from)-8]
	for _, e := range w.batch.Entries { // former versions that this batch has added
		if !e.Delete && bytes.HasPrefix(e.Key, prefix) {
			w.batch.Delete(e.Key)
		}
	}
	err = w.reader.Scan(from, prefixEnd(prefix), false, func(key, _ []byte) bool {
		w.batch.Delete(bytes.Clone(key))
		return true
	})
	if err != nil {
		return fmt.Errorf("look up former versions of %s %q: %w", d.Kind, d.ID, err)
	}
	return nil
}

// lastNumber is the number of the last event of a stream, 0 if there is none.
func (w *workspace) lastNumber(p *preparedPack) (uint64, error) {
	if last, known := w.numbers.get(p.stream); known {
		return last, nil
	}
	if p.isNew {
		return 0, nil
	}
	last, err := lastNumber(w.reader, p.stream)
	if err != nil {
		return 0, fmt.Errorf("look up the last event of %q: %w", p.stream, err)
	}
	return last, nil
}

func lastNumber(r Reader, stream string) (last uint64, err error) {
	from := numberedKey(prefixEvents, stream, 0)
	to := prefixEnd(from[:len(from)-8])
	err = r.Scan(from, to, true, func(key, _ []byte) bool {
		last = number(key)
		return false
	})
	return last, err
}
