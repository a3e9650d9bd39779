package actors

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// stepState is a step as its actor knows it.
//
//	           ┌─────────────── refused, lost ────────────┐
//	           v                                          │
//	born ─> queued ── assign ─> running ── leaseEnded ────┴─> succeeded | failed | cancelled
//	           └── deadline, cancel ──────────────────────────^
//
// A step is born by its run, queued or running. It owns its wait episodes (pending dispatches) and the birth of its
// leases; it leaves once its run has noted the end.
type stepState struct {
	version uint64

	run, workflow, job, step string
	ordinal                  uint32
	def                      *workflow.Step
	cleansUp                 bool // also in a cancelled run
	// limit is the queue timeout in force; 0: none.
	limit time.Duration

	status     messages.StepStatus
	attempt    int32
	losses     int32
	refusals   int32
	episode    uint32
	dispatches uint32
	place      uint64 // in line
	waited     time.Duration
	queuedFor  time.Duration

	queueID    string
	pending    uint64 // version of its pending dispatch
	dispatchID string
	generation uint32
	worker     string

	readyAt, queuedAt, startedAt, endedAt time.Time

	errText, code string
	outputs       []*messages.KeyValue
	outputsBody   *messages.BodyRef // where they are, if not in the records

	cancelAt time.Time
	cancelBy string
	forced   bool

	// Not durable: what the others are known to know.
	schedulerEpoch uint64 // the scheduler that has noted the offer
	offers         uint32 // how often it has offered itself anew in this episode
	leaseUp        bool   // the lease's actor has said so
	runKnows       bool   // the run has noted the end
	parked         bool   // to be offered only once the pool has changed
	awaiting       bool   // a restart ended its lease: its worker may come back with the dispatch
	awaitNoted     bool   // the worker's actor has noted that
	awaitOver      bool   // a grace has passed: it is asked whether there is still hope
	wrote          bool   // while it awaits: the dispatch had written
	orphan         bool   // its wait episode is from before a restart
	grace          time.Duration
}

const timerAdoption = "adoption"

func (s stepState) address() address { return stepAddress(s.run, s.job, s.step) }

func (s stepState) leaseID() string { return leaseID(s.dispatchID, s.generation) }

func leaseID(dispatch string, generation uint32) string {
	return dispatch + "/" + strconv.FormatUint(uint64(generation), 10)
}

// generationOf is the generation in the id of a lease.
func generationOf(lease string) uint32 {
	_, g, _ := strings.Cut(lease, "/")
	n, _ := strconv.ParseUint(g, 10, 32)
	return uint32(n)
}

// nextDispatch is derived, so that a repeated commit cannot make a second one.
func (s stepState) nextDispatch() string {
	return fmt.Sprintf("%s.%d.%d", s.run, s.ordinal, s.dispatches+1)
}

// stepOf is a step that has just become ready.
func stepOf(run, name string, plan *workflow.Plan, ordinal int, limit time.Duration, at moment) stepState {
	def := &plan.Steps[ordinal]
	if def.QueueTimeout != nil {
		limit = *def.QueueTimeout
	}
	return stepState{
		run: run, workflow: name, job: plan.Jobs[def.Job].Name, step: def.Name, ordinal: uint32(ordinal), def: def,
		cleansUp: plan.CleansUp(ordinal), limit: limit, attempt: 1, place: at.sequence, readyAt: at.now,
	}
}

// bornQueued decides a step's first version: it waits.
func (s stepState) bornQueued(why string, at moment) (stepState, decision) {
	d := decision{class: classNewWork, events: []*messages.RunEvent{s.event(messages.EventStepStarted, at)}}
	return s.wait(d, why, at)
}

// bornRunning decides a step's first version: a slot was reserved for it.
func (s stepState) bornRunning(c choice, at moment) (stepState, decision) {
	d := decision{class: classNewWork, events: []*messages.RunEvent{s.event(messages.EventStepStarted, at)}}
	return s.dispatch(d, c, at)
}

// bornEnded decides a step's only version: it never was.
func (s stepState) bornEnded(status messages.StepStatus, at moment) (stepState, decision) {
	return s.end(decision{}, status, "", "", at)
}

