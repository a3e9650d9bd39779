package actors

import (
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// poolWorker is a worker as the scheduler knows it.
type poolWorker struct {
	workerKnown
	traits       string // what a placement without a target sees of it
	taken        int
	hasClaims    bool // some of its slots may be taken by claims
	refusedUntil time.Time
	refusals     int
	// stale: it has changed, as a choice of it has shown, and its news is still on the way.
	stale bool
}

// workerStirred says that a worker reported: it may have room again.
type workerStirred struct{ worker string }

// workerGone says that a worker's actor has left: it is disconnected and has no leases.
type workerGone struct{ worker string }

func (w *poolWorker) candidate() messages.Candidate {
	return messages.Candidate{Name: w.name, Instance: w.instance, Labels: w.labels, Platform: w.platform, Arch: w.arch}
}

// free is how many slots the worker may be given work for. A pause ends with the timer, which serves those who wait, and
// not by itself: a step that comes in between would be served before them.
func (w *poolWorker) free() int {
	if w.status != messages.WorkerIdle || !w.refusedUntil.IsZero() || w.stale {
		return 0
	}
	return w.capacity - w.taken
}

// know takes what a worker is now.
func (s *schedulerState) know(c workerKnown, d *decision) {
	d.then(tell{c.worker, workerNoted{c.version}})
	w := s.workers[c.name]
	if w == nil {
		w = &poolWorker{hasClaims: true} // some of an earlier one may be left
		for _, sl := range s.taken {
			if sl.worker == c.name {
				w.taken++
			}
		}
		s.workers[c.name] = w
	} else if w.version >= c.version && !w.reborn(c) {
		return
	}
	if w.instance != c.instance {
		s.unpause(w)
		w.refusals = 0
	}
	w.workerKnown, w.stale = c, false
	w.traits = c.labels.String() + "\x00" + c.platform + "/" + c.arch
	s.claimed(w)
	if !s.struck(w, d) {
		s.changed(w, d)
	}
}

// reborn tells whether what a worker says now is of a record that began anew: the one before was erased while it was away,
// and the actor that should have said so has died over it. A worker's news come in their order, so nothing older than that.
func (w *poolWorker) reborn(c workerKnown) bool {
	return w.status == messages.WorkerDisconnected && c.status != messages.WorkerDisconnected
}

// struck takes a worker that drained and is gone out of the pool, once none of its dispatches is in flight.
func (s *schedulerState) struck(w *poolWorker, d *decision) bool {
	if !w.left || w.taken > 0 {
		return false
	}
	s.strike(w, d)
	return true
}

// strike takes a worker out of the pool. Steps that it has refused may have been waiting for its next turn.
func (s *schedulerState) strike(w *poolWorker, d *decision) {
	delete(s.workers, w.name)
	delete(s.paused, w.name)
	s.changed(w, d)
}

// claimed takes the slots of the dispatches that a worker claims, and frees those that it does not claim any more.
func (s *schedulerState) claimed(w *poolWorker) {
	if w.hasClaims {
		for id, sl := range s.taken {
			if sl.generation == claimedSlot && sl.worker == w.name && !slices.Contains(w.workerKnown.claimed, id) {
				delete(s.taken, id)
				s.untake(sl)
			}
		}
	}
	w.hasClaims = len(w.workerKnown.claimed) > 0
	for _, id := range w.workerKnown.claimed {
		if s.taken[id] == nil {
			s.take(id, &slot{worker: w.name, generation: claimedSlot})
		}
	}
}

// changed looks again after a change of one worker: it is served, and parked steps get back into line.
func (s *schedulerState) changed(w *poolWorker, d *decision) {
	if s.parked == 0 {
		s.serve(w, d)
		return
	}
	s.parked = 0
	for _, c := range s.classes {
		for _, o := range c.parked {
			c.line.push(o)
		}
		c.parked = nil
	}
	for {
		var oldest *offer
		for _, c := range s.classes {
			if len(c.line) > 0 && (oldest == nil || c.line[0].before(oldest)) && s.choose(c) != nil {
				oldest = c.line[0]
			}
		}
		if oldest == nil {
			return
		}
		s.assign(oldest, s.choose(oldest.class), d)
	}
}

// serve hands the oldest steps that the worker can serve to it, while it has slots.
func (s *schedulerState) serve(w *poolWorker, d *decision) {
	for w.free() > 0 && !s.closed {
		var oldest *offer
		for _, c := range s.classes {
			if len(c.line) > 0 && (oldest == nil || c.line[0].before(oldest)) && s.fit(c, w) {
				oldest = c.line[0]
			}
		}
		if oldest == nil {
			return
		}
		s.assign(oldest, w, d)
	}
}

func (s *schedulerState) unpause(w *poolWorker) {
	w.refusedUntil = time.Time{}
	delete(s.paused, w.name)
}
