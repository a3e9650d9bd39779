package actors

import (
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	timerPause = "pause"
	timerOrder = "order"

	// orderTime is how long a worker has to answer an order before it is told again.
	orderTime = time.Second

	// reasonBytes is how much of a worker's own reason is kept.
	reasonBytes = 255

	// orderID begins the ids of orders.
	orderID     = "order-"
	orderDrain  = "drain"
	orderResume = "resume"
)

// The causes of a drain that are counted. drainOrdered is a drain that was asked for here, drainOther what a worker of
// another make says, or what was first heard of by a refusal.
const (
	drainOrdered = "drained"
	drainOther   = "other"
)

// drainCause is the cause that a worker's own reason stands for: those are the reasons for which a worker stops.
func drainCause(reason string) string {
	switch reason {
	case "signal", "max_dispatches", "idle_timeout", "max_uptime", "forced", drainOrdered:
		return reason
	default:
		return drainOther
	}
}

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

// orderAnswered says that a worker has obeyed an order, as far as it can; its status came before.
type orderAnswered struct {
	session uint64
	action  string
}

// intentIs answers a client's wish.
type intentIs struct{}

// admitIntent decides what is wanted of a worker that enrolls. A pause survives reconnects and restarts; a drain lasts
// as long as the instance, and one that was asked for here is asked for again.
func (w *workerState) admitIntent(old workerState, same bool, p *messages.EnrollParams, d *decision, at moment) {
	ordered, drains := same && old.ordered, p.GetIntent() == string(messages.IntentDraining)
	w.orderNoted, w.saysDraining, w.ordered, w.resuming = drains, drains, ordered, same && old.resuming
	switch {
	case drains && ordered && old.intent != messages.IntentDraining: // its drain was taken back while it was away
		w.held = old.intent == messages.IntentPaused
		w.intent, w.reason, w.intentAt, w.resuming = messages.IntentDraining, shorten(p.GetReason(), reasonBytes), at.now, true
	case drains && same && old.intent == messages.IntentDraining:
		w.reason = shorten(p.GetReason(), reasonBytes)
	case drains:
		w.beginDrain(p.GetReason(), d, at)
	case ordered && old.intent == messages.IntentDraining: // it has not heard of it
		w.reason = old.reason
		d.then(w.order(orderDrain), arm{timerOrder, orderTime, orderElapsed{}})
	case old.held || old.intent == messages.IntentPaused:
		if old.held {
			w.intentAt = at.now
		}
		w.intent, w.ordered, w.held = messages.IntentPaused, false, false
	default:
		w.intent, w.ordered, w.intentAt = messages.IntentNone, false, time.Time{}
	}
	if w.resuming {
		d.then(w.order(orderResume), arm{timerOrder, orderTime, orderElapsed{}})
	} else {
		d.then(w.endResuming(w.hasLeft())...)
	}
	d.then(w.pauseTimer(at)...)
}

func (w *workerState) hasLeft() error {
	return messages.Faultf(messages.CodeConflict, "worker %s has left", w.name)
}

// beginDrain notes that the worker drains by itself from now on. A pause waits behind it for the next instance.
func (w *workerState) beginDrain(reason string, d *decision, at moment) {
	w.held = w.held || w.intent == messages.IntentPaused
	w.intent, w.reason, w.intentAt, w.ordered = messages.IntentDraining, shorten(reason, reasonBytes), at.now, false
	d.drained = drainCause(reason)
}

// order is a frame by which the orchestrator tells the worker what it wants.
func (w workerState) order(action string) effect {
	return transmit{w.session, &messages.Frame{Id: orderID + action, Body: &messages.Frame_Request{Request: &messages.Request{
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
		f = messages.Faultf(messages.CodeConflict, "loopback is part of the orchestrator: start it with --loopback off")
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
	case w.intent == messages.IntentDraining: // it leaves, or has left: nothing is to be done
		d.then(respond{to: c.answer, result: intentIs{}})
		return w, d
	case !w.connected:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeConflict, "worker %s is not connected: there is nothing to drain", w.name)})
		return w, d
	}
	w.beginDrain("drain was asked for", &d, at)
	w.ordered, d.drained = true, drainOrdered
	w.bump()
	d.writes = append(d.writes, w.write())
	d.then(respond{to: c.answer, result: intentIs{}}, w.order(orderDrain), arm{timerOrder, orderTime, orderElapsed{}})
	return w, d
}

// orderAgain repeats the order until the worker has said that it drains, or has answered that it is to go on.
func (w workerState) orderAgain() (workerState, decision) {
	action := orderDrain
	switch {
	case !w.connected || w.intent != messages.IntentDraining:
		return w, decision{}
	case w.resuming:
		action = orderResume
	case !w.ordered || w.orderNoted:
		return w, decision{}
	}
	return w, decision{effects: []effect{w.order(action), arm{timerOrder, orderTime, orderElapsed{}}}}
}

// orderAnswered ends the order to go on: the worker's status, which came before, says what has become of it.
func (w workerState) orderAnswered(c orderAnswered) (workerState, decision) {
	if c.session != w.session || c.action != orderResume || !w.resuming {
		return w, decision{}
	}
	d := decision{effects: []effect{disarm{timerOrder}}}
	if w.saysDraining {
		d.then(w.endResuming(messages.Faultf(messages.CodeConflict, "worker %s leaves already: it cannot be kept", w.name))...)
		return w, d
	}
	w, d = w.worksAgain(d)
	d.then(w.endResuming(nil)...)
	return w, d
}

