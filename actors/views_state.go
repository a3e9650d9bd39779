package actors

import (
	"maps"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// leaseView is what a lease knows that its record does not say.
type leaseView struct {
	accepted   bool
	acceptedAt time.Time
	lostAt     time.Time // of its worker's socket; zero: it is there
	graceLeft  time.Duration
}

func (v *view) know(name string, value any) { v.facts = append(v.facts, fact{name, value}) }

func viewScheduler(s *schedulerState, _ moment) view {
	var v view
	v.know("epoch", s.epoch)
	v.know("closed", s.closed)
	v.know("workers", len(s.workers))
	v.know("waiting", s.waiting)
	v.know("classes", len(s.classes))
	v.know("parked", s.parked)
	v.know("slotsTaken", len(s.taken))
	v.know("reserved", len(s.reserved))
	v.know("deadlines", len(s.clock))
	v.know("pausedWorkers", slices.Sorted(maps.Keys(s.paused)))
	v.know("nextDeadline", s.armed)
	return v
}

func viewWorker(w workerState, _ moment) view {
	var v view
	if w.version > 0 {
		record := w.write()
		v.record = &record
		v.ahead = []string{"lastSeenAt"}
	}
	v.know("schedulerKnowsVersion", w.told)
	v.know("leases", slices.Sorted(maps.Keys(w.leases)))
	v.know("lastDispatchNumber", w.seq)
	v.know("socketIsThere", w.sessionLives || w.connected && w.admitted)
	v.know("admitted", w.admitted)
	v.know("saysDraining", w.saysDraining)
	v.know("dismissing", w.dismissing)
	v.know("cannotStartInARow", w.cannotStart)
	v.know("probations", w.probations)
	v.know("newcomer", w.newcomer != nil)
	v.know("claimsLost", slices.Sorted(maps.Keys(w.claimsLost)))
	v.know("stepsHopingForIt", len(w.awaiting))
	v.know("clientsWaitingForItsDeparture", len(w.waiters))
	return v
}

func viewToken(t tokenState, _ moment) view {
	var v view
	if t.version > 0 {
		record := t.write()
		v.record = &record
	}
	v.know("machines", slices.Sorted(maps.Keys(t.machines)))
	v.know("workersKnownToBeGone", slices.Sorted(maps.Keys(t.gone)))
	return v
}

func viewRun(s *runState, _ moment) view {
	var v view
	if s.version == 0 {
		return v
	}
	record := s.write()
	v.record = &record
	v.ahead = []string{"error"}          // it is derived from those of the steps, and written with the end
	if s.recordDue || s.status.Ended() { // an ended run is not read further than to see that it has
		v.ahead = append(v.ahead, "jobs")
	}
	var counts [ended + 1]int
	for _, p := range s.phases {
		counts[p]++
	}
	v.know("stepsUnborn", counts[unborn])
	v.know("stepsWithAnActor", counts[live])
	v.know("stepsResting", counts[resting])
	v.know("stepsEnded", counts[ended])
	v.know("readyToBeBorn", len(s.queue))
	v.know("questionToTheScheduler", s.reserving != 0)
	v.know("outOfSpace", s.outOfSpace)
	v.know("errands", len(s.errands))
	v.know("rousing", len(s.rousing))
	v.know("offersNotNoted", len(s.offered))
	return v
}

func viewStep(s stepState, at moment) view {
	var v view
	if s.version == 0 {
		return v
	}
	record := s.write()
	v.record = &record
	v.know("requirement", s.def.Placement.Requirement())
	v.know("queueTimeoutMs", s.limit)
	v.know("inLineAtSchedulerEpoch", s.schedulerEpoch)
	v.know("offers", s.offers)
	v.know("leaseIsUp", s.leaseUp)
	v.know("runKnowsTheEnd", s.runKnows)
	v.know("parked", s.parked)
	v.know("orphan", s.orphan)
	v.know("awaitsItsWorker", s.awaiting)
	if s.status == messages.StepQueued {
		v.know("waitedMs", s.waited+max(at.now.Sub(s.queuedAt), 0))
	}
	return v
}

func viewLease(l leaseState, at moment) view {
	var v view
	if l.unknown != "" || l.version == 0 {
		v.know("unknown", l.unknown)
		return v
	}
	record := l.write()
	v.record = &record
	// What is not worth a commit of its own is written with the next one, at the latest with the end.
	v.ahead = []string{"offset", "logged", "firstLostAt", "workerVersion", "excused", "cancelRequestedAt", "cancelForced"}
	v.lease = &leaseView{accepted: l.accepted, acceptedAt: l.acceptedAt, lostAt: l.lostAt, graceLeft: l.graceLeft(at)}
	v.know("session", l.session)
	v.know("accepted", l.accepted)
	v.know("acceptedAt", l.acceptedAt)
	v.know("outputReceived", l.received)
	v.know("outputDurable", l.durable)
	v.know("chunksNotDurable", len(l.buffer))
	v.know("socketLostAt", l.lostAt)
	if !l.lostAt.IsZero() {
		v.know("graceLeftMs", l.graceLeft(at))
	}
	v.know("stepKnowsTheEnd", l.stepKnows)
	v.know("schedulerKnowsOfTheSlot", l.slotKnows)
	v.know("adopted", l.adopted)
	return v
}
