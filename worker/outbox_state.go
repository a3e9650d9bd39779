package worker

import (
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	// creditLimit bounds the output of all dispatches that is not acknowledged yet. Beyond it writers wait, and with
	// them, in the end, the steps that write: pings must not queue up behind output.
	creditLimit = 1 << 20
	// chunkBytes is the most that one frame carries.
	chunkBytes = 32 << 10
	// gatherTime is how long output is gathered before a chunk that is not full is sent.
	gatherTime = 50 * time.Millisecond
	// repeatTime is how long a result waits for its acknowledgement before it is sent again.
	repeatTime = 5 * time.Second
)

// chunk is a piece of one stream.
type chunk struct {
	offset uint32
	stream Stream
	at     time.Time // of its first byte
	data   []byte
}

// flow is what one dispatch has to say, in this order: accepted, started, its output, its result. What can be lost with
// a connection stays here until it is acknowledged.
type flow struct {
	id        string
	frame     string
	accepted  bool // to be sent
	started   time.Time
	startSent bool
	chunks    []chunk // complete ones; those below next were sent
	next      int
	open      chunk // being gathered; without data there is none
	written   uint32
	sent      uint32
	acked     uint32
	final     *messages.Frame // the result, once there is one
	finalDue  bool
	finalAt   time.Time // when it was sent last
	queued    bool      // in outbox.ready
	dropped   bool

	want    int           // bytes of credit that a writer waits for
	granted int           // bytes of credit that it has and has not used
	wake    chan struct{} // tells that writer that granted or dropped changed
}

// used is the credit that the flow holds.
func (f *flow) used() int { return int(f.written-f.acked) + f.granted }

// sendable tells whether a frame of the flow could be sent now.
func (f *flow) sendable() bool {
	return f.accepted || (!f.started.IsZero() && !f.startSent) || f.next < len(f.chunks) || f.finalDue
}

// gathering is one entry of outbox.gathering.
type gathering struct {
	f     *flow
	since time.Time
}

// outbox decides what is sent next, and whether a writer may go on. Control frames go first. Dispatches take turns, one
// chunk each. Each of the worker's slots has a floor of credit of its own, so that a dispatch whose output nobody
// acknowledges, or a very talkative one, cannot keep the others silent; what remains is shared, in the order of asking.
//
// It knows no clock and is not safe for concurrent use: Agent.mu guards it.
type outbox struct {
	limit   int
	floor   int // per slot
	shared  int // what all flows together may use above their floors
	used    int
	above   int // what they do use above their floors
	control fifo[*messages.Frame]
	ready   fifo[*flow]
	open    fifo[gathering] // open chunks in the order of their first byte, and some that were sent since
	waiting []*flow         // writers without credit, in the order of asking
	flows   map[string]*flow
}

func newOutbox(slots int) outbox {
	floor := min(chunkBytes, creditLimit/(2*max(slots, 1)))
	return outbox{limit: creditLimit, floor: floor, shared: creditLimit - floor*slots, flows: map[string]*flow{}}
}

// begin opens the flow of a dispatch with its acceptance.
func (o *outbox) begin(id, frame string) *flow {
	f := &flow{id: id, frame: frame, accepted: true}
	o.flows[id] = f
	o.enqueue(f)
	return f
}

// start adds that the step has begun.
func (o *outbox) start(f *flow, at time.Time) {
	if f.dropped || !f.started.IsZero() {
		return
	}
	f.started = at
	o.enqueue(f)
}

// again repeats what was said last: the result if there is one, else the acceptance.
func (o *outbox) again(id string) {
	f, ok := o.flows[id]
	if !ok {
		return
	}
	if f.final != nil {
		f.finalDue = true
	} else {
		f.accepted = true
	}
	o.enqueue(f)
}

// ask returns how many of want bytes f may write now. Without any, f stands in line for them.
func (o *outbox) ask(f *flow, want int) int {
	n := o.room(f, want, len(o.waiting) == 0)
	if n == 0 {
		f.want = want
		o.waiting = append(o.waiting, f)
		return 0
	}
	o.charge(f, func() { f.granted += n })
	return n
}

// room is how much of want f may have: all of it from the shared credit, or a part that is below its floor.
func (o *outbox) room(f *flow, want int, shared bool) int {
	used := f.used()
	above := o.above - max(used-o.floor, 0) + max(used+want-o.floor, 0)
	if o.used+want <= o.limit && (above <= o.shared && shared || used+want <= o.floor) {
		return want
	}
	return max(0, min(want, o.floor-used, o.limit-o.used))
}

// charge accounts for a change of f.
func (o *outbox) charge(f *flow, change func()) {
	before := f.used()
	change()
	after := f.used()
	o.used += after - before
	o.above += max(after-o.floor, 0) - max(before-o.floor, 0)
}

// serve gives what credit there is to those who wait, in their order. Once the shared credit does not do for one, those
// behind it get no more than their floors.
func (o *outbox) serve() {
	shared := true
	still := o.waiting[:0]
	for _, f := range o.waiting {
		n := o.room(f, f.want, shared)
		if n == 0 {
			shared = false
			still = append(still, f)
			continue
		}
		f.want = 0
		o.charge(f, func() { f.granted += n })
		f.poke()
	}
	clear(o.waiting[len(still):])
	o.waiting = still
}

