package actors

import (
	"slices"
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
)

// A step that waits in line rests: it has no actor. The scheduler has its place, its record says the rest, and its run
// answers for it: the run stands it in line, and bears its actor again for whatever comes for it. A run all of whose steps
// rest, rests too; its router bears it again. So a hundred thousand waiting steps cost what their places in line cost.

// Bounds and times of resting.
const (
	// rouseWidth is how many resting steps a run has roused at once. They commit at the same time, and what one run has to
	// say to all of its steps must not stand in the way of everybody else's commits.
	rouseWidth = 32
	// offersAtOnce is how many steps one message stands in line.
	offersAtOnce = 256

	timerRouse = "rouse"
	timerRest  = "rest"

	// rouseTime is how long it may be until one of the steps that are being roused is up; then the next ones are roused anyway.
	// A slow disk is no reason: they would only make it slower.
	rouseTime = 10 * time.Second
	// restAfter is how long a run has to be idle before it rests: most waits are short, and reading a run again costs more.
	restAfter = 2 * time.Second
)

// forStep is a message for a step that has no actor.
type forStep struct {
	to  address
	msg any
}

func (f forStep) identity() string { return f.to.id + " " + commandKey(f.msg) }

// stepRests tells a run that a step's actor has left: the step waits in the line of the scheduler of that epoch.
type stepRests struct {
	ordinal uint32
	epoch   uint64
}

// rouseStep starts a step's actor, with a command for it or nil. stepUp answers it where the step goes on with an actor.
type (
	rouseStep struct{ cmd any }
	stepUp    struct{ ordinal uint32 }
)

func (r rouseStep) identity() string {
	if r.cmd == nil {
		return ""
	}
	return commandKey(r.cmd)
}

// roused comes to a step behind its rejoin.
type roused struct{}

// offerSteps stands resting steps of a run in line; offersNoted says that they are. offersGivenUp says that the scheduler
// cannot take them: one of them is poison, and each by itself shows which.
type (
	offerSteps struct {
		run    address
		number uint64
		items  []offerStep
	}
	offersNoted   struct{ number uint64 }
	offersGivenUp struct{ number uint64 }
)

// wakeRun has a run rouse what a restart has left stale. runUp tells the router that it has.
type (
	wakeRun struct{}
	runUp   struct{}
)

// lineUp has a run stand its waiting steps in line again, for the line is not what it should be.
type lineUp struct{}

// rouseElapsed and restElapsed are timers of a run.
type (
	rouseElapsed struct{}
	restElapsed  struct{}
)

// errand is a resting step to be roused; cmd is what for, nil if it is enough that its actor looks at its record.
type errand struct {
	ordinal int
	cmd     any
}

// custody is what a run knows of its resting steps. Nothing of it is durable: it is derived from their records.
type custody struct {
	resting int // steps in phase resting
	errands []errand
	rousing map[int]struct{}
	risen   bool         // one of them has come up since the timer was set
	offered []offerSteps // not noted yet
	offers  uint64       // the last number of them, from numbersAt on
	asked   bool         // the router waits for the errands to be done
	epoch   uint64       // of the last scheduler that has said that it is new

	rouseArmed, restArmed bool
}

// stand stands steps in line, once the commit that says that they wait is durable. The oldest come first. No other offers
// of a run of that name have these numbers, also none of an actor before this one: the answer to those may still be on its
// way.
func (s *runState) stand(items []offerStep) {
	for len(items) > 0 {
		n := min(len(items), offersAtOnce)
		s.offers++
		s.offered = append(s.offered, offerSteps{run: runAddress(s.id), number: s.offers, items: items[:n:n]})
		items = items[n:]
	}
}

// stood forgets offers that the scheduler has.
func (s *runState) stood(number uint64) (items []offerStep) {
	for i, o := range s.offered {
		if o.number == number {
			s.offered = append(s.offered[:i:i], s.offered[i+1:]...)
			return o.items
		}
	}
	return nil
}

// numbersAt is where the numbers of an actor's offers begin.
func numbersAt(at moment) uint64 { return at.sequence << 20 }

// unstand takes a step out of the offers that are not noted yet: its own actor speaks for it now.
func (s *runState) unstand(ordinal int) {
	for i, o := range s.offered {
		for j := range o.items {
			if int(o.items[j].ordinal) != ordinal {
				continue
			}
			s.offered = append(s.offered[:i:i], s.offered[i+1:]...)
			s.stand(slices.Concat(o.items[:j], o.items[j+1:]))
			return
		}
	}
}

// owedByRun is what a run owes: the offers of steps that rest.
func owedByRun(s *runState, _ moment) []obligation {
	if len(s.offered) == 0 {
		return nil
	}
	owed := make([]obligation, len(s.offered))
	for i, o := range s.offered {
		owed[i] = obligation{id: "offers " + strconv.FormatUint(o.number, 10), to: schedulerAddress(), msg: o}
	}
	return owed
}

