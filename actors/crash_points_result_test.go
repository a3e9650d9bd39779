package actors_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

const oneCompleted = "run running, only running, 0.1/1 completed"

func resultPoints() []crashPoint {
	// A worker says how its step ended, and is there to say it again.
	reported := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(single)
		d := w.NextDispatch().Output("words\n")
		d.Succeed("answer=42")
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		if diff := cmp.Diff(map[string]string{"answer": "42"}, run.Step("only").GetOutputs()); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"words"}, run.Lines("only")); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		within(t, 20*time.Second)
		f.Eventually("the worker is there", w.Connected)
		if d.Done() || d.Aborted() {
			forgets(f, w, persistence.LeaseID(d.ID(), d.Generation()), d.Repeat)
		} else { // it never heard that it was heard
			d.Repeat()
			d.WaitDone()
		}
		next := f.Submit(single)
		w.NextDispatch().Succeed() // its slot is free
		next.WaitStatus(messages.RunSucceeded)
	}
	third := func(at testkit.PanicAt) testkit.PanicAt { return nth(3, at) } // accept, output, result
	return []crashPoint{
		{
			row: "R1", point: "a worker dies with a result that it has not sent", later: "that its next process delivers the result: with a spool of results",
			cases: []crashCase{{name: "and a new process of it comes", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				w.Drop()
				d.Succeed()
				f.Settle()
				w.Reconnect(testkit.AsNewInstance())
				run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
				w.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
				if n := f.Executions(run, "only"); n != 2 {
					t.Errorf("it was executed %d times, want twice: nobody heard of the first", n)
				}
			}}},
		},
		{row: "R2", point: "before the commit of a result", cases: []crashCase{
			{name: "the lease panics", fault: panics(third(before("lease", "leaseFrame"))), onDisk: oneActive, tell: reported},
			{name: "the process dies", fault: dies(third(before("lease", "leaseFrame"))), onDisk: oneActive, tell: reported},
		}},
		{row: "R3", point: "after the commit of a result and before its acknowledgement", cases: []crashCase{
			{name: "the lease panics", fault: panics(after("lease", "leaseFrame")), onDisk: oneCompleted, tell: reported},
			{name: "the process dies", fault: dies(after("lease", "leaseFrame")), onDisk: oneCompleted, tell: reported},
		}},
		{row: "R4", point: "a lease has ended and its step has not heard of it", cases: []crashCase{
			{name: "the step panics", fault: panics(before("step", "leaseEnded")), onDisk: oneCompleted, tell: reported},
			{name: "the process dies", fault: dies(before("step", "leaseEnded")), onDisk: oneCompleted, tell: reported},
			{name: "the process dies and its worker is gone", fault: dies(before("step", "leaseEnded")), onDisk: oneCompleted, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(single)
				w.NextDispatch().Succeed("answer=42")
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
				if diff := cmp.Diff(map[string]string{"answer": "42"}, run.Step("only").GetOutputs()); diff != "" {
					t.Errorf("outputs (-want +got):\n%s", diff)
				}
				within(t, 10*time.Second)
			}},
			{name: "the step panics for ever", fault: alwaysPanics(before("step", "leaseEnded")), onDisk: oneCompleted, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(single)
				w.NextDispatch().Succeed()
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
			}},
		}},
		{row: "R5", point: "a result overtakes the last output", cases: []crashCase{
			{name: "which comes", tell: func(t *testing.T, f *testkit.Fleet) { outputAfterResult(t, f, func(*testkit.Worker) {}) }},
			{name: "which is lost with the connection", tell: func(t *testing.T, f *testkit.Fleet) {
				outputAfterResult(t, f, func(w *testkit.Worker) { w.Drop(); f.Advance(time.Second); w.Reconnect() })
			}},
			{name: "which is lost with the lease", fault: panics(nth(2, before("lease", "leaseFrame"))), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				outputAfterResult(t, f, func(*testkit.Worker) {})
			}},
		}},
		{row: "R6", point: "a result comes again", cases: []crashCase{
			{name: "after the end of all", tell: func(t *testing.T, f *testkit.Fleet) { heardAlready(t, f, func() {}) }},
			{name: "after a restart", tell: func(t *testing.T, f *testkit.Fleet) {
				heardAlready(t, f, func() { f.Crash(); f.Advance(downTime); f.Restart() })
			}},
		}},
		{row: "R7", point: "a lease has ended and its worker's actor has not heard of it", cases: []crashCase{
			{name: "it panics", fault: panics(before("worker", "leaseOver")), onDisk: oneCompleted, tell: reported},
			{name: "the process dies", fault: dies(before("worker", "leaseOver")), tell: reported},
			{name: "the scheduler panics", fault: panics(before("scheduler", "releaseSlot")), tell: reported},
		}},
		{row: "R8", point: "a result finds no space", cases: []crashCase{
			{name: "below the mark of new work", tell: func(_ *testing.T, f *testkit.Fleet) {
				resultWithoutSpace(f, persistence.Space{Free: 60, NewWork: 100, Data: 50, Hard: 20}, false)
			}},
			{name: "below the mark of data", tell: func(_ *testing.T, f *testkit.Fleet) {
				resultWithoutSpace(f, persistence.Space{Free: 30, NewWork: 100, Data: 50, Hard: 20}, false)
			}},
			{name: "below all marks", tell: func(_ *testing.T, f *testkit.Fleet) {
				resultWithoutSpace(f, persistence.Space{Free: 10, NewWork: 100, Data: 50, Hard: 20}, true)
			}},
		}},
	}
}

