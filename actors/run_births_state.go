package actors

import (
	"fmt"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// proceed decides what to do next with what was noted: ask for slots, or commit.
func (s *runState) proceed(d *decision, at moment) {
	if s.plan == nil || s.status.Ended() || s.reserving != 0 || s.outOfSpace {
		return
	}
	s.dropStaleQueue()
	if len(s.queue) > 0 && !s.granted {
		s.ask(d, at)
		return
	}
	s.commit(d, at)
}

// dropStaleQueue forgets ready steps that were ended meanwhile, and gives back what was reserved for them.
func (s *runState) dropStaleQueue() {
	kept := s.queue[:0]
	for _, o := range s.queue {
		if s.phases[o] == unborn {
			kept = append(kept, o)
		}
	}
	s.queue = kept
}

// ask asks the scheduler for slots for the next births. No other question of a run of that name has its number, also none of
// an actor before this one: the answer to that may still be on its way.
func (s *runState) ask(d *decision, at moment) {
	s.questions = max(s.questions+1, at.sequence)
	s.reserving = s.questions
	q := reserveSlots{run: runAddress(s.id), question: s.reserving}
	for _, o := range s.queue[:min(len(s.queue), birthsPerCommit)] {
		q.items = append(q.items, reserveItem{o, firstDispatch(s.id, o), s.plan.Steps[o].Placement})
	}
	d.then(tell{schedulerAddress(), q}, arm{timerReserve, reserveTime, reserveElapsed{s.reserving}})
}

func firstDispatch(run string, ordinal int) string { return fmt.Sprintf("%s.%d.1", run, ordinal) }

// release gives reserved slots back.
func (s *runState) release(grants []grant) []effect {
	var effects []effect
	for _, g := range grants {
		if g.ok {
			effects = append(effects, tell{schedulerAddress(), releaseSlot{dispatchID: firstDispatch(s.id, g.ordinal), ticket: g.choice.ticket}})
		}
	}
	return effects
}

// commit puts everything that follows from what was noted into one commit, up to its bounds; the rest follows behind it.
func (s *runState) commit(d *decision, at moment) {
	f := &flight{submitted: s.version == 0}
	births := s.queue[:min(len(s.queue), birthsPerCommit)]
	s.queue = s.queue[len(births):]
	room := birthsPerCommit - len(births)
	f.births = births
	f.dead = s.neverBorn[:min(len(s.neverBorn), room)]
	s.neverBorn = s.neverBorn[len(f.dead):]
	f.events, s.events = s.events, nil
	f.over = s.over && len(s.queue) == 0 && len(s.neverBorn) == 0
	grants := s.grants
	s.grants, s.granted = nil, false
	s.build(d, f, grants, at)
}

// build writes a commit of a flight. Slots are used where they were granted.
func (s *runState) build(d *decision, f *flight, grants map[int]grant, at moment) {
	d.stream = s.id
	d.newStream = f.submitted
	begun, jobsEnded := splitEvents(f.events)
	d.events = append(d.events, begun...)
	required := make(map[require]bool)
	for _, o := range f.births {
		s.birth(d, f, o, grants[o], required, at)
		if grants[o].ok {
			f.slots = append(f.slots, grants[o])
		}
		delete(grants, o)
	}
	before := s.offers
	s.stand(f.waits)
	f.offers = [2]uint64{before, s.offers}
	for _, g := range grants { // reserved for a step that was ended meanwhile
		d.then(s.release([]grant{g})...)
	}
	for _, dead := range f.dead {
		step := stepOf(s.id, s.workflow, s.plan, dead.ordinal, s.limit, at)
		_, b := step.bornEnded(dead.status, at)
		d.writes, d.events = append(d.writes, b.writes...), append(d.events, b.events...)
	}
	d.events = append(d.events, jobsEnded...)
	if f.over {
		s.endRun(d, at)
	}
	if s.recordDue || f.submitted {
		f.wroteRun = true
		s.recordDue = false
		s.version++
		d.writes = append(d.writes, s.write())
	}
	if len(f.births) > 0 {
		d.class = classNewWork
	}
	for _, a := range s.answers {
		d.then(a)
	}
	s.answers = nil
	s.flight = f
	s.follow(d)
}

// follow adds what comes after the commit.
func (s *runState) follow(d *decision) {
	if !s.cancelAt.IsZero() && s.liveSteps > 0 && !s.cancelTold {
		s.cancelTold = true
		s.rouseResting()
		d.then(tellChildren{s.cancelOf()}, arm{timerCancel, cancelTime, cancelElapsed{}})
	}
	if !s.cancelAt.IsZero() && !s.cleaning && s.cleans() {
		s.cleaning = true
		d.then(arm{timerCleanup, cleanupTime, cleanupElapsed{}})
	}
	if s.status.Ended() {
		s.offered, s.errands = nil, nil
		d.then(disarm{timerCancel}, disarm{timerCleanup}, disarm{timerReserve}, leave{})
		return
	}
	if len(s.queue) > 0 || len(s.neverBorn) > 0 {
		d.then(again{struct{}{}})
	}
}

// cleans tells whether the run has steps that clean up.
func (s *runState) cleans() bool {
	for o := range s.plan.Steps {
		if s.plan.CleansUp(o) {
			return true
		}
	}
	return false
}

// splitEvents parts a run's own events into those that come before the births and those that come after.
func splitEvents(events []*messages.RunEvent) (before, after []*messages.RunEvent) {
	for _, e := range events {
		if e.GetKind() == messages.EventRunStarted || e.GetKind() == messages.EventJobStarted {
			before = append(before, e)
		} else {
			after = append(after, e)
		}
	}
	return before, after
}

// birth adds the birth of one step: with its lease where a slot was reserved, else in a wait episode.
func (s *runState) birth(d *decision, f *flight, o int, g grant, required map[require]bool, at moment) {
	step := stepOf(s.id, s.workflow, s.plan, o, s.limit, at)
	var b decision
	if s.phases[o] == unborn {
		s.liveSteps++
	}
	if s.phases[o] == resting {
		s.resting--
	}
	if g.ok {
		step, b = step.bornRunning(g.choice, at)
		s.phases[o] = live
		d.then(bear{child: step.address(), msg: beginStep{step}, plan: s.plan})
		for _, r := range b.requires {
			if !required[r] {
				required[r] = true
				d.requires = append(d.requires, r)
			}
		}
	} else {
		why := g.why
		if why == "" {
			why = waiting(step.def.Placement, "the scheduler has not answered yet")
		}
		step, b = step.bornQueued(why, at)
		s.phases[o] = resting
		s.resting++
		f.waits = append(f.waits, step.offer())
	}
	d.writes, d.events = append(d.writes, b.writes...), append(d.events, b.events...)
	d.then(b.effects...)
}

func (s *runState) endRun(d *decision, at moment) {
	s.status, s.endedAt, s.recordDue = s.overStatus, at.now, true
	switch {
	case s.fault != "":
		s.status, s.errText = messages.RunFailed, s.fault
	case !s.cancelAt.IsZero():
		s.status = messages.RunCancelled
	}
	kind := map[messages.RunStatus]string{
		messages.RunSucceeded: messages.EventRunSucceeded, messages.RunFailed: messages.EventRunFailed,
		messages.RunCancelled: messages.EventRunCancelled,
	}[s.status]
	e := s.event(kind, at.now)
	switch s.status {
	case messages.RunFailed:
		e.Error = &s.errText
	default:
		s.errText = ""
	}
	d.events = append(d.events, e)
}

// refused answers a refused commit: slots that no longer stand are done without, and without space a run that was not
// accepted is not, while one that goes on waits for space.
func (s *runState) refused(c commitRefused, d *decision, at moment) {
	f := s.flight
	if f == nil {
		return
	}
	s.flight = nil
	d.then(c.news()...)
	if f.wroteRun {
		s.version--
		s.recordDue = true
	}
	if f.over {
		s.status, s.endedAt = messages.RunRunning, time.Time{}
	}
	d.then(s.release(f.slots)...)
	s.offered = slices.DeleteFunc(s.offered, func(o offerSteps) bool { return o.number > f.offers[0] && o.number <= f.offers[1] })
	f.waits = nil
	switch {
	case c.noSpace && f.submitted:
		err := messages.Faultf(messages.CodeNoSpace, "the orchestrator's store is short of space: the run was not accepted; free some and submit it again")
		for _, e := range c.answersOf() {
			e.err, e.result = err, nil
			d.then(e)
		}
		*s = runState{id: s.id, questions: s.questions} // the same run may be submitted again before its actor has gone
		d.then(leave{})
	case c.noSpace:
		s.queue = append(f.births, s.queue...)
		for _, o := range f.births {
			if s.phases[o] == resting {
				s.resting--
			}
			s.phases[o] = unborn
			s.liveSteps--
		}
		s.neverBorn = append(f.dead, s.neverBorn...)
		s.events = append(f.events, s.events...)
		s.outOfSpace = true
		s.answers = append(s.answers, c.answersOf()...)
		d.then(arm{timerSpace, spaceTime, spaceElapsed{}})
	default:
		s.answers = append(s.answers, c.answersOf()...)
		f.slots = nil
		s.build(d, f, nil, at)
	}
}

// news is what the refused decision would have told others that does not depend on what it would have written.
func (c commitRefused) news() []effect {
	var news []effect
	for _, e := range c.effects {
		switch e := e.(type) {
		case tell:
			if _, birth := e.msg.(ensureLease); !birth { // there is no such lease
				news = append(news, e)
			}
		case bear:
			if _, birth := e.msg.(beginStep); !birth { // nor such a step
				news = append(news, e)
			}
		case arm:
			if e.name == timerRouse || e.name == timerRest {
				news = append(news, e)
			}
		case tellChildren, disarm:
			news = append(news, e)
		}
	}
	return news
}

// answersOf are the answers that the refused decision would have given.
func (c commitRefused) answersOf() []respond {
	var answers []respond
	for _, e := range c.effects {
		if r, ok := e.(respond); ok && r.err == nil {
			answers = append(answers, r)
		}
	}
	return answers
}

func (s *runState) event(kind string, now time.Time) *messages.RunEvent {
	return &messages.RunEvent{Kind: kind, RunId: s.id, At: messages.Time(now)}
}

func (s *runState) write() write {
	r := &messages.RunRecord{
		RunId: s.id, ParentRunId: s.parent, WorkflowName: s.workflow, File: s.file, SourceDigest: s.sourceDigest,
		SubmitDigest: s.submitDigest, PlanVersion: 1, Status: string(s.status), Error: s.errText,
		CancelRequestedAt: messages.Time(s.cancelAt), CancelRequestedBy: s.cancelBy, StartedAt: messages.Time(s.startedAt),
		EndedAt: messages.Time(s.endedAt), Fault: s.fault, CancelForced: s.forced,
	}
	for _, j := range s.jobs {
		r.Jobs = append(r.Jobs, &messages.JobRecord{Status: string(j)})
	}
	return write{kind: kindRun, id: s.id, replaces: s.version - 1, state: string(s.status), ended: s.status.Ended(), body: r}
}
