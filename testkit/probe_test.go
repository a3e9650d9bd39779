package testkit_test

import (
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestProbe_SaysThatItGotThere(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var assigned testkit.Probe[string]
		f := testkit.Start(t, testkit.WithHook(func(p actors.Point) {
			if p.Stage == "committed" && p.Command == "assignStep" {
				assigned.Signal(p.ID)
			}
		}))
		run := f.Submit(oneStep)
		run.WaitEvent(messages.EventStepQueued)
		f.Worker("gpu-1", testkit.Labels{"gpu": "true"}, testkit.AutoRun())
		if got, want := assigned.Wait(t, time.Minute), run.ID+"/main/hello"; got != want {
			t.Errorf("the signal is %q, want %q", got, want)
		}
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestCrash_AndRestartKeepWhatWasCommitted(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		w := f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
		f.Settle()
		f.Crash()
		if w.Connected() || f.System() != nil {
			t.Error("something lives on")
		}
		if fault := w.WaitClosed(); fault.Code != messages.CodeUnavailable || len(w.Goodbyes()) != 0 {
			t.Errorf("the worker was told %v and %v: the dead say nothing", fault, w.Goodbyes())
		}
		f.Restart()
		w.Reconnect()
		run := f.Submit(oneStep)
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}
