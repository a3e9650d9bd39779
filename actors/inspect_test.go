package actors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func inspect(t *testing.T, f *testkit.Fleet, pid string) *messages.ActorInspectResult {
	t.Helper()
	got, err := f.Ask(messages.VerbActorInspect, &messages.ActorInspectParams{Pid: pid})
	if err != nil {
		t.Fatalf("inspect %s: %v", pid, err)
	}
	return got.(*messages.ActorInspectResult)
}

// agree inspects every actor that lives, and wants each to believe what the journal has.
func agree(t *testing.T, f *testkit.Fleet, when string) {
	t.Helper()
	for _, item := range f.Actors() {
		got := inspect(t, f, item.GetPid())
		for _, d := range got.GetDifferences() {
			t.Errorf("%s: %s of %s is %v in memory and %v in the journal", when, d.GetField(), item.GetPid(), d.GetMemory(), d.GetJournal())
		}
		if rests := item.GetProcessed() == 0 && item.GetKind() != "root"; got.GetLife() != "answers" && !rests {
			t.Errorf("%s: %s is %s", when, item.GetPid(), got.GetLife())
		}
	}
}

// Whatever a fleet has been through, memory and journal say the same.
func TestActorInspect_WhatAnActorBelievesIsWhatTheJournalHas(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(fan)
		agree(t, f, "submitted")
		w.NextDispatch().Output("one\n").Succeed()
		f.Settle()
		agree(t, f, "one has ended")
		a, b := w.NextDispatch().Accept(), w.NextDispatch().Accept().Output(strings.Repeat("x", 70<<10)+"\n")
		f.Advance(5 * time.Second)
		agree(t, f, "two run, one waits")
		w.Drop()
		f.Advance(5 * time.Second)
		agree(t, f, "the worker is away")
		w.Reconnect()
		f.Settle()
		agree(t, f, "the worker is back")
		mustAsk(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", Note: "n", ForMs: 60_000})
		a.Succeed("k=v")
		b.Fail(messages.CodeExitNonzero, "exit status 1")
		f.Settle()
		agree(t, f, "one has failed")
		run.Cancel()
		run.Wait()
		f.Settle()
		agree(t, f, "it is over")
	})
}

func TestActorInspect_ShowsRecordBeliefsTimersAndMessages(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		w := f.Worker("gpu-1", gpu())
		w.NextDispatch().Accept()
		f.Advance(2 * time.Second)
		w.Drop()
		f.Advance(3 * time.Second)
		got := inspect(t, f, "leases/"+run.ID+".0.1/1")
		golden(t, "inspect/lease.json", shape(t, got, run.ID, "RUN"))
		step := inspect(t, f, "swampd/runs/"+run.ID+"/main/only")
		golden(t, "inspect/step.json", shape(t, step, run.ID, "RUN"))
		if got := inspect(t, f, run.ID); got.GetPid() != "swampd/runs/"+run.ID || len(got.GetChildren()) != 1 || got.GetChildren()[0].GetPid() != step.GetPid() || step.GetParent() != got.GetPid() {
			t.Errorf("run %s has children %v, and the parent of its step is %s", got.GetPid(), got.GetChildren(), step.GetParent())
		}
		w.Reconnect()
		w.Dispatches()[0].Succeed()
		run.Wait()
		f.Settle()
		for _, pid := range []string{"swampd/runs/" + run.ID, run.ID, "runs/" + run.ID + "/main/only", "leases/" + run.ID + ".0.1/1"} {
			got := inspect(t, f, pid)
			if got.GetLife() != "stopped" || got.GetRecord() == nil || len(got.GetEvents()) == 0 || got.GetState() == "" {
				t.Errorf("%s, which has stopped, is %s with record %v and %d events", pid, got.GetLife(), got.GetRecord(), len(got.GetEvents()))
			}
		}
		if got := inspect(t, f, "swampd/fleet/gpu-1"); len(got.GetHistory()) == 0 || got.GetRecord().GetVersion() < 3 {
			t.Errorf("the worker's record is %v, and of its history %d versions are there", got.GetRecord(), len(got.GetHistory()))
		}
		if got := inspect(t, f, "swampd/tokens/gpu-1"); got.GetRecord().GetBody().GetFields()["digest"] != nil {
			t.Error("the digest of a token is shown")
		}
	})
}

func TestActorInspect_AStepThatRestsIsShownFromItsRecord(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(10 * time.Second)
		before := len(f.Actors())
		got := inspect(t, f, "only")
		if got.GetLife() != "rests" || got.GetState() != "queued" || got.GetKind() != "step" || len(got.GetEvents()) != 2 {
			t.Errorf("it is %v", got)
		}
		if after := len(f.Actors()); after != before {
			t.Errorf("%d actors live, before it was looked at there were %d", after, before)
		}
		run.Cancel()
		run.Wait()
	})
}

// An actor that hangs is shown as that, with what it has in hand and what waits for it.
func TestActorInspect_AStuckActorIsShownAsThat(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		first := true
		f := testkit.Start(t, testkit.WithHook(func(p actors.Point) {
			if p.Kind == "worker" && p.Stage == "received" && p.Command == "pauseWorker" && first {
				first = false
				held <- struct{}{}
				<-hold
			}
		}))
		f.Worker("gpu-1", gpu())
		f.Go(func() { _, _ = f.Ask(messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1"}) })
		<-held
		f.Go(func() { _, _ = f.Ask(messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: "gpu-1"}) })
		time.Sleep(500 * time.Millisecond)
		got := inspect(t, f, "fleet/gpu-1")
		if got.GetLife() != "stuck" || got.GetCurrent() != "pauseWorker" || got.GetCurrentMs() < 500 || got.GetMailbox() < 1 || got.GetRecord() == nil || len(got.GetMessages()) == 0 {
			t.Errorf("it is shown as %s with %s in hand for %v ms, %d waiting", got.GetLife(), got.GetCurrent(), got.GetCurrentMs(), got.GetMailbox())
		}
		close(hold)
		f.Settle()
		if got := inspect(t, f, "fleet/gpu-1"); got.GetLife() != "answers" || got.Current != nil {
			t.Errorf("afterwards it is %s", got.GetLife())
		}
	})
}

func TestActorInspect_ShowsTheLastPanicWithItsStack(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu())
		mustAsk(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1"})
		f.Settle()
		got := inspect(t, f, "fleet/gpu-1")
		e := got.GetLastError()
		if got.GetRestarts() != 1 || e.GetCommand() != "pauseWorker" || !strings.Contains(e.GetStack(), "actors.") || e.GetText() == "" {
			t.Errorf("%d restarts, and the last error is %v", got.GetRestarts(), e)
		}
	}, testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "worker", Command: "pauseWorker"}))
}

func TestActorInspect_OfWhatIsNotThereNamesTheNearest(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu())
		for pid, want := range map[string]struct {
			code messages.Code
			text string
		}{
			"fleet/gpu-2": {messages.CodeNotFound, "no actor fleet/gpu-2: the nearest are swampd/fleet/gpu-1"},
			"":            {messages.CodeInvalid, "needs a PID"},
			"runs/x/y/z":  {messages.CodeNotFound, "no actor runs/x/y/z"},
		} {
			_, err := f.Ask(messages.VerbActorInspect, &messages.ActorInspectParams{Pid: pid})
			if codeOf(err) != want.code || !strings.Contains(fmt.Sprint(err), want.text) {
				t.Errorf("%q: %v", pid, err)
			}
		}
	})
}
