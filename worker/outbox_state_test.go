package worker

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		o.write(f, stream, p[:n], now)
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
	if !o.write(credited(&o, f, 2), Stdout, []byte("ab"), t0()) {
		t.Error("nobody is told to flush")
	}
	if o.write(credited(&o, f, 2), Stdout, []byte("cd"), t0().Add(gatherTime/2)) {
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

// TestOutbox_Property runs random histories of several dispatches against an orchestrator that acknowledges late, loses
// what it has not acknowledged, and never takes anything out of order. In the end it has every byte once, in order,
// before the result; and never was more credit in use than there is.
func TestOutbox_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 5).Draw(t, "slots")
		h := &outboxHistory{t: t, o: newOutbox(slots), now: t0(), world: map[string]*outboxWorld{}}
		for i := range slots {
			id := fmt.Sprint("d", i)
			h.world[id] = &outboxWorld{id: id, f: h.o.begin(id, id+"/1")}
			h.ids = append(h.ids, id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"write":  func(t *rapid.T) { h.write(t, h.pick(t)) },
			"finish": func(t *rapid.T) { h.finish(h.pick(t)) },
			"send":   func(t *rapid.T) { h.send(rapid.SampledFrom([]int{1, 1000, batchBytes, 1 << 30}).Draw(t, "budget")) },
			"ack":    func(t *rapid.T) { h.ack(t, h.pick(t)) },
			"crash":  func(*rapid.T) { h.crash() },
			"drop":   func(t *rapid.T) { h.drop(t) },
			"hurry":  func(t *rapid.T) { h.hurry(h.pick(t)) },
			"time":   func(t *rapid.T) { h.pass(time.Duration(rapid.IntRange(0, 6000).Draw(t, "ms")) * time.Millisecond) },
			"":       func(t *rapid.T) { h.check(t) },
		})
		h.settle()
	})
}

type outboxHistory struct {
	t     *rapid.T
	o     outbox
	now   time.Time
	ids   []string
	world map[string]*outboxWorld
}

// outboxWorld is what really happened to one dispatch.
type outboxWorld struct {
	id       string
	f        *flow
	written  []byte // by the step
	pending  []byte // what the step still wants to write
	stream   Stream
	ended    bool
	finished bool // the result is handed over
	taken    []byte
	durable  int // bytes that the orchestrator has acknowledged
	result   bool
	events   []string
}

func (h *outboxHistory) pick(t *rapid.T) *outboxWorld {
	return h.world[rapid.SampledFrom(h.ids).Draw(t, "dispatch")]
}

func (h *outboxHistory) write(t *rapid.T, w *outboxWorld) {
	if w.ended || len(w.pending) > 0 {
		return
	}
	n := rapid.SampledFrom([]int{1, 10, chunkBytes - 1, chunkBytes, chunkBytes + 1, 5 * chunkBytes, 2 * creditLimit}).Draw(t, "bytes")
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((len(w.written) + i) * 7 >> 3)
	}
	w.written = append(w.written, p...)
	w.stream = rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
	w.pending = put(&h.o, w.f, w.stream, p, h.now)
	w.throwAway()
}

// throwAway is what a writer does that is in a hurry and has no credit.
func (w *outboxWorld) throwAway() {
	if w.f.hurried {
		w.written = w.written[:len(w.written)-len(w.pending)]
		w.pending = nil
	}
}

// hurry makes the writer wait for nothing any more.
func (h *outboxHistory) hurry(w *outboxWorld) {
	h.o.hurry(w.f)
	h.serve()
}

// drop ends a connection and begins the next one, under which dispatches may have another generation.
func (h *outboxHistory) drop(t *rapid.T) {
	if rapid.Bool().Draw(t, "a crash too") {
		h.crash()
	}
	for _, id := range h.ids {
		if w := h.world[id]; w.finished && rapid.Bool().Draw(t, "adopted") {
			h.o.adopt(w.f, frameID(id, 2))
		}
	}
	h.o.newSession()
}

