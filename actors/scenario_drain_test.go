package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// wish puts a client's wish to the orchestrator.
func wish(f *testkit.Fleet, verb messages.Verb, params proto.Message) (*messages.WorkerItem, error) {
	got, err := f.Do(context.Background(), verb, params, nil)
	if err != nil {
		return nil, err
	}
	return got.(*messages.WorkerItem), nil
}

func drain(f *testkit.Fleet, name string) (*messages.WorkerItem, error) {
	return wish(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: name})
}

func resume(f *testkit.Fleet, name string) (*messages.WorkerItem, error) {
	return wish(f, messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: name})
}

// later does something beside the test, and returns what came of it when asked.
func later(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// statusIs wants a worker to have a status.
func statusIs(t *testing.T, f *testkit.Fleet, name string, want messages.WorkerStatus) *messages.WorkerDetail {
	t.Helper()
	f.Settle()
	w := f.WorkerNamed(name)
	if w.GetStatus() != string(want) {
		t.Errorf("worker %s is %s (%s), want %s", name, w.GetStatus(), w.GetReason(), want)
	}
	return w
}

func TestDrain_OfABusyWorkerFromHere(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(chain)
		d := w.NextDispatch().Accept()
		f.Advance(time.Minute)
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.Obey()
		f.Advance(time.Minute)
		got := statusIs(t, f, "gpu-1", messages.WorkerDraining)
		if since := time.Since(messages.GoTime(got.GetIntentSince())); since < time.Minute || since > 61*time.Second {
			t.Errorf("it drains for %s, want a minute", since)
		}
		if r := got.GetRunning(); len(r) != 1 || r[0].GetStepName() != "first" || r[0].GetRunId() != run.ID || r[0].GetDispatchId() != d.ID() {
			t.Errorf("it runs %v", r)
		}
		gone := later(func() error {
			_, err := wish(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1", Wait: true})
			return err
		})
		d.Succeed()
		d.WaitDone()
		w.NoDispatch() // the next step waits, although there is room
		w.Drop()
		if err := gone(); err != nil {
			t.Errorf("waiting for its end: %v", err)
		}
		got = statusIs(t, f, "gpu-1", messages.WorkerDisconnected)
		if r := got.GetRecent(); len(r) != 1 || r[0].GetStepName() != "first" || r[0].GetStatus() != "succeeded" || r[0].GetEndedAt() == nil {
			t.Errorf("it ran %v", r)
		}
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Errorf("draining it once more: %v", err)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		if n := f.Metrics().Drains; n["drained"] != 1 || len(n) != 1 {
			t.Errorf("drains are counted as %v", n)
		}
	})
}

func TestDrain_IsToldAgainUntilTheWorkerHasHeardOfIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.NextOrder() // it does not hear
		f.Advance(1500 * time.Millisecond)
		w.NextOrder()
		w.Drop()
		w.Reconnect()
		if action := w.Obey(); action != "drain" {
			t.Errorf("the same instance was told to %s when it came back", action)
		}
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
		w.Drop()
		w.Reconnect()
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
	})
}

func TestDrain_EndsWithTheInstance(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		w := f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.Obey()
		w.Drop()
		statusIs(t, f, "gpu-1", messages.WorkerDisconnected)
		f.Worker("gpu-1", testkit.WithToken(token), testkit.Machine("m"), gpu())
		if got := statusIs(t, f, "gpu-1", messages.WorkerIdle); got.GetIntentSince() != nil || got.GetReason() != "" {
			t.Errorf("the next instance has %v", got)
		}
	})
}

