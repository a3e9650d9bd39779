package worker

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

func t0() time.Time { return time.Unix(1000, 0) }

// put writes p for a flow as a sink does, as far as there is credit, and returns the rest.
func put(o *outbox, f *flow, stream Stream, p []byte, now time.Time) []byte {
	for len(p) > 0 {
		if f.granted == 0 && f.want == 0 {
			o.ask(f, min(len(p), f.fits(stream)))
		}
		n := f.granted
		if n == 0 {
			return p
		}
		o.write(f, stream, p[:n], now, now)
		p = p[n:]
	}
	return nil
}

func taken(o *outbox, budget int, now time.Time) []string {
	frames, _ := o.take(nil, budget, now)
	var said []string
	for _, f := range frames {
		said = append(said, describe(f))
	}
	return said
}

func wantSaid(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("said %q, want %q", got, want)
	}
}

func TestOutbox_ControlFramesGoFirst(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	put(&o, f, Stdout, make([]byte, 3*chunkBytes), t0())
	o.take(nil, 1, t0())
	o.say(errorFrame("x", messages.CodeEnded, ""))
	wantSaid(t, taken(&o, 1, t0()), "x error ended")
}

func TestOutbox_ABatchIsBounded(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	put(&o, f, Stdout, make([]byte, 10*chunkBytes), t0())
	frames, _ := o.take(nil, 2*chunkBytes, t0())
	if len(frames) != 3 { // accepted, and two chunks
		t.Errorf("%d frames", len(frames))
	}
	for range 10_000 {
		o.say(errorFrame("x", messages.CodeEnded, ""))
	}
	if frames, _ := o.take(nil, batchBytes, t0()); len(frames) > batchBytes/64 {
		t.Errorf("%d control frames at once", len(frames))
	}
}

func TestOutbox_DispatchesTakeTurns(t *testing.T) {
	t.Parallel()
	o := newOutbox(2)
	a, b := o.begin("a", "a/1"), o.begin("b", "b/1")
	o.take(nil, 1<<20, t0())
	put(&o, a, Stdout, bytes.Repeat([]byte("a"), 3*chunkBytes), t0())
	put(&o, b, Stdout, bytes.Repeat([]byte("b"), chunkBytes), t0())
	frames, _ := o.take(nil, 1<<20, t0())
	var ids []string
	for _, f := range frames {
		ids = append(ids, f.GetId())
	}
	wantSaid(t, ids, "a/1", "b/1", "a/1", "a/1")
}

func TestOutbox_GathersUntilAChunkIsFullOrOld(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	o.take(nil, 1<<20, t0())
	if !o.write(credited(&o, f, 2), Stdout, []byte("ab"), t0(), t0()) {
		t.Error("nobody is told to flush")
	}
	if o.write(credited(&o, f, 2), Stdout, []byte("cd"), t0().Add(gatherTime/2), t0().Add(gatherTime/2)) {
		t.Error("somebody is told to flush twice")
	}
	wantSaid(t, taken(&o, 1<<20, t0()))
	if next := o.flush(t0().Add(gatherTime - 1)); !next.Equal(t0().Add(gatherTime)) {
		t.Errorf("next flush at %v", next)
	}
	wantSaid(t, taken(&o, 1<<20, t0()))
	if next := o.flush(t0().Add(gatherTime)); !next.IsZero() {
		t.Errorf("next flush at %v", next)
	}
	wantSaid(t, taken(&o, 1<<20, t0()), "d/1 stdout abcd")
	put(&o, f, Stdout, make([]byte, chunkBytes), t0())
	if frames, _ := o.take(nil, 1<<20, t0()); len(frames) != 1 {
		t.Error("a full chunk waits")
	}
	// The chunk that an entry was for is gone: the entry must not flush the next one early.
	put(&o, f, Stdout, []byte("x"), t0().Add(gatherTime/2))
	if next := o.flush(t0().Add(gatherTime)); !next.Equal(t0().Add(gatherTime / 2 * 3)) {
		t.Errorf("next flush at %v", next)
	}
}

func credited(o *outbox, f *flow, n int) *flow {
	o.ask(f, n)
	return f
}

func TestOutbox_AStreamSwitchSealsAChunk(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	put(&o, f, Stdout, []byte("out"), t0())
	put(&o, f, Stderr, []byte("err"), t0())
	wantSaid(t, taken(&o, 1<<20, t0()), "d/1 accepted", "d/1 stdout out")
	o.finish(f, errorFrame("d/1", "x", ""))
	wantSaid(t, taken(&o, 1<<20, t0()), "d/1 stderr err", "d/1 error x")
}

