package actors_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

const oneActive = "run running, only running, 0.1/1 active"

func sendPoints() []crashPoint {
	cut := func(back ...testkit.ReconnectOption) func(t *testing.T, f *testkit.Fleet) {
		return func(t *testing.T, f *testkit.Fleet) { cutOnItsWay(t, f, back...) }
	}
	return []crashPoint{
		{row: "D1", point: "before the frame of a dispatch is written", cases: []crashCase{
			{name: "the process dies", fault: dies(before("worker", "leaseHere")), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
				f.Settle()
				run := f.Submit(single)
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
				if n := len(w.Dispatches()); n != 1 {
					t.Errorf("the worker got %d dispatches, want one", n)
				}
				within(t, 20*time.Second)
			}},
		}},
		{row: "D2", point: "the connection is cut with a dispatch on its way", cases: []crashCase{
			{name: "and the worker has not got it", tell: cut(), options: []testkit.Option{dropsAt(before("worker", "leaseHere"))}},
			{name: "and the worker has not got it and knows nothing", tell: cut(testkit.Forgetting()), options: []testkit.Option{dropsAt(before("worker", "leaseHere"))}},
			{name: "and the worker has got it", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch() // read, and not accepted
				w.Drop()
				f.Advance(5 * time.Second)
				w.Reconnect()
				if d.Aborted() {
					t.Error("the worker was told to give it up")
				}
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				w.NoDispatch()
				onceEach(f, run, "only")
			}},
		}},
		{row: "D3", point: "a session panics with a frame in hand", cases: []crashCase{
			{name: "of a dispatch", fault: panics(nth(2, before("session", "sessionFrame"))), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu(), testkit.Persistent())
				f.Settle()
				run := f.Submit(single)
				d := w.NextDispatch()
				d.Accept() // lost with the session
				w.WaitClosed()
				f.Eventually("the worker is back", w.Connected)
				d.Output("still here\n").Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
				if diff := cmp.Diff([]string{"still here"}, run.Lines("only")); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
				within(t, 20*time.Second)
			}},
			{name: "of an enrollment", fault: panics(before("session", "sessionFrame")), tell: func(t *testing.T, f *testkit.Fleet) {
				f.Worker("gpu-1", gpu(), testkit.AutoRun()) // it dials again
				f.Submit(single).WaitStatus(messages.RunSucceeded)
				within(t, 20*time.Second)
			}},
		}},
		{row: "D4", point: "a dispatch that is over comes once more", cases: []crashCase{
			{name: "and the worker refuses it", tell: func(t *testing.T, f *testkit.Fleet) { overAgain(t, f, func() {}) }},
			{name: "and the actor of the worker has panicked", fault: panics(nth(2, before("worker", "leaseHere"))), tell: func(t *testing.T, f *testkit.Fleet) {
				overAgain(t, f, func() {})
			}},
			{name: "and the process has died", tell: func(t *testing.T, f *testkit.Fleet) {
				overAgain(t, f, func() { f.Crash(); f.Advance(downTime); f.Restart() })
			}},
		}},
		{row: "D5", point: "a cancel overtakes its dispatch", cases: []crashCase{
			{name: "which was lost with the actor of the worker", fault: panics(before("worker", "leaseHere")), onDisk: oneActive, tell: overtaken},
			{name: "which waits behind it", options: stalls(before("worker", "leaseHere"), 3*time.Second), tell: overtaken},
		}},
	}
}

// dropsAt cuts every connection at a place.
func dropsAt(at testkit.PanicAt) testkit.Option {
	return testkit.WithCall(at, func(f *testkit.Fleet) { f.Cut() })
}

// cutOnItsWay has a worker come back that was cut off before it got its dispatch.
func cutOnItsWay(t *testing.T, f *testkit.Fleet, back ...testkit.ReconnectOption) {
	t.Helper()
	w := f.Worker("gpu-1", gpu())
	f.Settle()
	run := f.Submit(single)
	f.Advance(5 * time.Second)
	w.NoDispatch()
	if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
		t.Errorf("while its worker is away the step is %s, want running", got)
	}
	w.Reconnect(back...)
	w.NextDispatch().Succeed()
	run.WaitStatus(messages.RunSucceeded)
	w.NoDispatch()
	onceEach(f, run, "only")
	if got := run.Step("only").GetLosses(); got != 0 {
		t.Errorf("losses are %d, want none: the worker never had it", got)
	}
	within(t, 6*time.Second)
}

// overAgain checks that a worker can tell a late repeat of a dispatch from a new one, and that its word for it changes
// nothing.
func overAgain(t *testing.T, f *testkit.Fleet, between func()) {
	t.Helper()
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	first := f.Submit(single)
	d := w.NextDispatch()
	d.Succeed()
	first.WaitStatus(messages.RunSucceeded)
	d.WaitDone()
	between()
	f.Eventually("the worker is there", w.Connected)
	second := f.Submit(single)
	next := w.NextDispatch()
	if next.Params.GetSeq() <= d.Params.GetSeq() {
		t.Errorf("the dispatch has the number %d, and the one before %d: the worker cannot tell which is old", next.Params.GetSeq(), d.Params.GetSeq())
	}
	forgets(f, w, d.Lease, func() {
		w.Send(&messages.Frame{Id: d.Lease, Body: &messages.Frame_Error{Error: &messages.Error{Code: string(messages.CodeEnded), Text: "it has ended here"}}})
	})
	next.Succeed()
	second.WaitStatus(messages.RunSucceeded)
	onceEach(f, first, "only")
	onceEach(f, second, "only")
	if diff := cmp.Diff([]string{"completed"}, leaseStates(t, f, second, 0)); diff != "" { // none was taken for an old one
		t.Errorf("leases (-want +got):\n%s", diff)
	}
	if got := first.Step("only").GetStatus(); got != string(messages.StepSucceeded) {
		t.Errorf("the first step is %s, want succeeded", got)
	}
}

