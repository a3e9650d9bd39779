package actors_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestRefusal_AStepComesBackIntoTheQueueAndNeverFailsForIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		refuse func(*testkit.Dispatch)
		why    string
	}{
		{"busy", (*testkit.Dispatch).RefuseBusy, "waiting for a worker matching labels gpu=true: worker gpu-1 refused it: all slots are taken"},
		{"draining", (*testkit.Dispatch).RefuseDraining, "waiting for a worker matching labels gpu=true: worker gpu-1 refused it: the worker drains"},
		{"cannot start", (*testkit.Dispatch).CannotStart, "waiting for a worker matching labels gpu=true: worker gpu-1 refused it: no space left on the worker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				tt.refuse(w.NextDispatch())
				if e := run.WaitEvent(messages.EventStepQueued); e.GetWhy() != tt.why {
					t.Errorf("why is %q, want %q", e.GetWhy(), tt.why)
				}
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if diff := cmp.Diff([]string{"refused", "completed"}, leaseStates(t, f, run, 0)); diff != "" {
					t.Errorf("leases (-want +got):\n%s", diff)
				}
				step := run.Step("only")
				if step.GetAttempts() != 1 || step.GetLosses() != 0 {
					t.Errorf("attempts %d and losses %d, want 1 and 0: a refusal is neither", step.GetAttempts(), step.GetLosses())
				}
			})
		})
	}
}

func TestRefusal_AStepThatWasRefusedKeepsItsPlaceInLine(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		old := f.Submit(single)
		d := w.NextDispatch()
		young := f.Submit(single)
		young.WaitEvent(messages.EventStepQueued)
		d.RefuseBusy()
		old.WaitEvent(messages.EventStepQueued)
		if got := f.Queue(); len(got) != 2 || got[0].GetRunId() != old.ID {
			t.Errorf("the queue is %v, want the refused step first", got)
		}
		w.SayIdle()
		if got := w.NextDispatch(); got.Params.GetRunId() != old.ID {
			t.Errorf("%s is served first, want %s", got.Params.GetRunId(), old.ID)
		} else {
			got.Succeed()
		}
		w.NextDispatch().Succeed()
		young.WaitStatus(messages.RunSucceeded)
	})
}

func TestRefusal_AWorkerThatAlwaysRefusesIsNotAskedAgainAndAgain(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.OnDispatch((*testkit.Dispatch).RefuseBusy))
		run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 0`))
		f.Advance(10 * time.Minute)
		// 1 s, 2, 4, 8, 16, and then every half minute.
		if n := len(w.Dispatches()); n < 10 || n > 30 {
			t.Errorf("it was asked %d times in ten minutes", n)
		}
		if got := run.Step("only").GetStatus(); got != string(messages.StepQueued) {
			t.Errorf("the step is %s, want queued", got)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestRefusal_ARefusalForDrainingIsTheAnnouncement(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(4))
		run := f.Submit(single)
		w.NextDispatch().RefuseDraining()
		run.WaitEvent(messages.EventStepQueued)
		f.Settle()
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerDraining) {
			t.Errorf("the worker is %s, want draining", got)
		}
		f.Advance(30 * time.Second)
		w.NoDispatch()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestRefusal_AWorkerThatCannotStartThreeTimesIsUnhealthyForAWhile(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 0`))
		for range 3 {
			w.NextDispatch().CannotStart()
			f.Settle()
		}
		item := f.WorkerNamed("gpu-1")
		if item.GetStatus() != string(messages.WorkerUnhealthy) || item.GetReason() != "no space left on the worker" {
			t.Errorf("the worker is %s because %q, want unhealthy for want of space", item.GetStatus(), item.GetReason())
		}
		if got, want := f.Queue()[0].GetWhy(), "waiting for a worker matching labels gpu=true: gpu-1 is unhealthy"; got != want {
			t.Errorf("why is %q, want %q", got, want)
		}
		since := sinceStart()
		w.NextDispatch().CannotStart() // on probation it gets one more try
		if got := sinceStart() - since; got < 30*time.Second || got > 35*time.Second {
			t.Errorf("the next try came after %s, want about 30s", got)
		}
		f.Settle()
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerUnhealthy) {
			t.Errorf("after one more it is %s, want unhealthy again", got)
		}
		since = sinceStart()
		w.NextDispatch().Succeed()
		if got := sinceStart() - since; got < time.Minute || got > 70*time.Second {
			t.Errorf("the try after that came after %s, want about a minute", got)
		}
		run.WaitStatus(messages.RunSucceeded)
		f.Settle()
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerIdle) {
			t.Errorf("after a success it is %s, want idle", got)
		}
	})
}