// stepStep is the transition of a step.
func stepStep(s stepState, cmd any, at moment) (stepState, decision) {
	switch c := cmd.(type) {
	case assignStep:
		return s.assign(c, at)
	case queueDeadline:
		if s.status != messages.StepQueued || c.queueID != s.queueID {
			return s, decision{effects: []effect{tell{schedulerAddress(), withdrawStep{queueID: c.queueID}}}}
		}
		text := fmt.Sprintf("timed out after %s waiting for a worker matching %s", seconds(s.limit), s.def.Placement.Requirement())
		return s.endEpisode(messages.PendingTimedOut, messages.StepFailed, text, string(messages.CodeQueueTimeout), at)
	case cancelStep:
		return s.cancel(c, at)
	case leaseEnded:
		return s.leaseEnded(c, at)
	case leaseUp:
		s.leaseUp = s.leaseUp || c.lease == s.leaseID()
	case offerNoted:
		if c.queueID == s.queueID && s.status == messages.StepQueued && !s.orphan {
			s.schedulerEpoch = c.epoch
			return s, decision{effects: []effect{tell{runAddress(s.run), stepRests{s.ordinal, c.epoch}}, leave{}}}
		}
	case rouseStep:
		d := decision{}
		if c.cmd != nil {
			s, d = stepStep(s, c.cmd, at)
		}
		d.then(again{roused{}})
		return s, d
	case roused:
		if s.status == messages.StepRunning {
			return s, decision{effects: []effect{tell{runAddress(s.run), stepUp{s.ordinal}}}}
		}
	case schedulerStarted:
		s.schedulerEpoch = 0
	case endNoted:
		if s.status.Ended() {
			s.runKnows = true
			return s, decision{effects: []effect{leave{}}}
		}
	case commitRefused:
		return s.refused(c)
	case rejoin:
		return s.rejoin(c, at)
	case awaitNoted:
		s.awaitNoted = true
	case workerBack:
		if s.awaitOver {
			return s.notAdopted("it did not come back in time", at)
		}
		return s.notAdopted("it came back without the step", at)
	case adoptionElapsed:
		// The worker's actor knows whether it is back with the step (rule P10).
		s.awaitOver = s.awaiting
	case poisoned:
		return s.poisoned(c, at)
	}
	return s, decision{}
}

// resumeStep is what is owed for a step.
func resumeStep(s stepState, _ moment) []obligation {
	switch {
	case s.orphan:
		return nil // until it has rejoined
	case s.status == messages.StepQueued && s.schedulerEpoch == 0:
		id := "offer " + s.queueID
		if s.offers > 0 {
			id += " " + strconv.FormatUint(uint64(s.offers), 10)
		}
		return []obligation{{id: id, to: schedulerAddress(), msg: s.offer()}}
	case s.awaiting:
		wait := awaitWorker{step: s.address(), lease: s.leaseID(), over: s.awaitOver}
		switch {
		case s.awaitOver:
			return []obligation{{id: "await over " + s.leaseID(), to: workerAddress(s.worker), msg: wait}}
		case s.awaitNoted:
			return nil
		default:
			return []obligation{{id: "await " + s.leaseID(), to: workerAddress(s.worker), msg: wait}}
		}
	case s.status == messages.StepRunning:
		var owed []obligation
		if !s.leaseUp {
			owed = append(owed, obligation{
				id: "lease " + s.leaseID(), to: leaseAddress(s.leaseID()),
				msg: ensureLease{lease: s.leaseID(), step: s.address()}, told: true,
			})
		}
		if !s.cancelAt.IsZero() {
			owed = append(owed, obligation{
				id: "cancel " + s.leaseID() + strconv.FormatBool(s.forced), to: leaseAddress(s.leaseID()),
				msg: cancelLease{by: s.cancelBy, force: s.forced},
			})
		}
		return owed
	case s.status.Ended() && !s.runKnows:
		owed := []obligation{{id: "ended", to: runAddress(s.run), msg: stepEnded{s.address(), s.ordinal, s.status, s.errText, s.code}}}
		if s.dispatchID == "" && s.queueID != "" {
			// It ended in line. An assignment may be on its way to an actor that is about to leave, and nobody would answer it.
			owed = append(owed, obligation{id: "withdraw", to: schedulerAddress(), msg: withdrawStep{s.queueID, s.nextDispatch()}})
		}
		return owed
	default:
		return nil
	}
}

