package actors

import (
	"fmt"
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// The ways in which a lease ends, as its step decides by them.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
	outcomeCancelled = "cancelled"
	outcomeTimeout   = "timeout"
	outcomeRefused   = "refused"
	outcomeLost      = "lost"
	// outcomeHandedBack: a draining worker killed it, to give it back to the queue.
	outcomeHandedBack = "handed_back"
	outcomeRestart    = "restart" // the orchestrator restarted: the worker may still have it
)

// Names of a lease's timers.
const (
	timerGrace    = "grace"
	timerFlush    = "flush"
	timerBackstop = "backstop"
)

// Bounds on output that waits for the commit which ends the step. Beyond either it goes to the dispatch's log.
const (
	inlineOutput = 64 << 10
	inlineTime   = 500 * time.Millisecond
)

// killTime is what a worker has from TERM to KILL.
const killTime = 10 * time.Second

// leaseState is a dispatch in flight.
//
//	born ─> active ── result ─────────────> completed
//	           ├───── refusal ────────────> refused
//	           ├───── grace over, not named > expired | failed (it may have written)
//	           └───── forced cancel, backstop ─> fenced ── the worker answers, or is gone ─> completed | expired
//
// The outcome stands in the record, and the step is told of it until it has noted it; so is the scheduler of the slot.
// The loss clock belongs to the lease: only the same instance naming the dispatch clears it, never a socket's return.
type leaseState struct {
	version uint64

	dispatchID string
	generation uint32
	run        string
	workflow   string
	ordinal    uint32
	job, step  string
	worker     string
	instance   string
	handedAt   uint64 // the version of the worker that it was handed out under
	attempt    int32
	def        *workflow.Step
	shipped    []*messages.KeyValue
	credential string // for the data plane
	grace      time.Duration

	state     messages.LeaseState
	hasWrites bool
	logged    bool
	durable   uint32 // output that is durable
	outcome   *messages.Outcome
	createdAt time.Time
	endedAt   time.Time
	cancelAt  time.Time
	forced    bool
	excused   bool // a loss that is reported now is not its worker's

	// Not durable.
	session    uint64 // the last that spoke of it
	accepted   bool
	acceptedAt time.Time
	received   uint32 // output that has come
	buffer     []*messages.OutputChunk
	lostAt     time.Time
	stepKnows  bool
	slotKnows  bool
	// tellSlot: the scheduler does not know of the slot from a choice of its own.
	tellSlot bool
	claim    *claimLease // by its worker, after a restart has ended it
	adopted  bool        // there is a next generation of it
	// unknown is the id of a lease that there is no record of.
	unknown string
}

// leaseFrame is a worker's frame about the dispatch.
type leaseFrame struct {
	lease   string
	session uint64
	worker  string // whose session it is
	frame   *messages.Frame
}

func (f leaseFrame) identity() string { return f.lease }

// cancelLease asks for the end of the dispatch; force kills, and does not wait for the worker to say so.
type cancelLease struct {
	by    string
	force bool
}

// leaseSocketLost says that the worker's socket is gone.
type leaseSocketLost struct{}

// leaseTurnedAway says that the dispatch was not sent: its worker drains.
type leaseTurnedAway struct{}

// leaseNamed says that the worker's instance is back, at that version and on that session, and has named the dispatch as
// its own.
type leaseNamed struct{ version, session uint64 }

// leaseLost says that the dispatch cannot come back: its instance is gone, or has returned without it.
type leaseLost struct {
	reason string
	// untaken: the same instance does not have it. Unless it was accepted it never arrived, or its refusal did not.
	untaken bool
}

// graceElapsed, flushElapsed and backstopElapsed are the lease's timers.
type (
	graceElapsed    struct{}
	flushElapsed    struct{}
	backstopElapsed struct{}
)

// slotNoted says that the scheduler has noted that the slot is free.
type slotNoted struct{ dispatchID string }

// holdSlot tells a new scheduler of a slot that is taken.
type holdSlot struct {
	dispatchID string
	generation uint32
	worker     string
}

// leaseHere registers a lease at its worker, which sends its dispatch if that was not accepted yet.
type leaseHere struct {
	lease    string
	version  uint64                   // of the worker that it was handed out under
	dispatch *messages.DispatchParams // nil: accepted
}

