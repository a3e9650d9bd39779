package worker

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// onCancel stops a dispatch. One that is not known yet is remembered, as its cancel may have overtaken it.
func (a *Agent) onCancel(frame string, force bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, generation := dispatchOf(frame)
	if d, ok := a.dispatches[id]; ok && d.flow.frame == frame {
		d.cancelled = true
		d.stop(force)
		return
	}
	if k, known := a.life.known[id]; !known || generation > k.generation {
		a.life.cancelEarly(frame)
	}
}

// onAck forgets what is durable. Done means that the orchestrator wants to hear no more.
func (a *Agent) onAck(frame string, offset uint32, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, _ := dispatchOf(frame)
	if f, ok := a.out.flows[id]; !ok || f.frame != frame {
		return
	}
	a.repeatLater(a.out.ack(id, offset, time.Now()))
	switch d := a.dispatches[id]; {
	case done && d != nil:
		// It was given up over there, so nobody may count on it here: it must not run beside its successor.
		a.silence(d, "the orchestrator has ended it")
	case done && a.life.forget(id, time.Now()):
		a.out.drop(id)
		a.forgot()
	}
	a.wake()
}

// onAbort kills a dispatch that is not this worker's any more. The answer says that it is gone. One that is given up under
// a later generation than the worker knows is given up under this one too.
func (a *Agent) onAbort(request string, p *messages.AbortParams) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	id := p.GetDispatchId()
	if k, ok := a.life.known[id]; ok && p.GetGeneration() >= k.generation {
		a.giveUp(id)
		if d, dying := a.dispatches[id]; dying {
			d.aborts = append(d.aborts, request)
			return
		}
	}
	a.out.say(abortResultFrame(request))
}

// giveUp ends and forgets a dispatch that is known, and says nothing of it any more. The caller holds a.mu.
func (a *Agent) giveUp(id string) {
	if d, ok := a.dispatches[id]; ok {
		a.silence(d, "the orchestrator gave it up")
		return
	}
	if a.life.forget(id, time.Now()) {
		a.out.drop(id)
		a.forgot()
	}
}

// silence kills a step whose end nobody wants to hear of. The caller holds a.mu.
func (a *Agent) silence(d *dispatch, why string) {
	if d.silent == "" {
		d.silent = why
	}
	a.out.drop(d.id)
	d.stop(true)
}
