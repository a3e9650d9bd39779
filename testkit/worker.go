package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// A WorkerOption describes a scripted worker: [Labels], [Capacity], and what the functions of this file return.
type WorkerOption interface{ describe(*description) }

type description struct {
	token, machine, instance string
	labels                   Labels
	platform, arch           string
	capacity                 int
	draining                 bool
	loopback                 bool
	remote                   string
	persistent               bool
	obedient                 bool
	onDispatch               func(*Dispatch)
	name                     string // what the test calls it
	delay                    time.Duration
	protocolMin, protocolMax int32
	models                   map[string]worker.Model // of an Agent
	configure                []func(*worker.Config)  // of an Agent
}

// order is what the orchestrator wants of a worker.
type order struct{ id, action string }

// Labels are a worker's labels.
type Labels map[string]string

func (l Labels) describe(d *description) { d.labels = l }

// Capacity is how many dispatches a worker runs at once. Default: 1.
type Capacity int

func (c Capacity) describe(d *description) { d.capacity = int(c) }

type workerOption func(*description)

func (o workerOption) describe(d *description) { o(d) }

// Platform is a worker's os/arch. Default: linux/amd64.
func Platform(platform string) WorkerOption {
	return workerOption(func(d *description) { d.platform, d.arch, _ = strings.Cut(platform, "/") })
}

// WithToken has the worker enroll with that token, NAME.SECRET. Default: one made for it, of its own name.
func WithToken(token string) WorkerOption {
	return workerOption(func(d *description) { d.token = token })
}

// Machine is the worker's machine id. Default: one of its own.
func Machine(id string) WorkerOption { return workerOption(func(d *description) { d.machine = id }) }

// Instance is the worker's instance uuid. Default: one of its own.
func Instance(uuid string) WorkerOption {
	return workerOption(func(d *description) { d.instance = uuid })
}

// Remote is the address that the worker comes from. Default: one of its own.
func Remote(address string) WorkerOption {
	return workerOption(func(d *description) { d.remote = address })
}

// Draining has the worker enroll as one that drains because of a signal.
func Draining() WorkerOption { return workerOption(func(d *description) { d.draining = true }) }

// Speaks has the worker offer these versions of the protocol. Default: what this build speaks.
func Speaks(oldest, newest int32) WorkerOption {
	return workerOption(func(d *description) { d.protocolMin, d.protocolMax = oldest, newest })
}

// Delayed has each frame take that long, in either direction.
func Delayed(by time.Duration) WorkerOption {
	return workerOption(func(d *description) { d.delay = by })
}

// Persistent has the worker dial again, a second later, whenever it has lost its connection other than by Drop.
func Persistent() WorkerOption { return workerOption(func(d *description) { d.persistent = true }) }

// Obedient has the worker do at once what it is ordered, drain or resume, as [Worker.Obey] does.
func Obedient() WorkerOption { return workerOption(func(d *description) { d.obedient = true }) }

// OnDispatch has fn called for each dispatch, in a goroutine of its own, instead of leaving it to NextDispatch. The worker
// is [Persistent] then.
func OnDispatch(fn func(*Dispatch)) WorkerOption {
	return workerOption(func(d *description) { d.onDispatch, d.persistent = fn, true })
}

// AutoRun has every dispatch succeed at once.
func AutoRun() WorkerOption { return OnDispatch(func(d *Dispatch) { d.Succeed() }) }

// Takes has every dispatch succeed after a while.
func Takes(while time.Duration) WorkerOption {
	return OnDispatch(func(d *Dispatch) {
		d.Accept()
		if d.w.f.sleep(while) {
			d.Succeed()
		}
	})
}

// sleep returns false when the fleet ended before.
func (f *Fleet) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// Worker is a worker that does what the test says. It sends what a real one would, and remembers what it was sent.
type Worker struct {
	f    *Fleet
	news bell

	mu         sync.Mutex
	is         description
	name       string
	link       *link     // nil while it has none
	downSince  time.Time // while it has none
	killAfter  time.Duration
	fault      *messages.Fault // why the last link ended
	goodbyes   []*messages.GoodbyeParams
	orders     []order // not obeyed yet
	dispatches []*Dispatch
	known      map[string]*Dispatch // by lease, what is not done
	early      map[string]bool      // cancels of what is not known
	next       int
	seq        uint32
	requests   int
	dead       bool // its process has died
	moved      int  // how many moves of its script it has made
}

