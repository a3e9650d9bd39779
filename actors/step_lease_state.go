package actors

import (
	"fmt"

	"github.com/swampd/swampd/messages"
)

// leaseEnded decides what becomes of the step whose dispatch is over. The lease is told that the step knows, whether
// that is news or not.
func (s stepState) leaseEnded(c leaseEnded, at moment) (stepState, decision) {
	if s.status != messages.StepRunning || c.lease != s.leaseID() {
		adopted := dispatchOf(c.lease) == s.dispatchID && generationOf(c.lease) < s.generation
		return s, decision{effects: []effect{tell{leaseAddress(c.lease), leaseNoted{c.lease, adopted}}}}
	}
	if c.outcome.GetStatus() == outcomeRestart {
		return s.restarted(c, at)
	}
	s, d := s.dispatchEnded(c, at)
	if c.outcome.GetEndedAt() != nil { // who follows need not look for output that there is none of
		for _, e := range d.events {
			if messages.EndsDispatch(e.GetKind()) {
				e.Offset = &c.outcome.FinalOffset
			}
		}
	}
	return s, d
}

// dispatchEnded decides by how the dispatch ended.
func (s stepState) dispatchEnded(c leaseEnded, at moment) (stepState, decision) {
	o := c.outcome
	noted := tell{leaseAddress(c.lease), leaseNoted{lease: c.lease}}
	cancelled := !s.cancelAt.IsZero()
	if o.GetStartedAt() != nil {
		s.startedAt = messages.GoTime(o.GetStartedAt())
	}
	s.outputs, s.outputsBody = o.GetOutputs(), o.GetOutputsBody()
	d := decision{effects: []effect{noted}}
	switch {
	case o.GetStatus() == outcomeSucceeded:
		return s.end(d, messages.StepSucceeded, "", "", at)
	case cancelled:
		return s.end(d, messages.StepCancelled, "", "", at)
	case o.GetStatus() == outcomeCancelled: // nobody here asked for it: the worker says why
		return s.end(d, messages.StepCancelled, o.GetError(), string(messages.CodeCancelled), at)
	case o.GetStatus() == outcomeRefused:
		s.refusals++
		s.parked = o.GetCode() != string(messages.CodeUnavailable) // else nobody has looked at it: it never arrived
		return s.wait(d, waiting(s.def.Placement, fmt.Sprintf("worker %s refused it: %s", c.worker, o.GetError())), at)
	case o.GetStatus() == outcomeHandedBack:
		return s.handedBack(d, c, at)
	case o.GetStatus() == outcomeLost:
		return s.lost(d, c, at)
	default:
		return s.end(d, messages.StepFailed, o.GetError(), o.GetCode(), at)
	}
}

// handedBack puts a step that a draining worker killed back into line, where it may run again; else it is cancelled.
func (s stepState) handedBack(d decision, c leaseEnded, at moment) (stepState, decision) {
	code := string(messages.CodeCancelled)
	switch {
	case c.hasWrites:
		text := fmt.Sprintf("worker %s drained before the step had ended, and it may have written data", c.worker)
		return s.end(d, messages.StepCancelled, text, code, at)
	case s.def.OnWorkerLost == messages.LostFail:
		text := fmt.Sprintf("worker %s drained before the step had ended, and onWorkerLost is fail", c.worker)
		return s.end(d, messages.StepCancelled, text, code, at)
	default:
		return s.wait(d, waiting(s.def.Placement, fmt.Sprintf("worker %s drained and gave it back", c.worker)), at)
	}
}

// restarted takes it that a restart ended the step's lease: the step waits for its worker through one grace, or goes on if
// the worker is there with it. Loopback's dispatches are gone with the process, and one that was to be cancelled is not
// waited for.
func (s stepState) restarted(c leaseEnded, at moment) (stepState, decision) {
	if c.claim != nil && s.cancelAt.IsZero() {
		return s.adopt(c, at)
	}
	if s.awaiting {
		return s, decision{} // said twice
	}
	s.wrote = c.hasWrites
	if !s.cancelAt.IsZero() {
		return s.end(decision{effects: []effect{s.leaseNoted()}}, messages.StepCancelled, "", "", at)
	}
	s.awaiting = true
	if s.worker == Loopback {
		return s.notAdopted("it ended with the process", at)
	}
	// The wait stands in no record. The lease is not told that its end is known before something has come of it, so that it
	// tells a step again whose actor panics meanwhile.
	return s, decision{effects: []effect{arm{timerAdoption, s.grace, adoptionElapsed{}}}}
}

