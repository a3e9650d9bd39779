package worker

import (
	"context"
	"errors"
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
	cancelled bool          // the orchestrator asked for it
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
	verdict := a.life.offer(id, p.GetGeneration(), p.GetSeq())
	switch verdict {
	case admitted:
		ctx, cancel := context.WithCancelCause(context.Background())
		d := &dispatch{
			id: id, frame: frame, flow: a.out.begin(id, frame), cancel: cancel,
			kill: make(chan struct{}), credit: make(chan struct{}, 1),
		}
		a.dispatches[id] = d
		a.performing.Go(func() { a.perform(ctx, d, s.taskOf(p, d), p.GetCredential()) })
	case admittedCancelled:
		f := a.out.begin(id, frame)
		a.out.finish(f, resultFrame(frame, &messages.DispatchResult{
			Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled before it was started",
			EndedAt: messages.Time(time.Now()),
		}))
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
	a.life.stepGone(d.id)
	delete(a.dispatches, d.id)
	a.pokeServe()
	if d.silent != "" {
		a.life.forget(d.id)
		for _, id := range d.aborts {
			a.out.say(abortResultFrame(id))
		}
		return statusLost, d.silent
	}
	frame, status, text := finalFrame(d, o, hidden)
	a.out.finish(d.flow, frame)
	return status, text
}

// statusLost is the status of a dispatch that ended for no reason of its step and should run elsewhere.
const statusLost = "lost"

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
		// Nobody gave the step up: it was killed because the worker had to leave at once.
		r.Status, r.Code, r.Error = statusLost, CodeWorkerLost, "killed because its worker was stopped"
	}
	return resultFrame(d.frame, r), r.GetStatus(), r.GetError()
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
	case done && a.life.forget(id):
		a.out.drop(id)
		a.pokeServe()
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
	if f, ok := a.out.flows[id]; ok && f.frame == frameID(id, p.GetGeneration()) && a.life.forget(id) {
		a.out.drop(id)
		a.pokeServe()
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

// abandon kills every step and forgets everything, as the connection is gone; it returns once the steps are dead. Only
// after Kill it gives up: the error is errStepsLeft.
func (a *Agent) abandon(why string) error {
	a.mu.Lock()
	a.watching = true
	for _, d := range a.dispatches {
		d.aborts = nil
		a.silence(d, why)
	}
	for id := range a.life.known {
		if a.life.forget(id) {
			a.out.drop(id)
		}
	}
	a.wake()
	a.mu.Unlock()
	err := a.waitForSteps()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watching = a.life.draining
	return err
}

// waitForSteps returns when no step is left.
func (a *Agent) waitForSteps() error {
	killed := a.killed.Done()
	limit := time.NewTimer(time.Hour)
	limit.Stop()
	defer limit.Stop()
	for {
		a.mu.Lock()
		n := a.life.running
		a.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-a.changed:
		case <-killed:
			killed = nil
			limit.Reset(a.patience())
		case <-limit.C:
			return errStepsLeft
		}
	}
}

// pokeServe tells whoever waits for steps or acknowledgements that something changed. The caller holds a.mu.
func (a *Agent) pokeServe() {
	if a.watching {
		poke(a.changed)
	}
}