// Worker enrolls a worker with a token of its name and fails the test if it is refused.
func (f *Fleet) Worker(name string, options ...WorkerOption) *Worker {
	f.t.Helper()
	w, err := f.Enroll(name, options...)
	if err != nil {
		f.t.Fatalf("testkit: enroll worker %s: %v", name, err)
	}
	return w
}

// Loopback connects the orchestrator's own worker; see [WithLoopback].
func (f *Fleet) Loopback(options ...WorkerOption) *Worker {
	f.t.Helper()
	is := workerOption(func(d *description) { d.loopback, d.capacity = true, max(f.settings.loopback, 1) })
	return f.Worker(actors.Loopback, append([]WorkerOption{is}, options...)...)
}

// Enroll is Worker for one that may be refused: the error is a *messages.Fault. One that gets no
// answer dials again, as a real one does.
func (f *Fleet) Enroll(name string, options ...WorkerOption) (*Worker, error) {
	f.t.Helper()
	is := f.describe(name, options)
	w := &Worker{f: f, is: is, known: make(map[string]*Dispatch), early: make(map[string]bool)}
	ctx, cancel := f.patience()
	defer cancel()
	if err := w.dialUntilAnswered(ctx, true); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.workers = append(f.workers, w)
	f.mu.Unlock()
	return w, nil
}

// describe is what the options say of a worker, and the defaults.
func (f *Fleet) describe(name string, options []WorkerOption) description {
	f.t.Helper()
	n := f.number("worker")
	is := description{
		name: name, protocolMin: messages.ProtocolMin, protocolMax: messages.ProtocolVersion,
		machine: fmt.Sprintf("machine-%d", n), instance: fmt.Sprintf("instance-%d", n), remote: fmt.Sprintf("192.0.2.%d:7", n%250),
		platform: "linux", arch: "amd64", capacity: 1,
	}
	for _, o := range options {
		o.describe(&is)
	}
	if is.token == "" && !is.loopback {
		is.token = f.Token(name)
	}
	return is
}

// Name is what the orchestrator calls the worker.
func (w *Worker) Name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name
}

// Connected tells whether the worker has a connection, as far as it knows.
func (w *Worker) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link != nil
}

// Drop cuts the connection. What was on its way to the worker is lost.
func (w *Worker) Drop() {
	w.mu.Lock()
	if w.link != nil {
		w.link.dropped = true
	}
	w.mu.Unlock()
	w.cut()
}

// HalfOpen lets nothing through any more, in either direction, without telling either end.
func (w *Worker) HalfOpen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link != nil {
		w.link.HalfOpen()
	}
}

// Delay has each frame take that long from now on, in either direction, over later connections too. 0 ends it.
func (w *Worker) Delay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.is.delay = d
	if w.link != nil {
		w.link.Delay(d)
	}
}

// Die ends the worker as the death of its process does: it knows nothing any more, and comes back, with Reconnect, as
// another instance.
func (w *Worker) Die() {
	w.Drop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, d := range w.unfinished() {
		w.abort(d)
		d.endedAt = time.Now()
	}
}

// A ReconnectOption changes how a worker comes back.
type ReconnectOption func(*reconnect)

type reconnect struct {
	forget   bool
	draining bool
	instance string
}

// Forgetting has the worker come back without naming what it had in flight: it runs none of it any more.
func Forgetting() ReconnectOption { return func(r *reconnect) { r.forget = true } }

// StillDraining has the worker come back as one that drains, to deliver what it has.
func StillDraining() ReconnectOption { return func(r *reconnect) { r.draining = true } }

// AsNewInstance has the worker come back as another process, which knows nothing of the one before.
func AsNewInstance() ReconnectOption {
	return func(r *reconnect) { r.instance, r.forget = "new", true }
}