// outputAfterResult has a result come before the output that it ends with.
func outputAfterResult(t *testing.T, f *testkit.Fleet, between func(w *testkit.Worker)) {
	t.Helper()
	w := f.Worker("gpu-1", gpu())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	f.Settle()
	w.Send(&messages.Frame{Id: d.Lease, Body: &messages.Frame_Response{Response: messages.NewResponse(
		messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "succeeded", FinalOffset: 6})}})
	f.Advance(time.Second)
	if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
		t.Errorf("with output missing the step is %s, want running", got)
	}
	between(w)
	d.Output("words\n").Succeed()
	run.WaitStatus(messages.RunSucceeded)
	if diff := cmp.Diff([]string{"words"}, run.Lines("only")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	onceEach(f, run, "only")
}

// heardAlready has a worker say what everybody knows, and things that nobody knows. All of it is acknowledged, or it would
// be repeated for ever.
func heardAlready(t *testing.T, f *testkit.Fleet, between func()) {
	t.Helper()
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch()
	d.Succeed("answer=42")
	run.WaitStatus(messages.RunSucceeded)
	d.WaitDone()
	between()
	f.Eventually("the worker is there", w.Connected)
	before := run.Kinds()
	for _, id := range []string{d.Lease, d.ID() + "/0", d.ID() + "/2", "never.0.1/1"} {
		forgets(f, w, id, func() {
			w.Send(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: messages.NewResponse(
				messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "failed", Code: "exit_nonzero"})}})
		})
	}
	f.Settle()
	if diff := cmp.Diff(before, run.Kinds()); diff != "" {
		t.Errorf("the story has changed (-before +after):\n%s", diff)
	}
	if got := run.Step("only").GetStatus(); got != string(messages.StepSucceeded) {
		t.Errorf("the step is %s, want succeeded", got)
	}
}

// resultWithoutSpace has a worker report while there is little space. Only where nothing can be written at all is it not
// acknowledged, and the worker says it again when there is space.
func resultWithoutSpace(f *testkit.Fleet, space persistence.Space, refused bool) {
	f.T().Helper()
	w := f.Worker("gpu-1", gpu())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	f.Settle()
	f.Journal().SetSpace(space)
	d.Succeed()
	f.Advance(time.Second)
	if d.Done() == refused {
		f.T().Errorf("the result was acknowledged: %t, want %t", d.Done(), !refused)
	}
	if refused {
		f.Advance(time.Minute)
		f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50, Hard: 20})
		d.Repeat()
	}
	run.WaitStatus(messages.RunSucceeded)
	d.WaitDone()
	onceEach(f, run, "only")
}