// endResuming answers whoever waits for a drain to be taken back.
func (w *workerState) endResuming(err error) []effect {
	var effects []effect
	for _, a := range w.resumers {
		effects = append(effects, respond{to: a, result: intentIs{}, err: err})
	}
	w.resuming, w.resumers = false, nil
	return effects
}

func (w workerState) pause(c pauseWorker, at moment) (workerState, decision) {
	d, ok := w.wanted(c.answer)
	switch {
	case !ok:
		return w, d
	case w.intent == messages.IntentDraining:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeConflict, "worker %s drains: it gets nothing new anyway", w.name)})
		return w, d
	}
	w.intent, w.note, w.until, w.intentAt = messages.IntentPaused, c.note, time.Time{}, at.now
	if c.length > 0 {
		w.until = at.now.Add(c.length)
	}
	w.bump()
	d.writes = append(d.writes, w.write())
	d.then(respond{to: c.answer, result: intentIs{}}, disarm{timerPause})
	d.then(w.pauseTimer(at)...)
	return w, d
}

// pauses tells whether there is a pause, be it behind a drain.
func (w workerState) pauses() bool { return w.held || w.intent == messages.IntentPaused }

func (w workerState) pauseTimer(at moment) []effect {
	if !w.pauses() || w.until.IsZero() {
		return nil
	}
	return []effect{arm{timerPause, max(w.until.Sub(at.now), 0), pauseElapsed{}}}
}

// pauseOver ends a pause whose time has come. The clock may have been set: the time itself decides.
func (w workerState) pauseOver(at moment) (workerState, decision) {
	switch {
	case !w.pauses() || w.until.IsZero():
		return w, decision{}
	case at.now.Before(w.until):
		return w, decision{effects: w.pauseTimer(at)}
	case w.held:
		w.held, w.note, w.until = false, "", time.Time{}
		w.bump()
		return w, decision{writes: []write{w.write()}}
	default:
		return w.wantNothing(decision{})
	}
}

// resumeWork ends a pause, or takes back a drain that was asked for here. One that the worker began by itself is its own,
// and one that is asked for here is over when the worker has said so: it may have left.
func (w workerState) resumeWork(c resumeWork, _ moment) (workerState, decision) {
	d, ok := w.wanted(c.answer)
	switch {
	case !ok:
		return w, d
	case w.intent == messages.IntentDraining && !w.ordered:
		d.then(respond{to: c.answer, err: messages.Faultf(messages.CodeConflict, "worker %s drains by itself (%s): it cannot be kept", w.name, w.reason)})
		return w, d
	case w.intent == messages.IntentDraining && w.connected:
		w.resuming, w.resumers = true, append(slices.Clip(w.resumers), c.answer)
		if w.held { // the pause behind it ends too
			w.held, w.note, w.until = false, "", time.Time{}
			w.bump()
			d.writes = append(d.writes, w.write())
			d.then(disarm{timerPause})
		}
		d.then(w.order(orderResume), arm{timerOrder, orderTime, orderElapsed{}})
		return w, d
	}
	d.then(respond{to: c.answer, result: intentIs{}})
	if w.intent == messages.IntentNone {
		return w, d
	}
	owed := w.intent == messages.IntentDraining // if that instance comes back
	w = w.wantsNothing(&d)
	w.ordered = owed
	d.writes = append(d.writes, w.write())
	return w, d
}

func (w workerState) takenBack() error {
	return messages.Faultf(messages.CodeConflict, "the drain of worker %s was taken back", w.name)
}

// worksAgain notes that the worker's drain was taken back.
func (w workerState) worksAgain(d decision) (workerState, decision) {
	d.then(w.answerWaiters(w.takenBack())...)
	w.waiters = nil
	if !w.held {
		return w.wantNothing(d)
	}
	w.intent, w.reason, w.ordered, w.held = messages.IntentPaused, "", false, false
	w.bump()
	d.writes = append(d.writes, w.write())
	d.then(disarm{timerOrder})
	return w, d
}

func (w workerState) wantNothing(d decision) (workerState, decision) {
	w = w.wantsNothing(&d)
	d.writes = append(d.writes, w.write())
	return w, d
}

// wantsNothing is the next version of a worker that is given work again. It is still to be written.
func (w workerState) wantsNothing(d *decision) workerState {
	w.intent, w.reason, w.note, w.until, w.intentAt, w.ordered, w.held = messages.IntentNone, "", "", time.Time{}, time.Time{}, false, false
	w.bump()
	d.then(disarm{timerPause}, disarm{timerOrder})
	return w
}

// awaitGone answers when the worker is no longer connected, or does not drain any more. The question may be repeated.
func (w workerState) awaitGone(c awaitGone) (workerState, decision) {
	switch {
	case !w.connected:
		return w, decision{effects: []effect{respond{to: c.answer, result: intentIs{}}}}
	case w.intent != messages.IntentDraining:
		return w, decision{effects: []effect{respond{to: c.answer, err: w.takenBack()}}}
	case !slices.Contains(w.waiters, c.answer):
		w.waiters = append(slices.Clip(w.waiters), c.answer)
	}
	return w, decision{}
}

func (w workerState) answerWaiters(err error) []effect {
	var effects []effect
	for _, a := range w.waiters {
		effects = append(effects, respond{to: a, result: intentIs{}, err: err})
	}
	return effects
}