// visit delivers a message to a step that has not ended, whose actor is borne for it if it rests.
func (s *runState) visit(o int, cmd any, d *decision) {
	if s.phases[o] == resting {
		s.phases[o] = live
		s.resting--
		s.unstand(o)
	}
	d.then(bear{child: s.stepAddress(o), msg: cmd, plan: s.plan})
}

// rests notes that a step's actor has left. If the scheduler that it stood in line at is gone since, it has to offer itself
// to the new one.
func (s *runState) rests(c stepRests) {
	o := int(c.ordinal)
	if o < len(s.phases) && s.phases[o] == live {
		s.phases[o] = resting
		s.resting++
		if c.epoch < s.epoch {
			s.errands = append(s.errands, errand{ordinal: o})
		}
	}
	s.up(o)
}

// up notes that a step that was being roused goes on.
func (s *runState) up(o int) {
	if _, ok := s.rousing[o]; ok {
		delete(s.rousing, o)
		s.risen = true
	}
}

// forStep answers for a step that has no actor.
func (s *runState) forStep(c forStep, d *decision) {
	o, ok := 0, false
	if _, job, step, err := stepNames(c.to); err == nil && s.plan != nil && s.phases != nil {
		o, ok = s.plan.Ordinal(job, step)
	}
	if ok && (s.phases[o] == live || s.phases[o] == resting) {
		if _, late := c.msg.(queueDeadline); late { // many may have the same one
			s.errands = append(s.errands, errand{o, c.msg})
			return
		}
		s.visit(o, c.msg, d)
		return
	}
	switch msg := c.msg.(type) { // it has ended and left, so it knows
	case leaseEnded:
		d.then(tell{leaseAddress(msg.lease), leaseNoted{lease: msg.lease}})
	case assignStep:
		d.then(tell{schedulerAddress(), releaseSlot{dispatchID: msg.dispatchID, ticket: msg.choice.ticket}})
	case queueDeadline:
		d.then(tell{schedulerAddress(), withdrawStep{queueID: msg.queueID}})
	}
}

// rouseResting has every resting step look at its record again. Those that the commit under way bears have none yet.
func (s *runState) rouseResting() {
	if s.resting == 0 {
		return
	}
	due := make(map[int]bool, len(s.errands))
	for _, e := range s.errands {
		due[e.ordinal] = true
	}
	if s.flight != nil {
		for _, o := range s.flight.births {
			due[o] = true
		}
	}
	for o, p := range s.phases {
		if p == resting && !due[o] {
			s.errands = append(s.errands, errand{ordinal: o})
		}
	}
}

// rouse goes on with the errands, a few at a time. In a cancelled run each is the cancel.
func (s *runState) rouse(d *decision) {
	for len(s.errands) > 0 && len(s.rousing) < rouseWidth {
		e := s.errands[0]
		s.errands = s.errands[1:]
		if p := s.phases[e.ordinal]; p != live && p != resting {
			continue
		}
		if e.cmd == nil && !s.cancelAt.IsZero() {
			e.cmd = s.cancelOf()
		}
		if s.rousing == nil {
			s.rousing = make(map[int]struct{})
		}
		s.rousing[e.ordinal] = struct{}{}
		s.visit(e.ordinal, rouseStep{e.cmd}, d)
	}
	if len(s.rousing) > 0 && !s.rouseArmed {
		s.rouseArmed, s.risen = true, false
		d.then(arm{timerRouse, rouseTime, rouseElapsed{}})
	}
	if len(s.errands) == 0 {
		s.errands = nil
	}
	if s.asked && len(s.errands) == 0 && len(s.rousing) == 0 {
		s.asked = false
		d.then(tell{routerOf(kindRun), runUp{}})
	}
}

func (s *runState) cancelOf() cancelStep {
	return cancelStep{run: !s.cleanedUp, by: s.cancelBy, force: s.forced, at: s.cancelAt}
}

// idle tells whether the run has nothing to do before somebody speaks to one of its steps.
func (s *runState) idle() bool {
	return s.version > 0 && s.status == messages.RunRunning && s.resting > 0 && s.resting == s.liveSteps && s.cancelAt.IsZero() &&
		s.reserving == 0 && !s.outOfSpace && !s.over && !s.recordDue && !s.asked &&
		len(s.queue) == 0 && len(s.neverBorn) == 0 && len(s.events) == 0 && len(s.answers) == 0 &&
		len(s.errands) == 0 && len(s.rousing) == 0 && len(s.offered) == 0
}

// mayRest sees to it that an idle run rests after a while.
func (s *runState) mayRest(d *decision) {
	if !s.restArmed && s.idle() {
		s.restArmed = true
		d.then(arm{timerRest, restAfter, restElapsed{}})
	}
}
