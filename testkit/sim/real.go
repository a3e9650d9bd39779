package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
	"github.com/swampd/swampd/worker"
)

// realProcess is one life of a machine on which the real agent runs, of the package worker. What it does by itself is its
// own; what its steps do follows from the seed.
type realProcess struct {
	a        *agent
	instance string
	token    string
	agent    *worker.Agent
	ctx      context.Context //nolint:containedctx // its life
	die      context.CancelCauseFunc

	// Guarded by the world's mutex.
	link  *realLink
	away  spans
	steps map[*execution]string // those that run, by key
	dials int
}

// realLink is one connection of it.
type realLink struct {
	p      *realProcess
	socket *testkit.Socket
	dead   bool // guarded by the world's mutex
}

var (
	_ worker.Link     = (*realLink)(nil)
	_ worker.Executor = (*realProcess)(nil)
)

// live runs the agent until it has left or died.
func (p *realProcess) live() {
	w := p.a.w
	cfg := worker.Config{
		Token: messages.Secret(p.token), Labels: messages.LabelsOf(p.a.is.Labels), Concurrency: p.a.is.Capacity, Version: "sim",
		MachineID: "machine-" + p.a.is.Name, Executor: p, Dial: p.dial, OnEvent: p.note,
		Clock: func() time.Duration { return time.Hour + since() },
		Jitter: func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			p.dials++
			return float64(w.chance.of("dial", p.instance, strconv.Itoa(p.dials))>>11) / (1 << 53)
		},
	}
	agent, err := worker.New(cfg)
	if err != nil {
		w.judge.find("an agent cannot be made: %v", err)
		return
	}
	w.mu.Lock()
	p.agent = agent
	w.mu.Unlock()
	reason, err := agent.Run(p.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace.say("%s ends: %s", p.instance, reason)
	if reason == worker.StopRefused {
		var fault *messages.Fault
		if errors.As(err, &fault) {
			p.a.tokenGone(p.token, fault.Code)
		}
	}
	if reason.OnPurpose() {
		w.tally.Drained++
	}
	p.end()
}

// end ends the process; mu is held. Its steps die with it.
func (p *realProcess) end() {
	if p.a.real != p {
		return
	}
	p.a.real = nil
	p.die(errDead)
	p.away.begin()
	for ex := range p.steps {
		p.stopped(ex, "died")
	}
	p.cut()
}

// cut breaks the connection, if there is one; mu is held.
func (p *realProcess) cut() {
	l := p.link
	if l == nil || l.dead {
		return
	}
	l.dead = true
	p.away.begin()
	p.a.w.wg.Go(l.socket.Close)
}

// note takes an event of the agent's life.
func (p *realProcess) note(e worker.Event) {
	if e.Kind != worker.EventEnrolled {
		return
	}
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p.a.name = e.Worker
	w.trace.say("%s is enrolled", p.instance)
	if p.link != nil && !p.link.dead {
		p.away.end()
	}
}

func (p *realProcess) dial(ctx context.Context) (worker.Link, error) {
	w := p.a.w
	w.mu.Lock()
	down := w.down || w.over || p.ctx.Err() != nil
	w.mu.Unlock()
	if down {
		return nil, errDied
	}
	socket, err := w.fleet.Dial(ctx, actors.ConnInfo{Remote: "192.0.2." + p.a.is.Name + ":7"})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &realLink{p: p, socket: socket}
	p.link = l
	if w.down || p.ctx.Err() != nil {
		p.cut()
	}
	return l, nil
}