// adopt is the commit by which the step goes on under a new generation of its lease, with what the old one knew.
func (s stepState) adopt(c leaseEnded, at moment) (stepState, decision) {
	noted := tell{leaseAddress(c.lease), leaseNoted{c.lease, true}}
	l := leaseOf(s, choice{worker: s.worker, instance: c.claim.instance, version: c.claim.version}, at)
	l.generation++
	l.hasWrites, l.logged, l.durable, l.received = c.hasWrites, c.logged, c.durable, c.durable
	l.excused, l.tellSlot = c.claim.lost, true
	s.generation++
	s.awaiting, s.awaitNoted, s.awaitOver, s.wrote, s.leaseUp = false, false, false, false, false
	s.version++
	return s, decision{
		writes: []write{s.write(), l.write()}, requires: []require{{kindWorker, s.worker, c.claim.version}},
		effects: []effect{disarm{timerAdoption}, tell{leaseAddress(l.id()), ensureLease{lease: l.id(), step: s.address(), born: &l}}, noted},
	}
}

func (s stepState) leaseNoted() effect {
	return tell{leaseAddress(s.leaseID()), leaseNoted{lease: s.leaseID()}}
}

// notAdopted sends a step whose worker did not bring it back into line again, unless it has written. The restart was not
// the worker's fault: it counts as no loss.
func (s stepState) notAdopted(reason string, at moment) (stepState, decision) {
	if !s.awaiting {
		return s, decision{}
	}
	wrote := s.wrote
	s.awaiting, s.awaitNoted, s.awaitOver, s.wrote = false, false, false, false
	worker := s.worker
	e := s.event(messages.EventStepWorkerLost, at)
	e.Worker = &worker
	d := decision{events: []*messages.RunEvent{e}, effects: []effect{disarm{timerAdoption}, s.leaseNoted()}}
	switch {
	case wrote:
		text := fmt.Sprintf("worker %s was lost in a restart of the orchestrator while it ran step %s of job %s, which may have written data", worker, s.step, s.job)
		return s.end(d, messages.StepFailed, text, string(messages.CodeLostAfterWrite), at)
	case s.def.OnWorkerLost == messages.LostFail:
		text := fmt.Sprintf("the orchestrator restarted while worker %s ran the step, and onWorkerLost is fail", worker)
		return s.end(d, messages.StepFailed, text, string(messages.CodeWorkerLost), at)
	default:
		return s.wait(d, waiting(s.def.Placement, fmt.Sprintf("worker %s was lost in a restart of the orchestrator: %s", worker, reason)), at)
	}
}

func (s stepState) lost(d decision, c leaseEnded, at moment) (stepState, decision) {
	e := s.event(messages.EventStepWorkerLost, at)
	e.Worker = &c.worker
	d.events = append(d.events, e)
	if !c.outcome.GetExcused() {
		s.losses++
	}
	switch {
	case c.hasWrites:
		text := fmt.Sprintf("worker %s was lost while it ran step %s of job %s, which may have written data", c.worker, s.step, s.job)
		return s.end(d, messages.StepFailed, text, string(messages.CodeLostAfterWrite), at)
	case s.def.OnWorkerLost == messages.LostFail:
		text := fmt.Sprintf("worker %s was lost while it ran the step, and onWorkerLost is fail", c.worker)
		return s.end(d, messages.StepFailed, text, string(messages.CodeWorkerLost), at)
	case s.losses >= messages.MaxLosses && !c.outcome.GetExcused():
		text := fmt.Sprintf("the step lost its worker %d times, the last was %s", s.losses, c.worker)
		return s.end(d, messages.StepFailed, text, string(messages.CodeWorkerLost), at)
	default:
		return s.wait(d, waiting(s.def.Placement, fmt.Sprintf("worker %s was lost", c.worker)), at)
	}
}