func leaseEndPoints() []crashPoint {
	// A worker is cut off and does not come back.
	lost := func(at, limit time.Duration) func(t *testing.T, f *testkit.Fleet) {
		return func(t *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			f.Settle()
			run := f.Submit(oneStep(forEver))
			w.NextDispatch().Accept()
			f.Settle()
			w.Drop()
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
			if got := sinceStart(); got < at || got > limit {
				t.Errorf("it was lost after %s, want between %s and %s", got, at, limit)
			}
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
			if n := len(run.Kinds("step=only", "worker=gpu-1")); n != 2 { // dispatched, and lost
				t.Errorf("%d events name the lost worker, want two: %q", n, run.Kinds("step=only"))
			}
			if diff := cmp.Diff([]string{"expired", "completed"}, leaseStates(t, f, run, 0)); diff != "" {
				t.Errorf("leases (-want +got):\n%s", diff)
			}
		}
	}
	const expired = "run running, only running, 0.1/1 expired"
	const grace = time.Minute
	return []crashPoint{
		{row: "E1", point: "before the commit of the end of a lost lease", cases: []crashCase{
			{name: "the lease panics", fault: panics(before("lease", "graceElapsed")), onDisk: oneActive, tell: lost(grace, 2*grace+10*time.Second)},
			{name: "the process dies", fault: dies(before("lease", "graceElapsed")), onDisk: oneActive, tell: lost(2*grace, 2*grace+10*time.Second)},
			{name: "the lease panics for ever", fault: alwaysPanics(before("lease", "graceElapsed")), onDisk: oneActive, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(oneStep(forEver))
				w.NextDispatch().Accept()
				w.Drop()
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
			}},
		}},
		{row: "E2", point: "a lost lease has ended and its step has not heard of it", cases: []crashCase{
			{name: "the lease panics", fault: panics(after("lease", "graceElapsed")), onDisk: expired, tell: lost(grace, grace+time.Second)},
			{name: "the step panics", fault: panics(before("step", "leaseEnded")), onDisk: expired, tell: lost(grace, grace+time.Second)},
			{name: "the process dies", fault: dies(after("lease", "graceElapsed")), onDisk: expired, tell: lost(grace+downTime, grace+downTime+time.Second)},
		}},
		{row: "E3", point: "the process dies again while a step waits for its worker", cases: []crashCase{
			{name: "that comes back at last", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run, d := diesThrice(t, f, w)
				w.Reconnect()
				f.Eventually("the worker goes on with it", d.Adopted)
				d.Output("more words\n").Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
				if diff := cmp.Diff([]string{"words", "more words"}, run.Lines("only")); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
			}},
			{name: "that does not come back", tell: func(t *testing.T, f *testkit.Fleet) {
				run, _ := diesThrice(t, f, f.Worker("gpu-1", gpu()))
				run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if got := run.Step("only").GetLosses(); got != 0 {
					t.Errorf("losses are %d, want none: no restart was the worker's fault", got)
				}
				within(t, 3*(downTime+grace/2)+grace+time.Second)
			}},
		}},
		{row: "E4", point: "a step runs again and its first worker comes back with it", cases: []crashCase{
			{name: "late", tell: func(t *testing.T, f *testkit.Fleet) { lateReturn(t, f, func() {}) }},
			{name: "after a restart", tell: func(t *testing.T, f *testkit.Fleet) {
				lateReturn(t, f, func() { f.Crash(); f.Advance(downTime); f.Restart() })
			}},
		}},
		{row: "E5", point: "the process stands still for longer than a grace", cases: []crashCase{
			{
				name: "and a worker goes meanwhile", options: standsStill(nth(2, before("lease", "leaseFrame")), 10*time.Minute),
				tell: func(t *testing.T, f *testkit.Fleet) {
					w := f.Worker("gpu-1", gpu())
					f.Settle()
					run := f.Submit(oneStep(forEver))
					d := w.NextDispatch().Accept()
					f.Settle()
					d.Output("words\n") // here it stands still
					f.Advance(time.Second)
					w.Drop()
					f.Advance(10 * time.Minute)
					w.Reconnect()
					d.Succeed()
					run.WaitStatus(messages.RunSucceeded)
					onceEach(f, run, "only")
				},
			},
			{
				name: "and a worker had gone before", options: standsStill(before("lease", "cancelLease"), 10*time.Minute),
				tell: func(t *testing.T, f *testkit.Fleet) {
					w := f.Worker("gpu-1", gpu())
					f.Settle()
					run := f.Submit(oneStep(forEver))
					d := w.NextDispatch().Accept()
					w.Drop()
					f.Advance(time.Second)
					run.Cancel() // here it stands still
					f.Advance(10 * time.Minute)
					f.Advance(10 * time.Second)
					w.Reconnect()
					d.Succeed() // it was too late to cancel it
					run.WaitStatus(messages.RunCancelled)
					if got := run.Step("only").GetStatus(); got != string(messages.StepSucceeded) {
						t.Errorf("the step is %s, want succeeded: its worker had no time to come back", got)
					}
				},
			},
			{
				name: "and a worker does not come back", options: standsStill(before("lease", "cancelLease"), 10*time.Minute),
				tell: func(t *testing.T, f *testkit.Fleet) {
					w := f.Worker("gpu-1", gpu())
					f.Settle()
					run := f.Submit(oneStep(forEver))
					w.NextDispatch().Accept()
					w.Drop()
					f.Advance(time.Second)
					run.Cancel()
					run.WaitStatus(messages.RunCancelled)
					if got, want := sinceStart(), 11*time.Minute+time.Second; got < want-time.Second || got > want+time.Second {
						t.Errorf("it was given up after %s, want one grace after the stall: %s", got, want)
					}
				},
			},
		}},
		{
			row: "E6", point: "a worker is suspended for longer than its grace and wakes", later: "that its writes are fenced: with the data plane",
			cases: []crashCase{{
				name: "and says what it did", options: []testkit.Option{testkit.WithoutExecutionCheck()},
				tell: func(t *testing.T, f *testkit.Fleet) {
					w := f.Worker("gpu-1", gpu())
					f.Settle()
					run := f.Submit(oneStep(forEver))
					d := w.NextDispatch().Accept()
					w.Drop()
					run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
					next := f.Worker("gpu-2", gpu()).NextDispatch().Accept()
					d.Succeed("from=gpu-1")
					w.Reconnect()
					d.Repeat()
					f.Advance(time.Second)
					next.Succeed("from=gpu-2")
					run.WaitStatus(messages.RunSucceeded)
					if diff := cmp.Diff(map[string]string{"from": "gpu-2"}, run.Step("only").GetOutputs()); diff != "" {
						t.Errorf("outputs (-want +got):\n%s", diff)
					}
				},
			}},
		},
		{row: "E7", point: "an adoption is there and its answer is lost", cases: []crashCase{
			{name: "the step panics", fault: panics(after("step", "leaseEnded")), onDisk: "run running, only running, 0.1/2 active, 0.1/1 expired", tell: func(t *testing.T, f *testkit.Fleet) {
				adopted(t, f, 2)
			}},
			{name: "the worker panics", fault: panics(nth(2, before("worker", "leaseHere"))), onDisk: "run running, only running, 0.1/2 active, 0.1/1 expired", tell: func(t *testing.T, f *testkit.Fleet) {
				adopted(t, f, 2)
			}},
			{name: "the process dies", fault: dies(after("step", "leaseEnded")), onDisk: "run running, only running, 0.1/2 active, 0.1/1 expired", tell: func(t *testing.T, f *testkit.Fleet) {
				adopted(t, f, 3)
			}},
			{name: "the connection is cut", options: []testkit.Option{dropsAt(after("step", "leaseEnded"))}, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run, d := diesOnce(t, f, w)
				w.Reconnect()
				f.Settle()
				w.Reconnect()
				f.Eventually("the worker goes on with it", d.Adopted)
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
			}},
		}},
	}
}