func (h leaseHere) identity() string { return h.lease }

// leaseOver tells a worker that a lease has ended and that its end is durable.
type leaseOver struct {
	lease   string
	durable uint32        // output that is
	refusal messages.Code // why the worker did not take it; empty: it did
	text    string
}

// cancelDispatch asks a worker to pass a cancel on.
type cancelDispatch struct {
	lease   string
	version uint64 // of the worker that it was handed out under
	force   bool
}

// workerStarted says that a worker's actor has started anew and does not know its leases.
type workerStarted struct{ worker string }

// leaseOf is the lease born with the dispatch of a step.
func leaseOf(s stepState, c choice, at moment) leaseState {
	return leaseState{
		version: 1, dispatchID: s.dispatchID, generation: s.generation, run: s.run, workflow: s.workflow, ordinal: s.ordinal,
		job: s.job, step: s.step, worker: c.worker, instance: c.instance, handedAt: c.version, attempt: s.attempt, def: s.def,
		state: messages.LeaseActive, createdAt: at.now,
	}
}

func (l leaseState) id() string {
	if l.unknown != "" {
		return l.unknown
	}
	return leaseID(l.dispatchID, l.generation)
}

func (l leaseState) write() write {
	return write{
		kind: kindLease, id: l.id(), replaces: l.version - 1, state: string(l.state), ended: l.state.Ended(),
		body: &messages.LeaseRecord{
			DispatchId: l.dispatchID, Generation: l.generation, RunId: l.run, Ordinal: l.ordinal, Job: l.job, Step: l.step,
			Worker: l.worker, InstanceUuid: l.instance, Attempt: l.attempt, State: string(l.state), HasWrites: l.hasWrites,
			Logged: l.logged, Offset: l.durable, Outcome: l.outcome, CreatedAt: messages.Time(l.createdAt),
			EndedAt: messages.Time(l.endedAt), FirstLostAt: messages.Time(l.lostAt),
			CancelRequestedAt: messages.Time(l.cancelAt), CancelForced: l.forced, WorkerVersion: l.handedAt,
			Excused: l.excused,
		},
	}
}

// leaseFrom is the state of a lease as its record has it.
func leaseFrom(r *messages.LeaseRecord, version uint64, name string, def *workflow.Step) leaseState {
	return leaseState{
		version: version, dispatchID: r.GetDispatchId(), generation: r.GetGeneration(), run: r.GetRunId(), workflow: name,
		ordinal: r.GetOrdinal(), job: r.GetJob(), step: r.GetStep(), worker: r.GetWorker(), instance: r.GetInstanceUuid(), handedAt: r.GetWorkerVersion(),
		attempt: r.GetAttempt(), def: def, state: messages.LeaseState(r.GetState()), hasWrites: r.GetHasWrites(),
		logged: r.GetLogged(), durable: r.GetOffset(), received: r.GetOffset(), outcome: r.GetOutcome(),
		createdAt: messages.GoTime(r.GetCreatedAt()), endedAt: messages.GoTime(r.GetEndedAt()),
		cancelAt: messages.GoTime(r.GetCancelRequestedAt()), forced: r.GetCancelForced(), excused: r.GetExcused(), tellSlot: true,
	}
}