// overtaken cancels a run before its dispatch has been sent. The worker must not start it.
func overtaken(t *testing.T, f *testkit.Fleet) {
	var ran atomic.Bool
	f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
		if d.Cancellation() {
			d.Refuse(messages.CodeCancelled, "it was cancelled before it came")
			return
		}
		ran.Store(true)
	}))
	f.Settle()
	run := f.Submit(single)
	run.WaitEvent(messages.EventStepDispatched)
	run.Cancel()
	run.WaitStatus(messages.RunCancelled)
	if ran.Load() {
		t.Error("the worker has run it")
	}
	if n := f.Executions(run, "only"); n != 0 {
		t.Errorf("it was executed %d times, want never", n)
	}
	f.Submit(single).Cancel() // the slot is free
}

func acceptPoints() []crashPoint {
	// The worker takes a step, the process dies, and the worker comes back with it.
	taken := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Eventually("the worker goes on with it", d.Adopted)
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		want := []string{messages.EventStepStarted, messages.EventStepDispatched, messages.EventStepSucceeded}
		if diff := cmp.Diff(want, run.Kinds("step=only")); diff != "" {
			t.Errorf("the story (-want +got):\n%s", diff)
		}
		within(t, 20*time.Second)
	}
	return []crashPoint{
		{row: "C1", point: "a worker dies when it has accepted", cases: []crashCase{{name: "and a new process of it comes", tell: func(t *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			run := f.Submit(single)
			w.NextDispatch().Accept()
			w.Drop()
			f.Settle()
			w.Reconnect(testkit.AsNewInstance())
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
			if got := run.Step("only").GetLosses(); got != 1 {
				t.Errorf("losses are %d, want 1", got)
			}
			within(t, time.Second)
		}}}},
		{row: "C2", point: "the accept is lost and the step runs", cases: []crashCase{
			{name: "with its connection", tell: func(t *testing.T, f *testkit.Fleet) {
				w, other := f.Worker("gpu-1", gpu()), f.Worker("gpu-2", gpu())
				run := f.Submit(single)
				d := w.NextDispatch()
				w.Drop()
				d.Accept()
				f.Advance(50 * time.Second)
				other.NoDispatch()
				w.Reconnect()
				f.Advance(time.Hour)
				other.NoDispatch()
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
			}},
			{name: "with its lease", fault: panics(before("lease", "leaseFrame")), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w, other := f.Worker("gpu-1", gpu()), f.Worker("gpu-2", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				f.Advance(time.Hour)
				other.NoDispatch()
				w.NoDispatch()
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
			}},
			{name: "for ever", fault: alwaysPanics(before("lease", "leaseFrame")), onDisk: oneActive, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch()
				for range 8 {
					d.Repeat()
					f.Advance(10 * time.Second)
				}
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
			}},
		}},
		{row: "C3", point: "an accept is taken", cases: []crashCase{
			{name: "and the process dies", fault: dies(before("lease", "leaseFrame")), onDisk: oneActive, tell: taken},
		}},
		{row: "C4", point: "a refusal is lost", cases: []crashCase{
			{name: "with its connection", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch()
				w.Drop()
				d.RefuseBusy()
				f.Advance(time.Second)
				w.Reconnect()
				w.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
				if got := run.Step("only").GetLosses(); got != 0 {
					t.Errorf("losses are %d, want none: it was refused", got)
				}
				within(t, 2*time.Second)
			}},
			{name: "with its lease", fault: panics(before("lease", "leaseFrame")), onDisk: oneActive, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				w.NextDispatch().RefuseBusy() // which it says again when it is asked again
				run.WaitEvent(messages.EventStepQueued)
				w.SayIdle()
				w.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
			}},
			{name: "with the process", fault: dies(before("lease", "leaseFrame")), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu(), testkit.Persistent())
				f.Settle()
				run := f.Submit(single)
				w.NextDispatch().RefuseBusy()
				w.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
				within(t, 20*time.Second)
			}},
		}},
		{row: "C5", point: "output arrives with the accept", cases: []crashCase{
			{name: "and the story keeps its order", tell: func(t *testing.T, f *testkit.Fleet) { spokenAtOnce(t, f) }},
			{name: "and the lease panics at the accept", fault: panics(before("lease", "leaseFrame")), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) { spokenAtOnce(t, f) }},
			{name: "and the lease panics at the output", fault: panics(nth(2, before("lease", "leaseFrame"))), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) { spokenAtOnce(t, f) }},
		}},
	}
}

// spokenAtOnce has a worker say everything in one breath.
func spokenAtOnce(t *testing.T, f *testkit.Fleet) {
	t.Helper()
	f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) { d.Accept().Output("first words\n").Succeed() }))
	run := f.Submit(single)
	run.WaitStatus(messages.RunSucceeded)
	var kinds []string
	for _, e := range run.Events() {
		if e.GetStep() != "" {
			kinds = append(kinds, e.GetKind())
		}
	}
	want := []string{messages.EventStepStarted, messages.EventStepDispatched, messages.EventStepOutput, messages.EventStepSucceeded}
	if i := slices.Index(kinds, messages.EventStepQueued); i >= 0 { // it may have come before its worker was known
		kinds = slices.Delete(kinds, i, i+1)
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("the story (-want +got):\n%s", diff)
	}
	onceEach(f, run, "only")
}
