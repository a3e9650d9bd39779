package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// dispatch is one step that was handed to this worker. Agent.mu guards all but what is set once.
type dispatch struct {
	id, frame string
	flow      *flow
	cancel    context.CancelCauseFunc
	kill      chan struct{}
	credit    chan struct{} // tells its sink to look for credit again
	worker    string        // as which this one is enrolled
	killGrace time.Duration // from TERM to KILL; 0 is the executor's default
	cancelled bool          // the orchestrator asked for it
	drained   DrainMode     // as which the bound of a drain ended it; empty if it did not
	cut       string        // why its connection ended, which it did not survive
	killed    bool          // kill is closed
	silent    string        // why nobody wants to hear how it ends; empty if somebody does
	aborts    []string      // requests to answer once it is gone
}

// stop ends the step: the polite way, or at once. The caller holds a.mu.
func (d *dispatch) stop(force bool) {
	if !force {
		d.cancel(ErrCancelled)
		return
	}
	if !d.killed {
		d.killed = true
		close(d.kill)
		d.cancel(ErrKilled)
	}
}

// onDispatch decides about a dispatch, in one step with slots, draining and order, and starts it.
func (a *Agent) onDispatch(s *session, frame string, p *messages.DispatchParams) {
	id := p.GetDispatchId()
	if id == "" || frame != frameID(id, p.GetGeneration()) {
		s.say(errorFrame(frame, messages.CodeInvalid, "the id of a dispatch's frames is <dispatch id>/<generation>"))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	verdict := a.life.offer(id, p.GetGeneration(), p.GetSeq(), time.Now())
	switch verdict {
	case admitted:
		ctx, cancel := context.WithCancelCause(context.Background())
		d := &dispatch{
			id: id, frame: frame, flow: a.out.begin(id, frame), cancel: cancel,
			kill: make(chan struct{}), credit: make(chan struct{}, 1),
		}
		t := s.taskOf(p, d)
		d.worker, d.killGrace = t.Worker, t.KillGrace
		a.dispatches[id] = d
		a.performing.Go(func() { a.perform(ctx, d, t, p.GetCredential()) })
	case admittedCancelled:
		f := a.out.begin(id, frame)
		a.out.finish(f, resultFrame(frame, &messages.DispatchResult{
			Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled before it was started",
			EndedAt: messages.Time(time.Now()),
		}))
		a.advance()
	case repeated:
		a.out.again(id)
	default:
		a.out.say(errorFrame(frame, verdict.code(), refusalText(verdict)))
	}
}

func refusalText(v admission) string {
	switch v {
	case refusedBusy:
		return "the worker has no free slot"
	case refusedDraining:
		return "the worker is draining"
	default:
		return "the worker has seen later dispatches and does not know this one any more"
	}
}

// taskOf is the dispatch as the executor sees it.
func (s *session) taskOf(p *messages.DispatchParams, d *dispatch) Task {
	t := Task{
		DispatchID: p.GetDispatchId(), RunID: p.GetRunId(), Workflow: p.GetWorkflow(), Job: p.GetJob(), Step: p.GetStep(),
		Worker: s.worker, StepKey: p.GetStepKey(), Attempt: int(p.GetAttempt()),
		Model: p.GetModelType(), Method: p.GetMethodName(), Args: argsOf(p.GetArgs()), Env: envOf(p.GetEnv()),
		Timeout: max(messages.Duration(p.GetTimeoutMs()), 0), KillGrace: s.terms.kill, Kill: d.kill,
	}
	if stop := p.GetStop(); stop.GetGraceMs() > 0 {
		t.KillGrace = messages.Duration(stop.GetGraceMs())
	}
	return t
}

// perform runs one dispatch to its end.
func (a *Agent) perform(ctx context.Context, d *dispatch, t Task, credential string) {
	defer d.cancel(nil)
	hidden := a.secrets
	if credential != "" {
		hidden = append(newSecrets(credential), hidden...)
	}
	out := newSink(a, d, hidden)
	begun := time.Now()
	event := Event{
		Kind: EventDispatchStarted, Worker: t.Worker, DispatchID: d.id, Run: t.RunID, Job: t.Job, Step: t.Step, Attempt: t.Attempt,
	}
	a.emit(event)
	o := a.cfg.Executor.Run(ctx, t, func() { a.started(d) }, out)
	// An error means that the flow was dropped, and then there is nobody to tell.
	_ = out.finish()
	event.Kind, event.DurationMs = EventDispatchFinished, messages.Milliseconds(time.Since(begun))
	event.Status, event.Error = a.finished(d, o, hidden)
	a.emit(event)
}

func (a *Agent) started(d *dispatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out.start(d.flow, time.Now())
	a.wake()
}

// finished frees the slot and hands the result to the outbox, in one step: with the slot's next dispatch, the
// orchestrator has this one's result or will get it.
func (a *Agent) finished(d *dispatch, o Outcome, hidden secrets) (status, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	delete(a.dispatches, d.id)
	defer a.pokeServe()
	if d.silent != "" {
		a.life.stepGone(d.id, stepEnded, time.Now())
		if a.life.forget(d.id, time.Now()) {
			a.forgot()
		}
		for _, id := range d.aborts {
			a.out.say(abortResultFrame(id))
		}
		return statusLost, d.silent
	}
	frame, status, text := finalFrame(d, o, hidden)
	a.out.finish(d.flow, frame)
	how := stepEnded
	switch {
	case o.Status == OutcomeWorkerCannotStart:
		how = stepRefused
	case status == statusLost:
		how = stepLost
	case d.drained != "" && o.Status == OutcomeCancelled && !d.cancelled:
		a.life.stopped()
	}
	a.life.stepGone(d.id, how, time.Now())
	a.advance()
	return status, text
}

// The statuses of a dispatch that ended for no reason of its step and should run elsewhere.
const (
	statusLost       = "lost"
	statusHandedBack = "handed_back"
)

// errorBytes bounds the error text of a result; it is one sentence, and what a model panicked with.
const errorBytes = 64 << 10

// finalFrame is the last word on a dispatch.
func finalFrame(d *dispatch, o Outcome, hidden secrets) (_ *messages.Frame, status, text string) {
	// Text on the wire is UTF-8, whatever a step calls itself.
	clean := func(s string) string { return strings.ToValidUTF8(hidden.clean(s), "\uFFFD") }
	text = clean(o.Error)
	if len(text) > errorBytes {
		text = strings.ToValidUTF8(text[:errorBytes], "")
	}
	if o.Status == OutcomeWorkerCannotStart {
		return errorFrame(d.frame, messages.CodeWorkerCannotStart, text), o.Status, text
	}
	r := &messages.DispatchResult{
		Status: o.Status, Code: o.Code, Error: text, ExitCode: int32(o.ExitCode), FinalOffset: d.flow.written,
		StartedAt: messages.Time(o.StartedAt), EndedAt: messages.Time(time.Now()),
	}
	switch {
	case o.Status == OutcomeSucceeded:
		r.Outputs = outputsOf(o.Outputs, clean)
		if proto.Size(r) > messages.MaxFrame/2 {
			r.Outputs = nil
			r.Status, r.Code, r.Error = OutcomeFailed, CodeOutputTooLarge, "the step's outputs are too large"
		}
	case o.Status == OutcomeCannotStart:
		r.Status = OutcomeFailed
	case o.Code == CodeWorkerLost:
		r.Status = statusLost
	case o.Status == OutcomeCancelled && !d.cancelled:
		// Nobody gave the step up.
		r.Status, r.Code, r.Error = d.cutShort()
	}
	return resultFrame(d.frame, r), r.GetStatus(), r.GetError()
}

// cutShort is how a step ended that its worker did not let end.
func (d *dispatch) cutShort() (status, code, text string) {
	drained := "worker " + d.worker + " drained before the step had ended"
	switch {
	case d.drained == DrainHandback:
		return statusHandedBack, string(messages.CodeWorkerDraining), drained
	case d.drained == DrainCancel:
		return OutcomeCancelled, CodeCancelled, drained
	case d.cut != "":
		return statusLost, CodeWorkerLost, "killed because its worker was cut off: " + d.cut
	default:
		return statusLost, CodeWorkerLost, "killed because its worker was stopped"
	}
}

func abortResultFrame(id string) *messages.Frame {
	return responseFrame(id, &messages.Response{Result: &messages.Response_WorkerAbort{WorkerAbort: &messages.AbortResult{}}})
}

// onCancel stops a dispatch. One that is not known yet is remembered, as its cancel may have overtaken it.
func (a *Agent) onCancel(frame string, force bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := dispatchOf(frame)
	if d, ok := a.dispatches[id]; ok && d.frame == frame {
		d.cancelled = true
		d.stop(force)
		return
	}
	if _, known := a.life.known[id]; !known {
		a.life.cancelEarly(frame)
	}
}

// onAck forgets what is durable. Done means that the orchestrator wants to hear no more.
func (a *Agent) onAck(frame string, offset uint32, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := dispatchOf(frame)
	if f, ok := a.out.flows[id]; !ok || f.frame != frame {
		return
	}
	a.out.ack(id, offset, time.Now())
	switch d := a.dispatches[id]; {
	case done && d != nil:
		// It was given up over there, so nobody may count on it here: it must not run beside its successor.
		a.silence(d, "the orchestrator has ended it")
	case done && a.life.forget(id, time.Now()):
		a.out.drop(id)
		a.forgot()
	}
	a.wake()
}

// onAbort kills a dispatch that is not this worker's any more. The answer says that it is gone.
func (a *Agent) onAbort(request string, p *messages.AbortParams) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	id := p.GetDispatchId()
	if d, ok := a.dispatches[id]; ok && d.frame == frameID(id, p.GetGeneration()) {
		a.silence(d, "the orchestrator gave it up")
		d.aborts = append(d.aborts, request)
		return
	}
	if f, ok := a.out.flows[id]; ok && f.frame == frameID(id, p.GetGeneration()) && a.life.forget(id, time.Now()) {
		a.out.drop(id)
		a.forgot()
	}
	a.out.say(abortResultFrame(request))
}

