package persistence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// mapEngine is an engine that could not be simpler.
type mapEngine struct {
	data   map[string][]byte
	limits Limits
}

func (e *mapEngine) View(fn func(Reader) error) error { return fn(e) }

func (e *mapEngine) Apply(b *Batch) error {
	for _, entry := range b.Entries {
		if entry.Delete {
			delete(e.data, string(entry.Key))
		} else {
			e.data[string(entry.Key)] = entry.Value
		}
	}
	return nil
}

func (e *mapEngine) Limits() Limits { return e.limits }
func (e *mapEngine) Space() Space   { return Space{} }
func (e *mapEngine) Close() error   { return nil }

func (e *mapEngine) Get(key []byte) ([]byte, error) {
	value, ok := e.data[string(key)]
	if !ok {
		return nil, ErrNotFound
	}
	return value, nil
}

func (e *mapEngine) Has(key []byte) (bool, error) {
	_, ok := e.data[string(key)]
	return ok, nil
}

func (e *mapEngine) Scan(from, to []byte, back bool, fn func(key, value []byte) bool) error {
	keys := slices.Sorted(maps.Keys(e.data))
	if back {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		if key >= string(from) && (to == nil || key < string(to)) && !fn([]byte(key), e.data[key]) {
			return nil
		}
	}
	return nil
}

// twin says what the committer must do, one commit after the other, with nothing remembered in a clever way.
type twin struct {
	records map[recordKey]Record
	history map[recordKey][]uint64 // former versions
	streams map[string][]string
}

func newTwin() *twin {
	return &twin{records: map[recordKey]Record{}, history: map[recordKey][]uint64{}, streams: map[string][]string{}}
}

func (m *twin) live(kind Kind, id string) (Record, bool) {
	r, ok := m.records[recordKey{kind, id}]
	return r, ok && (!r.Ended || infoOf(kind).ended == "")
}

func (m *twin) commit(c Commit) ([]uint64, error) {
	for _, c := range c.Conditions {
		r, live := m.live(c.Kind, c.ID)
		if c.Absent && live || c.Version != 0 && (!live || r.Version != c.Version) || c.State != "" && (!live || r.State != c.State) {
			return nil, ErrConditionFailed
		}
	}
	for _, p := range c.Puts {
		r, there := m.records[recordKey{p.Kind, p.ID}]
		if p.Expect == 0 && there || p.Expect != 0 && (!there || r.Version != p.Expect || r.Ended) {
			return nil, ErrStaleWriter
		}
	}
	for _, p := range c.Puts {
		key := recordKey{p.Kind, p.ID}
		if p.Expect > 0 && infoOf(p.Kind).history != "" {
			m.history[key] = append(m.history[key], p.Expect)
			m.history[key] = m.history[key][max(0, len(m.history[key])-HistoryKept):]
		}
		m.records[key] = Record{Kind: p.Kind, ID: p.ID, Version: p.Expect + 1, State: p.State, Ended: p.Ended, Body: p.Body}
	}
	for _, d := range c.Deletes {
		delete(m.records, recordKey{d.Kind, d.ID})
		delete(m.history, recordKey{d.Kind, d.ID})
	}
	for _, stream := range c.Drops {
		m.streams[stream] = nil
	}
	var seqs []uint64
	for _, a := range c.Appends {
		m.streams[a.Stream] = append(m.streams[a.Stream], string(a.Body))
		seqs = append(seqs, uint64(len(m.streams[a.Stream])))
	}
	return seqs, nil
}

func drawCommit(t *rapid.T, m *twin) Commit {
	kinds := rapid.SampledFrom([]Kind{KindRun, KindStep, KindWorker, KindToken})
	// Mostly growing ids, as those of runs are, and a few that come again.
	id := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "zz", "a\x00"}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("m%04d", len(m.records)+rapid.IntRange(-3, 3).Draw(t, "near"))
		}),
	)
	state := rapid.SampledFrom([]string{"new", "busy", "done"})
	used := map[recordKey]bool{}
	fresh := func() (Kind, string, bool) {
		kind, id := kinds.Draw(t, "kind"), id.Draw(t, "id")
		dup := used[recordKey{kind, id}]
		used[recordKey{kind, id}] = true
		return kind, id, !dup
	}
	var c Commit
	for range rapid.IntRange(0, 3).Draw(t, "puts") {
		if kind, id, ok := fresh(); ok {
			expect := m.records[recordKey{kind, id}].Version // most are right
			if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
				expect = rapid.Uint64Range(0, 4).Draw(t, "expect")
			}
			c.Puts = append(c.Puts, Put{
				Kind: kind, ID: id, Expect: expect, State: state.Draw(t, "state"), Ended: rapid.IntRange(0, 3).Draw(t, "ended") == 0,
				Body: rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "body"),
			})
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
		if kind, id, ok := fresh(); ok {
			c.Deletes = append(c.Deletes, Delete{Kind: kind, ID: id})
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "condition") == 0 {
		cond := Condition{Kind: kinds.Draw(t, "kind"), ID: id.Draw(t, "id")}
		switch rapid.IntRange(0, 2).Draw(t, "test") {
		case 0:
			cond.Absent = true
		case 1:
			cond.Version = rapid.Uint64Range(1, 3).Draw(t, "version")
		default:
			cond.State = state.Draw(t, "state")
		}
		c.Conditions = append(c.Conditions, cond)
	}
	if rapid.IntRange(0, 4).Draw(t, "drop") == 0 {
		c.Drops = append(c.Drops, id.Draw(t, "stream"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "appends") {
		stream := id.Draw(t, "stream")
		c.Appends = append(c.Appends, Append{
			Stream: stream, Body: rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "event"),
			New: len(m.streams[stream]) == 0 && !slices.ContainsFunc(c.Appends, func(a Append) bool { return a.Stream == stream }) && rapid.Bool().Draw(t, "new"),
		})
	}
	return c
}

