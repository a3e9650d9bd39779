package actors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestAdoption_AStepGoesOnThroughRestarts(t *testing.T) {
	t.Parallel()
	for _, restarts := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("%d of them", restarts), func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Output("before\n")
				for i := range restarts {
					f.Settle()
					f.Crash()
					d.Output(fmt.Sprintf("while it is away, %d\n", i))
					f.Restart()
					f.Advance(5 * time.Second)
					w.Reconnect()
					f.Settle()
				}
				d.Output("after\n").Succeed()
				run.WaitStatus(messages.RunSucceeded)
				wantAdopted(t, f, run, restarts)
			})
		})
	}
}

// wantAdopted wants a step that was dispatched once, and lost nothing.
func wantAdopted(t *testing.T, f *testkit.Fleet, run *testkit.Run, restarts int) {
	t.Helper()
	if s := run.Step("only"); s.GetLosses() != 0 || s.GetAttempts() != 1 {
		t.Errorf("the step is %v", s)
	}
	want := []string{"before"}
	for i := range restarts {
		want = append(want, fmt.Sprintf("while it is away, %d", i))
	}
	if diff := cmp.Diff(append(want, "after"), run.Lines("only")); diff != "" {
		t.Errorf("the step printed (-want +got):\n%s", diff)
	}
	dispatched := 0
	for _, e := range run.Events() {
		if e.GetKind() == messages.EventStepDispatched {
			dispatched++
		}
	}
	if dispatched != 1 {
		t.Errorf("it was dispatched %d times", dispatched)
	}
	f.Settle()
}

// The orchestrator dies again after each commit that follows its restart.
func TestAdoption_AnotherCrashAtAnyCommitChangesNothing(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		t.Run(fmt.Sprintf("commit %d", n), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, testkit.WithEveryCommit())
				w := f.Worker("gpu-1", gpu(), testkit.Persistent())
				run := f.Submit(single)
				d := w.NextDispatch().Output("before\n")
				f.Settle()
				f.Crash()
				d.Output("while it is away, 0\n")
				f.Restart()
				f.CrashAtBatch(n, 3*time.Second)
				f.Advance(15 * time.Second)
				d.Output("after\n").Succeed()
				run.WaitStatus(messages.RunSucceeded)
				wantAdopted(t, f, run, 1)
			})
		})
	}
}

func TestAdoption_AResultThatCameWhileTheOrchestratorWasDownCounts(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		f.Crash()
		d.Output("late\n").Succeed("answer=42")
		f.Restart()
		w.Reconnect()
		run.WaitStatus(messages.RunSucceeded)
		if s := run.Step("only"); s.GetOutputs()["answer"] != "42" || s.GetLosses() != 0 {
			t.Errorf("the step is %v", s)
		}
		d.WaitDone()
	})
}

func TestAdoption_OfACancelledStepIsRefused(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		w.Drop()
		run.Cancel()
		f.Settle()
		f.Crash()
		f.Restart()
		w.Reconnect()
		run.WaitStatus(messages.RunCancelled)
		f.Settle()
		if !d.Aborted() {
			t.Error("the worker goes on with a step that was cancelled")
		}
	})
}

func TestAdoption_AWorkerThatComesTooLateHasToAbort(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		f.Crash()
		f.Restart()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		w.Reconnect()
		f.Settle()
		if !d.Aborted() {
			t.Error("the worker goes on with a step that runs elsewhere")
		}
	})
}

// What a worker was promised holds, also if the grace window is shorter after the restart.
func TestAdoption_WaitsForAsLongAsTheWorkerWasPromised(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithGrace(time.Minute))
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		f.Crash()
		f.Restart(testkit.WithGrace(2 * time.Second))
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		f.Advance(50 * time.Second)
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Fatalf("the step is %s, while its worker may run it", got)
		}
		w.Reconnect()
		f.Settle()
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if s := run.Step("only"); s.GetWorker() != "gpu-1" || s.GetLosses() != 0 {
			t.Errorf("the step is %v", s)
		}
	})
}

// A fleet that returns is not flooded with work that it would refuse: the slots of what it brings are taken.
func TestAdoption_TheSlotsOfWhatAWorkerBringsAreTaken(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		first := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		second := f.Submit(single)
		second.WaitEvent(messages.EventStepQueued)
		f.Crash()
		f.Restart()
		w.Reconnect()
		f.Settle()
		w.NoDispatch()
		d.Succeed()
		first.WaitStatus(messages.RunSucceeded)
		w.NextDispatch().Succeed()
		second.WaitStatus(messages.RunSucceeded)
		if got := second.Step("only").GetAttempts(); got != 1 {
			t.Errorf("it took %d attempts", got)
		}
	})
}
