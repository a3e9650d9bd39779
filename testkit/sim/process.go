package sim

import (
	"context"
	"strconv"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

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
	away     spans // when it had no connection
	fence    *time.Timer
}

// end ends the process; mu is held. Its steps die with it.
func (p *process) end() {
	if p.a.proc != p {
		return
	}
	p.a.proc = nil
	p.away.begin()
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
			p.a.tokenGone(p.token, code)
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
func (a *agent) tokenGone(token string, code messages.Code) {
	w := a.w
	if code == messages.CodeTokenExpired {
		w.tally.Expired++
	}
	if a.token == token {
		a.token = ""
	}
	if w.pool == token {
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
	p.away.end()
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
			if t.ex != nil {
				t.ex.forgotten = true
			}
			p.forget(t)
		}
	}
}