// Reconnect enrolls the worker again, over a new socket: the same instance, naming what it has in flight, unless an option
// says otherwise. It fails the test if the worker is refused.
func (w *Worker) Reconnect(options ...ReconnectOption) {
	w.f.t.Helper()
	if err := w.TryReconnect(options...); err != nil {
		w.f.t.Fatalf("testkit: worker %s: reconnect: %v", w.name, err)
	}
}

// TryReconnect is Reconnect for a worker that may be refused: the error is a *messages.Fault.
func (w *Worker) TryReconnect(options ...ReconnectOption) error {
	var r reconnect
	for _, o := range options {
		o(&r)
	}
	w.mu.Lock()
	if w.dead {
		r.instance, r.forget, w.dead = "new", true, false
	}
	w.mu.Unlock()
	if r.draining {
		w.mu.Lock()
		w.is.draining = true
		w.mu.Unlock()
	}
	if r.instance != "" {
		r.instance = fmt.Sprintf("instance-%d", w.f.number("worker"))
		w.mu.Lock()
		w.is.instance, w.is.draining, w.seq = r.instance, false, 0
		w.mu.Unlock()
	}
	ctx, cancel := w.f.patience()
	defer cancel()
	return w.dialUntilAnswered(ctx, r.forget)
}

// NextDispatch waits for the next dispatch that it has not returned before.
func (w *Worker) NextDispatch() *Dispatch {
	w.f.t.Helper()
	ctx, cancel := w.f.patience()
	defer cancel()
	var d *Dispatch
	w.news.wait(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.next < len(w.dispatches) {
			d = w.dispatches[w.next]
			w.next++
		}
		return d != nil
	})
	if d == nil {
		w.f.t.Fatalf("testkit: worker %s got no dispatch", w.Name())
	}
	return d
}

// NoDispatch fails the test if there is a dispatch that NextDispatch has not returned, now that everything has settled.
func (w *Worker) NoDispatch() {
	w.f.t.Helper()
	w.f.Settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next < len(w.dispatches) {
		w.f.t.Fatalf("testkit: worker %s got a dispatch of step %s", w.name, w.dispatches[w.next].Step())
	}
}

// Dispatches are all that the worker was sent, in their order.
func (w *Worker) Dispatches() []*Dispatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dispatches)
}

// WaitClosed waits until the orchestrator has closed the connection, and returns why.
func (w *Worker) WaitClosed() *messages.Fault {
	w.f.t.Helper()
	ctx, cancel := w.f.patience()
	defer cancel()
	var fault *messages.Fault
	w.news.wait(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		fault = w.fault
		return w.link == nil
	})
	if fault == nil {
		w.f.t.Fatalf("testkit: worker %s: its connection was not closed", w.Name())
	}
	return fault
}

// Goodbyes are the reasons of the goodbyes that the worker was told.
func (w *Worker) Goodbyes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var reasons []string
	for _, g := range w.goodbyes {
		reasons = append(reasons, g.GetReason())
	}
	return reasons
}

// NextOrder waits for the next order of the orchestrator, drain or resume, and returns it. It is not obeyed.
func (w *Worker) NextOrder() string {
	w.f.t.Helper()
	return w.nextOrder().action
}

// Obey waits for the next order and does what it says, as a real worker does: its status says what it has in mind then, and
// the answer comes after that. With unable it cannot be kept, and goes on leaving.
func (w *Worker) Obey(unable ...bool) (action string) {
	w.f.t.Helper()
	o := w.nextOrder()
	w.obey(o, len(unable) > 0)
	return o.action
}

func (w *Worker) obey(o order, unable bool) {
	p := &messages.StatusParams{Intent: string(messages.IntentNone)}
	w.mu.Lock()
	if w.is.draining = o.action == "drain" || unable; w.is.draining {
		p.Intent, p.Reason = string(messages.IntentDraining), "drain was asked for"
	}
	w.mu.Unlock()
	w.status(p)
	w.Send(&messages.Frame{Id: o.id, Body: &messages.Frame_Response{
		Response: messages.NewResponse(messages.VerbWorkerOrder, &messages.OrderResult{}),
	}})
}