func (s stepState) offer() offerStep {
	o := offerStep{
		step: s.address(), queueID: s.queueID, dispatchID: s.nextDispatch(), placement: s.def.Placement,
		place: s.place, ordinal: s.ordinal, parked: s.parked,
	}
	if s.limit > 0 {
		o.deadline = s.queuedAt.Add(s.limit - s.waited)
	}
	return o
}

// assign makes the scheduler's choice real, or gives the slot back.
func (s stepState) assign(c assignStep, at moment) (stepState, decision) {
	switch {
	case s.status == messages.StepRunning && c.dispatchID == s.dispatchID:
		return s, decision{} // said twice
	case s.status != messages.StepQueued || c.queueID != s.queueID || c.dispatchID != s.nextDispatch():
		return s, decision{effects: []effect{tell{schedulerAddress(), releaseSlot{dispatchID: c.dispatchID, ticket: c.choice.ticket}}}}
	}
	return s.dispatch(decision{class: classEnding}, c.choice, at)
}

// dispatch is the commit that hands the step to a worker: step running, episode closed, lease active.
func (s stepState) dispatch(d decision, c choice, at moment) (stepState, decision) {
	if s.status == messages.StepQueued {
		s.leaveLine(at)
		d.writes = append(d.writes, s.pendingWrite(messages.PendingDispatched, at, s.nextDispatch()))
	}
	s.dispatchID, s.generation = s.nextDispatch(), 1
	s.dispatches++
	s.worker = c.worker
	s.status = messages.StepRunning
	s.startedAt = at.now
	s.leaseUp, s.parked = false, false
	l := leaseOf(s, c, at)
	s.version++
	d.writes = append(d.writes, s.write(), l.write())
	d.requires = append(d.requires, require{kindWorker, c.worker, c.version}, require{kindScheduler, kindScheduler, c.epoch})
	e := s.event(messages.EventStepDispatched, at)
	e.Worker, e.DispatchId, e.Attempt = &c.worker, &s.dispatchID, &s.attempt
	d.stream, d.events = s.run, append(d.events, e)
	d.then(tell{leaseAddress(l.id()), ensureLease{lease: l.id(), step: s.address(), born: &l}})
	return s, d
}

// wait is the commit by which the step enters a wait episode.
func (s stepState) wait(d decision, why string, at moment) (stepState, decision) {
	s.episode++
	s.queueID = fmt.Sprintf("%s.%d.q%d", s.run, s.ordinal, s.episode)
	s.pending = 0
	s.queuedAt = at.now
	s.status = messages.StepQueued
	s.schedulerEpoch, s.offers = 0, 0
	s.dispatchID, s.generation, s.worker = "", 0, ""
	s.startedAt = time.Time{}
	d.writes = append(d.writes, s.pendingWrite(messages.PendingWaiting, at, ""))
	s.pending = 1
	s.version++
	d.writes = append(d.writes, s.write())
	requirement := s.def.Placement.Requirement()
	e := s.event(messages.EventStepQueued, at)
	e.Requirement, e.Why, e.QueueId = &requirement, &why, &s.queueID
	d.stream, d.events = s.run, append(d.events, e)
	return s, d
}

func (s *stepState) leaveLine(at moment) {
	waited := max(at.now.Sub(s.queuedAt), 0)
	s.waited += waited
	s.queuedFor += waited
	s.orphan = false // this commit ends the episode from before a restart
}

// end is the commit of the step's end.
func (s stepState) end(d decision, status messages.StepStatus, text, code string, at moment) (stepState, decision) {
	if status == messages.StepCancelled && s.code == string(messages.CodeInternal) { // a fault of ours has killed it
		status, text, code = messages.StepFailed, s.errText, s.code
	}
	s.status, s.errText, s.code, s.endedAt, s.awaiting = status, text, code, at.now, false
	s.version++
	d.writes = append(d.writes, s.write())
	kind := map[messages.StepStatus]string{
		messages.StepSucceeded: messages.EventStepSucceeded, messages.StepFailed: messages.EventStepFailed,
		messages.StepCancelled: messages.EventStepCancelled, messages.StepSkipped: messages.EventStepSkipped,
	}[status]
	e := s.event(kind, at)
	switch status {
	case messages.StepSucceeded:
		e.Outputs = outputMap(s.outputs)
	case messages.StepFailed:
		e.Error, e.Code = &text, &code
	case messages.StepCancelled:
		e.Error, e.Code = optional(text), optional(code)
	default: // the event says it all
	}
	d.stream, d.events = s.run, append(d.events, e)
	return s, d
}

