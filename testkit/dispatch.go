package testkit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// Dispatch is one dispatch that a scripted worker was sent. What the worker says of it while its connection is gone is
// said when it is back.
type Dispatch struct {
	// Lease is dispatch/generation, as it was first sent, and Params what the worker was sent. Adopted after a restart of the
	// orchestrator it goes on under the next generation.
	Lease  string
	Params *messages.DispatchParams

	w *Worker

	// Guarded by the worker's mutex.
	credential        string
	frame             string    // the id of its frames: dispatch/generation, as of now
	waiting           bool      // the orchestrator has not said yet whether it goes on
	fence             time.Time // when its keeper kills it, unless it goes on before; zero: never
	acceptedAt        time.Time
	endedAt           time.Time
	output            []*messages.OutputChunk
	offset            uint32
	last              *messages.Frame // a result or refusal
	acked             uint32
	acks              int
	done              bool
	aborted           bool
	cancelled, killed bool
	repeats           int
}

// ID is the dispatch id.
func (d *Dispatch) ID() string { return d.Params.GetDispatchId() }

// Step is the name of the step.
func (d *Dispatch) Step() string { return d.Params.GetStep() }

// accepted and end are called with mu held.
func (d *Dispatch) accepted() bool { return !d.acceptedAt.IsZero() }

func (d *Dispatch) end() {
	if d.endedAt.IsZero() {
		d.endedAt = time.Now()
	}
}

// refused tells whether the worker has refused it; mu is held.
func (d *Dispatch) refused() bool { return d.last.GetError() != nil }

// Accept takes the dispatch.
func (d *Dispatch) Accept() *Dispatch {
	d.w.mu.Lock()
	first := !d.accepted()
	if first {
		d.acceptedAt = time.Now()
	}
	d.w.mu.Unlock()
	if first {
		d.event(&messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})
	}
	return d
}

// Started says that the process of the step has started.
func (d *Dispatch) Started() *Dispatch {
	d.Accept()
	d.event(&messages.Event{Event: &messages.Event_Started{Started: &messages.DispatchStarted{At: messages.Time(time.Now())}}})
	return d
}

// Output prints text on standard output, as one chunk.
func (d *Dispatch) Output(text string) *Dispatch { return d.print("stdout", text) }

// Stderr prints text on standard error, as one chunk.
func (d *Dispatch) Stderr(text string) *Dispatch { return d.print("stderr", text) }

func (d *Dispatch) print(stream, text string) *Dispatch {
	d.Accept()
	d.w.mu.Lock()
	c := &messages.OutputChunk{Offset: d.offset, Stream: stream, At: messages.Time(time.Now()), Data: []byte(text)}
	d.output = append(d.output, c)
	d.offset += uint32(len(text))
	d.w.mu.Unlock()
	d.chunk(c)
	return d
}

// Succeed ends the dispatch well, with outputs as name=value.
func (d *Dispatch) Succeed(outputs ...string) {
	r := &messages.DispatchResult{Status: "succeeded"}
	for _, o := range outputs {
		k, v, _ := strings.Cut(o, "=")
		r.Outputs = append(r.Outputs, &messages.KeyValue{Key: k, Value: v})
	}
	d.Result(r)
}

// Fail ends the dispatch badly.
func (d *Dispatch) Fail(code messages.Code, text string) {
	d.Result(&messages.DispatchResult{Status: "failed", Code: string(code), Error: text})
}

// Cancelled ends the dispatch as one whose step was killed because somebody asked for it.
func (d *Dispatch) Cancelled() {
	d.Result(&messages.DispatchResult{Status: "cancelled", Code: string(messages.CodeCancelled)})
}

// Result ends the dispatch as r says. Its final offset is set.
func (d *Dispatch) Result(r *messages.DispatchResult) {
	d.Accept()
	d.w.mu.Lock()
	r.FinalOffset = d.offset
	d.w.mu.Unlock()
	d.finish(&messages.Frame{Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, r)}})
}

// RefuseBusy refuses the dispatch for want of a slot.
func (d *Dispatch) RefuseBusy() { d.Refuse(messages.CodeWorkerBusy, "all slots are taken") }

// RefuseDraining refuses the dispatch because the worker drains.
func (d *Dispatch) RefuseDraining() { d.Refuse(messages.CodeWorkerDraining, "the worker drains") }

// CannotStart refuses the dispatch for reasons of the worker's own.
func (d *Dispatch) CannotStart() {
	d.Refuse(messages.CodeWorkerCannotStart, "no space left on the worker")
}

// Refuse refuses the dispatch.
func (d *Dispatch) Refuse(code messages.Code, text string) {
	d.finish(&messages.Frame{Body: &messages.Frame_Error{Error: &messages.Error{Code: string(code), Text: text}}})
}

func (d *Dispatch) finish(last *messages.Frame) {
	d.w.mu.Lock()
	d.last = last
	d.end()
	d.w.mu.Unlock()
	d.say(last)
}