func (f *flow) poke() {
	if f.wake == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// fits is how many bytes of stream the chunk that is being gathered still takes; a whole chunk if there is none.
func (f *flow) fits(stream Stream) int {
	if len(f.open.data) > 0 && f.open.stream == stream {
		return chunkBytes - len(f.open.data)
	}
	return chunkBytes
}

// write adds output for which there is credit, at most f.fits(stream) bytes. It tells whether nothing was being gathered
// before, so that somebody has to call flush in gatherTime.
func (o *outbox) write(f *flow, stream Stream, p []byte, now time.Time) (first bool) {
	f.granted -= len(p)
	if len(f.open.data) > 0 && f.open.stream != stream {
		o.seal(f)
	}
	if len(f.open.data) == 0 {
		f.open = chunk{offset: f.written, stream: stream, at: now}
	}
	f.open.data = append(f.open.data, p...)
	f.written += uint32(len(p))
	switch {
	case len(f.open.data) >= chunkBytes:
		o.seal(f)
	case len(f.open.data) == len(p):
		first = o.open.len() == 0
		o.open.push(gathering{f, now})
	}
	return first
}

// seal makes the chunk that is being gathered one to be sent.
func (o *outbox) seal(f *flow) {
	if len(f.open.data) == 0 {
		return
	}
	f.chunks = append(f.chunks, f.open)
	f.open = chunk{}
	o.enqueue(f)
}

// flush seals what has been gathered for long enough. It returns when there is more to flush, or the zero time.
func (o *outbox) flush(now time.Time) (next time.Time) {
	for {
		g, ok := o.open.peek()
		if !ok {
			return time.Time{}
		}
		// The entry of a chunk that was sealed since is void.
		if len(g.f.open.data) > 0 && g.f.open.at.Equal(g.since) {
			if due := g.since.Add(gatherTime); now.Before(due) {
				return due
			}
			o.seal(g.f)
		}
		o.open.pop()
	}
}

// finish adds the result: the last frame of the flow.
func (o *outbox) finish(f *flow, final *messages.Frame) {
	if f.dropped {
		return
	}
	o.seal(f)
	f.final, f.finalDue = final, true
	o.enqueue(f)
}

// repeats makes results due that nobody has acknowledged for repeatTime. It returns when to ask again, or the zero time
// if no result waits.
func (o *outbox) repeats(now time.Time) (next time.Time) {
	for _, f := range o.flows {
		if f.finalAt.IsZero() || f.finalDue {
			continue
		}
		due := f.finalAt.Add(repeatTime)
		if !now.Before(due) {
			f.finalDue = true
			o.enqueue(f)
			due = now.Add(repeatTime)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// ack takes what the orchestrator says is durable. It tells whether the dispatch may be forgotten.
func (o *outbox) ack(id string, offset uint32, done bool) bool {
	f, ok := o.flows[id]
	if !ok {
		return false
	}
	if offset = min(offset, f.sent); offset > f.acked {
		o.charge(f, func() { f.acked = offset })
		n := 0
		for n < f.next && f.chunks[n].offset+uint32(len(f.chunks[n].data)) <= offset {
			n++
		}
		if n > 0 {
			rest := copy(f.chunks, f.chunks[n:])
			clear(f.chunks[rest:])
			f.chunks, f.next = f.chunks[:rest], f.next-n
		}
		o.serve()
	}
	// A result that was not sent cannot be durable.
	return done && !f.finalAt.IsZero()
}

// drop ends a flow: nothing of it is sent any more, and its writer fails.
func (o *outbox) drop(id string) {
	f, ok := o.flows[id]
	if !ok {
		return
	}
	delete(o.flows, id)
	o.charge(f, func() { f.written, f.acked, f.granted = 0, 0, 0 })
	f.dropped = true
	f.accepted, f.startSent, f.finalDue = false, true, false
	f.chunks, f.next, f.open = nil, 0, chunk{}
	for i, w := range o.waiting {
		if w == f {
			o.waiting = append(o.waiting[:i], o.waiting[i+1:]...)
			break
		}
	}
	f.poke()
	o.serve()
}

// newSession forgets the control frames of the connection before.
func (o *outbox) newSession() { o.control = fifo[*messages.Frame]{} }

// say adds a control frame.
func (o *outbox) say(f *messages.Frame) { o.control.push(f) }

func (o *outbox) enqueue(f *flow) {
	if !f.queued && f.sendable() {
		f.queued = true
		o.ready.push(f)
	}
}

// take appends the next frames to batch, of at most about budget bytes. It tells whether a result is among them.
func (o *outbox) take(batch []*messages.Frame, budget int, now time.Time) (_ []*messages.Frame, result bool) {
	const perFrame = 64 // what a frame without output is taken to cost
	for ; budget > 0; budget -= perFrame {
		c, ok := o.control.pop()
		if !ok {
			break
		}
		batch = append(batch, c)
	}
	for budget > 0 {
		f, ok := o.ready.pop()
		if !ok {
			break
		}
		f.queued = false
		if f.accepted {
			f.accepted = false
			batch = append(batch, acceptedFrame(f.frame))
			budget -= perFrame
		}
		if !f.started.IsZero() && !f.startSent {
			f.startSent = true
			batch = append(batch, startedFrame(f.frame, f.started))
			budget -= perFrame
		}
		if f.next < len(f.chunks) {
			c := f.chunks[f.next]
			f.next++
			f.sent = c.offset + uint32(len(c.data))
			batch = append(batch, outputFrame(f.frame, c))
			budget -= perFrame + len(c.data)
		}
		if f.finalDue && f.next == len(f.chunks) {
			f.finalDue = false
			f.finalAt = now
			batch = append(batch, f.final)
			budget -= perFrame
			result = true
		}
		o.enqueue(f)
	}
	return batch, result
}
