package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// Times of a worker.
const (
	backoffFirst = time.Second
	backoffMost  = 30 * time.Second
	enrollTime   = 30 * time.Second
	sayAgainTime = 5 * time.Second
)

var (
	errDead      = errors.New("sim: the process has died")
	errNoAnswer  = errors.New("sim: no answer to the enrollment")
	errUnplugged = errors.New("sim: the connection was cut")
)

// agent is a machine with, at times, a worker's process on it. It does what a real one does: it dials until it is told for
// good that it may not, kills its steps when its connection is gone, keeps results until they are acknowledged, and leaves
// when it has drained.
type agent struct {
	w        *world
	is       Machine
	loopback bool

	// Guarded by the world's mutex.
	mood     Mood
	starts   int
	starting bool
	token    string
	revoked  bool // the token of its process, or of the one before
	proc     *process
}

// process is one life of an agent.
type process struct {
	a        *agent
	instance string
	token    string
	ctx      context.Context //nolint:containedctx // its life
	die      context.CancelCauseFunc

	// Guarded by the world's mutex.
	link     *link
	terms    *messages.EnrollResult
	seq      uint32
	draining bool
	known    map[string]*task // by lease
	early    map[string]bool
	dials    int
}

// link is one connection of a process.
type link struct {
	p      *process
	socket *testkit.Socket
	half   bool
	dead   bool          // guarded by the world's mutex
	gone   chan struct{} // closed when the process knows that it is dead
	asked  int
}

// cut ends the link for the process; mu is held. The socket is left to be closed.
func (l *link) cut() {
	if !l.dead {
		l.dead = true
		close(l.gone)
	}
}

func (l *link) send(f *messages.Frame) {
	l.p.a.w.mu.Lock()
	dead := l.dead
	l.p.a.w.mu.Unlock()
	if !dead {
		l.socket.Send(f)
	}
}

// links are those that are up; mu is held.
func (w *world) links() []*link {
	var all []*link
	for _, m := range append(w.s.Machines, Machine{Name: "loopback"}) {
		if a := w.agents[m.Name]; a != nil && a.proc != nil && a.proc.link != nil && !a.proc.link.dead {
			all = append(all, a.proc.link)
		}
	}
	return all
}

// start starts a process, unless there is one.
func (a *agent) start(mood Mood) {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.proc != nil || a.starting || w.over {
		return
	}
	a.mood, a.starting = mood, true
	a.starts++
	instance := fmt.Sprintf("%s-%d", a.is.Name, a.starts)
	w.wg.Go(func() {
		w.sleep(w.chance.within(time.Millisecond, 50*time.Millisecond, "start", instance))
		w.mu.Lock()
		token := a.token
		w.mu.Unlock()
		var err error
		if token == "" && !a.loopback {
			token, err = w.newToken(a.is.Name)
		}
		w.mu.Lock()
		a.starting = false
		if err != nil || w.over {
			w.mu.Unlock()
			return
		}
		a.token, a.revoked = token, false
		p := &process{a: a, instance: instance, token: token, known: make(map[string]*task), early: make(map[string]bool)}
		p.ctx, p.die = context.WithCancelCause(w.ctx)
		a.proc = p
		w.mu.Unlock()
		p.live()
	})
}

// kill is the sudden death of the process.
func (a *agent) kill() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.proc != nil {
		a.proc.end()
	}
}

// end ends the process; mu is held. Its steps die with it.
func (p *process) end() {
	if p.a.proc != p {
		return
	}
	p.a.proc = nil
	p.die(errDead)
	p.a.w.trace.say("%s ends", p.instance)
	for _, t := range p.known {
		t.stop("died")
	}
	if l := p.link; l != nil {
		l.cut()
		p.a.w.closeSoon(l)
	}
}

// closeSoon lets the orchestrator know that a link is dead: at once, unless it is half open, where only its silence tells;
// mu is held.
func (w *world) closeSoon(l *link) {
	wait := time.Duration(0)
	if l.half {
		wait = l.p.silence()
	}
	w.wg.Go(func() {
		w.sleep(wait)
		l.socket.Close()
	})
}

