package actors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestCancel_OfARunThatWaitsEndsItAtOnceWithoutALease(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(chain)
		run.WaitEvent(messages.EventStepQueued)
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
		if sinceStart() != 0 {
			t.Errorf("it ended after %s, want at once", sinceStart())
		}
		if diff := cmp.Diff([]string{"cancelled"}, pendings(t, f, run, 0, 1)); diff != "" {
			t.Errorf("pending dispatches (-want +got):\n%s", diff)
		}
		if got := leaseStates(t, f, run, 0); len(got) != 0 {
			t.Errorf("leases are %v, want none", got)
		}
		for _, step := range []string{"first", "second"} {
			if got := run.Step(step).GetStatus(); got != string(messages.StepCancelled) {
				t.Errorf("step %s is %s, want cancelled", step, got)
			}
		}
		if got := f.Queue(); len(got) != 0 {
			t.Errorf("the queue is %v, want empty", got)
		}
		f.Worker("gpu-1", gpu()).NoDispatch()
	})
}

func TestCancel_OfAStepThatWaitsLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(pair)
		run.WaitEvent(messages.EventStepQueued, "step=right")
		run.CancelStep("left")
		run.WaitEvent(messages.EventStepCancelled, "step=left")
		if got := waitingSteps(f); got != "right" {
			t.Errorf("waiting are %q, want right", got)
		}
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitEvent(messages.EventStepSucceeded, "step=right")
		run.Wait()
		if diff := cmp.Diff([]string{"cancelled"}, pendings(t, f, run, 0, 1)); diff != "" {
			t.Errorf("pending dispatches of left (-want +got):\n%s", diff)
		}
		if got := leaseStates(t, f, run, 0); len(got) != 0 {
			t.Errorf("leases of left are %v, want none", got)
		}
	})
}

func TestCancel_OfARunningStepWaitsForTheWorkersWord(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(pair)
		d := w.NextDispatch().Output("so far\n")
		run.Cancel()
		if d.WaitCancel() {
			t.Error("the worker was asked to kill, want to stop")
		}
		run.WaitEvent(messages.EventStepCancelled, "step=right")
		f.Advance(5 * time.Second)
		if got := f.Show(run.ID); got.GetStatus() != string(messages.RunRunning) || !got.GetCancelRequested() {
			t.Errorf("the run is %s, cancel requested %t; want running and true", got.GetStatus(), got.GetCancelRequested())
		}
		d.Output("the last words\n").Cancelled()
		run.WaitStatus(messages.RunCancelled)
		if diff := cmp.Diff([]string{"so far", "the last words"}, run.Lines(d.Step())); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestCancel_ByForceDoesNotWaitForTheWorkerAndKeepsItsSlotTaken(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		run.Kill()
		run.WaitStatus(messages.RunCancelled)
		if !d.WaitCancel() {
			t.Error("the worker was asked to stop, want to kill")
		}
		next := f.Submit(single)
		next.WaitEvent(messages.EventStepQueued)
		w.NoDispatch() // its slot is free when the worker has answered
		d.Cancelled()
		w.NextDispatch().Succeed()
		next.WaitStatus(messages.RunSucceeded)
	})
}

func TestCancel_OfAStepWhoseWorkerIsGoneEndsWithTheGrace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		f.Settle()
		w.Drop()
		f.Settle()
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
		if sinceStart() != time.Minute {
			t.Errorf("it ended after %s, want with the grace of 1m", sinceStart())
		}
	})
}

func TestCancel_ASucceededStepOfACancelledRunStaysSucceeded(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(chain)
		w.NextDispatch().Succeed()
		d := w.NextDispatch().Accept()
		run.Cancel()
		d.WaitCancel()
		d.Succeed() // it was faster
		run.WaitStatus(messages.RunCancelled)
		for _, step := range []string{"first", "second"} {
			if got := run.Step(step).GetStatus(); got != string(messages.StepSucceeded) {
				t.Errorf("step %s is %s, want succeeded", step, got)
			}
		}
	})
}

func TestCancel_TwiceIsTheSameAndAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		run.Cancel()
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
		run.Cancel()
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		done := f.Submit(single)
		done.WaitStatus(messages.RunSucceeded)
		before := len(done.Events())
		done.Cancel()
		done.CancelStep("only")
		f.Settle()
		if got := f.Show(done.ID); got.GetStatus() != string(messages.RunSucceeded) || len(done.Events()) != before {
			t.Errorf("a run that had ended is %s now, with %d events after %d", got.GetStatus(), len(done.Events()), before)
		}
	})
}

