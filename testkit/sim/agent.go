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
// good that it may not, names what it has in flight, kills its steps when nobody has promised for too long to own them,
// keeps results until they are acknowledged, and leaves when it has drained.
type agent struct {
	w        *world
	is       Machine
	loopback bool

	// Guarded by the world's mutex.
	mood     Mood
	starts   int
	starting bool
	name     string // its worker's; before it has enrolled, what it is likely to be
	token    string
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
	known    map[string]*task // by dispatch id
	early    map[string]bool  // cancels of what is not known, by frame id
	dials    int
	fence    *time.Timer
}

// link is one connection of a process.
type link struct {
	p      *process
	socket *testkit.Socket
	half   bool
	dead   bool          // guarded by the world's mutex
	gone   chan struct{} // closed when the process knows that it is dead
	asked  int
	pings  map[string]time.Time // when each was sent that is not answered
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
	for _, m := range append(w.s.Machines, Machine{Name: loopback}) {
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
			token, err = w.newToken(a.is)
		}
		w.mu.Lock()
		a.starting = false
		if err != nil || w.over {
			w.mu.Unlock()
			return
		}
		a.token = token
		p := &process{a: a, instance: instance, token: token, known: make(map[string]*task), early: make(map[string]bool)}
		p.ctx, p.die = context.WithCancelCause(w.ctx)
		p.fence = time.AfterFunc(time.Hour, p.fenceOff)
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
	p.fence.Stop()
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
			p.part(l)
		} else if code := messages.CodeOf(err); code.Permanent() && code != messages.CodeInternal && p.ctx.Err() == nil {
			p.a.w.mu.Lock()
			p.tokenGone(code)
			p.end()
			p.a.w.mu.Unlock()
			return
		}
		p.leaveIfDone()
		p.dials++
		if !p.pause(p.chance().within(backoff/2, backoff, "dial", p.instance, strconv.Itoa(p.dials))) {
			return
		}
		backoff = min(2*backoff, backoffMost)
	}
}

// tokenGone notes that the token is not good any more; mu is held.
func (p *process) tokenGone(code messages.Code) {
	w := p.a.w
	if code == messages.CodeTokenExpired {
		w.tally.Expired++
	}
	if p.a.token == p.token {
		p.a.token = ""
	}
	if w.pool == p.token {
		w.pool = ""
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
	l := &link{p: p, socket: socket, gone: make(chan struct{}), pings: make(map[string]time.Time)}
	sent := time.Now()
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
			p.enrolled(l, r, sent)
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
		e.InFlight = append(e.InFlight, t.inFlight())
	}
	return e
}

// enrolled takes the answer: what is not this worker's any more is killed, what goes on is said again, and what is not
// decided yet goes on in silence.
func (p *process) enrolled(l *link, r *messages.EnrollResult, sent time.Time) {
	w := p.a.w
	w.mu.Lock()
	p.link, p.terms = l, r
	p.a.name = r.GetWorker()
	w.trace.say("%s is enrolled", p.instance)
	p.early = make(map[string]bool)
	verdicts := make(map[string]*messages.InFlightVerdict)
	for _, v := range r.GetInFlight() {
		verdicts[v.GetDispatchId()] = v
	}
	var owed []*task
	for _, t := range p.tasks() {
		switch v := verdicts[t.params.GetDispatchId()]; v.GetAction() {
		case "abort":
			p.forget(t)
		case "resume":
			t.goOn(v.GetGeneration(), v.GetOutputOffset())
			owed = append(owed, t)
		default:
			t.waits = true
		}
	}
	p.promised(sent)
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

// promised notes that the orchestrator owned the books when that was sent; mu is held. It counts for what this connection
// was given.
func (p *process) promised(sent time.Time) {
	for _, t := range p.known {
		if !t.waits {
			t.fence = sent.Add(p.span())
		}
	}
	p.setFence()
}

// span is how long a promise keeps a step alive.
func (p *process) span() time.Duration {
	return messages.Duration(p.terms.GetGraceMs() - p.terms.GetKillMarginMs())
}

// setFence has the next fence fall in time; mu is held.
func (p *process) setFence() {
	next := time.Now().Add(time.Hour)
	for _, t := range p.known {
		if !t.ended && t.fence.Before(next) {
			next = t.fence
		}
	}
	p.fence.Reset(time.Until(next))
}

// fenceOff kills what nobody has promised to own for too long.
func (p *process) fenceOff() {
	p.a.w.mu.Lock()
	defer p.a.w.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	for _, t := range p.tasks() {
		if !t.ended && !t.fence.After(time.Now()) {
			p.a.w.tally.Fenced++
			t.lose("out of reach for too long")
		}
	}
	p.setFence()
}

// ping asks for promises.
func (l *link) ping() {
	p := l.p
	p.a.w.mu.Lock()
	every := messages.Duration(p.terms.GetPingMs())
	p.a.w.mu.Unlock()
	timer := time.NewTicker(every)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-timer.C:
		case <-l.gone:
			return
		case <-p.ctx.Done():
			return
		}
		id := "ping-" + strconv.Itoa(n)
		p.a.w.mu.Lock()
		l.pings[id] = time.Now()
		p.a.w.mu.Unlock()
		l.send(&messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerPing, &messages.PingParams{})}})
	}
}

// pong takes the answer to a ping.
func (l *link) pong(id string) {
	w := l.p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if sent, ok := l.pings[id]; ok {
		delete(l.pings, id)
		if l.p.link == l {
			l.p.promised(sent)
		}
	}
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
	p.a.w.wg.Go(l.ping)
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

// part ends a connection. The steps go on, unless it is a worker that keeps nothing.
func (p *process) part(l *link) {
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.link == l {
		p.link = nil
	}
	if p.a.is.Forgets {
		for _, t := range p.tasks() {
			p.forget(t)
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
