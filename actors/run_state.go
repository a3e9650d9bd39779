package actors

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// Bounds of one of a run's commits, within what the journal takes: a birth is up to three records' worth of entries.
const birthsPerCommit = 240

// Names and times of a run's timers. A question to the scheduler that is not answered in time is a no.
const (
	timerReserve = "reserve"
	timerCancel  = "cancel"
	timerSpace   = "space"

	reserveTime = 50 * time.Millisecond
	cancelTime  = time.Second
	spaceTime   = time.Second

	// cleanupTime bounds how long steps that clean up may take in a cancelled run; then they are cancelled as well.
	timerCleanup = "cleanup"
	cleanupTime  = 5 * time.Minute
)

// runState is a run: the DAG, and the births of its steps. Unlike the other machines it changes in place, for a run may
// have ten thousand steps; what a refused commit has to undo stands in flight. The progress itself is never written: it
// is derived from the records of the steps, so a run that restarts counts them anew.
//
//	submitted ─> running ── every step ended ─> succeeded | failed | cancelled
//
// A run gathers: all commands that have arrived are one batch, and one commit holds what follows from them (rule P7).
type runState struct {
	version uint64 // 0: nothing is known of it
	id      string
	plan    *workflow.Plan
	limit   time.Duration // the orchestrator's queue timeout; 0: none

	workflow, file, parent     string
	sourceDigest, submitDigest string

	status     messages.RunStatus
	errText    string
	fault      string                // a fault of ours ended it
	jobs       []messages.StepStatus // what the event stream has said of them
	cancelAt   time.Time
	cancelBy   string
	forced     bool
	startedAt  time.Time
	endedAt    time.Time
	recordDue  bool // the run's own record has changed
	progress   *workflow.Progress
	phases     []phase
	liveSteps  int   // live or resting
	queue      []int // ready, to be born
	neverBorn  []bornDead
	events     []*messages.RunEvent
	over       bool // every step has ended
	overStatus messages.RunStatus
	reserving  uint64 // the question that is under way; 0: none
	questions  uint64
	grants     map[int]grant
	granted    bool
	flight     *flight
	answers    []respond
	outOfSpace bool
	cancelTold bool
	cleaning   bool // the timer of the clean-up is set
	cleanedUp  bool // the time of the clean-up is over
	custody         // of the steps that rest
}

// phase is how far a step is, as its run knows.
type phase uint8

const (
	unborn  phase = iota
	live          // it has an actor
	resting       // it waits in line, and has none
	ended
)

type bornDead struct {
	ordinal int
	status  messages.StepStatus
}

// flight is what the commit under way holds, in case it is refused.
type flight struct {
	births    []int
	dead      []bornDead
	events    []*messages.RunEvent
	wroteRun  bool
	submitted bool
	over      bool
	waits     []offerStep // of births that wait
	offers    [2]uint64   // the numbers of their offers: those above the first, up to the second
	slots     []grant     // that its births use
}

// submitRun is a client's wish for a run. The run id is the client's: the same again is the same run.
type submitRun struct {
	file, parent               string
	sourceDigest, submitDigest string // the source itself is durable already
	plan                       *workflow.Plan
	limit                      time.Duration
	answer                     *answer
}

// submitted answers submitRun.
type submitted struct{ status messages.RunStatus }

// cancelRun is a client's wish to end a run, or one of its steps.
type cancelRun struct {
	job, step string // empty: the run
	by        string
	force     bool
	answer    *answer
}

// cancelAccepted answers cancelRun.
type cancelAccepted struct {
	status          messages.RunStatus
	cancelRequested bool
}

// reserveSlots asks the scheduler for slots for steps that are ready. It is a question and no news.
type reserveSlots struct {
	run      address
	question uint64
	items    []reserveItem
}

type reserveItem struct {
	ordinal    int
	dispatchID string
	placement  messages.Placement
}

// slotsReserved is the answer, one grant for each item.
type slotsReserved struct {
	question uint64
	grants   []grant
}

type grant struct {
	ordinal int
	ok      bool
	choice  choice
	why     string
}

// reserveElapsed, cancelElapsed and spaceElapsed are the run's timers.
type (
	reserveElapsed struct{ question uint64 }
	cancelElapsed  struct{}
	cleanupElapsed struct{}
	spaceElapsed   struct{}
)

// foundRun is what the journal has of a run when its actor starts.
type foundRun struct {
	record  *messages.RunRecord
	version uint64
	plan    *workflow.Plan
	limit   time.Duration
	steps   []foundStep
}