// serve lets the writers go on that have credit again.
func (h *outboxHistory) serve() {
	for len(h.o.served) > 0 {
		f := h.o.served[0]
		h.o.served = h.o.served[1:]
		w := h.world[f.id]
		w.pending = put(&h.o, f, w.stream, w.pending, h.now)
		w.throwAway()
	}
	for _, id := range h.ids {
		if w := h.world[id]; w.ended && !w.finished && len(w.pending) == 0 {
			w.finished = true
			h.o.finish(w.f, errorFrame(w.f.frame, "end", ""))
		}
	}
}

func (h *outboxHistory) finish(w *outboxWorld) {
	w.ended = true
	h.serve()
}

func (h *outboxHistory) send(budget int) {
	frames, _ := h.o.take(nil, budget, h.now)
	for _, f := range frames {
		w := h.world[dispatchOf(f.GetId())]
		if f.GetId() != w.f.frame {
			h.t.Fatalf("%s is sent under the id %s", w.f.frame, f.GetId())
		}
		switch out := f.GetEvent().GetOutput(); {
		case f.GetEvent().GetAccepted() != nil:
			w.events = append(w.events, "accepted")
		case out != nil:
			if len(out.GetData()) == 0 || len(out.GetData()) > chunkBytes {
				h.t.Fatalf("a chunk of %d bytes", len(out.GetData()))
			}
			if len(w.events) == 0 {
				h.t.Fatal("output before the acceptance")
			}
			if int(out.GetOffset()) == len(w.taken) {
				w.taken = append(w.taken, out.GetData()...)
			}
		case f.GetError() != nil:
			if !w.finished {
				h.t.Fatal("a result from nowhere")
			}
			// A result that comes before all of the output is not taken, as it can be repeated after a crash.
			w.result = len(w.taken) == len(w.written)
		}
	}
}

func (h *outboxHistory) ack(t *rapid.T, w *outboxWorld) {
	upTo := rapid.IntRange(w.durable, len(w.taken)).Draw(t, "offset")
	h.acknowledge(w, upTo)
}

func (h *outboxHistory) acknowledge(w *outboxWorld, upTo int) {
	w.durable = max(w.durable, upTo)
	h.o.ack(w.id, uint32(upTo), h.now)
	h.serve()
}

// crash makes the orchestrator forget what it has not acknowledged.
func (h *outboxHistory) crash() {
	for _, id := range h.ids {
		w := h.world[id]
		w.taken, w.result = w.written[:w.durable:w.durable], false
	}
}

func (h *outboxHistory) pass(d time.Duration) {
	h.now = h.now.Add(d)
	h.o.flush(h.now)
	h.o.repeats(h.now)
}

func (h *outboxHistory) check(t *rapid.T) {
	used := 0
	for _, id := range h.ids {
		w := h.world[id]
		if !bytes.Equal(w.taken, w.written[:len(w.taken)]) {
			t.Fatalf("%s: the output is not what was written", id)
		}
		used += w.f.used()
	}
	if used != h.o.used || used > h.o.limit {
		t.Fatalf("%d bytes in use, %d counted, %d allowed", used, h.o.used, h.o.limit)
	}
}

// settle lets everything come to its end, and checks that it does.
func (h *outboxHistory) settle() {
	for _, id := range h.ids {
		h.finish(h.world[id])
	}
	for range 1000 {
		h.pass(repeatTime)
		h.send(1 << 30)
		done := true
		for _, id := range h.ids {
			w := h.world[id]
			h.acknowledge(w, len(w.taken))
			done = done && w.result
		}
		if done {
			break
		}
	}
	for _, id := range h.ids {
		w := h.world[id]
		if !w.result || !bytes.Equal(w.taken, w.written) {
			h.t.Fatalf("%s: result %t, %d of %d bytes", id, w.result, len(w.taken), len(w.written))
		}
		h.o.drop(id)
	}
	if h.o.used != 0 || h.o.above != 0 || len(h.o.waiting) != 0 || len(h.o.flows) != 0 {
		h.t.Fatalf("left over: %d in use, %d above, %d wait", h.o.used, h.o.above, len(h.o.waiting))
	}
}
