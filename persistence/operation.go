package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// operation is one commit on its way through the committer. It is prepared by the goroutine that asked for it, so that
// the committer itself encodes nothing: keys and values stand ready in one buffer, and only numbers of events are missing.
type operation struct {
	class      Class
	puts       []preparedPut
	deletes    []Delete
	conditions []Condition
	drops      []string
	packs      []preparedPack
	packOf     []int // for each append its pack; empty while there is only one
	strays     []stray

	// Set before the answer.
	seqs    []uint64
	emptied []string // of drops, those that have no event left
	err     error
	done    chan struct{}
}

type preparedPut struct {
	kind   Kind
	id     string
	info   kindInfo
	expect uint64
	ended  bool
	live   []byte // key
	end    []byte // key; nil where ended records stay among the live ones
	value  []byte
	state  string
}

// preparedPack is what one commit appends to one stream. The last 8 bytes of the key are the committer's to fill.
type preparedPack struct {
	stream string
	count  int
	isNew  bool
	key    []byte
	value  []byte
	values []Numbered // of its events; nil: none has one
}

// stray is a stored value that did not decode.
type stray struct{ key []byte }

func (o *operation) reset() {
	clear(o.puts)
	clear(o.packs)
	o.class, o.deletes, o.conditions, o.drops, o.strays, o.seqs, o.emptied, o.err = 0, nil, nil, nil, nil, nil, nil, nil
	o.puts, o.packs, o.packOf = o.puts[:0], o.packs[:0], o.packOf[:0]
}

// prepare checks what can be seen without the journal's content, and encodes.
func (o *operation) prepare(c *Commit, epoch uint64, now time.Time) error {
	size, err := measure(c)
	if err != nil {
		return err
	}
	o.class, o.deletes, o.conditions, o.drops = c.Class, c.Deletes, c.Conditions, c.Drops
	buf := make([]byte, 0, size)
	for i := range c.Puts {
		p := &c.Puts[i]
		info := infoOf(p.Kind)
		staged := preparedPut{kind: p.Kind, id: p.ID, info: info, expect: p.Expect, ended: p.Ended, state: p.State}
		buf, staged.live = carve(buf, appendKey(buf, info.prefix, p.ID))
		if info.ended != "" {
			buf, staged.end = carve(buf, appendKey(buf, info.ended, p.ID))
		}
		record := Record{
			Kind: p.Kind, ID: p.ID, Version: p.Expect + 1, Epoch: epoch, State: p.State, Ended: p.Ended, Time: now, Body: p.Body,
		}
		buf, staged.value = carve(buf, appendRecord(buf, &record))
		o.puts = append(o.puts, staged)
	}
	if len(c.Appends) > 0 {
		o.pack(c.Appends, buf)
	}
	return nil
}

// carve splits what an append added to buf off as a slice of its own.
func carve(before, after []byte) (buf, added []byte) {
	return after, after[len(before):len(after):len(after)]
}

// pack groups the appends by stream, in their order.
func (o *operation) pack(appends []Append, buf []byte) {
	o.seqs = make([]uint64, len(appends))
	packOf := o.packOf[:0]
	for i := range appends {
		at := -1
		for j := len(o.packs) - 1; j >= 0; j-- {
			if o.packs[j].stream == appends[i].Stream {
				at = j
				break
			}
		}
		if at < 0 {
			at = len(o.packs)
			o.packs = append(o.packs, preparedPack{stream: appends[i].Stream, isNew: appends[i].New})
		}
		o.seqs[i] = uint64(o.packs[at].count) // its place in the pack, until the committer knows the number
		o.packs[at].count++
		packOf = append(packOf, at)
	}
	for j := range o.packs {
		p := &o.packs[j]
		buf, p.key = carve(buf, appendNumbered(buf, prefixEvents, p.stream, 0))
		start := len(buf)
		buf = beginPack(buf, p.count)
		n := 0
		for i := range appends {
			if packOf[i] == j {
				if appends[i].Value != nil {
					p.note(appends[i].Value, n)
				}
				n++
				buf = binary.AppendUvarint(buf, uint64(len(appends[i].Body)))
				buf = append(buf, appends[i].Body...)
			}
		}
		p.value = buf[start:len(buf):len(buf)]
		seal(p.value)
	}
	o.packOf = packOf
}