// runFrom is the state of a run as the journal has it, and what has to be done about it.
func runFrom(f foundRun, at moment) *runState {
	r := f.record
	s := &runState{
		version: f.version, id: r.GetRunId(), plan: f.plan, limit: f.limit, workflow: r.GetWorkflowName(), file: r.GetFile(),
		parent: r.GetParentRunId(), sourceDigest: r.GetSourceDigest(), submitDigest: r.GetSubmitDigest(),
		status: messages.RunStatus(r.GetStatus()), errText: r.GetError(), cancelAt: messages.GoTime(r.GetCancelRequestedAt()),
		cancelBy: r.GetCancelRequestedBy(), forced: r.GetCancelForced(), fault: r.GetFault(), startedAt: messages.GoTime(r.GetStartedAt()), endedAt: messages.GoTime(r.GetEndedAt()),
	}
	if s.status.Ended() {
		return s
	}
	s.offers = numbersAt(at)
	s.phases = make([]phase, len(f.plan.Steps))
	s.jobs = make([]messages.StepStatus, len(f.plan.Jobs))
	for i, j := range r.GetJobs() {
		s.jobs[i] = messages.StepStatus(j.GetStatus())
	}
	done := make(map[int]messages.StepStatus)
	var waiting []offerStep
	var orphans []errand
	for _, found := range f.steps {
		rec := found.record
		status := messages.StepStatus(rec.GetStatus())
		ordinal := int(rec.GetOrdinal())
		if status.Ended() {
			s.phases[ordinal] = ended
			done[ordinal] = status
			s.noteError(ordinal, status, rec.GetError())
			continue
		}
		s.phases[ordinal] = resting
		s.resting++
		s.liveSteps++
		switch {
		case status != messages.StepQueued: // in flight: they come first, for their workers may be back already
			s.errands = append(s.errands, errand{ordinal: ordinal})
		case found.orphan: // in line before a restart
			orphans = append(orphans, errand{ordinal: ordinal})
		default:
			found.plan, found.limit = f.plan, f.limit
			waiting = append(waiting, stepFrom(found).offer())
		}
	}
	s.errands = append(s.errands, orphans...)
	slices.SortStableFunc(waiting, func(a, b offerStep) int { return cmp.Compare(a.place, b.place) })
	s.stand(waiting)
	past := workflow.Past{Ended: done, Cancelled: !s.cancelAt.IsZero(), Begun: make(map[int]bool)}
	for o, p := range s.phases {
		past.Begun[o] = p == live || p == resting
	}
	for _, status := range s.jobs {
		past.Started = append(past.Started, status != "" && status != messages.StepPending)
	}
	progress, change := workflow.ResumeProgress(f.plan, past)
	s.progress = progress
	s.take(change, at.now)
	return s
}

// resumeRun bears the actors of the steps that live, and goes on with what the journal leaves to do.
func (s *runState) resume(at moment) decision {
	var d decision
	switch {
	case s.version == 0:
		return d
	case s.status.Ended(): // the instance before may have got no further than to say so: it has to leave
		d.then(again{struct{}{}})
		return d
	}
	if !s.cancelAt.IsZero() {
		s.stopBirths(at)
	}
	s.proceed(&d, at)
	s.rouse(&d)
	return d
}

func (s *runState) stepAddress(ordinal int) address {
	def := &s.plan.Steps[ordinal]
	return stepAddress(s.id, s.plan.Jobs[def.Job].Name, def.Name)
}

// stepRun is the transition of a run: a batch of commands in, one decision out.
func stepRun(s *runState, batch []any, at moment) (*runState, decision) {
	var d decision
	if len(batch) == 1 {
		if refused, ok := batch[0].(commitRefused); ok {
			s.refused(refused, &d, at)
			s.rouse(&d)
			return s, d
		}
	}
	s.flight = nil
	for _, cmd := range batch {
		s.note(cmd, len(batch) == 1, &d, at)
	}
	s.proceed(&d, at)
	s.rouse(&d)
	s.mayRest(&d)
	if s.status.Ended() || s.plan == nil { // nothing is left to do but to answer
		d.then(leave{})
	}
	return s, d
}

