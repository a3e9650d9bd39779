package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	// creditLimit bounds the output of all dispatches that is in memory, as it is not acknowledged yet: what a connection
	// may have under way. Pings must not queue up behind output. Beyond it output goes to disk.
	creditLimit = 1 << 20
	// chunkBytes is the most that one frame carries.
	chunkBytes = 32 << 10
	// gatherTime is how long output is gathered before a chunk that is not full is sent.
	gatherTime = 50 * time.Millisecond
	// repeatTime is how long what was sent waits for its acknowledgement before it is sent again.
	repeatTime = 5 * time.Second
)

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
	served  []*flow         // those whose writers have to look again; whoever tells them takes them from here
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
	if n == 0 && f.hurried {
		return 0
	}
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
		o.served = append(o.served, f)
	}
	clear(o.waiting[len(still):])
	o.waiting = still
}

// write adds output of the time at for which there is credit, at most f.fits(stream) bytes. It tells whether nothing was
// being gathered before, so that somebody has to call flush in gatherTime.
func (o *outbox) write(f *flow, stream Stream, p []byte, at, now time.Time) (first bool) {
	f.granted -= len(p)
	if len(f.open.data) > 0 && f.open.stream != stream {
		o.seal(f)
	}
	if len(f.open.data) == 0 {
		f.open, f.openSince = chunk{offset: f.fed, stream: stream, at: at}, now
	}
	f.open.data = append(f.open.data, p...)
	f.fed += uint32(len(p))
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
		if len(g.f.open.data) > 0 && g.f.openSince.Equal(g.since) {
			if due := g.since.Add(gatherTime); now.Before(due) {
				return due
			}
			o.seal(g.f)
		}
		o.open.pop()
	}
}

// spool notes that n bytes of output were put on disk, for which there was no credit.
func (o *outbox) spool(f *flow, n int) { f.spooled += uint32(n) }

// unspool moves output from the disk into what is sent. There is credit for it; see write.
func (o *outbox) unspool(f *flow, stream Stream, p []byte, at, now time.Time) (first bool) {
	f.spooled -= uint32(len(p))
	return o.write(f, stream, p, at, now)
}

// unspooled notes that nothing is on disk any more. A result that has waited for it can follow.
func (o *outbox) unspooled(f *flow) {
	if f.final != nil {
		o.close(f)
	}
}

// finish adds the result: the last frame of the flow.
func (o *outbox) finish(f *flow, final *messages.Frame) {
	if f.dropped {
		return
	}
	f.final, f.finalDue = final, true
	if f.spooled == 0 {
		o.close(f)
	}
}

// close gives the writer's credit back, as there is nothing more to be written.
func (o *outbox) close(f *flow) {
	o.seal(f)
	f.want = 0
	o.leaveLine(f)
	o.charge(f, func() { f.granted = 0 })
	o.enqueue(f)
	o.serve()
}

// repeats makes due again what was sent and has got no acknowledgement for repeatTime: the orchestrator forgets what it
// has not stored when a part of it restarts. It returns when to ask again, or the zero time if nothing waits.
func (o *outbox) repeats(now time.Time) (next time.Time) {
	var late []*flow
	for _, f := range o.flows {
		if f.waits.IsZero() || f.muted {
			continue
		}
		switch due := f.waits.Add(repeatTime); {
		case !now.Before(due):
			late = append(late, f)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	slices.SortFunc(late, func(a, b *flow) int { return cmp.Or(a.waits.Compare(b.waits), cmp.Compare(a.id, b.id)) })
	for _, f := range late {
		f.next, f.finalDue, f.waits = 0, f.final != nil, time.Time{}
		o.enqueue(f)
	}
	return next
}

// ack takes what the orchestrator says is durable. It tells whether more of the flow waits for an acknowledgement from now
// on, so that somebody has to call repeats in repeatTime.
func (o *outbox) ack(id string, offset uint32, now time.Time) (waits bool) {
	f, ok := o.flows[id]
	if !ok || min(offset, f.sent) <= f.acked {
		return false
	}
	offset = min(offset, f.sent) // what was not sent cannot be durable
	o.charge(f, func() { f.acked = offset })
	f.forgetUpTo(offset)
	f.waits = time.Time{}
	if waits = f.sent > f.acked || f.final != nil && !f.finalDue; waits {
		f.waits = now
	}
	o.serve()
	return waits
}

// drop ends a flow: nothing of it is sent any more, and its writer fails.
func (o *outbox) drop(id string) {
	f, ok := o.flows[id]
	if !ok {
		return
	}
	delete(o.flows, id)
	o.charge(f, func() { f.fed, f.acked, f.granted = 0, 0, 0 })
	f.dropped, f.want, f.spooled = true, 0, 0
	f.accepted, f.startSent, f.finalDue = false, true, false
	f.chunks, f.next, f.open, f.waits = nil, 0, chunk{}, time.Time{}
	o.leaveLine(f)
	o.served = append(o.served, f)
	o.serve()
}

// hurry lets nothing of the flow wait for credit any more: what there is none for is thrown away, and so is what is on
// disk.
func (o *outbox) hurry(f *flow) {
	if f.dropped || f.hurried {
		return
	}
	f.hurried, f.want, f.spooled = true, 0, 0
	o.leaveLine(f)
	o.served = append(o.served, f)
	o.serve()
}

// leaveLine takes a writer out of the line for credit.
func (o *outbox) leaveLine(f *flow) {
	if i := slices.Index(o.waiting, f); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
	}
}

// newSession forgets the control frames of the connection before. No flow goes on before resume says so.
func (o *outbox) newSession() {
	o.control = fifo[*messages.Frame]{}
	for _, f := range o.flows {
		f.muted = true
	}
}

// resume goes on with a flow, under the id that its frames have from now on. What is above offset is sent again, and so
// is what else may have been lost on the way.
func (o *outbox) resume(f *flow, frame string, offset uint32, now time.Time) {
	if f.dropped {
		return
	}
	f.rename(frame)
	o.ack(f.id, offset, now)
	f.muted = false
	f.again()
	o.enqueue(f)
}

// say adds a control frame.
func (o *outbox) say(f *messages.Frame) { o.control.push(f) }

func (o *outbox) enqueue(f *flow) {
	if !f.queued && f.sendable() {
		f.queued = true
		o.ready.push(f)
	}
}

// take appends the next frames to batch, of at most about budget bytes. It tells whether one of them waits for an
// acknowledgement from now on, so that somebody has to call repeats in repeatTime.
func (o *outbox) take(batch []*messages.Frame, budget int, now time.Time) (_ []*messages.Frame, waits bool) {
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
		if f.muted {
			continue
		}
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
		before := len(batch)
		if f.next < len(f.chunks) {
			c := f.chunks[f.next]
			f.next++
			f.sent = max(f.sent, c.end())
			batch = append(batch, outputFrame(f.frame, c))
			budget -= perFrame + len(c.data)
		}
		if f.finalDue && f.whole() {
			f.finalDue = false
			batch = append(batch, f.final)
			budget -= perFrame
		}
		if len(batch) > before && f.waits.IsZero() {
			f.waits, waits = now, true
		}
		o.enqueue(f)
	}
	return batch, waits
}
