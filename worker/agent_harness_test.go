package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// memLink is one end of a connection in memory. It holds up to its buffer's frames on their way.
type memLink struct {
	in   <-chan *messages.Frame
	out  chan<- *messages.Frame
	mine *gate // closed by this end
	peer *gate // closed by the other
}

// gate is a channel that is closed once, with a reason.
type gate struct {
	once sync.Once
	c    chan struct{}
	err  error
}

func newGate() *gate { return &gate{c: make(chan struct{})} }

func (g *gate) shut(err error) {
	g.once.Do(func() {
		g.err = err
		close(g.c)
	})
}

func newMemLinks(buffer int) (worker, orchestrator *memLink) {
	up, down := make(chan *messages.Frame, buffer), make(chan *messages.Frame, buffer)
	a, b := newGate(), newGate()
	return &memLink{in: down, out: up, mine: a, peer: b}, &memLink{in: up, out: down, mine: b, peer: a}
}

func (l *memLink) Read(ctx context.Context) (*messages.Frame, error) {
	select {
	case f := <-l.in:
		return f, nil
	default:
	}
	select {
	case f := <-l.in:
		return f, nil
	case <-l.peer.c:
		select { // what was sent before the end still arrives
		case f := <-l.in:
			return f, nil
		default:
			return nil, l.peer.err
		}
	case <-l.mine.c:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *memLink) Write(ctx context.Context, f *messages.Frame) error {
	select {
	case <-l.peer.c:
		return io.ErrClosedPipe
	case <-l.mine.c:
		return io.ErrClosedPipe
	default:
	}
	select {
	case l.out <- f:
		return nil
	case <-l.peer.c:
		return io.ErrClosedPipe
	case <-l.mine.c:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *memLink) Close(code messages.Code, text string) error {
	err := io.EOF
	if code != "" {
		err = &messages.Fault{Code: code, Text: text}
	}
	l.mine.shut(err)
	return nil
}

// execFunc is an executor that is a function.
type execFunc func(ctx context.Context, t Task, started func(), out Output) Outcome

func (f execFunc) Run(ctx context.Context, t Task, started func(), out Output) Outcome {
	return f(ctx, t, started, out)
}

// succeed is a step that does nothing.
func succeed(_ context.Context, _ Task, started func(), _ Output) Outcome {
	started()
	return Outcome{Status: OutcomeSucceeded, StartedAt: time.Now()}
}

// untilStopped is a step that runs until somebody stops it.
func untilStopped(ctx context.Context, t Task, started func(), _ Output) Outcome {
	started()
	select {
	case <-ctx.Done():
	case <-t.Kill:
	}
	return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: context.Cause(ctx).Error(), StartedAt: time.Now()}
}

// errDialled is what a scripted dial fails with.
var errDialled = errors.New("connection refused")

// orchestrator is a scripted one, in a bubble of virtual time.
type orchestrator struct {
	t      *testing.T
	agent  *Agent
	conns  chan *conn
	dials  []time.Time
	refuse func(try int) error // of a dial; nil accepts
	links  func() (worker, orchestrator *memLink)
	done   chan struct{}
	reason StopReason
	err    error

	mu     sync.Mutex
	events []Event
}

// conn is the orchestrator's end of one connection.
type conn struct {
	*memLink
	t      *testing.T
	enroll *messages.EnrollParams
	id     string // of the enrollment
}

func startAgent(t *testing.T, exec execFunc, change ...func(*Config)) *orchestrator {
	t.Helper()
	o := &orchestrator{t: t, conns: make(chan *conn, 100), done: make(chan struct{})}
	o.links = func() (worker, orchestrator *memLink) { return newMemLinks(1000) }
	cfg := Config{
		Token: "gpu-1.0123456789abcdef", MachineID: "m-1", Executor: exec, Concurrency: 1, Version: "v1",
		OnEvent: func(e Event) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.events = append(o.events, e)
		},
		Dial: func(context.Context) (Link, error) {
			o.dials = append(o.dials, time.Now())
			if o.refuse != nil {
				if err := o.refuse(len(o.dials)); err != nil {
					return nil, err
				}
			}
			w, s := o.links()
			o.conns <- &conn{memLink: s, t: t}
			return w, nil
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	a.clock = func() time.Duration { return time.Hour + time.Since(start) } // in a bubble it is as virtual as the rest
	o.agent = a
	return o
}

// run starts the agent, which has to have ended when the test ends.
func (o *orchestrator) run() *orchestrator {
	go func() {
		defer close(o.done)
		o.reason, o.err = o.agent.Run(context.Background())
	}()
	o.t.Cleanup(func() {
		o.agent.Kill()
		<-o.done
	})
	return o
}

// ended waits for the end of the agent.
func (o *orchestrator) ended(reason StopReason) error {
	o.t.Helper()
	select {
	case <-o.done:
	case <-time.After(time.Hour):
		o.t.Fatalf("the agent does not end; events: %v", o.kinds())
	}
	if o.reason != reason {
		o.t.Fatalf("the agent ended with %q (%v), want %q", o.reason, o.err, reason)
	}
	return o.err
}

func (o *orchestrator) kinds() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var kinds []string
	for _, e := range o.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (o *orchestrator) event(kind string) Event {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.events, func(e Event) bool { return e.Kind == kind })
	if i < 0 {
		o.t.Fatalf("no event %s among %v", kind, o.events)
	}
	return o.events[i]
}

// accept waits for a connection and reads its enrollment.
func (o *orchestrator) accept() *conn {
	o.t.Helper()
	var c *conn
	select {
	case c = <-o.conns:
	case <-time.After(time.Hour):
		o.t.Fatalf("no connection; events: %v", o.kinds())
	}
	f := c.read()
	c.id, c.enroll = f.GetId(), f.GetRequest().GetWorkerEnroll()
	if c.enroll == nil {
		o.t.Fatalf("the first frame is %v", f)
	}
	return c
}

// enrolled accepts a connection and admits the worker.
func (o *orchestrator) enrolled() *conn {
	o.t.Helper()
	c := o.accept()
	c.admit()
	return c
}

// admit admits the worker, and says of everything that it has in flight that it goes on.
func (c *conn) admit() {
	var verdicts []*messages.InFlightVerdict
	for _, f := range c.enroll.GetInFlight() {
		verdicts = append(verdicts, &messages.InFlightVerdict{DispatchId: f.GetDispatchId(), Generation: f.GetGeneration(), Action: verdictResume})
	}
	c.admitWith(verdicts...)
}

func (c *conn) admitWith(verdicts ...*messages.InFlightVerdict) {
	c.send(responseTo(c.id, messages.VerbWorkerEnroll, &messages.EnrollResult{
		Worker: "gpu-1", PingMs: 15_000, GraceMs: 60_000, KillMarginMs: 2600, KillGraceMs: 10_000, InFlight: verdicts,
	}))
}

// inFlight is what the worker names, in words.
func (c *conn) inFlight() []string {
	var list []string
	for _, f := range c.enroll.GetInFlight() {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s/%d %s %d %s", f.GetDispatchId(), f.GetGeneration(), f.GetState(), f.GetOutputOffset(), f.GetResult().GetStatus())))
	}
	return list
}

func (c *conn) send(f *messages.Frame) {
	c.t.Helper()
	if err := c.Write(context.Background(), f); err != nil {
		c.t.Fatalf("send %v: %v", f, err)
	}
}

// next returns the next frame that is no ping, which it answers; nil after the time limit or at the end.
func (c *conn) next(limit time.Duration) *messages.Frame {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		f, err := c.Read(ctx)
		if err != nil {
			return nil
		}
		if f.GetRequest().GetWorkerPing() != nil {
			_ = c.Write(ctx, responseTo(f.GetId(), messages.VerbWorkerPing, &messages.PingResult{})) // it may have gone meanwhile
			continue
		}
		return f
	}
}

