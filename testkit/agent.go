package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// A ModelFunc is a Go model: what a step does on an [Agent]. It returns the outputs of the step; an error fails the step.
// It should return soon once its context has ended, which says that the step was cancelled or is out of time.
type ModelFunc func(ctx context.Context, t worker.Task, out worker.Output) (map[string]string, error)

// Run implements [worker.Model].
func (fn ModelFunc) Run(ctx context.Context, t worker.Task, out worker.Output) (map[string]string, error) {
	return fn(ctx, t, out)
}

// Model has an [Agent] offer a Go model of that name.
func Model(name string, fn ModelFunc) WorkerOption {
	return workerOption(func(d *description) {
		models := map[string]worker.Model{name: fn}
		for n, m := range d.models {
			if n != name {
				models[n] = m
			}
		}
		d.models = models
	})
}

// Shell is what the steps with run: do on an [Agent]: their script is t.Args["run"]. No process is started.
func Shell(fn ModelFunc) WorkerOption { return Model(worker.ShellModel, fn) }

// Configured changes how an [Agent] is configured: its drain, its idle timeout, how many dispatches it takes.
func Configured(change func(*worker.Config)) WorkerOption {
	return workerOption(func(d *description) { d.configure = append(d.configure, change) })
}

// noShell is what steps with run: get where the test has said nothing.
func noShell(context.Context, worker.Task, worker.Output) (map[string]string, error) {
	return nil, errors.New("testkit: this agent has no shell: give it one with testkit.Shell")
}

// Agent is a real worker, of the package worker, that runs Go models instead of processes: it reconnects, drains, fences
// and delivers by itself, over a connection within the process.
type Agent struct {
	f     *Fleet
	is    description
	agent *worker.Agent
	kill  context.CancelFunc
	news  bell

	mu     sync.Mutex
	socket *Socket // the last one; nil before the first
	cut    bool    // the test has cut it
	events []worker.Event
	taken  []bool // by WaitEvent
	name   string
	ended  bool
	reason worker.StopReason
	err    error
	spans  []span
}

// span is one time that a step ran.
type span struct {
	step, worker string
	from, to     time.Time // to is zero while it runs
}

// Agent starts a real worker in this process, with a token of its name, and waits until it has enrolled. It ends with
// the test.
func (f *Fleet) Agent(name string, options ...WorkerOption) *Agent {
	f.t.Helper()
	a := f.startAgent(f.describe(name, options))
	a.WaitEvent(worker.EventEnrolled)
	return a
}

// Again starts another process on the machine of an agent that has ended, or does not wait for that: it has the same
// token, and another instance uuid. It does not wait until it has enrolled.
func (a *Agent) Again(options ...WorkerOption) *Agent {
	a.f.t.Helper()
	is := a.is
	for _, o := range options {
		o.describe(&is)
	}
	return a.f.startAgent(is)
}

func (f *Fleet) startAgent(is description) *Agent {
	f.t.Helper()
	a := &Agent{f: f, is: is}
	models := map[string]worker.Model{worker.ShellModel: ModelFunc(noShell)}
	for name, m := range is.models {
		models[name] = m
	}
	// Nothing but a shell would use the cache directory, and there is none.
	exec, err := worker.NewExecutor(worker.ExecutorConfig{CacheDir: filepath.Join(os.TempDir(), "testkit-has-no-cache"), Logger: f.log, Models: models})
	if err != nil {
		f.t.Fatalf("testkit: agent: %v", err)
	}
	start := time.Now()
	cfg := worker.Config{
		Token: messages.Secret(is.token), Labels: messages.LabelsOf(is.labels), Concurrency: is.capacity, Version: version,
		MachineID: is.machine, Executor: watchedExecutor{exec, a}, Dial: a.dial, Logger: f.log, OnEvent: a.note,
		Clock: func() time.Duration { return time.Hour + time.Since(start) }, // as virtual as the rest
	}
	for _, change := range is.configure {
		change(&cfg)
	}
	if a.agent, err = worker.New(cfg); err != nil {
		f.t.Fatalf("testkit: agent: %v", err)
	}
	ctx, kill := context.WithCancel(f.ctx)
	a.kill = kill
	f.mu.Lock()
	f.agents = append(f.agents, a)
	f.mu.Unlock()
	f.run(func() {
		defer kill()
		reason, err := a.agent.Run(ctx)
		a.mu.Lock()
		a.ended, a.reason, a.err = true, reason, err
		a.mu.Unlock()
		a.news.ring()
	})
	return a
}

// errRefused is what a worker sees that dials while nobody listens, and errCut when its connection breaks.
var (
	errRefused = errors.New("testkit: connection refused")
	errCut     = errors.New("testkit: connection reset")
)