// note takes one command of a batch, or the only one.
func (s *runState) note(cmd any, only bool, d *decision, at moment) {
	switch c := cmd.(type) {
	case submitRun:
		s.submit(c, d, at)
	case cancelRun:
		s.cancel(c, d, at)
	case stepEnded:
		s.stepEnded(c, d, at)
	case slotsReserved:
		if c.question != s.reserving || c.question == 0 {
			d.then(s.release(c.grants)...)
			return
		}
		s.reserving, s.granted = 0, true
		s.grants = make(map[int]grant, len(c.grants))
		for _, g := range c.grants {
			s.grants[g.ordinal] = g
		}
		d.then(disarm{timerReserve})
	case reserveElapsed:
		if c.question == s.reserving && c.question != 0 {
			s.reserving, s.granted, s.grants = 0, true, nil
		}
	case cancelElapsed:
		s.cancelTold = false
	case cleanupElapsed:
		s.cleanedUp, s.cancelTold = true, false
		if !s.cancelAt.IsZero() && !s.status.Ended() {
			s.stopBirths(at)
		}
	case spaceElapsed:
		s.outOfSpace = false
	case schedulerStarted:
		if s.reserving != 0 { // the one that was asked is gone
			s.reserving, s.granted, s.grants = 0, true, nil
		}
		s.offered, s.epoch = nil, c.epoch
		s.rouseResting()
		d.then(tellChildren{c})
	case forStep:
		s.forStep(c, d)
	case stepRests:
		s.rests(c)
	case stepUp:
		s.up(int(c.ordinal))
	case offersNoted:
		s.stood(c.number)
	case offersGivenUp:
		for _, o := range s.stood(c.number) {
			s.errands = append(s.errands, errand{ordinal: int(o.ordinal)})
		}
	case wakeRun:
		s.asked = true
	case lineUp:
		s.rouseResting()
	case rouseElapsed:
		s.rouseArmed = false
		if !s.risen {
			clear(s.rousing)
		}
	case restElapsed:
		if s.restArmed = only && s.idle(); s.restArmed { // it may not rest yet: then it tries again
			d.then(arm{timerRest, restAfter, restElapsed{}}, rest{})
		}
	case stillReserved:
		s.stillReserved(c, d)
	case poisoned:
		s.fail("internal error: the run's actor panicked at the same command each time", d, at)
	}
}

func (s *runState) submit(c submitRun, d *decision, at moment) {
	if s.version > 0 || s.plan != nil {
		answer := respond{to: c.answer, result: submitted{s.status}}
		if c.submitDigest != s.submitDigest {
			answer = respond{to: c.answer, err: messages.Faultf(messages.CodeRunIDConflict, "run %s was submitted before with another workflow or other inputs", s.id)}
		}
		if s.version == 0 {
			s.answers = append(s.answers, answer) // the commit is under way
		} else {
			d.then(answer)
		}
		return
	}
	s.plan, s.limit, s.offers = c.plan, c.limit, numbersAt(at)
	s.workflow, s.file, s.parent = c.plan.Name, c.file, c.parent
	s.sourceDigest, s.submitDigest = c.sourceDigest, c.submitDigest
	s.status, s.startedAt = messages.RunRunning, at.now
	s.jobs = make([]messages.StepStatus, len(c.plan.Jobs))
	for i := range s.jobs {
		s.jobs[i] = messages.StepPending
	}
	s.phases = make([]phase, len(c.plan.Steps))
	s.recordDue = true
	e := s.event(messages.EventRunStarted, at.now)
	e.WorkflowName = &s.workflow
	s.events = append(s.events, e)
	s.answers = append(s.answers, respond{to: c.answer, result: submitted{s.status}})
	s.progress = workflow.NewProgress(c.plan)
	s.take(s.progress.Begin(), at.now)
}

// take notes what the DAG says: steps to be born or skipped, jobs that started or ended, the end. What the stream has
// said of a job already is not said again.
func (s *runState) take(c workflow.Change, now time.Time) {
	for _, j := range c.JobsStarted {
		if s.jobs[j] == messages.StepPending || s.jobs[j] == "" {
			s.sayJob(j, messages.StepRunning, messages.EventJobStarted, now)
		}
	}
	for _, o := range c.Ready {
		if s.phases[o] == unborn {
			s.queue = append(s.queue, o)
		}
	}
	for _, o := range c.Skipped {
		if s.phases[o] == unborn {
			s.phases[o] = ended
			s.neverBorn = append(s.neverBorn, bornDead{o, messages.StepSkipped})
		}
	}
	for _, o := range c.Cancelled {
		if s.phases[o] == unborn {
			s.phases[o] = ended
			s.neverBorn = append(s.neverBorn, bornDead{o, messages.StepCancelled})
		}
	}
	for _, e := range c.JobsEnded {
		if s.jobs[e.Job].Ended() {
			continue
		}
		kind := map[messages.StepStatus]string{
			messages.StepSucceeded: messages.EventJobSucceeded, messages.StepFailed: messages.EventJobFailed,
			messages.StepSkipped: messages.EventJobSkipped, messages.StepCancelled: messages.EventJobCancelled,
		}[e.Status]
		s.sayJob(e.Job, e.Status, kind, now)
	}
	if c.RunEnded {
		s.over, s.overStatus = true, c.RunStatus
	}
}

