package actors

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// schedulerState is the pool and the line: demand classes, reservations, deadlines. It lives in memory only; a new
// scheduler has a new epoch, and everybody who has a part in it says so again (rule P9). It changes in place, since a
// pool with 100,000 waiting steps cannot be copied; nothing of it is ever committed, so nothing has to be undone.
//
// Invariant: nothing waits beside a free match, but for steps that a worker has just refused (parked), which wait for the
// pool to change, and workers that have just refused, which get nothing until they stir or a moment has passed.
type schedulerState struct {
	epoch    uint64
	loopback bool // unplaced steps run on loopback only
	closed   bool // nothing is handed out any more
	workers  map[string]*poolWorker
	classes  map[string]*demandClass
	offers   map[string]*offer // by queue id, those that are assigned too
	lined    map[string]*offer // those in line, by the dispatch id that a choice would become
	taken    map[string]*slot  // by dispatch id
	tickets  uint64
	paused   map[string]bool // workers that have just refused
	parked   int             // steps that have just been refused
	clock    deadlines
	reserved []reservation // by age
	armed    time.Time
	waiting  int
}

// slot is one taken slot: by a choice that is under way, or by a lease.
type slot struct {
	worker  string
	queueID string // of the offer that it was chosen for, if any
	choice  choice
	// generation is that of the lease that holds it. The word of an older one's end comes late: its dispatch was adopted.
	generation uint32
}

// claimedSlot is the generation of a slot that a claim of its worker holds. Only that worker frees it: after a restore from a
// backup a step may offer itself for a dispatch of the same id, of which the claim knows nothing.
const claimedSlot = math.MaxUint32

// offer is one step in line.
type offer struct {
	offerStep
	class    *demandClass
	assigned bool
	index    int // in its class's line; -1: not in it
}

// demandClass is all waiting steps with an equal placement.
type demandClass struct {
	placement messages.Placement
	line      line
	parked    []*offer
	fits      map[string]bool // by traits
}

// closePool ends all handing out: the orchestrator stops.
type closePool struct{}

// deadlineElapsed is the scheduler's one timer.
type deadlineElapsed struct{}

const timerDeadline = "deadline"

// refusalPause is how long a worker that refused gets nothing, the first time; it doubles up to refusalPauseMax.
const (
	refusalPause    = time.Second
	refusalPauseMax = 30 * time.Second
)

func newScheduler(epoch uint64, loopback bool) *schedulerState {
	return &schedulerState{
		// The tickets of one scheduler are none of another's: what comes back late means nobody else.
		epoch: epoch, tickets: epoch << 32, loopback: loopback, workers: make(map[string]*poolWorker), classes: make(map[string]*demandClass),
		offers: make(map[string]*offer), lined: make(map[string]*offer), taken: make(map[string]*slot), paused: make(map[string]bool),
	}
}

// stepScheduler is the transition of the scheduler.
func stepScheduler(s *schedulerState, cmd any, at moment) (*schedulerState, decision) {
	var d decision
	switch c := cmd.(type) {
	case offerStep:
		if assigned := s.offer(c, &d, at); !assigned {
			d.then(tell{c.step, offerNoted{c.queueID, s.epoch}})
		}
	case offerSteps:
		d.then(tell{c.run, offersNoted{c.number}})
		for _, o := range c.items {
			s.offer(o, &d, at)
		}
	case withdrawStep:
		s.withdraw(c, &d, at)
	case releaseSlot:
		s.release(c, &d, at)
	case reserveSlots:
		s.reserve(c, &d, at)
	case holdSlot:
		s.hold(c, &d)
	case workerKnown:
		s.know(c, &d)
	case workerStirred:
		if w := s.workers[c.worker]; w != nil {
			s.unpause(w)
			w.refusals = 0
			s.changed(w, &d)
		}
	case deadlineElapsed:
		s.elapsed(&d, at)
	case closePool:
		s.closed = true
	case askWhy:
		d.then(respond{to: c.answer, result: s.why(c.placements)})
	case askStep:
		d.then(respond{to: c.answer, result: s.standing(c)})
	case askGlance:
		d.then(respond{to: c.answer, result: s.glance(c.limit)})
	case askWorker:
		d.then(respond{to: c.answer, result: s.workerStanding(c.name)})
	case poisoned:
		switch o := c.cmd.(type) {
		case offerStep: // the step fails visibly instead of waiting for nobody
			d.then(tell{o.step, poisoned{o}})
		case offerSteps:
			d.then(tell{o.run, offersGivenUp{o.number}})
		}
	case workerGone:
		if w := s.workers[c.worker]; w != nil && w.status == messages.WorkerDisconnected {
			s.strike(w, &d)
		}
	case askPool:
		d.then(respond{to: c.answer, result: s.pool()})
	}
	s.rearm(&d, at)
	return s, d
}