// dial connects, as the worker does on its own.
func (a *Agent) dial(ctx context.Context) (worker.Link, error) {
	if a.f.System() == nil {
		return nil, errRefused
	}
	s, err := a.f.Dial(ctx, actors.ConnInfo{Remote: a.is.remote, Loopback: a.is.loopback})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.socket, a.cut = s, false
	s.name = a.is.name
	s.Delay(a.is.delay)
	a.mu.Unlock()
	return &agentLink{Socket: s, a: a}, nil
}

// agentLink is an agent's end of a connection.
type agentLink struct {
	*Socket
	a *Agent
}

// Read implements [worker.Link]. A connection that the test has cut says nothing of the orchestrator's any more.
func (l *agentLink) Read(ctx context.Context) (*messages.Frame, error) {
	frame, err := l.Socket.Read(ctx)
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if l.a.socket == l.Socket && l.a.cut {
		return nil, errCut
	}
	return frame, err
}

// Write implements [worker.Link].
func (l *agentLink) Write(ctx context.Context, f *messages.Frame) error { return l.write(ctx, f) }

// Close implements [worker.Link].
func (l *agentLink) Close(code messages.Code, text string) error {
	if code == "" {
		code = messages.CodeUnavailable
	}
	return l.end.Close(code, text)
}

// sever cuts the connection, if there is one.
func (a *Agent) sever() {
	a.mu.Lock()
	s := a.socket
	a.cut = true
	a.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Drop cuts the connection. The agent connects again by itself.
func (a *Agent) Drop() { a.sever() }

// HalfOpen lets nothing through any more on the present connection, in either direction, without telling either end.
func (a *Agent) HalfOpen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.socket != nil {
		a.socket.HalfOpen()
	}
}

// Delay has each frame take that long from now on, in either direction.
func (a *Agent) Delay(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.is.delay = d
	if a.socket != nil {
		a.socket.Delay(d)
	}
}

// Drain has the agent leave as a signal does: it finishes what it runs and takes nothing new.
func (a *Agent) Drain() { a.agent.Drain(worker.StopSignal) }

// Die ends the agent as the death of its process does: its steps end with it, and nobody is told.
func (a *Agent) Die() {
	a.HalfOpen()
	a.kill()
	a.agent.Quit()
	a.sever()
}

// Wait waits until the agent has left, and says why it did.
func (a *Agent) Wait() (worker.StopReason, error) {
	a.f.t.Helper()
	ctx, cancel := a.f.patience()
	defer cancel()
	var reason worker.StopReason
	var err error
	if !a.news.wait(ctx, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		reason, err = a.reason, a.err
		return a.ended
	}) {
		a.f.t.Fatalf("testkit: agent %s has not left", a.Name())
	}
	return reason, err
}

// Name is what the orchestrator calls the agent; before it has enrolled, empty.
func (a *Agent) Name() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

// note takes an event of the agent's life.
func (a *Agent) note(e worker.Event) {
	a.mu.Lock()
	if e.Kind == worker.EventEnrolled {
		a.name = e.Worker
	}
	a.events = append(a.events, e)
	a.taken = append(a.taken, false)
	name := a.name
	a.mu.Unlock()
	a.f.trace.say("agent %s: %s", name, e)
	a.news.ring()
}

// Events are those of the agent's life so far.
func (a *Agent) Events() []worker.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// WaitEvent waits for the first event of that kind that it has not returned before.
func (a *Agent) WaitEvent(kind string) worker.Event {
	a.f.t.Helper()
	ctx, cancel := a.f.patience()
	defer cancel()
	var found *worker.Event
	var why error
	a.news.wait(ctx, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range a.events {
			if !a.taken[i] && a.events[i].Kind == kind {
				a.taken[i], found = true, &a.events[i]
				return true
			}
		}
		why = a.err
		return a.ended
	})
	if found == nil {
		a.f.t.Fatalf("testkit: agent %s: no event %s: %v", a.is.name, kind, why)
	}
	return *found
}

// watchedExecutor notes when each step ran, so that the audit sees one that ran twice at once.
type watchedExecutor struct {
	worker.Executor
	a *Agent
}

// Run implements [worker.Executor].
func (x watchedExecutor) Run(ctx context.Context, t worker.Task, started func(), out worker.Output) worker.Outcome {
	a := x.a
	a.mu.Lock()
	i := len(a.spans)
	a.spans = append(a.spans, span{step: fmt.Sprintf("%s/%s/%s", t.RunID, t.Job, t.Step), worker: t.Worker, from: time.Now()})
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.spans[i].to = time.Now()
		a.mu.Unlock()
	}()
	return x.Executor.Run(ctx, t, started, out)
}