func TestDrain_OfWhatCannotBeDrained(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		for _, name := range []string{"gpu-1", "gpu-2", "cpu-9"} {
			f.Worker(name).Drop()
		}
		f.Loopback()
		f.Settle()
		actors := len(f.Actors())
		tests := []struct {
			name string
			code messages.Code
			says string
		}{
			{"gpu-1", messages.CodeConflict, "worker gpu-1 is not connected: there is nothing to drain"},
			{"gpu-3", messages.CodeNotFound, "no worker gpu-3: the nearest are gpu-1, gpu-2, cpu-9"},
			{"loopback", messages.CodeConflict, "--loopback off"},
			{"", messages.CodeInvalid, "a worker's name is needed"},
			{strings.Repeat("x", 200), messages.CodeInvalid, "a worker's name is needed"},
		}
		for _, tt := range tests {
			_, err := drain(f, tt.name)
			if codeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("draining %.20q: %v (%s)", tt.name, err, codeOf(err))
			}
		}
		for _, verb := range []messages.Verb{messages.VerbWorkerPause, messages.VerbWorkerResume, messages.VerbWorkerShow} {
			params := map[messages.Verb]proto.Message{
				messages.VerbWorkerPause: &messages.WorkerPauseParams{Name: "gpu-3"}, messages.VerbWorkerResume: &messages.WorkerResumeParams{Name: "gpu-3"},
				messages.VerbWorkerShow: &messages.WorkerShowParams{Name: "gpu-3"},
			}[verb]
			_, err := f.Do(context.Background(), verb, params, nil)
			if codeOf(err) != messages.CodeNotFound || !strings.Contains(err.Error(), "the nearest are gpu-1, gpu-2, cpu-9") {
				t.Errorf("%s of nobody: %v", verb, err)
			}
		}
		if got := len(f.Actors()); got != actors {
			t.Errorf("names that nobody has got %d actors", got-actors)
		}
	}, testkit.WithLoopback(1))
}

func TestDrain_IsTakenBackWhileItRunsSomething(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(pair)
		left, right := w.NextDispatch().Accept(), w.NextDispatch().Accept()
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.Obey()
		gone := later(func() error {
			_, err := wish(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1", Wait: true})
			return err
		})
		left.Succeed()
		next := f.Submit(single)
		w.NoDispatch()
		kept := later(func() error { _, err := resume(f, "gpu-1"); return err })
		if action := w.Obey(); action != "resume" {
			t.Errorf("it was told to %s", action)
		}
		if err := kept(); err != nil {
			t.Errorf("taking it back: %v", err)
		}
		if err := gone(); codeOf(err) != messages.CodeConflict {
			t.Errorf("whoever waited for its end got %v", err)
		}
		w.NextDispatch().Succeed()
		right.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		next.WaitStatus(messages.RunSucceeded)
	})
}

func TestDrain_IsNotTakenBackFromAWorkerThatLeaves(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		own := f.Worker("own", gpu())
		own.SayDraining("max_uptime")
		if _, err := resume(f, "own"); codeOf(err) != messages.CodeConflict || !strings.Contains(err.Error(), "max_uptime") {
			t.Errorf("a drain of its own was taken back: %v", err)
		}
		w := f.Worker("gpu-1", gpu())
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.Obey()
		kept := later(func() error { _, err := resume(f, "gpu-1"); return err })
		w.Obey(true)
		if err := kept(); codeOf(err) != messages.CodeConflict {
			t.Errorf("it says that it leaves, and the answer is %v", err)
		}
		kept = later(func() error { _, err := resume(f, "gpu-1"); return err })
		w.NextOrder()
		w.Drop()
		if err := kept(); codeOf(err) != messages.CodeConflict {
			t.Errorf("it has left, and the answer is %v", err)
		}
		statusIs(t, f, "gpu-1", messages.WorkerDisconnected)
	})
}

// The worker hears of both orders only after it is back.
func TestDrain_IsTakenBackWhileTheWorkerIsAway(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.Obey()
		w.Drop()
		f.Settle()
		if _, err := resume(f, "gpu-1"); err != nil {
			t.Errorf("taking it back: %v", err)
		}
		w.Reconnect()
		if action := w.Obey(); action != "resume" {
			t.Errorf("it was told to %s", action)
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		statusIs(t, f, "gpu-1", messages.WorkerIdle)
		run = f.Submit(single)
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

// An order that crosses the worker's report leaves both sides of one mind, whatever was on its way.
func TestDrain_OrdersCrossReports(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		if _, err := drain(f, "gpu-1"); err != nil {
			t.Fatal(err)
		}
		w.SayIdle() // from before the order
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
		kept := later(func() error { _, err := resume(f, "gpu-1"); return err })
		f.Settle()
		w.Obey() // drain
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
		w.Obey() // resume
		if err := kept(); err != nil {
			t.Errorf("taking it back: %v", err)
		}
		statusIs(t, f, "gpu-1", messages.WorkerIdle)
	})
}