// note keeps the value of the nth event.
func (p *preparedPack) note(value Numbered, n int) {
	if p.values == nil {
		p.values = make([]Numbered, p.count)
	}
	p.values[n] = value
}

// number gives pack j its numbers, from first on.
func (o *operation) number(j int, first uint64) {
	p := &o.packs[j]
	binary.BigEndian.PutUint64(p.key[len(p.key)-8:], first+uint64(p.count)-1)
	for i, at := range o.packOf {
		if at == j {
			o.seqs[i] += first
		}
	}
}

// measure returns the size of the buffer that the commit needs, or why it can never be made.
func measure(c *Commit) (size int, err error) {
	if c.Class < ClassEnding || c.Class > ClassNewWork {
		return 0, fmt.Errorf("persistence: unknown class %d", c.Class)
	}
	entries := len(c.Puts) + len(c.Deletes) + len(c.Conditions) + len(c.Drops) + len(c.Appends)
	if entries > MaxEntries {
		return 0, fmt.Errorf("%w: %d entries", ErrTooLarge, entries)
	}
	content := 0
	for i := range c.Puts {
		p := &c.Puts[i]
		if err := checkRecordKey(p.Kind, p.ID); err != nil {
			return 0, err
		}
		content += len(p.ID) + len(p.State) + len(p.Body)
		size += 2*(len(prefixEnded)+len(p.Kind)+1+len(p.ID)) + recordOverhead + len(p.ID) + len(p.State) + len(p.Body)
	}
	for i := range c.Deletes {
		if err := checkRecordKey(c.Deletes[i].Kind, c.Deletes[i].ID); err != nil {
			return 0, err
		}
		content += len(c.Deletes[i].ID)
	}
	for i := range c.Conditions {
		if err := checkCondition(&c.Conditions[i]); err != nil {
			return 0, err
		}
		content += len(c.Conditions[i].ID)
	}
	for _, stream := range c.Drops {
		if err := checkStream(stream); err != nil {
			return 0, err
		}
		content += len(stream)
	}
	for i := range c.Appends {
		a := &c.Appends[i]
		if err := checkStream(a.Stream); err != nil {
			return 0, err
		}
		content += len(a.Stream) + len(a.Body)
		size += len(prefixEvents) + 2*len(a.Stream) + 10 + packOverhead + eventOverhead + len(a.Body)
	}
	if content > MaxCommitBytes {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, content)
	}
	return size, checkOnce(c)
}

func checkStream(name string) error {
	if name == "" {
		return errors.New("persistence: a stream without a name")
	}
	if len(name) > maxID {
		return fmt.Errorf("%w: a stream's name of %d bytes", ErrTooLarge, len(name))
	}
	return nil
}

func checkCondition(c *Condition) error {
	if err := checkRecordKey(c.Kind, c.ID); err != nil {
		return err
	}
	tests := 0
	for _, set := range [...]bool{c.Absent, c.Version != 0, c.State != ""} {
		if set {
			tests++
		}
	}
	if tests != 1 {
		return fmt.Errorf("persistence: condition on %s %q has %d tests, not one", c.Kind, c.ID, tests)
	}
	return nil
}

// checkOnce refuses a commit that writes one record twice.
func checkOnce(c *Commit) error {
	n := len(c.Puts) + len(c.Deletes)
	at := func(i int) recordKey {
		if i < len(c.Puts) {
			return recordKey{c.Puts[i].Kind, c.Puts[i].ID}
		}
		d := &c.Deletes[i-len(c.Puts)]
		return recordKey{d.Kind, d.ID}
	}
	if n <= 8 { // the usual case, without a map
		for i := range n {
			for j := range i {
				if at(i) == at(j) {
					return twice(at(i))
				}
			}
		}
		return nil
	}
	seen := make(map[recordKey]struct{}, n)
	for i := range n {
		key := at(i)
		if _, dup := seen[key]; dup {
			return twice(key)
		}
		seen[key] = struct{}{}
	}
	return nil
}

func twice(key recordKey) error {
	return fmt.Errorf("persistence: %s %q stands twice in one commit", key.kind, key.id)
}