// say sends a frame of the dispatch, unless the worker has to wait with it.
func (d *Dispatch) say(f *messages.Frame) {
	d.w.mu.Lock()
	id, waiting := d.frame, d.waiting
	d.w.mu.Unlock()
	if !waiting {
		f = proto.CloneOf(f)
		f.Id = id
		d.w.Send(f)
	}
}

func (d *Dispatch) event(e *messages.Event) {
	d.say(&messages.Frame{Body: &messages.Frame_Event{Event: e}})
}

// goOn has the dispatch go on under a generation; mu is held.
func (d *Dispatch) goOn(generation uint32) {
	delete(d.w.known, d.frame)
	d.frame, d.waiting, d.fence = fmt.Sprintf("%s/%d", d.ID(), generation), false, time.Time{}
	d.w.known[d.frame] = d
}

// generation is that of now; mu is held.
func (d *Dispatch) generation() uint32 {
	_, g, _ := strings.Cut(d.frame, "/")
	n, _ := strconv.ParseUint(g, 10, 32)
	return uint32(n)
}

func (d *Dispatch) chunk(c *messages.OutputChunk) {
	d.event(&messages.Event{Event: &messages.Event_Output{Output: proto.CloneOf(c)}})
}

// sayAgain repeats what the orchestrator has not acknowledged.
func (d *Dispatch) sayAgain() {
	d.w.mu.Lock()
	accepted, last, acked := d.accepted(), d.last, d.acked
	output := d.output
	d.w.mu.Unlock()
	if accepted {
		d.event(&messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})
	}
	for _, c := range output {
		if c.GetOffset()+uint32(len(c.GetData())) > acked {
			d.chunk(c)
		}
	}
	if last != nil {
		d.say(last)
	}
}

// Repeat says again all that the worker has said of the dispatch.
func (d *Dispatch) Repeat() {
	d.w.mu.Lock()
	output, last := d.output, d.last
	d.w.mu.Unlock()
	d.event(&messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})
	for _, c := range output {
		d.chunk(c)
	}
	if last != nil {
		d.say(last)
	}
}

// WaitCancel waits until the worker was asked to give the dispatch up, and tells whether by force.
func (d *Dispatch) WaitCancel() (force bool) {
	d.w.f.t.Helper()
	d.wait("was not cancelled", func() bool { force = d.killed; return d.cancelled })
	return force
}

// Cancellation waits until the worker was asked to give the dispatch up. It returns false when the dispatch has ended
// otherwise, or the test has.
func (d *Dispatch) Cancellation() bool {
	cancelled := false
	d.w.news.wait(d.w.f.ctx, func() bool {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		cancelled = d.cancelled
		return cancelled || !d.endedAt.IsZero()
	})
	return cancelled
}

// WaitDone waits until the orchestrator has the result, or does not need it.
func (d *Dispatch) WaitDone() {
	d.w.f.t.Helper()
	d.wait("was not acknowledged", func() bool { return d.done })
}

// Deliver says again all that the worker has said of the dispatch, every five seconds, until the orchestrator has the
// result, or does not need it: a real worker does that by itself.
func (d *Dispatch) Deliver() {
	d.w.f.t.Helper()
	ctx, cancel := d.w.f.patience()
	defer cancel()
	delivered := func() bool {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		return d.done
	}
	for {
		again, stop := context.WithTimeout(ctx, 5*time.Second)
		done := d.w.news.wait(again, delivered)
		stop()
		switch {
		case done:
			return
		case ctx.Err() != nil:
			d.w.f.t.Fatalf("testkit: dispatch %s was not acknowledged", d.Lease)
		}
		d.Repeat()
	}
}

// Done tells whether the orchestrator has the result, or does not need it.
func (d *Dispatch) Done() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.done
}

// WaitAcked waits until that much output is durable.
func (d *Dispatch) WaitAcked(offset uint32) {
	d.w.f.t.Helper()
	d.wait("has less output acknowledged", func() bool { return d.acked >= offset })
}

// Generation is the one that the dispatch goes on under, above that of its lease once it was adopted.
func (d *Dispatch) Generation() uint32 {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.generation()
}

// Adopted tells whether the dispatch goes on under a later generation than its first.
func (d *Dispatch) Adopted() bool { return d.Generation() > d.Params.GetGeneration() }

// Aborted tells whether the worker had to forget the dispatch when it came back.
func (d *Dispatch) Aborted() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.aborted
}

func (d *Dispatch) wait(otherwise string, cond func() bool) {
	d.w.f.t.Helper()
	ctx, cancel := d.w.f.patience()
	defer cancel()
	if !d.w.news.wait(ctx, func() bool {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		return cond()
	}) {
		d.w.f.t.Fatalf("testkit: dispatch %s %s", d.Lease, otherwise)
	}
}

// Repeats is how often the worker was sent the dispatch again.
func (d *Dispatch) Repeats() int {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.repeats
}
