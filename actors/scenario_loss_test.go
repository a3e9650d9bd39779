package actors_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestLoss_AStepThatWroteNothingWaitsAgain(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		lost := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		lost.NextDispatch().Output("half a line")
		f.Advance(10 * time.Second)
		lost.Drop()
		run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
		e := run.WaitEvent(messages.EventStepQueued)
		if want := "waiting for a worker matching labels gpu=true: worker gpu-1 was lost"; e.GetWhy() != want {
			t.Errorf("why is %q, want %q", e.GetWhy(), want)
		}
		if sinceStart() != 70*time.Second {
			t.Errorf("it was lost after %s, want 10s and the grace of 1m", sinceStart())
		}
		w := f.Worker("gpu-2", gpu())
		w.NextDispatch().Output("a whole line\n").Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if diff := cmp.Diff([]string{"half a line", "a whole line"}, run.Lines("only")); diff != "" {
			t.Errorf("output, which is kept of both (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"expired", "completed"}, leaseStates(t, f, run, 0)); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
		if got := run.Step("only").GetLosses(); got != 1 {
			t.Errorf("losses are %d, want 1", got)
		}
	})
}

func TestLoss_TheThirdOneFailsTheStep(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		for range messages.MaxLosses {
			w.NextDispatch().Accept()
			w.Drop()
			w.Reconnect(testkit.AsNewInstance())
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
		}
		e := run.WaitEvent(messages.EventStepFailed, "code=worker_lost")
		if want := "the step lost its worker 3 times, the last was gpu-1"; e.GetError() != want {
			t.Errorf("the error is %q, want %q", e.GetError(), want)
		}
		run.WaitStatus(messages.RunFailed)
		w.NoDispatch()
	})
}

func TestLoss_FailsAStepThatSaysSo(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(oneStep(`labels: {gpu: "true"}, onWorkerLost: fail`))
		w.NextDispatch().Accept()
		w.Drop()
		e := run.WaitEvent(messages.EventStepFailed, "code=worker_lost")
		if want := "worker gpu-1 was lost while it ran the step, and onWorkerLost is fail"; e.GetError() != want {
			t.Errorf("the error is %q, want %q", e.GetError(), want)
		}
		run.WaitStatus(messages.RunFailed)
	})
}

func TestLoss_ANewInstanceOfTheMachineLosesTheOldOnesStepsAtOnce(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(pair)
		w.NextDispatch().Accept()
		w.NextDispatch().Accept()
		w.Drop()
		f.Settle()
		w.Reconnect(testkit.AsNewInstance())
		w.NextDispatch().Succeed()
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 0 {
			t.Errorf("it took %s, want no wait for the grace", sinceStart())
		}
	})
}

func TestLoss_TheSameInstanceThatDoesNotNameAStepHasLostIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		w.Drop()
		f.Settle()
		w.Reconnect(testkit.Forgetting())
		run.WaitEvent(messages.EventStepWorkerLost)
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 0 {
			t.Errorf("it took %s, want no wait for the grace", sinceStart())
		}
	})
}

func TestLoss_AWorkerThatIsBackWithinItsGraceGoesOn(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Output("one\n")
		d.WaitAcked(4)
		w.Drop()
		d.Output("two\n")
		f.Advance(59 * time.Second)
		w.Reconnect()
		d.Output("three\n").Succeed("answer=42")
		run.WaitStatus(messages.RunSucceeded)
		if diff := cmp.Diff([]string{"one", "two", "three"}, run.Lines("only")); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got := f.Executions(run, "only"); got != 1 {
			t.Errorf("it was executed %d times, want once", got)
		}
		if diff := cmp.Diff(map[string]string{"answer": "42"}, run.Step("only").GetOutputs()); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	})
}

func TestLoss_AResultThatCameWhileCutOffCounts(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		w.Drop()
		f.Advance(10 * time.Second)
		d.Succeed()
		f.Advance(10 * time.Second)
		w.Reconnect()
		run.WaitStatus(messages.RunSucceeded)
		d.WaitDone()
	})
}

