package actors

import "github.com/swampd/swampd/messages"

// ack tells the worker what is durable of the output. That the result is, too, is told by the worker's actor, behind all that
// it was to send for the lease: a worker that has forgotten a dispatch must not be sent it again.
func (l leaseState) ack() effect {
	return transmit{l.session, ackFrame(l.id(), l.durable, false)}
}

func ackFrame(lease string, durable uint32, done bool) *messages.Frame {
	return &messages.Frame{Id: lease, Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: durable, Done: done}}}
}

// output takes a chunk. What is known is dropped; a gap is not taken, the worker sends from the last acknowledged
// offset again.
func (l leaseState) output(c *messages.OutputChunk) (leaseState, decision) {
	end := c.GetOffset() + uint32(len(c.GetData()))
	switch {
	case end <= l.durable:
		return l, decision{effects: []effect{l.ack()}}
	case l.state == messages.LeaseFenced: // the step's story is told; the worker only has to get on
		l.received, l.durable = end, end
		return l, decision{effects: []effect{l.ack()}}
	case c.GetOffset() > l.received || end <= l.received:
		return l, decision{}
	case c.GetOffset() < l.received: // after a reconnect the chunks may be cut elsewhere
		c = &messages.OutputChunk{Offset: l.received, Stream: c.GetStream(), At: c.GetAt(), Data: c.GetData()[l.received-c.GetOffset():]}
	}
	first := len(l.buffer) == 0
	l.buffer = append(l.buffer, c)
	l.received = end
	switch {
	case l.logged && first:
		return l, decision{effects: []effect{again{flushElapsed{}}}} // behind the chunks that have come with this one
	case !l.logged && l.received-l.durable > inlineOutput:
		return l.flush()
	case !l.logged && first:
		return l, decision{effects: []effect{arm{timerFlush, inlineTime, flushElapsed{}}}}
	default:
		return l, decision{}
	}
}

// flush makes what has come durable in the dispatch's log.
func (l leaseState) flush() (leaseState, decision) {
	if l.state != messages.LeaseActive || len(l.buffer) == 0 {
		return l, decision{}
	}
	d := decision{class: classData, log: &logWrite{l.dispatchID, l.buffer}}
	l.logged, l.durable, l.buffer = true, l.received, nil
	d.then(l.ack(), disarm{timerFlush})
	return l, d
}

// settle puts the output that has come into the commit that decides the lease's outcome: into the log where there is
// one, else beside the record.
func (l leaseState) settle(d *decision) leaseState {
	switch {
	case len(l.buffer) == 0:
	case l.logged:
		d.log = &logWrite{l.dispatchID, l.buffer}
	default:
		d.writes = append(d.writes, write{kind: recordOutput, id: l.dispatchID, state: "inline", body: &messages.OutputRecord{Chunks: l.buffer}})
	}
	l.durable, l.buffer = l.received, nil
	return l
}
