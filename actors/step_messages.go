package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// beginStep is what a run gives the actor of a step that it has borne, or has found in the journal.
type beginStep struct{ state stepState }

// offerStep stands a step in line at the scheduler.
type offerStep struct {
	step       address
	queueID    string
	dispatchID string // of the dispatch that a choice would become
	placement  messages.Placement
	place      uint64
	ordinal    uint32
	// deadline is when the wait is over; zero: never.
	deadline time.Time
	// parked: a worker has just refused it, so it is not handed out before the pool has changed.
	parked bool
}

func (o offerStep) identity() string { return o.queueID }

// offerNoted says that the scheduler of that epoch has the offer.
type offerNoted struct {
	queueID string
	epoch   uint64
}

// withdrawStep takes an offer back. It names the dispatch if the wait has ended and that one will never be: a choice for
// it is void.
type withdrawStep struct {
	queueID    string
	dispatchID string
}

// assignStep is the scheduler's choice of a worker.
type assignStep struct {
	queueID    string
	dispatchID string
	choice     choice
}

func (a assignStep) identity() string { return a.dispatchID }

// choice is one reserved slot, as good as the worker's version and the scheduler's epoch still are. The ticket tells it
// from others for the same dispatch.
type choice struct {
	ticket   uint64
	worker   string
	instance string
	version  uint64
	epoch    uint64
}

// releaseSlot tells the scheduler that a dispatch takes no slot, any more or at all. With a ticket only that choice is
// given back; a lease has none, since its end is the end of the dispatch.
type releaseSlot struct {
	dispatchID string
	ticket     uint64
	// refusedBy is the worker that refused the dispatch, which is no sign of a free slot there.
	refusedBy string
	// stale: the worker is not what it was when it was chosen.
	stale bool
	from  address
	// generation of the lease that says it; 0: whichever holds it; claimedSlot: of a claim.
	generation uint32
}

// queueDeadline says that a step has waited as long as it may.
type queueDeadline struct{ queueID string }

// cancelStep asks a step to end as cancelled.
type cancelStep struct {
	run   bool // its run is cancelled: a step that cleans up goes on
	by    string
	force bool
	at    time.Time
}

// ensureLease asks for a lease's actor, which answers leaseUp. Right after the commit that bears the lease, and only
// then, it carries the lease's state: a repeat may come when the lease has lived and ended.
type ensureLease struct {
	lease string
	step  address
	born  *leaseState
	anew  bool // an actor that knew nothing of the lease has left for one that reads the journal now
}

// leaseUp says that a lease's actor is there.
type leaseUp struct{ lease string }

// leaseEnded tells a step how its lease ended.
type leaseEnded struct {
	lease     string
	worker    string
	hasWrites bool
	outcome   *messages.Outcome
	// After a restart: what its worker claims, and the output that is durable.
	claim   *claimLease
	logged  bool
	durable uint32
}

func (e leaseEnded) identity() string { return e.lease }

// leaseNoted tells a lease that its step knows the end.
type leaseNoted struct {
	lease   string
	adopted bool // and goes on as the next generation
}

// stepEnded tells a run that a step has ended.
type stepEnded struct {
	step    address
	ordinal uint32
	status  messages.StepStatus
	err     string
	code    string
}

// rejoin comes first to the actor of a step that the journal had: what a restart has left stale is brought to a true
// state. The orchestrator was alive until that time: a wait before it counts, downtime does not.
type rejoin struct{ aliveUntil time.Time }

// awaitNoted says that it will.
type awaitNoted struct{}

// workerBack says that the worker is back, and that the dispatch it had is not.
type workerBack struct{}

// adoptionElapsed ends the wait for the worker.
type adoptionElapsed struct{}

func (e stepEnded) identity() string { return e.step.id }

// endNoted tells a step that its run knows the end.
type endNoted struct{}