// hold notes the slot of a lease that this scheduler did not choose, or may have chosen otherwise for an offer that was
// older than the lease.
func (s *schedulerState) hold(c holdSlot, d *decision) {
	sl := &slot{worker: c.worker, generation: c.generation}
	old := s.taken[c.dispatchID]
	if old != nil {
		sl.queueID, sl.choice = old.queueID, old.choice
	}
	s.take(c.dispatchID, sl)
	s.dispatched(c.dispatchID)
	d.then(tell{leaseAddress(leaseID(c.dispatchID, c.generation)), slotNoted{c.dispatchID}})
	if old == nil || old.worker == c.worker {
		return
	}
	if w := s.workers[old.worker]; w != nil && !s.struck(w, d) {
		s.changed(w, d)
	}
}

// offer stands a step in line, or hands it out at once: the choice is the answer then. A repeat of an offer that is
// assigned gets the same choice again, as the first may have been lost.
func (s *schedulerState) offer(c offerStep, d *decision, at moment) (assigned bool) {
	if o := s.offers[c.queueID]; o != nil {
		if o.assigned {
			d.then(tell{c.step, assignStep{o.queueID, o.dispatchID, s.taken[o.dispatchID].choice}})
		}
		return o.assigned
	}
	if s.taken[c.dispatchID] != nil { // reserved for its run, which has not waited for the answer; or claimed, and stays so
		s.release(releaseSlot{dispatchID: c.dispatchID}, d, at)
	}
	o := &offer{offerStep: c, class: s.class(c.placement), index: -1}
	s.offers[c.queueID], s.lined[c.dispatchID] = o, o
	s.waiting++
	if !c.deadline.IsZero() {
		s.clock.push(due{c.deadline, o})
	}
	if len(s.clock) > 2*s.waiting+1024 { // steps that got a worker long before their time leave theirs behind
		s.clock.keep(func(d due) bool { return s.waits(d.offer) })
	}
	if c.parked && len(s.paused) > 0 { // else the pool has changed since, or this scheduler has seen no refusal
		o.class.parked = append(o.class.parked, o)
		s.parked++
		return false
	}
	if w := s.choose(o.class); w != nil {
		s.assign(o, w, d)
		return true
	}
	o.class.line.push(o)
	return false
}

func (s *schedulerState) class(p messages.Placement) *demandClass {
	key := p.Key()
	c := s.classes[key]
	if c == nil {
		c = &demandClass{placement: p, fits: make(map[string]bool)}
		s.classes[key] = c
	}
	return c
}

// forget drops a class that nobody waits in.
func (s *schedulerState) forget(c *demandClass) {
	if len(c.line) == 0 && len(c.parked) == 0 {
		delete(s.classes, c.placement.Key())
	}
}

// fit tells whether a worker may serve a class. Unplaced steps run on loopback where there is one, and placed steps never
// do: placement does not fall back.
func (s *schedulerState) fit(c *demandClass, w *poolWorker) bool {
	if c.placement.IsZero() {
		return w.loopback == s.loopback
	}
	if w.loopback {
		return false
	}
	if c.placement.Target != "" {
		return c.placement.Match(w.candidate()).OK
	}
	ok, known := c.fits[w.traits]
	if !known {
		ok = c.placement.Match(w.candidate()).OK
		c.fits[w.traits] = ok
	}
	return ok
}

// choose picks the worker for a class: most free slots, then name.
func (s *schedulerState) choose(c *demandClass) *poolWorker {
	var best *poolWorker
	if s.closed {
		return nil
	}
	for _, w := range s.workers {
		free := w.free()
		if free <= 0 || !s.fit(c, w) {
			continue
		}
		if best == nil || free > best.free() || (free == best.free() && w.name < best.name) {
			best = w
		}
	}
	return best
}

func (s *schedulerState) choice(w *poolWorker) choice {
	s.tickets++
	return choice{ticket: s.tickets, worker: w.name, instance: w.instance, version: w.version, epoch: s.epoch}
}

func (s *schedulerState) take(dispatchID string, sl *slot) {
	if old := s.taken[dispatchID]; old != nil {
		s.untake(old)
	}
	s.taken[dispatchID] = sl
	if w := s.workers[sl.worker]; w != nil {
		w.taken++
	}
}

func (s *schedulerState) untake(sl *slot) {
	if w := s.workers[sl.worker]; w != nil {
		w.taken--
	}
}

// assign hands a step to a worker; the slot counts as taken from here on.
func (s *schedulerState) assign(o *offer, w *poolWorker, d *decision) {
	o.class.line.remove(o)
	s.forget(o.class)
	o.assigned = true
	delete(s.lined, o.dispatchID)
	s.waiting--
	c := s.choice(w)
	s.take(o.dispatchID, &slot{worker: w.name, queueID: o.queueID, choice: c})
	d.then(tell{o.step, assignStep{o.queueID, o.dispatchID, c}})
}

// waits tells whether an offer still stands: a step that has offered itself again stands in line with the newer one.
func (s *schedulerState) waits(o *offer) bool { return s.offers[o.queueID] == o && !o.assigned }

