package worker

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// finished frees the slot and hands the result to the outbox, in one step: with the slot's next dispatch, the
// orchestrator has this one's result or will get it.
func (a *Agent) finished(d *dispatch, o Outcome) (status, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	delete(a.dispatches, d.id)
	defer a.pokeServe()
	if d.silent != "" {
		a.life.stepGone(d.id, stepEnded, time.Now())
		if a.life.forget(d.id, time.Now()) {
			a.forgot()
		}
		for _, id := range d.aborts {
			a.out.say(abortResultFrame(id))
		}
		return statusLost, d.silent
	}
	frame, status, text := finalFrame(d, o)
	a.out.finish(d.flow, frame)
	how := stepEnded
	switch {
	case o.Status == OutcomeWorkerCannotStart:
		how = stepRefused
	case status == statusLost:
		how = stepLost
	case d.drained != "" && o.Status == OutcomeCancelled && !d.cancelled:
		a.life.stopped()
	}
	a.life.stepGone(d.id, how, time.Now())
	a.advance()
	return status, text
}

// The statuses of a dispatch that ended for no reason of its step and should run elsewhere.
const (
	statusLost       = "lost"
	statusHandedBack = "handed_back"
)

// errorBytes bounds the error text of a result; it is one sentence, and what a model panicked with.
const errorBytes = 64 << 10

// finalFrame is the last word on a dispatch.
func finalFrame(d *dispatch, o Outcome) (_ *messages.Frame, status, text string) {
	// Text on the wire is UTF-8, whatever a step calls itself.
	clean := func(s string) string { return strings.ToValidUTF8(d.secrets().clean(s), "\uFFFD") }
	text = clean(o.Error)
	if len(text) > errorBytes {
		text = strings.ToValidUTF8(text[:errorBytes], "")
	}
	if o.Status == OutcomeWorkerCannotStart {
		return errorFrame(d.flow.frame, messages.CodeWorkerCannotStart, text), o.Status, text
	}
	r := &messages.DispatchResult{
		Status: o.Status, Code: o.Code, Error: text, ExitCode: int32(o.ExitCode), FinalOffset: d.flow.written(),
		StartedAt: messages.Time(o.StartedAt), EndedAt: messages.Time(time.Now()),
	}
	switch {
	case o.Status == OutcomeSucceeded:
		r.Outputs = outputsOf(o.Outputs, clean)
		if proto.Size(r) > messages.MaxFrame/2 {
			r.Outputs = nil
			r.Status, r.Code, r.Error = OutcomeFailed, CodeOutputTooLarge, "the step's outputs are too large"
		}
	case o.Status == OutcomeCannotStart:
		r.Status = OutcomeFailed
	case o.Code == CodeWorkerLost:
		r.Status = statusLost
	case o.Status == OutcomeCancelled && !d.cancelled:
		// Nobody gave the step up.
		r.Status, r.Code, r.Error = d.cutShort()
	}
	if d.pipe.broken != nil {
		r = spoilt(r, d.flow, d.pipe.broken)
	}
	return resultFrame(d.flow.frame, r), r.GetStatus(), r.GetError()
}

// cutShort is how a step ended that its worker did not let end.
func (d *dispatch) cutShort() (status, code, text string) {
	drained := "worker " + d.worker + " drained before the step had ended"
	switch {
	case d.drained == DrainHandback:
		return statusHandedBack, string(messages.CodeWorkerDraining), drained
	case d.drained == DrainCancel:
		return OutcomeCancelled, CodeCancelled, drained
	case d.fenced:
		return statusLost, CodeWorkerLost, outOfReach
	case d.cut != "":
		return statusLost, CodeWorkerLost, "killed because its worker leaves: " + d.cut
	default:
		return statusLost, CodeWorkerLost, "killed because its worker was stopped"
	}
}

func abortResultFrame(id string) *messages.Frame {
	return responseFrame(id, &messages.Response{Result: &messages.Response_WorkerAbort{WorkerAbort: &messages.AbortResult{}}})
}

// errStepsLeft says that steps would not die.
var errStepsLeft = errors.New("steps are still running although they were killed")

// abandon kills every step, as the worker leaves and nobody will hear how they end; it returns once they are dead. The
// error is errStepsLeft, if the worker has to go before.
func (a *Agent) abandon(why string) error {
	a.mu.Lock()
	a.abandoning = true
	for _, d := range a.dispatches {
		d.cut = why
		d.stop(true)
	}
	for id := range a.out.flows {
		a.out.drop(id)
	}
	a.wake()
	a.advance()
	a.mu.Unlock()
	err := a.waitForSteps()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoning = false
	return err
}

// waitForSteps returns when no step is left.
func (a *Agent) waitForSteps() error {
	for {
		a.mu.Lock()
		n := a.life.running
		a.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-a.changed:
		case <-a.gone.Done():
			return errStepsLeft
		}
	}
}

// pokeServe tells whoever waits for steps or acknowledgements that something changed. The caller holds a.mu.
func (a *Agent) pokeServe() {
	if a.abandoning || a.life.stage != working {
		poke(a.changed)
	}
}
