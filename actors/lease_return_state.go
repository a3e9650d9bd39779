package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// named notes that the worker's instance is back and has the dispatch: its loss clock is cleared. The worker is told what is
// durable of the output, so that it goes on from there.
func (l leaseState) named(c leaseNamed, at moment) (leaseState, decision) {
	l.lostAt, l.handedAt = time.Time{}, c.version
	d := decision{effects: []effect{disarm{timerGrace}}}
	if l.state.Ended() {
		return l, d
	}
	l.session = c.session
	d.then(l.ack())
	l, accepted := l.accept(at)
	d.then(accepted.effects...)
	return l, d
}

// ofRestart tells whether a restart of the orchestrator ended the lease, and nothing else did before.
func (l leaseState) ofRestart() bool {
	return l.state == messages.LeaseExpired && l.outcome.GetStatus() == outcomeRestart
}

// claimed answers a worker that has named the dispatch although the worker's actor did not know the lease. A restart leaves
// the decision to the step; an actor of a worker that has started anew only has not heard of the lease yet.
func (l leaseState) claimed(c claimLease, at moment) (leaseState, decision) {
	switch {
	case l.unknown == "" && l.adopted:
		return l, decision{effects: []effect{tell{leaseAddress(nextGeneration(l.dispatchID, l.generation)), c}}}
	case l.unknown != "" || c.worker != l.worker || c.instance != l.instance:
	case !l.state.Ended():
		l.lostAt, l.handedAt, l.accepted = time.Time{}, c.version, false // it is sent again, and the worker knows it
		return l, decision{effects: []effect{disarm{timerGrace}, tell{workerAddress(l.worker), l.here()}}}
	case l.ofRestart() && !l.stepKnows:
		l.claim = &c
		return l, decision{} // the step is told of the end anew, with the claim
	}
	d := decision{effects: []effect{tell{workerAddress(c.worker), claimSettled{c.lease, true}}}}
	if l.unknown != "" {
		d.then(leave{})
	}
	return l, d
}

// noted takes it that the step knows how the lease ended. A claim that it has not adopted is void.
func (l leaseState) noted(c leaseNoted) (leaseState, decision) {
	l.stepKnows, l.adopted = true, l.adopted || c.adopted
	claim := l.claim
	l.claim = nil
	l, d := l.mayLeave()
	if claim != nil && !l.adopted {
		d.effects = append([]effect{tell{workerAddress(claim.worker), claimSettled{claim.lease, true}}}, d.effects...)
	}
	return l, d
}

// ended is what the step is told of the lease's end.
func (l leaseState) ended() leaseEnded {
	e := leaseEnded{lease: l.id(), worker: l.worker, hasWrites: l.hasWrites, outcome: l.outcome}
	if l.ofRestart() {
		e.claim, e.logged, e.durable = l.claim, l.logged, l.durable
	}
	return e
}

// graceOver gives the worker up, unless the time without it was the orchestrator's own.
func (l leaseState) graceOver(at moment) (leaseState, decision) {
	if l.lostAt.IsZero() || l.state.Ended() {
		return l, decision{}
	}
	if left := l.graceLeft(at); left > 0 {
		return l, decision{effects: []effect{arm{timerGrace, left, graceElapsed{}}}}
	}
	return l.lost("its worker did not come back in time", at)
}

// graceLeft is how long the worker may still stay away. Time in which the orchestrator itself stood still does not count.
func (l leaseState) graceLeft(at moment) time.Duration {
	since := l.lostAt
	if at.awakeSince.After(since) {
		since = at.awakeSince
	}
	return l.grace - at.now.Sub(since)
}

// stalled tells whether the orchestrator itself stood still lately, while the lease was in flight: what its workers lost then
// they rightly gave up.
func (l leaseState) stalled(at moment) bool {
	return at.awakeSince.After(l.createdAt) && at.now.Sub(at.awakeSince) < 2*l.grace
}
