package actors

import "time"

// A reservation is a slot that a run was given for a birth that it has not committed yet. Nobody tells the scheduler of the
// commit, as the lease that is born takes the very slot. So a reservation that is old is asked for, and never concluded
// (rule P10): its run may have panicked with the answer in hand, and may never be submitted again.
//
//	scheduler ── stillReserved ──> run ── neither used nor kept ──> lease: the journal knows it ──> holdSlot
//	                                └── kept: nothing                └── or it does not ──────────> releaseSlot
type reservation struct {
	at         time.Time // when it is asked for
	run        address
	dispatchID string
	ticket     uint64
}

// reservedTime is how long a reservation stands before it is asked for: longer than most commits take, and less than the
// auditor waits before it looks again.
const reservedTime = 5 * time.Second

// askAt is when a reservation of now is asked for. All of one second are looked at together: most are long used by then, and
// a timer for each would cost more than the question.
func askAt(at moment) time.Time {
	return at.now.Add(reservedTime).Truncate(time.Second).Add(time.Second)
}

// stillReserved asks a run whether it still counts on a slot.
type stillReserved struct {
	dispatchID string
	ticket     uint64
}

// confirmSlot asks a lease whether it has come of a reservation. Its run has no commit under way that could bear it.
type confirmSlot struct {
	dispatchID string
	ticket     uint64
}

// askReserved asks for what was reserved long ago. What a lease holds was confirmed.
func (s *schedulerState) askReserved(d *decision, at moment) {
	for len(s.reserved) > 0 && !s.reserved[0].at.After(at.now) {
		r := s.reserved[0]
		s.reserved = s.reserved[1:]
		if sl := s.taken[r.dispatchID]; sl == nil || sl.choice.ticket != r.ticket || sl.generation > 0 {
			continue
		}
		d.then(tell{r.run, stillReserved{r.dispatchID, r.ticket}})
		r.at = askAt(at)
		s.reserved = append(s.reserved, r)
	}
}

// stillReserved answers for a slot: the run keeps it for its next commit, or the journal knows what has become of it.
func (s *runState) stillReserved(c stillReserved, d *decision) {
	for _, g := range s.grants {
		if g.ok && g.choice.ticket == c.ticket {
			return
		}
	}
	d.then(tell{leaseAddress(leaseID(c.dispatchID, 1)), confirmSlot(c)})
}

// confirmSlot tells the scheduler whether the slot is this lease's.
func (l leaseState) confirmSlot(c confirmSlot) (leaseState, decision) {
	switch {
	case l.unknown != "":
		return l, decision{effects: []effect{tell{schedulerAddress(), releaseSlot{dispatchID: c.dispatchID, ticket: c.ticket}}, leave{}}}
	case l.state.Ended():
		return l, decision{effects: []effect{tell{schedulerAddress(), l.release()}}}
	default:
		return l, decision{effects: []effect{tell{schedulerAddress(), holdSlot{l.dispatchID, l.generation, l.worker}}}}
	}
}
