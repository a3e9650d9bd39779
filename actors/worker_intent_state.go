package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	timerPause = "pause"
	timerOrder = "order"

	// orderTime is how long a worker has to say that it drains before it is told again.
	orderTime = time.Second
)

// drainWorker is a client's wish that a worker finishes what it runs and leaves.
type drainWorker struct{ answer *answer }

// pauseWorker is a client's wish that a worker gets nothing new for a while; resumeWork ends that, or takes back a drain.
type (
	pauseWorker struct {
		note   string
		length time.Duration // 0: until it is resumed
		answer *answer
	}
	resumeWork struct{ answer *answer }
)

// awaitGone asks to be told when the worker has left.
type awaitGone struct{ answer *answer }

// pauseElapsed and orderElapsed are the worker's timers.
type (
	pauseElapsed struct{}
	orderElapsed struct{}
)

// intentIs answers a client's wish.
type intentIs struct{}

// admitIntent decides what is wanted of a worker that enrolls. A pause survives reconnects and restarts; a drain lasts
// as long as the instance, and one that was asked for here is asked for again.
func (w *workerState) admitIntent(old workerState, same bool, p *messages.EnrollParams, d *decision, at moment) {
	w.orderNoted = false
	switch {
	case p.GetIntent() == string(messages.IntentDraining):
		if old.intent != messages.IntentDraining || !same {
			w.ordered, w.intentAt = false, at.now
		}
		w.intent, w.reason, w.orderNoted = messages.IntentDraining, p.GetReason(), true
	case same && old.intent == messages.IntentDraining && old.ordered:
		w.reason = old.reason
		d.then(w.order("drain"), arm{timerOrder, orderTime, orderElapsed{}})
	case old.intent != messages.IntentPaused:
		w.intent, w.ordered, w.intentAt = messages.IntentNone, false, time.Time{}
	}
}

// order is a frame by which the orchestrator tells the worker what it wants.
func (w workerState) order(action string) effect {
	return transmit{w.session, &messages.Frame{Id: "order-" + action, Body: &messages.Frame_Request{Request: &messages.Request{
		Verb:   string(messages.VerbWorkerOrder),
		Params: &messages.Request_WorkerOrder{WorkerOrder: &messages.OrderParams{Action: action, Reason: w.reason}},
	}}}}
}

// wanted refuses a wish that makes no sense for the worker as it is.
func (w workerState) wanted(a *answer) (decision, bool) {
	var f *messages.Fault
	switch {
	case w.version == 0:
		f = messages.Faultf(messages.CodeNotFound, "no worker %s", w.name)
	case w.loopback:
		f = messages.Faultf(messages.CodeInvalid, "loopback is part of the orchestrator: start it with --loopback off")
	default:
		return decision{}, true
	}
	return decision{effects: []effect{respond{to: a, err: f}}}, false
}

func (w workerState) drain(c drainWorker, at moment) (workerState, decision) {
	d, ok := w.wanted(c.answer)
	switch {
	case !ok:
		return w, d
	case w.intent == messages.IntentDraining && w.connected:
		d.then(respond{to: c.answer, result: intentIs{}})
		return w, d
	case !w.connected:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeInvalid, "worker %s is not connected", w.name)})
		return w, d
	}
	w.intent, w.reason, w.ordered, w.intentAt = messages.IntentDraining, "drain was asked for", true, at.now
	w.note, w.until = "", time.Time{}
	w.version++
	d.writes = append(d.writes, w.write())
	d.then(respond{to: c.answer, result: intentIs{}}, w.order("drain"), arm{timerOrder, orderTime, orderElapsed{}}, disarm{timerPause})
	return w, d
}

// orderAgain repeats the order until the worker has said that it drains.
func (w workerState) orderAgain() (workerState, decision) {
	if !w.ordered || w.orderNoted || !w.connected || w.intent != messages.IntentDraining {
		return w, decision{}
	}
	return w, decision{effects: []effect{w.order("drain"), arm{timerOrder, orderTime, orderElapsed{}}}}
}

func (w workerState) pause(c pauseWorker, at moment) (workerState, decision) {
	d, ok := w.wanted(c.answer)
	switch {
	case !ok:
		return w, d
	case w.intent == messages.IntentDraining:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeInvalid, "worker %s drains: it gets nothing new anyway", w.name)})
		return w, d
	}
	w.intent, w.note, w.until, w.intentAt = messages.IntentPaused, c.note, time.Time{}, at.now
	if c.length > 0 {
		w.until = at.now.Add(c.length)
	}
	w.version++
	d.writes = append(d.writes, w.write())
	d.then(respond{to: c.answer, result: intentIs{}}, disarm{timerPause})
	d.then(w.pauseTimer(at)...)
	return w, d
}

func (w workerState) pauseTimer(at moment) []effect {
	if w.intent != messages.IntentPaused || w.until.IsZero() {
		return nil
	}
	return []effect{arm{timerPause, max(w.until.Sub(at.now), 0), pauseElapsed{}}}
}

// pauseOver ends a pause whose time has come. The clock may have been set: the time itself decides.
func (w workerState) pauseOver(at moment) (workerState, decision) {
	if w.intent != messages.IntentPaused || w.until.IsZero() {
		return w, decision{}
	}
	if at.now.Before(w.until) {
		return w, decision{effects: w.pauseTimer(at)}
	}
	return w.wantNothing(decision{})
}

// resumeWork ends a pause, or takes back a drain that was asked for here. One that the worker began by itself is its own.
func (w workerState) resumeWork(c resumeWork, _ moment) (workerState, decision) {
	d, ok := w.wanted(c.answer)
	switch {
	case !ok:
		return w, d
	case w.intent == messages.IntentDraining && !w.ordered:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeInvalid, "worker %s drains by itself (%s): it cannot be kept", w.name, w.reason)})
		return w, d
	}
	d.then(respond{to: c.answer, result: intentIs{}})
	if w.intent == messages.IntentNone {
		return w, d
	}
	if w.intent == messages.IntentDraining && w.connected {
		d.then(w.order("resume"))
	}
	return w.wantNothing(d)
}

func (w workerState) wantNothing(d decision) (workerState, decision) {
	w.intent, w.reason, w.note, w.until, w.intentAt, w.ordered = messages.IntentNone, "", "", time.Time{}, time.Time{}, false
	w.version++
	d.writes = append(d.writes, w.write())
	d.then(disarm{timerPause}, disarm{timerOrder})
	return w, d
}

// awaitGone answers when the worker is no longer connected.
func (w workerState) awaitGone(c awaitGone) (workerState, decision) {
	if !w.connected {
		return w, decision{effects: []effect{respond{to: c.answer, result: intentIs{}}}}
	}
	w.waiters = append(w.waiters, c.answer)
	return w, decision{}
}

func (w workerState) answerWaiters() []effect {
	var effects []effect
	for _, a := range w.waiters {
		effects = append(effects, respond{to: a, result: intentIs{}})
	}
	return effects
}