// The clock of a lease runs from when its worker was lost until the same instance names it: a socket's return alone does
// not stop it, and a worker that flaps cannot stretch it.
func TestLoss_AFlappingWorkerCannotStretchTheGrace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		w.Drop()
		f.Settle()
		for range 5 { // it dials, and is gone before it has enrolled
			f.Advance(10 * time.Second)
			s := f.Socket(testkit.Remote("192.0.2.1:9"))
			s.Close()
		}
		run.WaitEvent(messages.EventStepWorkerLost)
		if sinceStart() != time.Minute {
			t.Errorf("it was lost after %s, want 1m", sinceStart())
		}
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
	})
}

func TestLoss_AWorkerThatComesBackTooLateHasToForgetItsStep(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		late := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := late.NextDispatch().Accept()
		f.Settle()
		late.Drop()
		run.WaitEvent(messages.EventStepWorkerLost)
		w := f.Worker("gpu-2", gpu())
		w.NextDispatch().Accept()
		late.Reconnect()
		f.Settle()
		if !d.Aborted() {
			t.Error("the late worker was told to go on")
		}
		d.Succeed() // whatever it says of it
		f.Settle()
		if got := run.Step("only"); got.GetStatus() != string(messages.StepRunning) || got.GetWorker() != "gpu-2" {
			t.Errorf("the step is %s on %s, want running on gpu-2", got.GetStatus(), got.GetWorker())
		}
		w.Dispatches()[0].Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestLoss_AStuckWorkerDoesNotHoldAStepBeyondItsTimeout(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(oneStep(`labels: {gpu: "true"}, timeout: 100`))
		d := w.NextDispatch().Accept() // and never a word again
		e := run.WaitEvent(messages.EventStepFailed, "code=timeout")
		if want := "timed out after 100s, and worker gpu-1 did not say so"; e.GetError() != want {
			t.Errorf("the error is %q, want %q", e.GetError(), want)
		}
		run.WaitStatus(messages.RunFailed)
		next := f.Submit(single)
		next.WaitEvent(messages.EventStepQueued) // the slot is free when the worker has answered
		if !d.WaitCancel() {
			t.Error("the worker was asked to stop, want to kill")
		}
		d.Cancelled()
		w.NextDispatch().Succeed()
		next.WaitStatus(messages.RunSucceeded)
	})
}

func TestLoss_ADispatchThatIsNotAcceptedIsAskedForAgainAndNeverGivenAway(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		other := f.Worker("gpu-2", gpu())
		run := f.Submit(single)
		d := w.NextDispatch() // no word of it
		f.Advance(10 * time.Minute)
		other.NoDispatch()
		w.NoDispatch() // what came again is the same dispatch
		if n := d.Repeats(); n < 10 {
			t.Errorf("it was asked for %d times more in ten minutes", n)
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

// A lease that asks for its dispatch again crosses the worker's return without it. Were it sent to the worker then, the step
// would run there while it waits, or runs, elsewhere.
func TestLoss_ADispatchThatIsLostIsNotSentToTheNextConnection(t *testing.T) {
	t.Parallel()
	enrollments := 0
	slow := func(p actors.Point) {
		if p.Stage == "decided" && p.Kind == "worker" && p.Command == "enrollWorker" {
			if enrollments++; enrollments == 2 {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		lost := w.NextDispatch() // it is not accepted: the lease asks again after 5 s
		f.Advance(5*time.Second - 50*time.Millisecond)
		w.Drop()
		w.Reconnect(testkit.Forgetting())
		f.Advance(10 * time.Second)
		d := w.NextDispatch()
		if d.ID() == lost.ID() {
			t.Errorf("dispatch %s was lost, and was sent again", d.ID())
		}
		w.NoDispatch()
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	}, testkit.WithHook(slow))
}