// stepLease is the transition of a lease.
func stepLease(l leaseState, cmd any, at moment) (leaseState, decision) {
	switch c := cmd.(type) {
	case ensureLease:
		if l.unknown != "" && !c.anew { // it may have been asked for before it was borne
			c.anew = true
			return l, decision{effects: []effect{leave{}, tell{leaseAddress(l.id()), c}}}
		}
		if l.unknown != "" { // the record is gone, and whoever ran it with it
			o := &messages.Outcome{Status: outcomeLost, Code: string(messages.CodeWorkerLost), Error: "the record of its lease is gone"}
			return l, decision{effects: []effect{tell{c.step, leaseEnded{lease: l.id(), worker: l.worker, outcome: o}}, leave{}}}
		}
		return l, decision{effects: []effect{tell{c.step, leaseUp{l.id()}}}}
	case leaseFrame:
		if l.unknown != "" { // whoever ran it has been told, or its record is gone
			return l, decision{effects: []effect{forgetIt(c), leave{}}}
		}
		if c.worker != l.worker { // a dispatch belongs to the worker that was sent it
			return l, decision{effects: []effect{forgetIt(c)}}
		}
		return l.frame(c, at)
	case poisoned:
		return l.poisoned(at)
	case cancelLease:
		return l.cancel(c, at)
	case markWrites:
		return l.markWrites(c)
	case leaseSocketLost:
		if l.state.Ended() || !l.lostAt.IsZero() {
			return l, decision{}
		}
		l.lostAt = at.now
		return l, decision{effects: []effect{arm{timerGrace, l.grace, graceElapsed{}}}}
	case leaseTurnedAway:
		if l.state.Ended() || l.accepted {
			return l, decision{}
		}
		return l.refused(&messages.Error{Code: string(messages.CodeWorkerDraining), Text: "the worker is draining"}, at)
	case leaseNamed:
		return l.named(c, at)
	case claimLease:
		return l.claimed(c, at)
	case graceElapsed:
		return l.graceOver(at)
	case leaseLost:
		if c.untaken && !l.accepted && l.state == messages.LeaseActive {
			return l.refused(&messages.Error{Code: string(messages.CodeUnavailable), Text: c.reason}, at)
		}
		return l.lost(c.reason, at)
	case flushElapsed:
		return l.flush()
	case backstopElapsed:
		if l.state != messages.LeaseActive {
			return l, decision{}
		}
		text := fmt.Sprintf("timed out after %s, and worker %s did not say so", seconds(l.def.Timeout), l.worker)
		return l.fence(&messages.Outcome{Status: outcomeTimeout, Code: string(messages.CodeTimeout), Error: text}, at)
	case leaseNoted:
		return l.noted(c)
	case slotNoted:
		l.slotKnows = true
		return l.mayLeave()
	case confirmSlot:
		return l.confirmSlot(c)
	case lookAgain:
		return l.mayLeave()
	case commitRefused:
		if m, ok := c.cmd.(markWrites); ok { // it is not marked, and the next one who asks tries again
			return l, decision{effects: []effect{respond{m.answer, nil, errNoSpace()}}}
		}
		if c.noSpace && len(l.buffer) > 0 { // nothing more may come: the worker waits until this is durable
			return l, decision{effects: []effect{arm{timerFlush, spaceTime, flushElapsed{}}}}
		}
	case schedulerStarted:
		// It has read the leases that had not ended. This one may have since, before it heard of the new scheduler.
		l.slotKnows, l.tellSlot = l.slotKnows && l.state.Ended(), true
		return l.mayLeave()
	case workerStarted:
		if c.worker == l.worker && !l.state.Ended() {
			return l, decision{effects: []effect{tell{workerAddress(l.worker), l.here()}}}
		}
	}
	return l, decision{}
}

// resumeLease is what is owed for a lease.
func resumeLease(l leaseState, _ moment) []obligation {
	var owed []obligation
	if !l.state.Ended() {
		// What names the worker's version is another thing to owe once that changes.
		at := " " + strconv.FormatUint(l.handedAt, 10)
		if !l.accepted && l.state == messages.LeaseActive {
			owed = append(owed, obligation{id: "dispatch" + at, to: workerAddress(l.worker), msg: l.here(), every: 5 * time.Second})
		}
		if !l.cancelAt.IsZero() {
			id := "cancel"
			if l.forced {
				id = "kill"
			}
			owed = append(owed, obligation{id: id + at, to: workerAddress(l.worker), msg: cancelDispatch{l.id(), l.handedAt, l.forced}, every: time.Second})
		}
		if l.tellSlot && !l.slotKnows {
			owed = append(owed, obligation{id: "slot", to: schedulerAddress(), msg: holdSlot{l.dispatchID, l.generation, l.worker}})
		}
	}
	if l.outcome != nil && !l.stepKnows {
		id := "ended"
		if l.claim != nil {
			id += " and claimed " + strconv.FormatUint(l.claim.version, 10)
		}
		owed = append(owed, obligation{
			id: id, to: stepAddress(l.run, l.job, l.step), msg: l.ended(),
		})
	}
	if l.state.Ended() && !l.slotKnows {
		owed = append(owed, obligation{id: "free", to: schedulerAddress(), msg: l.release()})
	}
	return owed
}

