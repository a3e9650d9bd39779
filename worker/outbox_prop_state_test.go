package worker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOutbox_Property runs random histories of several dispatches, with and without a disk for what there is no credit
// for, against an orchestrator that acknowledges late, loses what it has not acknowledged, is cut off, lets dispatches
// wait for its word, goes on with them under higher generations, and never takes anything out of order. In the end it
// has every byte once, in order, before the result; and never was more credit in use than there is.
func TestOutbox_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 5).Draw(t, "slots")
		h := &outboxHistory{t: t, o: newOutbox(slots), now: t0(), world: map[string]*outboxWorld{}}
		for i := range slots {
			id := fmt.Sprint("d", i)
			h.world[id] = &outboxWorld{
				id: id, f: h.o.begin(id, id+"/1"), generation: 1,
				room: rapid.SampledFrom([]int{0, 1000, 3 * chunkBytes, 1 << 30}).Draw(t, "disk"),
			}
			h.ids = append(h.ids, id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"write":  func(t *rapid.T) { h.write(t, h.pick(t)) },
			"finish": func(t *rapid.T) { h.finish(h.pick(t)) },
			"send":   func(t *rapid.T) { h.send(rapid.SampledFrom([]int{1, 1000, batchBytes, 1 << 30}).Draw(t, "budget")) },
			"ack":    func(t *rapid.T) { h.ack(t, h.pick(t)) },
			"crash":  func(*rapid.T) { h.crash() },
			"drop":   func(t *rapid.T) { h.drop(t) },
			"adopt":  func(t *rapid.T) { h.adopt(t, h.pick(t), true) },
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
	disk     []chunk
	room     int // how much the disk takes
	ended    bool
	finished bool // the result is handed over
	taken    []byte
	durable  int // bytes that the orchestrator has acknowledged

	generation uint32
	result     bool
	events     []string
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
	w.pending = p
	h.push(w)
}

// push is what a writer does as far as it can go: it writes, puts on disk, or throws away in a hurry.
func (h *outboxHistory) push(w *outboxWorld) {
	if w.f.spooled == 0 {
		w.pending = put(&h.o, w.f, w.stream, w.pending, h.now)
	}
	switch n := min(len(w.pending), chunkBytes, w.room-int(w.f.spooled)); {
	case w.f.hurried:
		w.written = w.written[:len(w.written)-len(w.pending)]
		w.pending = nil
	case n > 0:
		w.disk = append(w.disk, chunk{stream: w.stream, at: h.now, data: w.pending[:n]})
		w.pending = w.pending[n:]
		h.o.spool(w.f, n)
		h.push(w)
	}
}

// feed moves from the disk what there is credit for.
func (h *outboxHistory) feed(w *outboxWorld) {
	for f := w.f; f.spooled > 0; {
		if f.granted == 0 && f.want == 0 {
			h.o.ask(f, min(int(f.spooled), chunkBytes))
		}
		n := min(f.granted, len(w.disk[0].data), f.fits(w.disk[0].stream))
		if n == 0 {
			return
		}
		c := &w.disk[0]
		h.o.unspool(f, c.stream, c.data[:n], c.at, h.now)
		if c.data = c.data[n:]; len(c.data) == 0 {
			w.disk = w.disk[1:]
		}
		if f.spooled == 0 {
			h.o.unspooled(f)
		}
	}
}

// hurry makes the writer wait for nothing any more.
func (h *outboxHistory) hurry(w *outboxWorld) {
	if w.finished {
		return
	}
	for _, c := range w.disk {
		w.written = w.written[:len(w.written)-len(c.data)]
	}
	w.disk = nil
	h.o.hurry(w.f)
	h.serve()
}

// drop ends a connection and begins the next one, whose orchestrator says of some dispatches that they go on, and of the
// others nothing yet.
func (h *outboxHistory) drop(t *rapid.T) {
	if rapid.Bool().Draw(t, "a crash too") {
		h.crash()
	}
	h.o.newSession()
	for _, id := range h.ids {
		if rapid.Bool().Draw(t, "resumed") {
			h.adopt(t, h.world[id], rapid.Bool().Draw(t, "adopted"))
		}
	}
}

// adopt goes on with a dispatch, as it stands in the orchestrator's books.
func (h *outboxHistory) adopt(t *rapid.T, w *outboxWorld, higher bool) {
	if higher {
		w.generation++
		w.taken, w.result = w.taken[:w.durable], false // it is another one's now, that knows only what is durable
	}
	offset := rapid.SampledFrom([]int{0, w.durable}).Draw(t, "offset")
	h.o.resume(w.f, frameID(w.id, w.generation), uint32(offset), h.now)
	h.serve()
}

// serve lets everybody go on who has credit again.
func (h *outboxHistory) serve() {
	for again := true; again; {
		again = len(h.o.served) > 0
		h.o.served = nil
		for _, id := range h.ids {
			w := h.world[id]
			h.feed(w)
			h.push(w)
		}
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
		id, _ := dispatchOf(f.GetId())
		w := h.world[id]
		if f.GetId() != frameID(w.id, w.generation) || w.f.muted {
			h.t.Fatalf("%s is sent under the id %s; it waits: %t", w.f.frame, f.GetId(), w.f.muted)
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
	if used != h.o.used || used > h.o.limit { // which also bounds what is in memory
		t.Fatalf("%d bytes in use, %d counted, %d allowed", used, h.o.used, h.o.limit)
	}
}

// settle lets everything come to its end, and checks that it does.
func (h *outboxHistory) settle() {
	for _, id := range h.ids {
		if w := h.world[id]; w.f.muted {
			h.o.resume(w.f, w.f.frame, uint32(w.durable), h.now)
		}
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