// TestOutbox_AMuteOrchestratorOfOneDispatchSilencesNoOther: one dispatch has all the credit it can get, and nobody
// acknowledges it. The others go on.
func TestOutbox_AMuteOrchestratorOfOneDispatchSilencesNoOther(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{2, 3, 64, 1000, maxConcurrency} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			o := newOutbox(slots)
			hog := o.begin("hog", "hog/1")
			if rest := put(&o, hog, Stdout, make([]byte, 2*creditLimit), t0()); len(rest) == 0 {
				t.Fatal("it got more than there is")
			}
			hog.want, hog.granted = chunkBytes, 0
			for i := range min(slots-1, 100) {
				id := fmt.Sprint(i)
				f := o.begin(id, id+"/1")
				for range 10 {
					rest := put(&o, f, Stdout, make([]byte, o.floor), t0())
					if len(rest) > 0 {
						t.Fatalf("dispatch %d waits, with %d of %d bytes in use", i, o.used, o.limit)
					}
					o.seal(f)
					o.take(nil, 1<<30, t0())
					o.ack(id, f.sent, t0())
				}
				put(&o, f, Stdout, make([]byte, o.floor), t0()) // and it keeps its floor
			}
			if o.used > o.limit {
				t.Errorf("%d bytes in use", o.used)
			}
		})
	}
}

func TestOutbox_CreditGoesToThoseWhoWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	o := newOutbox(3)
	hog, a, b := o.begin("hog", "hog/1"), o.begin("a", "a/1"), o.begin("b", "b/1")
	put(&o, hog, Stdout, make([]byte, 2*creditLimit), t0())
	put(&o, a, Stdout, make([]byte, 2*chunkBytes), t0())
	put(&o, b, Stdout, make([]byte, 2*chunkBytes), t0())
	if a.want != chunkBytes || b.want != chunkBytes || hog.want != chunkBytes {
		t.Fatalf("they want %d, %d and %d", hog.want, a.want, b.want)
	}
	o.take(nil, 1<<30, t0())
	for i, f := range []*flow{hog, a, b} {
		o.ack("hog", uint32((i+1)*chunkBytes), t0())
		if f.granted != chunkBytes || f.want != 0 {
			t.Fatalf("acknowledgement %d: granted %d, %d, %d", i, hog.granted, a.granted, b.granted)
		}
	}
	if !slices.Equal(o.served, []*flow{hog, a, b}) {
		t.Error("not all are told")
	}
}

func TestOutbox_ADroppedFlowGivesItsCreditBack(t *testing.T) {
	t.Parallel()
	o := newOutbox(2)
	a, b := o.begin("a", "a/1"), o.begin("b", "b/1")
	put(&o, a, Stdout, make([]byte, 2*creditLimit), t0())
	put(&o, b, Stdout, make([]byte, 2*creditLimit), t0())
	o.drop("a")
	o.drop("unknown")
	if !a.dropped || !slices.Contains(o.served, a) || b.granted == 0 {
		t.Errorf("dropped %t, told %t, b has %d", a.dropped, slices.Contains(o.served, a), b.granted)
	}
	o.finish(a, errorFrame("a/1", "x", ""))
	o.start(a, t0())
	for _, said := range taken(&o, 1<<30, t0()) {
		if said[0] == 'a' {
			t.Errorf("said %q of a dropped flow", said[:20])
		}
	}
	o.drop("b")
	if o.used != 0 || o.above != 0 || len(o.waiting) != 0 {
		t.Errorf("%d in use, %d above the floors, %d wait", o.used, o.above, len(o.waiting))
	}
}

func TestOutbox_WhatWasNotSentCannotBeAcknowledged(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	put(&o, f, Stdout, make([]byte, chunkBytes), t0())
	o.ack("d", 1<<31, t0())
	if f.acked != 0 {
		t.Errorf("acknowledged to %d", f.acked)
	}
	o.ack("unknown", 1, t0())
}

func TestOutbox_AnAcknowledgementSaysWhetherMoreIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := newOutbox(1)
	f := o.begin("d", "d/1")
	put(&o, f, Stdout, make([]byte, 3*chunkBytes), t0())
	o.take(nil, 1<<30, t0())
	o.repeats(t0().Add(repeatTime)) // all of it is due again, and nobody is told to wait for an acknowledgement
	if !o.ack("d", chunkBytes, t0().Add(repeatTime)) {
		t.Error("the rest is not waited for")
	}
	if o.ack("d", 3*chunkBytes, t0().Add(repeatTime)) {
		t.Error("something is waited for")
	}
}