func (c *conn) read() *messages.Frame {
	c.t.Helper()
	f := c.next(2 * time.Hour)
	if f == nil {
		c.t.Fatal("no frame comes")
	}
	return f
}

// expect reads a frame and compares it with what it should say.
func (c *conn) expect(want string) *messages.Frame {
	c.t.Helper()
	f := c.read()
	if got := describe(f); got != want {
		c.t.Fatalf("the worker says %q, want %q", got, want)
	}
	return f
}

// silent checks that the worker says nothing.
func (c *conn) silent(limit time.Duration) {
	c.t.Helper()
	if f := c.next(limit); f != nil {
		c.t.Fatalf("the worker says %q, want nothing", describe(f))
	}
}

// dispatch sends a step.
func (c *conn) dispatch(id string, seq uint32, change ...func(*messages.DispatchParams)) {
	c.t.Helper()
	c.send(dispatchOrder(id, seq, change...))
}

func dispatchOrder(id string, seq uint32, change ...func(*messages.DispatchParams)) *messages.Frame {
	p := &messages.DispatchParams{
		DispatchId: id, Generation: 1, Seq: seq, Attempt: 1, RunId: "r1", Workflow: "flow", Job: "main", Step: "one",
		ModelType: ShellModel, MethodName: ShellMethod,
	}
	for _, f := range change {
		f(p)
	}
	return requestFrame(frameID(id, p.GetGeneration()), messages.VerbWorkerDispatch, p)
}

func (c *conn) ack(id string, offset uint32, done bool) {
	c.t.Helper()
	c.ackOf(frameID(id, 1), offset, done)
}

func (c *conn) ackOf(frame string, offset uint32, done bool) {
	c.t.Helper()
	c.send(&messages.Frame{Id: frame, Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: offset, Done: done}}})
}

func (c *conn) cancel(id string, force bool) {
	c.t.Helper()
	c.send(&messages.Frame{Id: frameID(id, 1), Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{Force: force}}})
}

func (c *conn) goodbye(reason string, code messages.Code) {
	c.t.Helper()
	c.send(requestFrame("bye", messages.VerbWorkerGoodbye, &messages.GoodbyeParams{Reason: reason, Code: string(code), Text: "because"}))
}

func (c *conn) request(id string, v messages.Verb, p proto.Message) {
	c.t.Helper()
	c.send(requestFrame(id, v, p))
}

// describe is a frame in a few words.
func describe(f *messages.Frame) string {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Event:
		switch e := body.Event.GetEvent().(type) {
		case *messages.Event_Accepted:
			return f.GetId() + " accepted"
		case *messages.Event_Started:
			return f.GetId() + " started"
		case *messages.Event_Output:
			data := e.Output.GetData()
			return strings.TrimSpace(f.GetId() + " " + e.Output.GetStream() + " " + string(data[:min(len(data), 200)]))
		}
	case *messages.Frame_Response:
		if r := body.Response.GetWorkerDispatch(); r != nil {
			return strings.TrimSpace(f.GetId() + " " + r.GetStatus() + " " + r.GetCode())
		}
		return f.GetId() + " response"
	case *messages.Frame_Error:
		return f.GetId() + " error " + body.Error.GetCode()
	case *messages.Frame_Request:
		if s := body.Request.GetWorkerStatus(); s != nil {
			return strings.TrimSpace("status " + s.GetIntent() + " " + s.GetReason())
		}
		return "request " + body.Request.GetVerb()
	}
	return f.String()
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