// The run ends, and its step's actor with it, while the step still has an assignment in its mailbox.
func TestCancel_AnAssignmentThatNobodyAnswersAnyMoreGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	slow := func(p actors.Point) {
		if p.Stage == "decided" && p.Kind == "step" && p.Command == "cancelStep" {
			time.Sleep(100 * time.Millisecond)
		}
	}
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepQueued)
		run.CancelStep("only")
		run.CancelStep("only") // it is slow to find that there is nothing to do
		f.Settle()
		w := f.Worker("gpu-1", gpu())
		f.Advance(time.Second)
		run.Wait()
		next := f.Submit(single)
		w.NextDispatch().Succeed()
		next.WaitStatus(messages.RunSucceeded)
	}, testkit.WithHook(slow))
}

// A cancel and a dispatch that race have one winner: the step ended in the queue and had no lease, or it got one and was
// cancelled, or succeeded, on its worker.
func TestCancel_AndDispatchThatRaceHaveOneWinner(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"run", "step"} {
		winners := make(map[string]int)
		t.Run("of a "+what, func(t *testing.T) {
			for seed := range uint64(60) {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					scenario(t, func(t *testing.T, f *testkit.Fleet) {
						run := f.Submit(single)
						run.WaitEvent(messages.EventStepQueued)
						cancelled := make(chan struct{})
						go func() {
							defer close(cancelled)
							time.Sleep(time.Duration(seed%48) * time.Millisecond)
							if what == "run" {
								run.Cancel()
							} else {
								run.CancelStep("only")
							}
						}()
						f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
							d.Accept()
							d.WaitCancel()
							d.Cancelled()
						}))
						<-cancelled
						run.Wait()
						f.Settle()
						pending, leases := pendings(t, f, run, 0, 1)[0], leaseStates(t, f, run, 0)
						won := pending + " " + fmt.Sprint(leases)
						switch won {
						case "cancelled []", "dispatched [completed]":
							winners[won]++
						default:
							t.Errorf("the wait ended as %s and the leases are %v", pending, leases)
						}
						if got := run.Step("only").GetStatus(); got != string(messages.StepCancelled) {
							t.Errorf("the step is %s, want cancelled", got)
						}
					}, testkit.WithJitter(seed, 10*time.Millisecond))
				})
			}
		})
		if len(winners) != 2 {
			t.Errorf("over all seeds only %v won: this is no race", winners)
		}
	}
}

// cleanup is a step that works, one that cleans up after it in any case, and one that a failure calls for.
const cleanup = `name: cleanup
labels: {gpu: true}
jobs:
  - name: main
    steps:
      - {name: work, run: work}
      - {name: clean, run: clean, dependsOn: [{step: work, condition: {type: always}}]}
      - {name: tell, run: tell, dependsOn: [{step: work, condition: {type: failed}}]}
      - {name: next, run: next, dependsOn: [work]}
`

func TestCancel_OfARunStillRunsWhatCleansUp(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(cleanup)
		d := w.NextDispatch()
		run.Cancel()
		d.WaitCancel()
		d.Cancelled()
		clean := w.NextDispatch()
		if got := run.Step("clean").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("clean is %s", got)
		}
		clean.Succeed()
		run.WaitStatus(messages.RunCancelled)
		for step, want := range map[string]messages.StepStatus{
			"work": messages.StepCancelled, "clean": messages.StepSucceeded, "tell": messages.StepCancelled, "next": messages.StepCancelled,
		} {
			if got := run.Step(step).GetStatus(); got != string(want) {
				t.Errorf("step %s is %s, want %s", step, got, want)
			}
		}
	})
}

func TestRun_AFailureRunsWhatItCallsForAndSkipsTheRest(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(cleanup)
		w.NextDispatch().Fail(messages.CodeExitNonzero, "exit status 3")
		w.NextDispatch().Succeed()
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunFailed)
		for step, want := range map[string]messages.StepStatus{
			"work": messages.StepFailed, "clean": messages.StepSucceeded, "tell": messages.StepSucceeded, "next": messages.StepSkipped,
		} {
			if got := run.Step(step).GetStatus(); got != string(want) {
				t.Errorf("step %s is %s, want %s", step, got, want)
			}
		}
	})
}