// Read implements [worker.Link]. A frame takes a time of its own to arrive.
func (l *realLink) Read(ctx context.Context) (*messages.Frame, error) {
	f, err := l.socket.Read(ctx)
	if err == nil {
		timer := time.NewTimer(l.p.a.w.chance.within(time.Microsecond, 100*time.Microsecond, "travel", l.p.instance, since().String()))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	w := l.p.a.w
	w.mu.Lock()
	dead := l.dead
	w.mu.Unlock()
	switch {
	case dead:
		return nil, errUnplugged
	case err != nil:
		return nil, err
	}
	if d := f.GetRequest().GetWorkerDispatch(); d != nil {
		w.mu.Lock()
		w.tally.Dispatches++
		if d.GetGeneration() > 1 {
			w.tally.Adopted++
		}
		w.mu.Unlock()
		w.checkDispatch(l.p.a, f.GetId(), d)
	}
	return f, nil
}

// Write implements [worker.Link]. The machine is of the platform that the scenario gives it.
func (l *realLink) Write(_ context.Context, f *messages.Frame) error {
	w := l.p.a.w
	w.mu.Lock()
	dead := l.dead
	if f.GetError() != nil {
		w.tally.Refusals++
	}
	w.mu.Unlock()
	if dead {
		return errUnplugged
	}
	if f.GetRequest().GetWorkerEnroll() != nil {
		f = proto.CloneOf(f)
		e := f.GetRequest().GetWorkerEnroll()
		e.Platform, e.Arch = splitPlatform(l.p.a.is.Platform)
	}
	l.socket.Send(f)
	return nil
}

// Close implements [worker.Link].
func (l *realLink) Close(messages.Code, string) error {
	w := l.p.a.w
	w.mu.Lock()
	l.dead = true
	if l.p.link == l {
		l.p.away.begin()
	}
	w.mu.Unlock()
	l.socket.Close()
	return nil
}

// stopped notes the end of an execution; mu is held.
func (p *realProcess) stopped(ex *execution, how string) {
	key, ok := p.steps[ex]
	if !ok {
		return
	}
	delete(p.steps, ex)
	ex.to, ex.how = time.Now(), how
	w := p.a.w
	w.trace.say("%s ends %s: %s", p.instance, ex.dispatch, how)
	if w.running[key] == ex {
		delete(w.running, key)
	}
}

// Run implements [worker.Executor]: it is the step itself.
func (p *realProcess) Run(ctx context.Context, t worker.Task, started func(), out worker.Output) worker.Outcome {
	w := p.a.w
	w.mu.Lock()
	if p.ctx.Err() != nil {
		w.mu.Unlock()
		return worker.Outcome{Status: worker.OutcomeCancelled, Code: worker.CodeCancelled, Error: "the process has died"}
	}
	mood := p.a.mood
	if w.calm {
		mood = Mood{}
	}
	if w.chance.percent(mood.CannotStart, "cannot start", t.DispatchID) {
		w.mu.Unlock()
		return worker.Outcome{Status: worker.OutcomeWorkerCannotStart, Code: worker.CodeWorkerCannotStart, Error: "the simulation refuses"}
	}
	key := t.RunID + "/" + t.Job + "/" + t.Step
	ex := &execution{dispatch: t.DispatchID, worker: p.a.name, from: time.Now(), a: p.a, away: &p.away, life: p.ctx}
	p.steps[ex] = key
	w.executes(key, ex)
	w.tally.Real++
	w.mu.Unlock()
	started()
	o := p.work(ctx, t, mood, out)
	o.StartedAt = ex.from
	w.mu.Lock()
	p.stopped(ex, o.Status)
	w.mu.Unlock()
	return o
}

// work is what the step does.
func (p *realProcess) work(ctx context.Context, t worker.Task, mood Mood, out worker.Output) worker.Outcome {
	c := p.a.w.chance
	length, o := c.length(t.DispatchID), worker.Outcome{Status: worker.OutcomeSucceeded}
	if c.percent(mood.Fail, "fail", t.DispatchID) {
		o = worker.Outcome{Status: worker.OutcomeFailed, Code: worker.CodeExitNonzero, Error: "exit status 7", ExitCode: 7}
	}
	hangs := c.percent(mood.Hang, "hang", t.DispatchID)
	if t.Timeout > 0 && (length > t.Timeout || hangs) {
		length, hangs = t.Timeout, false
		o = worker.Outcome{Status: worker.OutcomeTimeout, Code: worker.CodeTimeout, Error: "timed out"}
	}
	chunks := int(c.of("chunks", t.DispatchID) % 4)
	for i := range chunks {
		if !p.rest(ctx, length/time.Duration(chunks+1)) {
			return p.giveUp(ctx, t, mood)
		}
		if out.Write(worker.Stdout, fmt.Appendf(nil, "line %d of %s\n", i, t.DispatchID)) != nil {
			break // nobody wants it any more
		}
	}
	if hangs {
		select {
		case <-p.a.w.calmed:
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
	if !p.rest(ctx, length/time.Duration(chunks+1)) {
		return p.giveUp(ctx, t, mood)
	}
	return o
}

// rest returns false when the step has to end.
func (p *realProcess) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-p.ctx.Done():
		return false
	}
}

// giveUp ends the step for whoever asks for it: in its own time, unless it is killed.
func (p *realProcess) giveUp(ctx context.Context, t worker.Task, mood Mood) worker.Outcome {
	c := p.a.w.chance
	wait := min(c.within(0, 3*time.Second, "give up", t.DispatchID), t.KillGrace)
	if c.percent(mood.Deaf, "deaf", t.DispatchID) {
		wait = t.KillGrace
	}
	if !errors.Is(context.Cause(ctx), worker.ErrKilled) && p.ctx.Err() == nil {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.Kill:
		case <-p.ctx.Done():
		}
	}
	return worker.Outcome{Status: worker.OutcomeCancelled, Code: worker.CodeCancelled, Error: fmt.Sprint(context.Cause(ctx))}
}
