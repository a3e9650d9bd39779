package actors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

func runEndPoints() []crashPoint {
	finished := func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Settle()
		run := f.Submit(single)
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		within(t, 20*time.Second)
		ends := 0
		for _, kind := range run.Kinds() {
			if messages.EndsRun(kind) {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("its story has %d ends: %q", ends, run.Kinds())
		}
	}
	cancelled := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(pair)
		d := w.NextDispatch().Accept()
		f.Settle()
		run.Cancel()
		f.Advance(time.Second) // a step that does not know yet hears of it again
		f.Worker("gpu-2", gpu()).NoDispatch()
		f.Advance(10 * time.Second)
		if !d.Aborted() {
			d.WaitCancel()
			d.Cancelled()
		}
		run.WaitStatus(messages.RunCancelled)
		for _, w := range f.Workers() {
			if w.GetName() == "gpu-2" && len(w.GetActiveDispatchIds()) != 0 {
				t.Errorf("worker gpu-2 has %q", w.GetActiveDispatchIds())
			}
		}
		if got := run.Kinds("step=right"); slices.Contains(got, messages.EventStepDispatched) {
			t.Errorf("the step that waited was dispatched after the cancel: %q", got)
		}
		within(t, 30*time.Second)
	}
	const ended = "run running, only succeeded, 0.1/1 completed"
	const halfCancelled = "run running, left running, right queued, 1.q1 waiting, 0.1/1 active"
	return []crashPoint{
		{row: "N1", point: "the last step has ended and its run has not heard of it", cases: []crashCase{
			{name: "the run panics", fault: panics(before("run", "stepEnded")), onDisk: ended, tell: finished},
			{name: "the step panics", fault: panics(nth(1, after("step", "leaseEnded"))), onDisk: ended, tell: finished},
			{name: "the process dies", fault: dies(after("step", "leaseEnded")), onDisk: ended, tell: finished},
			{name: "the run panics for ever", fault: alwaysPanics(before("run", "stepEnded")), onDisk: ended, tell: finished},
		}},
		{row: "N2", point: "a run has ended and its followers have not heard of it", cases: []crashCase{
			{name: "the run panics", fault: panics(after("run", "stepEnded")), onDisk: "run succeeded, only succeeded, 0.1/1 completed", tell: finished},
			{name: "the process dies", fault: dies(after("run", "stepEnded")), onDisk: "run succeeded, only succeeded, 0.1/1 completed", tell: finished},
		}},
		{row: "N3", point: "a run would end before one of its steps", cases: []crashCase{
			{name: "that still runs when another has failed", tell: func(t *testing.T, f *testkit.Fleet) { failsBeside(t, f) }},
			{name: "and the process dies", fault: dies(after("step", "leaseEnded")), onDisk: "run running, left failed, right running, 1.1/1 active, 0.1/1 completed", tell: func(t *testing.T, f *testkit.Fleet) { failsBeside(t, f) }},
			{name: "whose worker has not answered to a kill", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(single)
				w.NextDispatch().Accept()
				f.Settle()
				run.Kill()
				run.WaitStatus(messages.RunCancelled)
				if diff := cmp.Diff([]string{"fenced"}, leaseStates(t, f, run, 0)); diff != "" {
					t.Errorf("leases (-want +got):\n%s", diff)
				}
				f.Crash()
				f.Restart()
				f.Settle()
				if diff := cmp.Diff([]string{"expired"}, leaseStates(t, f, run, 0)); diff != "" {
					t.Errorf("leases after the restart (-want +got):\n%s", diff)
				}
				w.Reconnect()
				next := f.Submit(single)
				w.NextDispatch().Succeed()
				next.WaitStatus(messages.RunSucceeded)
			}},
		}},
		{row: "N4", point: "a run is removed with something of it alive", cases: danglingCases()},
		{row: "N5", point: "a concurrency group is released by a message that is lost", later: "there are no concurrency groups yet"},
		{row: "N6", point: "a cancel is written and the steps have not heard of it", cases: []crashCase{
			{name: "the run panics", fault: panics(after("run", "cancelRun")), onDisk: halfCancelled, tell: cancelled},
			{name: "a step panics", fault: panics(before("step", "cancelStep")), tell: cancelled},
			{name: "the lease panics", fault: panics(before("lease", "cancelLease")), tell: cancelled},
			{name: "the worker panics", fault: panics(before("worker", "cancelDispatch")), tell: cancelled},
			{name: "the process dies", fault: dies(after("run", "cancelRun")), onDisk: halfCancelled, tell: cancelled},
		}},
	}
}

// failsBeside has one step fail while another one runs: the run ends with the last of them.
func failsBeside(t *testing.T, f *testkit.Fleet) {
	t.Helper()
	w := f.Worker("gpu-1", gpu(), testkit.Capacity(2), testkit.Persistent())
	f.Settle()
	run := f.Submit(pair)
	left, right := w.NextDispatch().Accept(), w.NextDispatch().Accept()
	if left.Step() == "right" {
		left, right = right, left
	}
	left.Fail(messages.CodeExitNonzero, "exit status 7")
	run.WaitEvent(messages.EventStepFailed, "step=left")
	f.Advance(10 * time.Second)
	if got := f.Show(run.ID).GetStatus(); got != string(messages.RunRunning) {
		t.Errorf("with a step that runs the run is %s, want running", got)
	}
	if right.Aborted() {
		right = w.NextDispatch()
	}
	right.Succeed()
	run.WaitStatus(messages.RunFailed)
	if got := run.Step("right").GetStatus(); got != string(messages.StepSucceeded) {
		t.Errorf("the other step is %s, want succeeded", got)
	}
}

// danglingCases are about records whose owner is gone. No commit of ours leaves any (retention takes children first, and
// only of what has ended), but an older program, or a hand, may have.
func danglingCases() []crashCase {
	short := testkit.WithRetention(actors.Retention{Runs: 10 * time.Minute})
	return []crashCase{{name: "and its wait is ended at the next start", bare: true, tell: strayWaits}, {name: "and retention lets it be", options: []testkit.Option{short}, tell: func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Settle()
		run := f.Submit(single)
		w.NextDispatch().Accept()
		f.Settle()
		run.Kill() // its lease outlives it
		run.WaitStatus(messages.RunCancelled)
		f.Advance(30 * time.Minute)
		if _, err := f.Journal().Get(persistence.KindRun, run.ID); err != nil {
			t.Errorf("the run was removed with a lease that lives: %v", err)
		}
		w.Dispatches()[0].Cancelled()
		f.Advance(2 * time.Minute)
		if _, err := f.Journal().Get(persistence.KindRun, run.ID); err == nil {
			t.Error("the run was not removed after its lease had ended")
		}
	}}}
}