// silence kills a step whose end nobody wants to hear of. The caller holds a.mu.
func (a *Agent) silence(d *dispatch, why string) {
	if d.silent == "" {
		d.silent = why
	}
	a.out.drop(d.id)
	d.stop(true)
}

// errStepsLeft says that steps would not die.
var errStepsLeft = errors.New("steps are still running although they were killed")

// abandon kills every step, as the connection is gone; it returns once they are dead. How they ended, and what else was
// not acknowledged, waits for the next connection. The error is errStepsLeft, if the worker has to go before.
func (a *Agent) abandon(why string) error {
	a.mu.Lock()
	a.abandoning = true
	for _, d := range a.dispatches {
		d.aborts = nil
		d.cut = why
		a.out.hurry(d.flow)
		d.stop(true)
	}
	a.wake()
	a.advance()
	a.mu.Unlock()
	err := a.waitForSteps()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoning = false
	return err
}

// waitForSteps returns when no step is left.
func (a *Agent) waitForSteps() error {
	for {
		a.mu.Lock()
		n := a.life.running
		a.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-a.changed:
		case <-a.gone.Done():
			return errStepsLeft
		}
	}
}

// pokeServe tells whoever waits for steps or acknowledgements that something changed. The caller holds a.mu.
func (a *Agent) pokeServe() {
	if a.abandoning || a.life.stage != working {
		poke(a.changed)
	}
}