// A draining worker's close is deliberate: nothing waits for it.
func TestDrain_TheCloseThatFollowsStartsNoGrace(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		w.SayDraining("signal")
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
		waiting := f.Submit(single)
		w.Drop()
		f.Settle()
		if got, want := f.Queue()[0].GetWhy(), "waiting for a worker matching labels gpu=true: no worker is connected"; got != want {
			t.Errorf("at once it waits because %q, want %q", got, want)
		}
		f.Advance(5 * time.Minute)
		if n := run.Kinds("kind=" + messages.EventStepWorkerLost); len(n) > 0 {
			t.Error("somebody missed it")
		}
		for _, a := range f.Actors() {
			if strings.HasSuffix(a.GetPid(), "/gpu-1") && a.GetKind() == "worker" {
				t.Errorf("its actor is still there: %v", a)
			}
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		waiting.WaitStatus(messages.RunSucceeded)
	}, testkit.WithQueueTimeout(time.Hour))
}

// A lease that a draining worker still had keeps its grace: it may come back with the result.
func TestDrain_WhatItStillHadKeepsItsGrace(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{true, false} {
		scenario(t, func(t *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-2", gpu())
			run := f.Submit(single)
			d := w.NextDispatch().Accept()
			w.SayDraining("signal")
			w.Drop()
			f.Advance(30 * time.Second)
			if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
				t.Errorf("after half of the grace the step is %s", got)
			}
			if back {
				d.Succeed()
				w.Reconnect()
				run.WaitStatus(messages.RunSucceeded)
				if got := run.Step("only"); got.GetLosses() != 0 {
					t.Errorf("it has %d losses", got.GetLosses())
				}
				return
			}
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-2")
			if got := sinceStart(); got < 60*time.Second || got > 62*time.Second {
				t.Errorf("it was lost after %s, want the grace", got)
			}
			f.Worker("gpu-3", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
		}, testkit.WithQueueTimeout(time.Hour))
	}
}

// A step that a draining worker was still sent is never lost and never failed for it.
func TestDrain_ADispatchThatCrossesItComesBack(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		run := f.Submit(pair)
		left, right := w.NextDispatch(), w.NextDispatch()
		w.SayDraining("signal")
		left.RefuseDraining()
		right.Accept()
		f.Settle()
		if got := waitingSteps(f); got != left.Step() {
			t.Errorf("in line: %q", got)
		}
		right.Succeed()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		for _, step := range []string{"left", "right"} {
			if got := run.Step(step); got.GetLosses() != 0 {
				t.Errorf("%s has %d losses", step, got.GetLosses())
			}
		}
	})
}

// A choice that is committed just before the worker says that it drains is not sent any more: nobody might read it.
func TestDrain_AChoiceThatCrossesItIsNoLoss(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		t.Run(fmt.Sprintf("left:%v", left), func(t *testing.T) {
			t.Parallel()
			committed, goOn := make(chan struct{}), make(chan struct{})
			hook := testkit.WithHook(func(p actors.Point) {
				if p.Stage == "committed" && p.Kind == "step" && p.Command == "assignStep" {
					select {
					case <-committed:
					default:
						close(committed)
						<-goOn
					}
				}
			})
			testkit.Bubble(t, func(t *testing.T) {
				committed, goOn = make(chan struct{}), make(chan struct{})
				f := testkit.Start(t, testkit.WithEveryCommit(), testkit.WithQueueTimeout(time.Hour), hook)
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				w := f.Worker("gpu-1", gpu())
				<-committed
				w.SayDraining("signal")
				if left {
					w.Drop()
					f.Settle()
				}
				close(goOn)
				e := run.WaitEvent(messages.EventStepQueued, "why=waiting for a worker matching labels gpu=true: worker gpu-1 refused it: the worker is draining")
				if e == nil {
					t.Error("it does not wait again")
				}
				w.NoDispatch()
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if got := run.Step("only"); got.GetLosses() != 0 {
					t.Errorf("it counts as a loss: %v", got)
				}
				if got := f.WorkerNamed("gpu-1").GetRecent(); len(got) != 0 {
					t.Errorf("the worker ran %v", got)
				}
			})
		})
	}
}

