package actors

import (
	"fmt"
	"github.com/swampd/swampd/messages"
)

// result ends the lease with what the worker reports, once all output before it has come.
func (l leaseState) result(r *messages.DispatchResult, at moment) (leaseState, decision) {
	if l.state == messages.LeaseFenced {
		return l.end(messages.LeaseCompleted, l.outcome, at)
	}
	if r.GetFinalOffset() > l.received {
		return l, decision{}
	}
	status := outcomeOf(r)
	started := l.acceptedAt
	if started.IsZero() {
		started = l.createdAt
	}
	o := &messages.Outcome{
		Status: status, Code: shorten(r.GetCode(), 64), Error: shorten(r.GetError(), errorBytes), Outputs: r.GetOutputs(), FinalOffset: l.received,
		StartedAt: messages.Time(started), EndedAt: messages.Time(at.now), ExitCode: r.GetExitCode(),
		Excused: status == outcomeLost && (l.excused || l.stalled(at)),
	}
	if size := outputsSize(o.GetOutputs()); size > outputBytes {
		o.Status, o.Code, o.Outputs = outcomeFailed, string(messages.CodeOutputTooLarge), nil
		o.Error = fmt.Sprintf("the step's outputs take %d bytes, and the store keeps at most %d", size, outputBytes)
	}
	return l.end(messages.LeaseCompleted, o, at)
}

// Bounds on what a worker says at the end of a dispatch: on its outputs, names and values together, and on its error, which
// stands twice in the commit that ends the step, in its record and in an event.
const (
	outputBytes = 1 << 20
	errorBytes  = 64 << 10
)

func outputsSize(outputs []*messages.KeyValue) int {
	size := 0
	for _, kv := range outputs {
		size += len(kv.GetKey()) + len(kv.GetValue())
	}
	return size
}

// outcomeOf reads a worker's word for how it ended; a word that we do not know is a failure.
func outcomeOf(r *messages.DispatchResult) string {
	if r.GetCode() == string(messages.CodeWorkerLost) { // its keeper killed it when its time without us was over
		return outcomeLost
	}
	switch r.GetStatus() {
	case outcomeSucceeded, outcomeCancelled, outcomeTimeout, outcomeLost, outcomeHandedBack:
		return r.GetStatus()
	default:
		return outcomeFailed
	}
}

// refused ends the lease: the worker did not take the dispatch.
func (l leaseState) refused(e *messages.Error, at moment) (leaseState, decision) {
	switch {
	case l.state == messages.LeaseFenced:
		return l.end(messages.LeaseRefused, l.outcome, at)
	case l.generation > 1 || l.hasWrites: // it was adopted or has written, so it had begun: a worker that has it no more has lost it
		// One that it has adopted and never accepted it gave up because of the restart: it is no loss of its own.
		l.excused = l.excused || l.generation > 1 && !l.accepted
		return l.lost("its worker does not have it any more", at)
	}
	return l.end(messages.LeaseRefused, &messages.Outcome{
		Status: outcomeRefused, Code: shorten(e.GetCode(), 64), Error: shorten(e.GetText(), 4<<10), FinalOffset: l.received, EndedAt: messages.Time(at.now),
	}, at)
}

func (l leaseState) cancel(c cancelLease, at moment) (leaseState, decision) {
	if l.state.Ended() || (!l.cancelAt.IsZero() && (l.forced || !c.force)) {
		return l, decision{}
	}
	l.cancelAt, l.forced = at.now, c.force
	if c.force && l.state == messages.LeaseActive {
		return l.fence(&messages.Outcome{Status: outcomeCancelled, Code: string(messages.CodeCancelled)}, at)
	}
	l.version++
	return l, decision{writes: []write{l.write()}}
}

// poisoned gives the dispatch up: what its worker says of it cannot be heard. Its step fails, and it does not hold its slot
// for ever; should the worker still be at it, it refuses what comes next.
func (l leaseState) poisoned(at moment) (leaseState, decision) {
	if l.state.Ended() {
		return l, decision{}
	}
	o := l.outcome
	if l.state == messages.LeaseActive {
		o = &messages.Outcome{
			Status: outcomeFailed, Code: string(messages.CodeInternal), FinalOffset: l.received, EndedAt: messages.Time(at.now),
			Error: "internal error: the actor of the step's dispatch panicked at the same command each time",
		}
	}
	kill := tell{workerAddress(l.worker), cancelDispatch{l.id(), l.handedAt, true}}
	l, d := l.end(messages.LeaseFailed, o, at)
	d.effects = append([]effect{kill}, d.effects...)
	return l, d
}

// fence decides the outcome without the worker. The slot stays taken until the worker answers or is gone.
func (l leaseState) fence(o *messages.Outcome, at moment) (leaseState, decision) {
	if l.state != messages.LeaseActive {
		return l, decision{}
	}
	if l.cancelAt.IsZero() {
		l.cancelAt, l.forced = at.now, true
	}
	var d decision
	l = l.settle(&d)
	o.FinalOffset, o.StartedAt, o.EndedAt = l.received, messages.Time(l.acceptedAt), messages.Time(at.now)
	l.state, l.outcome = messages.LeaseFenced, o
	l.version++
	d.writes = append(d.writes, l.write())
	return l, d
}

// lost ends the lease without its worker. The same transition that fences it reads whether it wrote.
func (l leaseState) lost(reason string, at moment) (leaseState, decision) {
	if l.state.Ended() {
		return l, decision{}
	}
	state := messages.LeaseExpired
	if l.hasWrites {
		state = messages.LeaseFailed
	}
	o := l.outcome
	if l.state == messages.LeaseActive {
		o = &messages.Outcome{
			Status: outcomeLost, Code: string(messages.CodeWorkerLost), Error: reason, FinalOffset: l.received,
			StartedAt: messages.Time(l.acceptedAt), EndedAt: messages.Time(at.now), Excused: l.excused || l.stalled(at),
		}
	}
	return l.end(state, o, at)
}

func (l leaseState) end(state messages.LeaseState, o *messages.Outcome, at moment) (leaseState, decision) {
	var d decision
	l = l.settle(&d)
	l.state, l.outcome, l.endedAt = state, o, at.now
	l.slotKnows = false // that it is taken is known, that it is free is owed
	l.version++
	d.writes = append(d.writes, l.write())
	d.then(l.over(), disarm{timerGrace}, disarm{timerFlush}, disarm{timerBackstop})
	if l.logged {
		d.then(closeLog{l.dispatchID})
	}
	return l, d
}