// TestCommitter_DoesWhatItsTwinDoes drives the committer with random commits in random batches, with a memory and limits
// so small that it forgets and splits all the time.
func TestCommitter_DoesWhatItsTwinDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		engine := &mapEngine{data: map[string][]byte{}, limits: Limits{Bytes: rapid.IntRange(2000, 20_000).Draw(t, "bytes"), Entries: 200}}
		m := newTwin()
		boot := func() *committer {
			c := newCommitter(engine, time.Now, Meta{Epoch: 1}, func(key []byte, err error) {
				t.Fatalf("%q does not decode: %v", key, err)
			}, func(*operation) {})
			c.work.records.kept = rapid.IntRange(1, 6).Draw(t, "records")
			c.work.numbers.kept = rapid.IntRange(1, 6).Draw(t, "numbers")
			return c
		}
		c := boot()
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			if rapid.IntRange(0, 9).Draw(t, "boot") == 0 {
				c = boot()
			}
			var ops []*operation
			var wants []error
			var numbers [][]uint64
			for range rapid.IntRange(1, 8).Draw(t, "members") {
				commit := drawCommit(t, m)
				op := &operation{done: make(chan struct{}, 1)}
				if err := op.prepare(&commit, 1, time.Now()); err != nil {
					t.Fatal(err)
				}
				seqs, err := m.commit(commit)
				ops, wants, numbers = append(ops, op), append(wants, err), append(numbers, seqs)
			}
			for rest := ops; len(rest) > 0; {
				rest = rest[c.batch(rest):]
			}
			for i, op := range ops {
				<-op.done
				if !errors.Is(op.err, wants[i]) {
					t.Fatalf("member %d: %v, not %v", i, op.err, wants[i])
				}
				if op.err == nil && !slices.Equal(numbers[i], op.seqs) {
					t.Fatalf("member %d: numbers %v, not %v", i, op.seqs, numbers[i])
				}
			}
		}
		compare(t, &Store{engine: engine, committer: c}, m)
	})
}

// compare reads everything through the store.
func compare(t *rapid.T, s *Store, m *twin) {
	for _, kind := range []Kind{KindRun, KindStep, KindWorker, KindToken} {
		got := map[recordKey]Record{}
		for _, ended := range []bool{false, true} {
			err := s.Scan(kind, ended, "", "", func(r Record) bool {
				r.Epoch, r.Time = 0, time.Time{}
				if _, twice := got[recordKey{kind, r.ID}]; twice || ended && !r.Ended {
					t.Fatalf("%s %q is in the wrong place", kind, r.ID)
				}
				got[recordKey{kind, r.ID}] = r
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		want := maps.Clone(m.records)
		maps.DeleteFunc(want, func(key recordKey, _ Record) bool { return key.kind != kind })
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(recordKey{})); diff != "" {
			t.Fatal(diff)
		}
	}
	for key := range m.records {
		records, err := s.History(key.kind, key.id)
		if err != nil {
			t.Fatal(err)
		}
		var versions []uint64
		for _, r := range slices.Backward(records) {
			versions = append(versions, r.Version)
		}
		if !slices.Equal(m.history[key], versions) {
			t.Fatalf("%v: former versions %v, not %v", key, versions, m.history[key])
		}
	}
	for key := range s.engine.(*mapEngine).data {
		for _, kind := range []Kind{KindWorker, KindToken} {
			id, _, ok := splitNumbered([]byte(key), infoOf(kind).history)
			if _, there := m.records[recordKey{kind, id}]; ok && !there {
				t.Fatalf("%q outlives its record", key)
			}
		}
	}
	for stream, want := range m.streams {
		events, err := s.Events(stream, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, e := range events {
			if e.Seq != uint64(i)+1 {
				t.Fatalf("event %d has number %d", i+1, e.Seq)
			}
			got = append(got, string(e.Body))
		}
		if !slices.Equal(want, got) {
			t.Fatalf("stream %q: %q, not %q", stream, got, want)
		}
	}
}