// withdraw takes a step out of line. The slot of a choice that is under way stays taken until the step gives it back, or
// says that the dispatch will never be.
func (s *schedulerState) withdraw(c withdrawStep, d *decision, at moment) {
	if o := s.offers[c.queueID]; o != nil && !o.assigned {
		s.leaveLine(o)
	}
	if c.dispatchID != "" {
		s.release(releaseSlot{dispatchID: c.dispatchID}, d, at)
	}
}

// dispatched drops the offer of a step whose dispatch has a lease: it was sent to the scheduler before this one.
func (s *schedulerState) dispatched(dispatchID string) {
	if o := s.lined[dispatchID]; o != nil {
		s.leaveLine(o)
	}
}

// leaveLine forgets a step that waits.
func (s *schedulerState) leaveLine(o *offer) {
	delete(s.offers, o.queueID)
	delete(s.lined, o.dispatchID)
	s.waiting--
	o.class.line.remove(o)
	if i := slices.Index(o.class.parked, o); i >= 0 {
		o.class.parked = slices.Delete(o.class.parked, i, i+1)
		s.parked--
	}
	s.forget(o.class)
}

// release frees a slot.
func (s *schedulerState) release(c releaseSlot, d *decision, at moment) {
	ofClaim := c.generation == claimedSlot
	if c.from != (address{}) {
		d.then(tell{c.from, slotNoted{c.dispatchID}})
		if !ofClaim {
			s.dispatched(c.dispatchID)
		}
	}
	sl := s.taken[c.dispatchID]
	if sl == nil || ofClaim != (sl.generation == claimedSlot) || c.ticket != 0 && c.ticket != sl.choice.ticket || c.generation != 0 && c.generation < sl.generation {
		return
	}
	delete(s.taken, c.dispatchID)
	delete(s.offers, sl.queueID)
	s.untake(sl)
	w := s.workers[sl.worker]
	if w == nil {
		return
	}
	if s.struck(w, d) {
		return
	}
	if c.stale && w.name == sl.choice.worker && w.version == sl.choice.version { // it would be chosen again at once, and again for nothing
		w.stale = true
		return
	}
	if c.refusedBy != "" {
		// What we believe of its slots is not what it believes. It gets nothing until it stirs, or a moment has passed.
		w.refusedUntil = at.now.Add(min(refusalPause<<min(w.refusals, 8), refusalPauseMax))
		w.refusals++
		s.paused[w.name] = true
		return
	}
	w.refusals = 0
	s.changed(w, d)
}

// reserve answers a run's question for slots. The same question again replaces what was reserved for it.
func (s *schedulerState) reserve(c reserveSlots, d *decision, at moment) {
	answer := slotsReserved{question: c.question, grants: make([]grant, 0, len(c.items))}
	whys := make(map[*demandClass]string)
	for _, item := range c.items {
		s.release(releaseSlot{dispatchID: item.dispatchID}, d, at) // of the same question before
		class := s.class(item.placement)
		w := s.choose(class)
		g := grant{ordinal: item.ordinal, ok: w != nil}
		if w != nil {
			g.choice = s.choice(w)
			s.take(item.dispatchID, &slot{worker: w.name, choice: g.choice})
			s.reserved = append(s.reserved, reservation{askAt(at), c.run, item.dispatchID, g.choice.ticket})
		} else {
			if whys[class] == "" {
				whys[class] = s.whyOf(class)
			}
			g.why = whys[class]
		}
		answer.grants = append(answer.grants, g)
		s.forget(class)
	}
	d.then(tell{c.run, answer})
}

// elapsed tells steps whose time is over, and serves workers whose pause is.
func (s *schedulerState) elapsed(d *decision, at moment) {
	s.armed = time.Time{}
	for len(s.clock) > 0 && !s.clock[0].at.After(at.now) {
		if o := s.clock.pop().offer; s.waits(o) {
			d.then(tell{o.step, queueDeadline{o.queueID}})
			s.clock.push(due{at.now.Add(time.Second), o}) // until the step has withdrawn
		}
	}
	s.askReserved(d, at)
	for _, name := range slices.Sorted(maps.Keys(s.paused)) {
		if w := s.workers[name]; !at.now.Before(w.refusedUntil) {
			s.unpause(w)
			s.changed(w, d)
		}
	}
}

// rearm keeps the one timer at the next thing that falls due.
func (s *schedulerState) rearm(d *decision, at moment) {
	var next time.Time
	if len(s.clock) > 0 {
		next = s.clock[0].at
	}
	if len(s.reserved) > 0 && (next.IsZero() || s.reserved[0].at.Before(next)) {
		next = s.reserved[0].at
	}
	for name := range s.paused {
		if until := s.workers[name].refusedUntil; next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if next.IsZero() || (!s.armed.IsZero() && !next.Before(s.armed)) {
		return
	}
	s.armed = next
	d.then(arm{timerDeadline, max(next.Sub(at.now), 0), deadlineElapsed{}})
}

func (o *offer) before(p *offer) bool {
	return cmp.Or(cmp.Compare(o.place, p.place), cmp.Compare(o.ordinal, p.ordinal), strings.Compare(o.queueID, p.queueID)) < 0
}