// endEpisode ends a step that waits, and its episode with it.
func (s stepState) endEpisode(p messages.PendingState, status messages.StepStatus, text, code string, at moment) (stepState, decision) {
	s.leaveLine(at)
	d := decision{writes: []write{s.pendingWrite(p, at, "")}}
	return s.end(d, status, text, code, at)
}

func (s stepState) cancel(c cancelStep, at moment) (stepState, decision) {
	if c.run && !c.force && s.cleansUp {
		return s, decision{}
	}
	if s.status.Ended() || (!s.cancelAt.IsZero() && (s.forced || !c.force)) {
		return s, decision{}
	}
	s.cancelAt, s.cancelBy, s.forced = c.at, c.by, c.force
	if s.status == messages.StepQueued {
		return s.endEpisode(messages.PendingCancelled, messages.StepCancelled, "", "", at)
	}
	if s.awaiting {
		s.awaiting = false
		return s.end(decision{effects: []effect{disarm{timerAdoption}, s.leaseNoted()}}, messages.StepCancelled, "", "", at)
	}
	s.version++
	return s, decision{writes: []write{s.write()}}
}

// rejoin brings a step that waits into a new episode; the old one is orphaned in the same commit.
func (s stepState) rejoin(c rejoin, at moment) (stepState, decision) {
	if !s.orphan {
		return s, decision{}
	}
	s.orphan = false
	d := decision{writes: []write{s.pendingWrite(messages.PendingOrphaned, at, "")}}
	waited := max(c.aliveUntil.Sub(s.queuedAt), 0)
	if s.limit > 0 {
		waited = min(waited, s.limit)
	}
	s.waited += waited
	s.queuedFor += waited
	return s.wait(d, waiting(s.def.Placement, "the orchestrator has restarted"), at)
}

// refused puts the step back to where it was: nothing was written. A choice that no longer held gives its slot back, and
// the step offers itself anew.
func (s stepState) refused(c commitRefused) (stepState, decision) {
	if a, ok := c.cmd.(assignStep); ok {
		s.schedulerEpoch = 0
		s.offers++
		return s, decision{effects: []effect{tell{schedulerAddress(), releaseSlot{dispatchID: a.dispatchID, ticket: a.choice.ticket, stale: true}}}}
	}
	return s, decision{} // whoever asked asks again
}

// poisoned fails the step. A dispatch that is in flight is killed before: it would hold its slot, and nobody would be left
// who knows of it.
func (s stepState) poisoned(c poisoned, at moment) (stepState, decision) {
	const text = "internal error: the step's actor panicked at the same command each time"
	code := string(messages.CodeInternal)
	_, over := c.cmd.(leaseEnded)
	switch {
	case s.status.Ended():
		return s, decision{}
	case s.status == messages.StepQueued:
		return s.endEpisode(messages.PendingCancelled, messages.StepFailed, text, code, at)
	case s.awaiting || over:
		return s.end(decision{}, messages.StepFailed, text, code, at)
	case s.code == code: // it is being killed
		return s, decision{}
	}
	if s.cancelAt.IsZero() {
		s.cancelAt, s.cancelBy = at.now, "swampd"
	}
	s.forced, s.errText, s.code = true, text, code
	s.version++
	return s, decision{writes: []write{s.write()}}
}

func (s stepState) event(kind string, at moment) *messages.RunEvent {
	return &messages.RunEvent{Kind: kind, RunId: s.run, At: messages.Time(at.now), Job: &s.job, Step: &s.step}
}

func outputMap(list []*messages.KeyValue) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, kv := range list {
		m[kv.GetKey()] = kv.GetValue()
	}
	return m
}

// waiting is the sentence for a step in line.
func waiting(p messages.Placement, reason string) string {
	return "waiting for a worker matching " + p.Requirement() + ": " + reason
}

// seconds prints a duration as seconds with as few digits as say it.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
