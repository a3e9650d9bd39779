package actors_test

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// Each of these is a change of the pool that a waiting step must notice at once: in virtual time, no time passes.

func TestWake_AtAnEnrollment(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(45 * time.Second)
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 45*time.Second {
			t.Errorf("it ended after %s, want 45s", sinceStart())
		}
	})
}

func TestWake_WhenAWorkerComesBackWithinItsGrace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Settle()
		w.Drop()
		f.Settle()
		run := f.Submit(single)
		e := run.WaitEvent(messages.EventStepQueued)
		if want := "waiting for a worker matching labels gpu=true: gpu-1 is disconnected"; e.GetWhy() != want {
			t.Errorf("why is %q, want %q", e.GetWhy(), want)
		}
		f.Advance(20 * time.Second)
		w.Reconnect()
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 20*time.Second {
			t.Errorf("it ended after %s, want 20s", sinceStart())
		}
	})
}

func TestWake_AtAFreedSlot(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.Takes(7*time.Second))
		first, second := f.Submit(single), f.Submit(single)
		second.WaitEvent(messages.EventStepQueued)
		first.WaitStatus(messages.RunSucceeded)
		second.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 14*time.Second {
			t.Errorf("both took %s, want 14s", sinceStart())
		}
	})
}

func TestWake_WhenADependencyHasFinished(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.Takes(3*time.Second))
		run := f.Submit(chain)
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 6*time.Second {
			t.Errorf("two steps of 3s on one slot took %s, want 6s", sinceStart())
		}
	})
}

func TestWake_WhenTheGraceOfALostWorkerIsOver(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		lost := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		lost.NextDispatch().Accept()
		f.Settle()
		lost.Drop()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		f.Advance(30*time.Second - time.Millisecond)
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("within the grace the step is %s, want running", got)
		}
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 30*time.Second {
			t.Errorf("it ended after %s, want with the grace of 30s", sinceStart())
		}
	}, testkit.WithGrace(30*time.Second))
}

func TestWake_WhenARefusingWorkerSaysThatItHasRoom(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().RefuseBusy()
		run.WaitEvent(messages.EventStepQueued)
		w.NoDispatch()
		w.SayIdle()
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() != 0 {
			t.Errorf("it took %s, want no time", sinceStart())
		}
	})
}

func TestWake_WhenAnOlderStepIsCancelled(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		first := f.Submit(single)
		d := w.NextDispatch().Accept()
		second := f.Submit(single)
		second.WaitEvent(messages.EventStepQueued)
		first.Cancel()
		d.WaitCancel()
		w.NoDispatch() // the slot is free when the worker has answered, not when it was asked
		d.Cancelled()
		w.NextDispatch().Succeed()
		first.WaitStatus(messages.RunCancelled)
		second.WaitStatus(messages.RunSucceeded)
	})
}