// standsStill has an actor stand still at a place, and the process take it that it did: from a second on.
func standsStill(at testkit.PanicAt, while time.Duration) []testkit.Option {
	return append(stalls(at, while), testkit.WithStandstill(time.Second, while))
}

// diesOnce lets the process die while a worker runs a step.
func diesOnce(t *testing.T, f *testkit.Fleet, w *testkit.Worker) (*testkit.Run, *testkit.Dispatch) {
	t.Helper()
	f.Settle()
	run := f.Submit(oneStep(forEver))
	d := w.NextDispatch().Output("words\n")
	d.WaitAcked(6)
	f.Crash()
	f.Advance(downTime)
	f.Restart()
	return run, d
}

// diesThrice lets it die twice more, within the time that it waits for the worker.
func diesThrice(t *testing.T, f *testkit.Fleet, w *testkit.Worker) (*testkit.Run, *testkit.Dispatch) {
	t.Helper()
	run, d := diesOnce(t, f, w)
	for range 2 {
		f.Advance(30 * time.Second)
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("within the grace the step is %s, want running", got)
		}
		f.Crash()
		f.Advance(downTime)
		f.Restart()
	}
	return run, d
}

// adopted has a worker come back after a restart, and go on with its step under that generation.
func adopted(t *testing.T, f *testkit.Fleet, generation uint32) {
	t.Helper()
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	run, d := diesOnce(t, f, w)
	f.Eventually("the worker goes on with it", func() bool { return d.Generation() == generation })
	d.Output("more words\n").Succeed()
	run.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "only")
	if diff := cmp.Diff([]string{"words", "more words"}, run.Lines("only")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if got := run.Step("only").GetLosses(); got != 0 {
		t.Errorf("losses are %d, want none", got)
	}
	within(t, 30*time.Second)
}

// lateReturn has a worker come back with a step that runs elsewhere by then.
func lateReturn(t *testing.T, f *testkit.Fleet, between func()) {
	t.Helper()
	w := f.Worker("gpu-1", gpu())
	f.Settle()
	run := f.Submit(oneStep(forEver))
	d := w.NextDispatch().Accept()
	w.Drop()
	run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
	second := f.Worker("gpu-2", gpu(), testkit.Persistent())
	second.NextDispatch().Accept()
	between()
	w.Reconnect()
	f.Settle()
	if !d.Aborted() {
		t.Error("the late worker was told to go on")
	}
	forgets(f, w, d.Lease, func() { d.Succeed("from=gpu-1") }) // whatever it says of it
	f.Eventually("its worker is there", second.Connected)
	f.Advance(time.Second)
	for _, x := range second.Dispatches() {
		if !x.Aborted() {
			x.Succeed("from=gpu-2")
		}
	}
	for _, x := range w.Dispatches() {
		if !x.Aborted() {
			x.Succeed("from=gpu-2") // after a restart it may get it a second time
		}
	}
	run.WaitStatus(messages.RunSucceeded)
	if diff := cmp.Diff(map[string]string{"from": "gpu-2"}, run.Step("only").GetOutputs()); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}