// inFlightBytes is about how much the results in an introduction may take; the others come when it is answered.
const inFlightBytes = 1 << 20

// inFlight names what has ended and is not acknowledged. The caller holds a.mu.
func (a *Agent) inFlight() []*messages.InFlight {
	var list []*messages.InFlight
	left := inFlightBytes
	for _, id := range slices.Sorted(maps.Keys(a.life.known)) {
		f, ok := a.out.flows[id]
		if !ok {
			continue
		}
		entry := &messages.InFlight{
			DispatchId: id, Generation: a.life.known[id].generation, State: "ended", OutputOffset: f.written,
		}
		if r := f.final.GetResponse().GetWorkerDispatch(); r != nil && proto.Size(r) <= left {
			entry.Result = r
			left -= proto.Size(r)
		}
		list = append(list, entry)
	}
	return list
}

// settle takes the verdicts on what was named in flight.
func (a *Agent) settle(r *messages.EnrollResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastSession = r.GetSession()
	for _, v := range r.GetInFlight() {
		id := v.GetDispatchId()
		f, ok := a.out.flows[id]
		switch {
		case !ok:
		case v.GetAction() == "abort":
			if a.life.forget(id, time.Now()) {
				a.out.drop(id)
			}
		default:
			a.life.adopt(id, v.GetGeneration())
			a.out.adopt(f, frameID(id, v.GetGeneration()))
			a.out.ack(id, v.GetOutputOffset(), time.Now())
		}
	}
}