func (s *runState) sayJob(job int, status messages.StepStatus, kind string, now time.Time) {
	s.jobs[job] = status
	s.recordDue = true
	e := s.event(kind, now)
	e.Job = &s.plan.Jobs[job].Name
	s.events = append(s.events, e)
}

func (s *runState) stepEnded(c stepEnded, d *decision, at moment) {
	// The step's own record says how it ended, and a run that restarts reads it: nothing has to be written first.
	d.then(tell{c.step, endNoted{}})
	if s.status.Ended() || s.phases == nil || int(c.ordinal) >= len(s.phases) || s.phases[c.ordinal] == ended {
		return
	}
	if s.phases[c.ordinal] == resting {
		s.resting--
	}
	s.phases[c.ordinal] = ended
	s.liveSteps--
	s.up(int(c.ordinal))
	s.noteError(int(c.ordinal), c.status, c.err)
	s.take(s.progress.End(int(c.ordinal), c.status), at.now)
	if !s.cancelAt.IsZero() {
		s.stopBirths(at)
	}
}

func (s *runState) noteError(ordinal int, status messages.StepStatus, text string) {
	def := &s.plan.Steps[ordinal]
	job, step := s.plan.Jobs[def.Job].Name, def.Name
	switch {
	case s.errText != "", def.AllowFailure && status == messages.StepFailed:
	case status == messages.StepFailed:
		s.errText = fmt.Sprintf("step %s of job %s failed: %s", step, job, text)
	case status == messages.StepCancelled && s.cancelAt.IsZero():
		s.errText = fmt.Sprintf("step %s of job %s was cancelled", step, job)
		if text != "" {
			s.errText += ": " + text
		}
	}
}

func (s *runState) cancel(c cancelRun, d *decision, at moment) {
	switch {
	case s.version == 0:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeNotFound, "no run %s", s.id)})
	case s.status.Ended():
		d.then(respond{to: c.answer, result: cancelAccepted{s.status, !s.cancelAt.IsZero()}})
	case c.step != "":
		s.cancelOne(c, d, at)
	default:
		if s.cancelAt.IsZero() || (c.force && !s.forced) {
			if s.cancelAt.IsZero() {
				s.cancelAt, s.cancelBy = at.now, c.by
			}
			s.forced = s.forced || c.force
			s.recordDue, s.cancelTold = true, false
			s.stopBirths(at)
		}
		s.answers = append(s.answers, respond{to: c.answer, result: cancelAccepted{s.status, true}})
	}
}

func (s *runState) cancelOne(c cancelRun, d *decision, at moment) {
	for o := range s.plan.Steps {
		def := &s.plan.Steps[o]
		if def.Name != c.step || (c.job != "" && s.plan.Jobs[def.Job].Name != c.job) {
			continue
		}
		switch s.phases[o] {
		case live, resting:
			s.visit(o, cancelStep{by: c.by, force: c.force, at: at.now}, d)
		case unborn:
			s.neverBear(o, at)
		case ended: // terminal is final
		}
		s.answers = append(s.answers, respond{to: c.answer, result: cancelAccepted{s.status, !s.cancelAt.IsZero()}})
		return
	}
	d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeNotFound, "run %s has no step %s", s.id, c.step)})
}

// stopBirths ends what has not been born: a cancelled run starts nothing more but what cleans up, and that only as long as
// it has time for it.
func (s *runState) stopBirths(at moment) {
	if !s.forced && !s.cleanedUp {
		s.take(s.progress.Cancel(func(o int) bool { return s.phases[o] == live || s.phases[o] == resting }), at.now)
		return
	}
	s.queue = nil
	for o, p := range s.phases {
		if p == unborn {
			s.neverBear(o, at)
		}
	}
}

func (s *runState) neverBear(o int, at moment) {
	if s.phases[o] != unborn {
		return
	}
	s.phases[o] = ended
	s.neverBorn = append(s.neverBorn, bornDead{o, messages.StepCancelled})
	s.take(s.progress.End(o, messages.StepCancelled), at.now)
}

// fail ends the run after a fault of ours: its steps are cancelled.
func (s *runState) fail(text string, d *decision, at moment) {
	if s.version == 0 || s.status.Ended() {
		return
	}
	s.fault = text
	s.cancel(cancelRun{by: "swampd", force: true}, d, at)
}