// silence is after how long without a byte a peer is taken for gone.
func (p *process) silence() time.Duration { return 3 * messages.Duration(p.terms.GetPingMs()) }

// cut breaks the connection, and both ends know.
func (a *agent) cut() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.proc != nil && a.proc.link != nil && !a.proc.link.dead && !a.loopback {
		a.w.tally.Cuts++
		a.proc.link.cut()
		a.w.closeSoon(a.proc.link)
	}
}

// halfOpen breaks the connection, and neither end is told: each finds out by itself that the other one is silent.
func (a *agent) halfOpen() {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.proc == nil || a.proc.link == nil || a.proc.link.dead || a.loopback {
		return
	}
	w.tally.Cuts++
	l := a.proc.link
	l.half = true
	l.socket.HalfOpen()
	wait := l.p.silence()
	w.wg.Go(func() {
		w.sleep(wait)
		w.mu.Lock()
		l.cut()
		w.mu.Unlock()
		l.socket.Close()
	})
}

// drain has the process leave once it has nothing to do any more.
func (a *agent) drain() {
	a.w.mu.Lock()
	p := a.proc
	if p == nil {
		a.w.mu.Unlock()
		return
	}
	p.draining = true
	l := p.link
	a.w.mu.Unlock()
	if l != nil {
		l.say(messages.IntentDraining)
	}
	p.leaveIfDone()
}

// leaveIfDone ends a process that drains and owes nothing.
func (p *process) leaveIfDone() {
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.draining && len(p.known) == 0 && p.a.proc == p {
		w.tally.Drained++
		p.end()
	}
}

// say reports what the worker wants.
func (l *link) say(intent messages.WorkerIntent) {
	l.p.a.w.mu.Lock()
	l.asked++
	id := fmt.Sprintf("status-%d", l.asked)
	l.p.a.w.mu.Unlock()
	l.send(&messages.Frame{Id: id, Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerStatus, &messages.StatusParams{Intent: string(intent), Reason: "signal"}),
	}})
}

// live connects again and again.
func (p *process) live() {
	backoff := backoffFirst
	for p.ctx.Err() == nil {
		l, err := p.connect()
		if err == nil {
			backoff = backoffFirst
			p.serve(l)
			p.abandon(l)
		} else if code := messages.CodeOf(err); code.Permanent() && code != messages.CodeInternal && p.ctx.Err() == nil {
			p.a.w.mu.Lock()
			if p.a.token == p.token {
				p.a.token = ""
			}
			p.end()
			p.a.w.mu.Unlock()
			return
		}
		p.leaveIfDone()
		if p.a.loopback && err == nil { // it has ended with its orchestrator
			p.a.kill()
			p.a.start(Mood{})
			return
		}
		p.dials++
		if !p.pause(p.chance().within(backoff/2, backoff, "dial", p.instance, strconv.Itoa(p.dials))) {
			return
		}
		backoff = min(2*backoff, backoffMost)
	}
}

func (p *process) chance() chance { return p.a.w.chance }

// pause returns false when the process has died.
func (p *process) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// travel is the time that a frame takes to arrive, so that what it leads to does not race with what its sender does next.
func (l *link) travel() {
	timer := time.NewTimer(l.p.chance().within(time.Microsecond, 100*time.Microsecond, "travel", l.p.instance, since().String()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.gone:
	case <-l.p.ctx.Done():
	}
}

// connect dials and enrolls.
func (p *process) connect() (*link, error) {
	w := p.a.w
	w.mu.Lock()
	boot := w.boot
	w.mu.Unlock()
	if boot.Err() != nil {
		return nil, errDied
	}
	ctx, cancel := context.WithTimeoutCause(p.ctx, enrollTime, errNoAnswer)
	defer cancel()
	info := actors.ConnInfo{Remote: "192.0.2." + p.a.is.Name + ":7", Loopback: p.a.loopback}
	socket, err := w.fleet.Dial(ctx, info)
	if err != nil {
		return nil, err
	}
	l := &link{p: p, socket: socket, gone: make(chan struct{})}
	defer context.AfterFunc(boot, func() { cancel() })()
	socket.Send(&messages.Frame{Id: "enroll", Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerEnroll, p.introduction()),
	}})
	for {
		f, err := socket.Read(ctx)
		switch {
		case boot.Err() != nil: // whatever it still says does not arrive
			err = errDied
		case err == nil && f.GetError() != nil:
			err = f.GetError().Fault()
		}
		if err != nil {
			socket.Close()
			return nil, err
		}
		if r := f.GetResponse().GetWorkerEnroll(); r != nil {
			l.travel()
			p.enrolled(l, r)
			return l, nil
		}
	}
}

