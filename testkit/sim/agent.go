package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
	"github.com/swampd/swampd/worker"
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
	revoked  bool // at some time
	proc     *process
	real     *realProcess
}

// start starts a process, unless there is one.
func (a *agent) start(mood Mood) {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.proc != nil || a.real != nil || a.starting || w.over {
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
		if a.is.Real {
			p := &realProcess{a: a, instance: instance, token: token, steps: make(map[*execution]string)}
			p.ctx, p.die = context.WithCancelCause(w.ctx)
			a.real = p
			w.mu.Unlock()
			p.live()
			return
		}
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
	if a.real != nil {
		a.real.end()
	}
}

// cut breaks the connection, and both ends know.
func (a *agent) cut() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.real != nil && a.real.link != nil && !a.real.link.dead {
		a.w.tally.Cuts++
		a.real.cut()
	}
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
	if a.real != nil && a.real.link != nil && !a.real.link.dead {
		w.tally.Cuts++
		a.real.away.begin()
		a.real.link.socket.HalfOpen()
		return
	}
	if a.proc == nil || a.proc.link == nil || a.proc.link.dead || a.loopback {
		return
	}
	w.tally.Cuts++
	l := a.proc.link
	l.half = true
	l.p.away.begin()
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

// socket is that of the present connection, nil where there is none; mu is held.
func (a *agent) socket() *testkit.Socket {
	switch {
	case a.loopback:
	case a.real != nil && a.real.link != nil && !a.real.link.dead:
		return a.real.link.socket
	case a.proc != nil && a.proc.link != nil && !a.proc.link.dead:
		return a.proc.link.socket
	}
	return nil
}

// late has the frames of the connection take their time for a while.
func (a *agent) late(o Op) {
	w := a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	socket := a.socket()
	if socket == nil {
		return
	}
	w.tally.Late++
	socket.Delay(o.Late)
	w.wg.Go(func() {
		w.sleep(o.For)
		socket.Delay(0)
	})
}

// garbage has the process say what makes no sense.
func (a *agent) garbage() {
	w := a.w
	w.mu.Lock()
	socket := a.socket()
	if socket != nil {
		w.tally.Garbage++
	}
	w.mu.Unlock()
	if socket != nil {
		for _, f := range testkit.Garbage() {
			socket.Send(f)
		}
	}
}

// drain has the process leave once it has nothing to do any more.
func (a *agent) drain() {
	a.w.mu.Lock()
	p := a.proc
	if r := a.real; r != nil && r.agent != nil {
		a.w.mu.Unlock()
		r.agent.Drain(worker.StopSignal)
		return
	}
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

func splitPlatform(p string) (os, arch string) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}
