package worker

import (
	"cmp"
	"time"

	"github.com/swampd/swampd/messages"
)

// Drain makes the worker leave in good order: it takes nothing new, says so at once, finishes what runs, waits until
// the results are acknowledged, and goes. The first call counts, and nothing if a drain has begun for another reason.
func (a *Agent) Drain(reason StopReason) {
	a.mu.Lock()
	a.life.drain(reason, string(reason), time.Now())
	a.advance()
	a.mu.Unlock()
	a.tellDrain()
}

// Kill makes the worker leave at once: it kills what runs, and tries for a second to say so.
func (a *Agent) Kill() {
	a.mu.Lock()
	a.life.kill(time.Now())
	for _, d := range a.dispatches {
		a.out.hurry(d.flow)
		d.stop(true)
	}
	a.wake()
	a.advance()
	a.mu.Unlock()
	a.tellDrain()
}

// Quit is Kill for whoever has ended the orchestrator itself: nobody is left to hear what was killed, and nobody misses it.
func (a *Agent) Quit() {
	a.mu.Lock()
	a.life.unheard = true
	a.mu.Unlock()
	a.Kill()
}

// The actions of an order.
const (
	orderDrain  = "drain"
	orderResume = "resume"
)

// obey does what the orchestrator orders. What the worker has in mind then is in its status.
func (a *Agent) obey(action, said string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch action {
	case orderDrain:
		a.life.order(said, time.Now())
	case orderResume:
		if a.life.resume(time.Now()) {
			a.told = false
			a.cfg.Logger.Info("the drain was taken back")
		}
	}
	a.announce()
	a.advance()
}

// announce tells the orchestrator what the worker wants and offers. The caller holds a.mu.
func (a *Agent) announce() {
	s := a.session
	if s == nil {
		return
	}
	s.status, s.told, s.announced = s.newID(), false, a.life.stage != working
	a.say(s)
}

// say sends the announcement, for the first time or again. The caller holds a.mu.
func (a *Agent) say(s *session) {
	s.saidAt = time.Now()
	a.out.say(requestFrame(s.status, messages.VerbWorkerStatus, &messages.StatusParams{
		SlotsOffered: int32(a.life.slotsOffered()), Intent: string(a.life.intent()), Reason: a.life.said,
		Health: string(messages.HealthOK),
	}))
	a.wake()
}

// advance lets the lifecycle act on the time and on what has happened, and sets the timer for what comes next. The caller
// holds a.mu.
func (a *Agent) advance() {
	if !a.begun {
		return
	}
	now := time.Now()
	for t := a.life.tick(now); t != turnNone; t = a.life.tick(now) {
		switch t {
		case turnExpired:
			a.expire()
		case turnGone:
			a.goNow()
		default:
		}
	}
	if a.life.stage != working {
		if a.session != nil && !a.session.announced {
			a.announce()
		}
		if a.life.idle() {
			a.leave()
		}
		a.pokeServe()
		if !a.told { // not under the lock, and not by whoever must not wait
			a.ageing.Reset(0)
			return
		}
	}
	if due := a.life.due(); !due.IsZero() {
		a.ageing.Reset(max(due.Sub(now), 0))
	}
}

// age lets the time act. It runs on the timer a.ageing.
func (a *Agent) age() {
	a.tellDrain()
	a.mu.Lock()
	a.advance()
	told := a.told || a.life.stage == working
	a.mu.Unlock()
	if !told {
		a.tellDrain()
	}
}

// expire ends what runs as the mode says, as the drain has come to its bound. The caller holds a.mu.
func (a *Agent) expire() {
	if a.cfg.DrainMode == DrainFinish {
		return
	}
	for _, d := range a.dispatches {
		if !d.fenced {
			d.drained = a.cfg.DrainMode
		}
		a.life.dying = max(a.life.dying, cmp.Or(d.killGrace, DefaultKillGrace))
		d.stop(false)
	}
}

// forgot tells whom it concerns that there is one dispatch less. The caller holds a.mu.
func (a *Agent) forgot() {
	if a.life.roomToTell() {
		a.announce()
	}
	a.advance()
}

// tellDrain gives the event of a drain that has begun, once. It has been given when this returns.
func (a *Agent) tellDrain() {
	a.events.Lock()
	defer a.events.Unlock()
	a.mu.Lock()
	tell := a.life.stage != working && !a.told
	a.told = a.told || tell
	e := Event{Kind: EventDraining, Reason: string(a.life.cause), At: time.Now()}
	a.mu.Unlock()
	if tell && e.Reason != string(StopForced) && a.cfg.OnEvent != nil { // a kill is no drain
		a.cfg.OnEvent(e)
	}
}

// stopReason is why the worker leaves. left is false while it does not.
func (a *Agent) stopReason() (reason StopReason, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.life.stopReason(), a.life.stage != working
}

// mayGo tells whether a worker that leaves owes nothing any more, or goes although it does.
func (a *Agent) mayGo() (reason StopReason, may bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.life.stopReason(), a.life.stage != working && (a.life.idle() || a.life.gone)
}