func (w *Worker) nextOrder() order {
	w.f.t.Helper()
	ctx, cancel := w.f.patience()
	defer cancel()
	var got []order
	w.news.wait(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.orders) > 0 {
			got, w.orders = w.orders[:1:1], w.orders[1:]
		}
		return len(got) > 0
	})
	if len(got) == 0 {
		w.f.t.Fatalf("testkit: worker %s got no order", w.Name())
	}
	return got[0]
}

// Orders are what the worker was told to do, such as drain, and has not obeyed yet.
func (w *Worker) Orders() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var actions []string
	for _, o := range w.orders {
		actions = append(actions, o.action)
	}
	return actions
}

// SayIdle reports that the worker has slots again, and waits for the answer.
func (w *Worker) SayIdle() {
	w.f.t.Helper()
	w.say(&messages.StatusParams{Intent: string(messages.IntentNone)})
}

// SayDraining reports that the worker takes nothing new any more, and waits for the answer.
func (w *Worker) SayDraining(reason string) {
	w.f.t.Helper()
	w.say(&messages.StatusParams{Intent: string(messages.IntentDraining), Reason: reason})
}

// say tells the status, and repeats that until it is answered: what takes it may die with it in hand.
func (w *Worker) say(p *messages.StatusParams) {
	w.f.t.Helper()
	w.mu.Lock()
	w.is.draining = p.GetIntent() == string(messages.IntentDraining)
	w.mu.Unlock()
	ctx, cancel := w.f.patience()
	defer cancel()
	for {
		again, stop := context.WithTimeout(ctx, sayAgain)
		f := w.ask(again, messages.VerbWorkerStatus, p)
		stop()
		switch {
		case f == nil && ctx.Err() == nil:
			continue
		case f == nil:
			w.f.t.Fatalf("testkit: worker %s: nobody hears its status", w.Name())
		case f.GetError() != nil:
			w.f.t.Fatalf("testkit: worker %s: %s", w.Name(), f.GetError().GetText())
		}
		return
	}
}

// status reports a status, and does not wait for the answer.
func (w *Worker) status(p *messages.StatusParams) {
	w.mu.Lock()
	w.requests++
	id := fmt.Sprintf("request-%d", w.requests)
	w.mu.Unlock()
	w.Send(&messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerStatus, p)}})
}

// sayAgain is how long a worker waits for the answer to its status.
const sayAgain = 10 * time.Second

// Ask sends a request and waits for its answer, a response or an error.
func (w *Worker) Ask(verb messages.Verb, params proto.Message) *messages.Frame {
	w.f.t.Helper()
	ctx, cancel := w.f.patience()
	defer cancel()
	f := w.ask(ctx, verb, params)
	if f == nil {
		w.f.t.Fatalf("testkit: worker %s: no answer to %s", w.Name(), verb)
	}
	return f
}

// ask is Ask, and nil where no answer comes.
func (w *Worker) ask(ctx context.Context, verb messages.Verb, params proto.Message) *messages.Frame {
	w.f.t.Helper()
	w.mu.Lock()
	w.requests++
	id := fmt.Sprintf("request-%d", w.requests)
	l := w.link
	w.mu.Unlock()
	if l == nil {
		w.f.t.Fatalf("testkit: worker %s is not connected", w.Name())
	}
	answer := l.expect(id)
	w.Send(&messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(verb, params)}})
	select {
	case f := <-answer:
		return f
	case <-ctx.Done():
		return nil
	}
}

// Await returns a channel that gets the next frame with that id which does not belong to a dispatch that the worker knows.
func (w *Worker) Await(id string) <-chan *messages.Frame {
	w.f.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link == nil {
		w.f.t.Fatalf("testkit: worker %s is not connected", w.name)
	}
	return w.link.expect(id)
}

// Send sends any frame. It is lost while the worker has no connection.
func (w *Worker) Send(frame *messages.Frame) {
	w.mu.Lock()
	l := w.link
	w.mu.Unlock()
	if l != nil {
		l.Send(frame)
	}
}

// Token is the enrollment token of the worker, NAME.SECRET.
func (w *Worker) Token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.is.token
}
