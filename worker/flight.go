package worker

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// inFlightBytes is about how much the results in an introduction may take; the others come when it is answered.
const inFlightBytes = 1 << 20

// The words of a worker on what it has in flight, and of the orchestrator on that.
const (
	flightAccepted = "accepted" // taken; the step has not started
	flightRunning  = "running"
	flightEnded    = "ended"

	verdictResume = "resume" // it goes on
	verdictAbort  = "abort"  // it is given up
	verdictWait   = "wait"   // the orchestrator will say later
)

// inFlight names every dispatch that was taken and that the orchestrator has not said to forget, also one that is being
// killed because it was given up: until it is gone it is here. A refused one is not named: the refusal may be lost, and
// then its absence says it. The caller holds a.mu.
func (a *Agent) inFlight() []*messages.InFlight {
	var list []*messages.InFlight
	left := inFlightBytes
	for _, id := range slices.Sorted(maps.Keys(a.life.known)) {
		k := a.life.known[id]
		entry := &messages.InFlight{DispatchId: id, Generation: k.generation, State: flightEnded}
		f, ok := a.out.flows[id]
		switch {
		case k.running && ok && f.started.IsZero():
			entry.State = flightAccepted
		case k.running:
			entry.State = flightRunning
		case !ok:
			continue
		}
		if ok {
			entry.OutputOffset = f.written()
			if r := f.final.GetResponse().GetWorkerDispatch(); r != nil && proto.Size(r) <= left {
				entry.Result = r
				left -= proto.Size(r)
			}
		}
		list = append(list, entry)
	}
	return list
}

// enter begins a session that the orchestrator has admitted: it takes the verdicts on what was named in flight. sent is
// when the enrollment was sent, which is the first promise of the session.
func (a *Agent) enter(s *session, r *messages.EnrollResult, sent time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.session, a.lastSession = s, r.GetSession()
	if s.terms.grace > 0 {
		a.grace = s.terms.grace
	}
	a.life.connected(now)
	a.out.newSession()
	for _, v := range r.GetInFlight() {
		a.settle(v, now)
	}
	a.promised(s, sent)
	a.advance()
	a.wake()
}

// settle takes one verdict. Without one, and with wait, nothing of the dispatch is sent, and its fence stays where the
// last promise has put it: an order or a dispatch of a higher generation decides, or in the end the fence. The caller
// holds a.mu.
func (a *Agent) settle(v *messages.InFlightVerdict, now time.Time) {
	id := v.GetDispatchId()
	k, ok := a.life.known[id]
	if !ok || v.GetGeneration() < k.generation {
		return
	}
	switch v.GetAction() {
	case verdictAbort:
		a.giveUp(id)
	case verdictResume:
		a.life.adopt(id, v.GetGeneration())
		if f, ok := a.out.flows[id]; ok {
			a.out.resume(f, frameID(id, v.GetGeneration()), v.GetOutputOffset(), now)
		}
	case verdictWait:
	default:
		a.cfg.Logger.Warn("the orchestrator says of a dispatch what this worker does not know", messages.KeyDispatch, id)
	}
}

// part ends a session. What was in flight goes on. The caller holds a.mu.
func (a *Agent) part(s *session) {
	a.session = nil
	a.data.forget()
	for _, d := range a.dispatches {
		d.aborts = nil // whoever asked is gone
	}
	a.life.disconnected(s.terms.grace, time.Now())
	a.advance()
}