func TestDrain_WhatItsBoundEndedIsRecordedAsThat(t *testing.T) {
	t.Parallel()
	handedBack := &messages.DispatchResult{Status: "handed_back", Code: string(messages.CodeWorkerDraining), Error: "worker gpu-1 drained before the step had ended"}
	cancelled := &messages.DispatchResult{Status: "cancelled", Code: string(messages.CodeCancelled), Error: "worker gpu-1 drained before the step had ended"}
	tests := []struct {
		name     string
		settings string
		result   *messages.DispatchResult
		status   messages.RunStatus // empty: it waits again
		says     string
	}{
		{"handed back", "", handedBack, "", "worker gpu-1 drained and gave it back"},
		{"handed back against its will", ", onWorkerLost: fail", handedBack, messages.RunFailed, "worker gpu-1 drained before the step had ended, and onWorkerLost is fail"},
		{"cancelled", "", cancelled, messages.RunFailed, "worker gpu-1 drained before the step had ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(oneStep(`labels: {gpu: "true"}` + tt.settings))
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				d.Result(proto.CloneOf(tt.result))
				d.WaitDone()
				if tt.status == "" {
					e := run.WaitEvent(messages.EventStepQueued)
					if !strings.HasSuffix(e.GetWhy(), tt.says) {
						t.Errorf("it waits because %q", e.GetWhy())
					}
					if got := f.WorkerNamed("gpu-1").GetRecent(); len(got) != 1 || got[0].GetStatus() != "handed_back" {
						t.Errorf("the worker ran %v", got)
					}
					w.Drop()
					f.Worker("gpu-2", gpu(), testkit.AutoRun())
					run.WaitStatus(messages.RunSucceeded)
					if got := run.Step("only"); got.GetLosses() != 0 || got.GetAttempts() != 1 {
						t.Errorf("the step is %v", got)
					}
					return
				}
				run.WaitStatus(tt.status)
				e := run.WaitEvent(messages.EventStepCancelled)
				if e.GetError() != tt.says || e.GetCode() != string(messages.CodeCancelled) {
					t.Errorf("the step was cancelled because %q (%s)", e.GetError(), e.GetCode())
				}
				if got := run.Step("only"); got.GetStatus() != string(messages.StepCancelled) || got.GetError() != tt.says {
					t.Errorf("the step is %s because %q", got.GetStatus(), got.GetError())
				}
				if e := run.WaitEvent(messages.EventRunFailed); e.GetError() != "step only of job main was cancelled: "+tt.says {
					t.Errorf("the run failed because %q", e.GetError())
				}
			})
		})
	}
}

func TestDrain_ASuccessThatCameBeforeTheBoundCounts(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		w.SayDraining("signal")
		w.Drop()
		f.Advance(10 * time.Second)
		d.Succeed()
		w.Reconnect()
		run.WaitStatus(messages.RunSucceeded)
		statusIs(t, f, "gpu-1", messages.WorkerDraining)
	})
}

func TestWorkerShow_WhatItRanSurvivesARestart(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		token := f.Token("gpu-1")
		w := f.Worker("gpu-1", testkit.WithToken(token), gpu())
		var runs []string
		for i := range 12 {
			run := f.Submit(single)
			runs = append(runs, run.ID)
			d := w.NextDispatch()
			switch i {
			case 3:
				d.RefuseBusy() // that is not something it ran
				f.Advance(2 * time.Second)
				w.NextDispatch().Succeed()
			case 11:
				d.Fail(messages.CodeExitNonzero, strings.Repeat("no ", 1000))
			default:
				d.Succeed()
			}
			d.WaitDone()
			f.Advance(time.Second)
		}
		check := func(when string) {
			t.Helper()
			f.Settle()
			got := f.WorkerNamed("gpu-1").GetRecent()
			if len(got) != 10 {
				t.Fatalf("%s: it ran %d, want the last 10", when, len(got))
			}
			for i, d := range got {
				if d.GetRunId() != runs[11-i] || d.GetStepName() != "only" || d.GetEndedAt() == nil || d.GetStartedAt() == nil {
					t.Errorf("%s: number %d is %v", when, i, d)
				}
			}
			if d := got[0]; d.GetStatus() != "failed" || d.GetCode() != "exit_nonzero" || len(d.GetError()) > 300 {
				t.Errorf("%s: the last one is %v", when, d)
			}
		}
		check("at once")
		f.Crash()
		f.Restart()
		check("after a restart")
	})
}