func (p *process) introduction() *messages.EnrollParams {
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	platform, arch := splitPlatform(p.a.is.Platform)
	e := &messages.EnrollParams{
		Token: p.token, MachineId: "machine-" + p.a.is.Name, InstanceUuid: p.instance, ProtocolMin: messages.ProtocolMin,
		ProtocolMax: messages.ProtocolVersion, Version: "sim", Platform: platform, Arch: arch,
		Labels: messages.LabelsOf(p.a.is.Labels).Proto(), Capacity: int32(p.a.is.Capacity), DispatchSeq: p.seq,
		Intent: string(messages.IntentNone),
	}
	if p.draining {
		e.Intent, e.Reason = string(messages.IntentDraining), "signal"
	}
	for _, t := range p.tasks() {
		e.InFlight = append(e.InFlight, &messages.InFlight{
			DispatchId: t.params.GetDispatchId(), Generation: t.params.GetGeneration(), State: "ended", OutputOffset: t.offset,
		})
	}
	return e
}

// enrolled takes the answer: what is not this worker's any more is forgotten, and what is owed is said again.
func (p *process) enrolled(l *link, r *messages.EnrollResult) {
	w := p.a.w
	w.mu.Lock()
	p.link, p.terms = l, r
	w.trace.say("%s is enrolled", p.instance)
	p.early = make(map[string]bool)
	resumed := make(map[string]bool)
	for _, v := range r.GetInFlight() {
		if v.GetAction() == "resume" {
			resumed[v.GetDispatchId()] = true
		}
	}
	var owed []*task
	for _, t := range p.tasks() {
		if resumed[t.params.GetDispatchId()] {
			owed = append(owed, t)
		} else {
			p.forget(t)
		}
	}
	if p.ctx.Err() != nil || w.down {
		l.cut()
		w.closeSoon(l)
	}
	w.mu.Unlock()
	for _, t := range owed {
		t.sayAgain()
	}
	p.leaveIfDone()
}

// serve reads what comes over a link, until it is gone.
func (p *process) serve(l *link) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	p.a.w.wg.Go(func() {
		select {
		case <-l.gone:
			cancel(errUnplugged)
		case <-stop:
		}
	})
	for {
		f, err := l.socket.Read(ctx)
		if err != nil {
			break
		}
		l.travel()
		p.a.w.mu.Lock()
		dead := l.dead || l.half
		p.a.w.mu.Unlock()
		if !dead {
			p.take(l, f)
		}
	}
	p.a.w.mu.Lock()
	half := l.half
	p.a.w.mu.Unlock()
	if half { // it does not know yet
		select {
		case <-l.gone:
		case <-p.ctx.Done():
		}
	}
	p.a.w.mu.Lock()
	l.cut()
	p.a.w.mu.Unlock()
	l.socket.Close()
}

// abandon kills the steps, as the connection is gone. How they ended waits for the next one.
func (p *process) abandon(l *link) {
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.link == l {
		p.link = nil
	}
	for _, t := range p.tasks() {
		switch {
		case t.ended:
		case !t.accepted:
			p.forget(t)
		default:
			t.result(&messages.DispatchResult{Status: "lost", Code: string(messages.CodeWorkerLost), Error: "killed because its worker was cut off"}, "killed")
		}
	}
}

func splitPlatform(p string) (os, arch string) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}
