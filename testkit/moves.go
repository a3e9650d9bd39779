package testkit

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// A Move is what a scripted worker does with one dispatch; see [Script].
type Move func(*Dispatch)

// Script has the worker make these moves, one with each dispatch, and the last one with all that follow. The worker is
// [Persistent].
//
//	f.Worker("w1", testkit.Script(testkit.RefuseBusy, testkit.DropBeforeAccept, testkit.Succeed))
func Script(moves ...Move) WorkerOption {
	return workerOption(func(d *description) {
		d.onDispatch, d.persistent = func(x *Dispatch) {
			w := x.w
			w.mu.Lock()
			n := w.moved
			w.moved++
			w.mu.Unlock()
			moves[min(n, len(moves)-1)](x)
		}, true
	})
}

// Succeed ends the step well, at once.
func Succeed(d *Dispatch) { d.Succeed() }

// RefuseBusy refuses the dispatch for want of a slot, and says a second later that there is one.
func RefuseBusy(d *Dispatch) {
	d.RefuseBusy()
	if d.w.f.sleep(redialPause) {
		d.w.status(&messages.StatusParams{Intent: string(messages.IntentNone)})
	}
}

// RefuseDraining refuses the dispatch because the worker drains.
func RefuseDraining(d *Dispatch) { d.RefuseDraining() }

// CannotStart refuses the dispatch for reasons of the worker's own.
func CannotStart(d *Dispatch) { d.CannotStart() }

// Hang accepts the dispatch, and ends its step only when that is cancelled.
func Hang(d *Dispatch) {
	d.Accept()
	if d.Cancellation() {
		d.Cancelled()
	}
}

// Ignore says nothing of the dispatch, ever.
func Ignore(*Dispatch) {}

// DropBeforeAccept loses the connection with the dispatch in hand. The worker comes back a second later, and does not run
// the step.
func DropBeforeAccept(d *Dispatch) {
	d.w.mu.Lock()
	d.w.abort(d)
	d.w.mu.Unlock()
	d.w.cut()
}

// DropAfterAccept loses the connection once the dispatch is accepted. The worker comes back a second later, names the
// dispatch, and ends its step well.
func DropAfterAccept(d *Dispatch) {
	d.Accept()
	d.w.cut()
	if d.w.f.sleep(2 * redialPause) {
		d.Succeed()
	}
}

// Die is the death of the worker's process once the dispatch is accepted. It comes back a second later, as another
// instance.
func Die(d *Dispatch) {
	d.Accept()
	d.w.Die()
	if d.w.f.sleep(redialPause) {
		if err := d.w.TryReconnect(); err != nil && d.w.f.ctx.Err() == nil {
			d.w.f.t.Errorf("testkit: worker %s: come back: %v", d.w.Name(), err)
		}
	}
}

// Slow takes a while, and ends the step well.
func Slow(while time.Duration) Move {
	return func(d *Dispatch) {
		d.Accept()
		if d.w.f.sleep(while) {
			d.Succeed()
		}
	}
}

// Fail ends the step badly.
func Fail(code messages.Code, text string) Move {
	return func(d *Dispatch) { d.Fail(code, text) }
}

// Print prints something before it goes on to do another move.
func Print(text string, then Move) Move {
	return func(d *Dispatch) { d.Output(text); then(d) }
}

// Garbage is what a peer might say that does not know the protocol, or wants to do harm, as a worker that has enrolled:
// nothing that makes sense, of things that are not there or not its own. Each is a frame of its own.
func Garbage() []*messages.Frame {
	result := &messages.DispatchResult{Status: "succeeded", FinalOffset: 1 << 30}
	event := func(id string, e *messages.Event) *messages.Frame {
		return &messages.Frame{Id: id, Body: &messages.Frame_Event{Event: e}}
	}
	return []*messages.Frame{
		{},
		{Id: "no body"},
		{Id: "no verb", Body: &messages.Frame_Request{Request: &messages.Request{}}},
		{Id: "no answer", Body: &messages.Frame_Response{Response: &messages.Response{}}},
		{Id: "of nobody", Body: &messages.Frame_Error{Error: &messages.Error{Code: "no such code"}}},
		{Id: "nobody.0.1/1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, result)}},
		{Id: "///", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, result)}},
		{Id: "nobody.0.1/4294967295", Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{Force: true}}},
		{Id: "nobody.0.1/1", Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: 1 << 31, Done: true}}},
		event("nobody.0.1/1", &messages.Event{}),
		event("nobody.0.1/1", &messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}}),
		event("nobody.0.1/1", &messages.Event{Event: &messages.Event_Output{Output: &messages.OutputChunk{Offset: 1 << 31, Stream: "stdwhat", Data: []byte{0xff, 0}}}}),
		event("nobody.0.1/1", &messages.Event{Event: &messages.Event_Run{Run: &messages.RunEvent{Kind: messages.EventRunSucceeded}}}),
		{Id: "intent", Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerStatus, &messages.StatusParams{Intent: "to do harm"})}},
		{Id: "not a worker's", Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbRunCancel, &messages.RunCancelParams{RunId: "run-0001"})}},
	}
}