// found is what a lease does that the journal had. The worker's actor may not have heard of the end before this one
// panicked.
func (l leaseState) found() decision {
	if !l.state.Ended() || l.unknown != "" || l.ofRestart() { // of one that a restart ended no worker's actor has heard
		return decision{}
	}
	return decision{effects: []effect{l.over()}}
}

func (l leaseState) over() effect {
	over := leaseOver{lease: l.id(), durable: l.durable}
	if l.state == messages.LeaseRefused {
		over.refusal, over.text = messages.Code(l.outcome.GetCode()), l.outcome.GetError()
	}
	return tell{workerAddress(l.worker), over}
}

func (l leaseState) release() releaseSlot {
	r := releaseSlot{dispatchID: l.dispatchID, from: leaseAddress(l.id()), generation: l.generation}
	if l.state == messages.LeaseRefused && l.outcome.GetCode() != string(messages.CodeUnavailable) {
		r.refusedBy = l.worker
	}
	return r
}

func (l leaseState) here() leaseHere {
	h := leaseHere{lease: l.id(), version: l.handedAt}
	if !l.accepted {
		h.dispatch = l.params()
	}
	return h
}

// params are what the worker is sent.
func (l leaseState) params() *messages.DispatchParams {
	p := &messages.DispatchParams{
		DispatchId: l.dispatchID, Generation: l.generation, Attempt: l.attempt, TimeoutMs: messages.Milliseconds(l.def.Timeout),
		Stop:             &messages.StopPolicy{Signal: "TERM", GraceMs: messages.Milliseconds(killTime)},
		OutputFromOffset: l.durable, Credential: l.credential, RunId: l.run, Workflow: l.workflow, Job: l.job, Step: l.step,
		StepKey: stepKey(l.run, l.ordinal), ModelType: l.def.Model, MethodName: l.def.Method,
	}
	for _, a := range l.def.Args {
		p.Args = append(p.Args, &messages.KeyValue{Key: a.Name, Value: a.Value})
	}
	p.Env = append(p.Env, l.shipped...)
	p.Env = append(p.Env, l.def.Env.Proto()...)
	return p
}

func (l leaseState) mayLeave() (leaseState, decision) {
	if l.state.Ended() && l.stepKnows && l.slotKnows {
		return l, decision{effects: []effect{leave{}}}
	}
	return l, decision{}
}

// frame takes what the worker says of the dispatch. What comes after the end is acknowledged and changes nothing.
func (l leaseState) frame(c leaseFrame, at moment) (leaseState, decision) {
	l.session = c.session
	switch {
	case l.ofRestart() && (!l.stepKnows || l.adopted): // whether it goes on is not decided yet, or it does
		return l, decision{}
	case l.ofRestart():
		_, d := l.mayLeave()
		d.then(forgetIt(c))
		return l, d
	}
	if l.state.Ended() {
		_, d := l.mayLeave()
		d.then(l.over())
		return l, d
	}
	switch body := c.frame.GetBody().(type) {
	case *messages.Frame_Event:
		switch e := body.Event.GetEvent().(type) {
		case *messages.Event_Accepted:
			return l.accept(at)
		case *messages.Event_Output:
			l, accepted := l.accept(at) // which was said before it, to an actor that has restarted since
			l, d := l.output(e.Output)
			d.effects = append(accepted.effects, d.effects...)
			return l, d
		}
	case *messages.Frame_Response:
		if r := body.Response.GetWorkerDispatch(); r != nil {
			return l.result(r, at)
		}
	case *messages.Frame_Error:
		return l.refused(body.Error, at)
	}
	return l, decision{}
}

// forgetIt tells a worker to forget a dispatch that is not its own, or it would repeat its word for ever.
func forgetIt(c leaseFrame) effect {
	return transmit{c.session, ackFrame(c.lease, 0, true)}
}

func (l leaseState) accept(at moment) (leaseState, decision) {
	if l.accepted {
		return l, decision{}
	}
	l.accepted, l.acceptedAt = true, at.now
	if l.def.Timeout > 0 {
		// A worker that is stuck must not hold a run.
		return l, decision{effects: []effect{arm{timerBackstop, l.def.Timeout + killTime + l.grace, backstopElapsed{}}}}
	}
	return l, decision{}
}
