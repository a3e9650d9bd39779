package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/swampd/swampd/messages"
)

// dispatch is one step that was handed to this worker. Agent.mu guards all but what is set once.
type dispatch struct {
	id         string
	flow       *flow
	pipe       *pipe
	fence      *fenceBoard
	hidden     atomic.Pointer[secrets] // what is masked in what it says
	credential *credentialBoard        // what it shows the data plane
	cancel     context.CancelCauseFunc
	kill       chan struct{}
	worker     string        // as which this one is enrolled
	killGrace  time.Duration // from TERM to KILL; 0 is the executor's default
	cancelled  bool          // the orchestrator asked for it
	drained    DrainMode     // as which the bound of a drain ended it; empty if it did not
	fenced     bool          // it ends because its fence has come
	cut        string        // why its worker leaves, which it does not survive
	killed     bool          // kill is closed
	silent     string        // why nobody wants to hear how it ends; empty if somebody does
	aborts     []string      // requests of this connection to answer once it is gone
}

func (d *dispatch) secrets() secrets { return *d.hidden.Load() }

// present makes a credential the one that the step's requests for data show, and masks it from now on, beside what is
// masked already: the step may still print the one before.
func (d *dispatch) present(credential string) {
	if credential != "" {
		defer d.credential.set(credential) // not before it is masked
		hidden := append(newSecrets(credential), d.secrets()...)
		d.hidden.Store(&hidden)
	}
}

// stop ends the step: the polite way, or at once. The caller holds a.mu.
func (d *dispatch) stop(force bool) {
	if !force {
		d.cancel(ErrCancelled)
		return
	}
	if !d.killed {
		d.killed = true
		d.cancel(ErrKilled) // before kill, so that whoever sees either knows the cause
		close(d.kill)
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
	now := time.Now()
	verdict := a.life.offer(id, p.GetGeneration(), p.GetSeq(), now)
	switch verdict {
	case admitted:
		a.perform(s, frame, p)
	case adopted, adoptedCancelled:
		if f, ok := a.out.flows[id]; ok && p.GetOutputFromOffset() < f.acked {
			a.disown(id, frame)
			break
		}
		a.adopt(s, frame, p)
		if d, ok := a.dispatches[id]; ok && verdict == adoptedCancelled {
			d.cancelled = true
			d.stop(false)
		}
	case ignored: // it is of a time before the one that the worker knows
	case admittedCancelled:
		f := a.out.begin(id, frame)
		a.out.finish(f, resultFrame(frame, &messages.DispatchResult{
			Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled before it was started",
			EndedAt: messages.Time(now),
		}))
		a.advance()
	case repeated:
		if f, ok := a.out.flows[id]; ok && f.muted { // whoever sends it goes on with it
			a.adopt(s, frame, p)
		}
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
		Timeout: max(messages.Duration(p.GetTimeoutMs()), 0), KillGrace: s.terms.kill, Kill: d.kill, Fence: d.fence.get,
	}
	if stop := p.GetStop(); stop.GetGraceMs() > 0 {
		t.KillGrace = messages.Duration(stop.GetGraceMs())
	}
	return t
}

// perform runs a dispatch that was admitted. The caller holds a.mu.
func (a *Agent) perform(s *session, frame string, p *messages.DispatchParams) {
	id := p.GetDispatchId()
	ctx, cancel := context.WithCancelCause(context.Background())
	f := a.out.begin(id, frame)
	kill := make(chan struct{})
	d := &dispatch{id: id, flow: f, pipe: a.newPipe(f, kill), fence: newFenceBoard(), credential: newCredentialBoard(), cancel: cancel, kill: kill}
	d.hidden.Store(&a.secrets)
	d.present(p.GetCredential())
	t := s.taskOf(p, d)
	t.Data = a.data.of(d, a.patience)
	d.worker, d.killGrace = t.Worker, t.KillGrace
	a.dispatches[id] = d
	d.follow(s)
	a.watchFences(s.fence)
	a.performing.Go(func() {
		defer cancel(nil)
		a.step(ctx, d, t)
	})
}

// adopt goes on with a dispatch under the generation that the orchestrator has sent. The caller holds a.mu.
func (a *Agent) adopt(s *session, frame string, p *messages.DispatchParams) {
	id := p.GetDispatchId()
	if f, ok := a.out.flows[id]; ok {
		a.out.resume(f, frame, p.GetOutputFromOffset(), time.Now())
	}
	if d, ok := a.dispatches[id]; ok {
		d.present(p.GetCredential())
		d.follow(s)
		a.watchFences(s.fence)
	}
}

// disown gives up a dispatch that a store wants to go on with although it has forgotten output that it had acknowledged: it
// was restored from a backup, and of what it has forgotten besides nobody can know. While the step dies nothing is said; the
// orchestrator sends the dispatch again until it is told that it has ended. The caller holds a.mu.
func (a *Agent) disown(id, frame string) {
	if d, ok := a.dispatches[id]; ok {
		a.silence(d, "the orchestrator has forgotten output that it had acknowledged")
		return
	}
	a.giveUp(id)
	a.out.say(errorFrame(frame, refusedEnded.code(), refusalText(refusedEnded)))
}

// step runs one dispatch to its end.
func (a *Agent) step(ctx context.Context, d *dispatch, t Task) {
	out := newSink(d, d.pipe)
	begun := time.Now()
	event := Event{
		Kind: EventDispatchStarted, Worker: t.Worker, DispatchID: d.id, Run: t.RunID, Job: t.Job, Step: t.Step, Attempt: t.Attempt,
	}
	a.emit(event)
	o := a.cfg.Executor.Run(ctx, t, func() { a.started(d) }, out)
	// An error means that the flow was dropped, and then there is nobody to tell.
	_ = out.finish()
	event.Kind, event.DurationMs = EventDispatchFinished, messages.Milliseconds(time.Since(begun))
	event.Status, event.Error = a.finished(d, o)
	a.emit(event)
}

func (a *Agent) started(d *dispatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out.start(d.flow, time.Now())
	a.wake()
}
