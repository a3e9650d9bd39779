package persistence

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// shelf is a stream that followers read from, and counts how often.
type shelf struct {
	events []Event
	reads  int
	// meanwhile, if set, happens once the page of a read stands, before the reader has it.
	meanwhile func(read int)
}

func (s *shelf) read(_ string, after uint64, limit int) ([]Event, error) {
	s.reads++
	var page []Event
	for _, e := range s.events {
		if e.Seq > after && len(page) < limit {
			page = append(page, e)
		}
	}
	if s.meanwhile != nil {
		s.meanwhile(s.reads)
	}
	return page, nil
}

func numbered(from, to uint64) []Event {
	var events []Event
	for seq := from; seq <= to; seq++ {
		events = append(events, Event{Seq: seq})
	}
	return events
}

func packed(t *testing.T, from, to uint64) *preparedPack {
	t.Helper()
	var op operation
	var c Commit
	for range numbered(from, to) {
		c.Appends = append(c.Appends, Append{Stream: "s"})
	}
	if err := op.prepare(&c, 1, timeOf(0)); err != nil {
		t.Fatal(err)
	}
	op.number(0, from)
	return &op.packs[0]
}

func seqs(events []Event) []uint64 {
	var numbers []uint64
	for _, e := range events {
		numbers = append(numbers, e.Seq)
	}
	return numbers
}

// next expects the events from one number to another from Next, in as many pages as it takes.
func next(t *testing.T, f *Follower, from, to uint64) {
	t.Helper()
	var got []Event
	for uint64(len(got)) < to-from+1 {
		page, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
	}
	if want := numbered(from, to); !slices.Equal(seqs(want), seqs(got)) {
		t.Fatalf("got %v, not %d to %d", seqs(got), from, to)
	}
}

// idle expects Next to wait, without a look at the journal more than the first.
func idle(t *testing.T, f *Follower, s *shelf) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	before := s.reads
	go func() {
		events, err := f.Next(ctx)
		if err == nil {
			t.Errorf("events %v", seqs(events))
		}
		done <- err
	}()
	synctest.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
	if s.reads > before+1 {
		t.Errorf("%d reads while nothing came", s.reads-before)
	}
}

func TestFollower_ReadsTheJournalOnlyWhereItHasTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{events: numbered(1, 10)}
		hub := newFollowers(s.read)
		f := hub.add("s", 0)
		next(t, f, 1, 10)
		idle(t, f, s)
		reads := s.reads
		for seq := uint64(11); seq <= 20; seq++ {
			s.events = append(s.events, Event{Seq: seq})
			hub.publish(packed(t, seq, seq))
			next(t, f, seq, seq)
		}
		if s.reads != reads {
			t.Errorf("%d reads for what was handed over", s.reads-reads)
		}
		idle(t, f, s)
		f.Close()
	})
}

func TestFollower_WhatItHasReadAlreadyIsNotRepeatedFromItsBuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{events: numbered(1, 10)}
		hub := newFollowers(s.read)
		f := hub.add("s", 0)
		next(t, f, 1, 10)
		idle(t, f, s)
		// It is behind, and what comes meanwhile stands in the journal and in the buffer.
		s.events = append(s.events, numbered(11, 20)...)
		f.mu.Lock()
		f.dirty = false
		f.after = 10
		f.mu.Unlock()
		hub.publish(packed(t, 15, 17))
		next(t, f, 11, 20)
		idle(t, f, s)
		s.events = append(s.events, Event{Seq: 21})
		hub.publish(packed(t, 21, 21))
		next(t, f, 21, 21)
		f.Close()
	})
}

func TestFollower_PassesOverWhatTheJournalHasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		hub := newFollowers(s.read)
		f := hub.add("s", 0)
		idle(t, f, s)
		s.events = numbered(3, 4) // 1 and 2 were damaged
		hub.publish(packed(t, 3, 4))
		next(t, f, 3, 4)
		idle(t, f, s)
		f.Close()
	})
}

// The buffer is too full for a pack while the follower is pages behind, and takes a later one.
func TestFollower_ABufferThatWasFullHasNoGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{events: numbered(1, 700)}
		hub := newFollowers(s.read)
		publish := func(from, to uint64) {
			s.events = append(s.events, numbered(from, to)...)
			hub.publish(packed(t, from, to))
		}
		s.meanwhile = func(read int) {
			switch read {
			case 2: // up to 512
				publish(701, 900)
				publish(901, 1000)
			case 3: // up to 768
				publish(1001, 1050)
			}
		}
		f := hub.add("s", 0)
		next(t, f, 1, 1050)
		idle(t, f, s)
		f.Close()
	})
}

func TestFollower_AFullBufferSendsItToTheJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		hub := newFollowers(s.read)
		f := hub.add("s", 0)
		idle(t, f, s)
		const all = 5 * followBuffer
		for seq := uint64(1); seq <= all; seq += 100 {
			to := min(seq+99, all)
			s.events = append(s.events, numbered(seq, to)...)
			hub.publish(packed(t, seq, to))
		}
		if len(f.buf) > followBuffer {
			t.Errorf("%d events in the buffer", len(f.buf))
		}
		next(t, f, 1, all)
		idle(t, f, s)
		f.Close()
		if hub.any() {
			t.Error("a closed follower is still published to")
		}
	})
}
