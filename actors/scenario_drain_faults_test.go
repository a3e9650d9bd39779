package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// insist puts a client's wish until it is answered, as the command line does while the orchestrator is down.
func insist(f *testkit.Fleet, verb messages.Verb, params proto.Message) *messages.WorkerItem {
	for {
		got, err := f.Do(context.Background(), verb, params, nil)
		switch {
		case err == nil:
			return got.(*messages.WorkerItem)
		case codeOf(err).Permanent() && codeOf(err) != messages.CodeInternal: // else its journal has gone with it
			f.T().Fatalf("%s: %v", verb, err)
		}
		time.Sleep(100 * time.Millisecond) // of virtual time
	}
}

// drainStories are told by the tests below with a fault at every point that they pass.
func drainStories() []story {
	hour := []testkit.Option{testkit.WithQueueTimeout(time.Hour)}
	wanted := func(f *testkit.Fleet, verb messages.Verb, params proto.Message) (answered func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			insist(f, verb, params)
		}()
		return func() { <-done }
	}
	return []story{
		{name: "a busy worker drains by itself and another one goes on", options: hour, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			w := f.Worker("gpu-1", gpu())
			d := w.NextDispatch().Accept()
			w.SayDraining("signal")
			d.Succeed()
			d.Deliver()
			run.WaitEvent(messages.EventStepQueued, "step=second")
			w.Drop()
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a busy worker is drained from here and another one goes on", options: hour, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			w := f.Worker("gpu-1", gpu(), testkit.Obedient())
			d := w.NextDispatch().Accept()
			insist(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1"})
			f.Settle()
			gone := wanted(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1", Wait: true})
			d.Succeed()
			d.Deliver()
			run.WaitEvent(messages.EventStepQueued, "step=second")
			w.Drop()
			gone()
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a drain is taken back", options: hour, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			w := f.Worker("gpu-1", gpu(), testkit.Obedient())
			d := w.NextDispatch().Accept()
			insist(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1"})
			f.Settle()
			insist(f, messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: "gpu-1"})
			d.Succeed()
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a pause around a running step", options: hour, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			w := f.Worker("gpu-1", gpu())
			d := w.NextDispatch().Accept()
			insist(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", Note: "driver"})
			d.Succeed()
			d.Deliver()
			run.WaitEvent(messages.EventStepQueued, "step=second")
			f.Advance(10 * time.Second)
			w.NoDispatch()
			insist(f, messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: "gpu-1"})
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a pause ends by itself", options: hour, tell: func(f *testkit.Fleet) {
			f.Worker("gpu-1", gpu(), testkit.AutoRun())
			f.Settle()
			insist(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", ForMs: 60_000})
			run := f.Submit(single)
			run.WaitStatus(messages.RunSucceeded)
			if got := sinceStart(); got < time.Minute {
				f.T().Errorf("it ran after %s, in the middle of the pause", got)
			}
		}},
		{name: "a drain hands a step back", options: hour, tell: func(f *testkit.Fleet) {
			run := f.Submit(single)
			w := f.Worker("gpu-1", gpu())
			d := w.NextDispatch().Accept()
			w.SayDraining("signal")
			d.Result(&messages.DispatchResult{Status: "handed_back", Code: string(messages.CodeWorkerDraining), Error: "drained"})
			d.Deliver()
			w.Drop()
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
			if got := run.Step("only"); got.GetLosses() != 0 {
				f.T().Errorf("it counts as a loss: %v", got)
			}
		}},
	}
}

func TestPanics_AtEveryPointOfEveryDrain(t *testing.T) {
	t.Parallel()
	for _, s := range drainStories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			panicEverywhere(t, s)
		})
	}
}

// The orchestrator dies right after each commit of a drain, before anybody is told, and comes back. Whoever has asked for
// something asks again, and the workers come back by themselves.
func TestCrash_AfterEveryCommitOfADrain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		least int
		tell  func(f *testkit.Fleet, token string)
	}{
		{"a worker is drained from here", 8, func(f *testkit.Fleet, token string) {
			run := f.Submit(chain)
			begun := make(chan *testkit.Dispatch, 10)
			w := f.Worker("gpu-1", gpu(), testkit.WithToken(token), testkit.Obedient(), testkit.OnDispatch(func(d *testkit.Dispatch) {
				d.Accept()
				begun <- d
			}))
			d := <-begun
			insist(f, messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: "gpu-1"})
			d.Succeed()
			d.Deliver()
			w.Drop()
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
		}},
		{"a worker is paused and goes on", 8, func(f *testkit.Fleet, token string) {
			f.Worker("gpu-1", gpu(), testkit.WithToken(token), testkit.AutoRun())
			f.Settle()
			insist(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", Note: "driver"})
			run := f.Submit(chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			f.Advance(10 * time.Second)
			if n := f.Executions(run, "first"); n != 0 {
				f.T().Error("a step ran on a paused worker")
			}
			insist(f, messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: "gpu-1"})
			run.WaitStatus(messages.RunSucceeded)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, over := 0, false
			for !over && n < 60 {
				n++
				t.Run(fmt.Sprintf("commit %d", n), func(t *testing.T) {
					testkit.Bubble(t, func(t *testing.T) {
						f := testkit.Start(t, testkit.WithEveryCommit(), testkit.WithQueueTimeout(time.Hour))
						token := f.Token("gpu-1")
						f.Settle()
						f.CrashAtBatch(n, 3*time.Second)
						tt.tell(f, token)
						f.Settle()
						over = f.Journal().Epoch() == 1 // it was told to its end before that many
					})
				})
			}
			if n <= tt.least {
				t.Errorf("only %d commits were followed by a crash", n-1)
			}
		})
	}
}

// What a worker says has no bound of its own. None of it may be so large that the journal never takes what it is to end.
func TestWorker_WhatItSaysIsNeverTooLargeForTheBooks(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 400_000)
	tests := []struct {
		name string
		says func(d *testkit.Dispatch)
		code messages.Code // of the step; empty: it waits again
	}{
		{"an error", func(d *testkit.Dispatch) { d.Fail(messages.CodeExitNonzero, long) }, messages.CodeExitNonzero},
		{"outputs", func(d *testkit.Dispatch) {
			var outputs []string
			for i := range 21 {
				outputs = append(outputs, fmt.Sprintf("k%d=%s", i, long[:50_000]))
			}
			d.Succeed(outputs...)
		}, messages.CodeOutputTooLarge},
		{"a refusal", func(d *testkit.Dispatch) { d.Refuse(messages.CodeWorkerDraining, long) }, ""},
		{"why it was killed", func(d *testkit.Dispatch) {
			d.Result(&messages.DispatchResult{Status: "handed_back", Code: long[:1000], Error: long})
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				tt.says(d)
				d.WaitDone()
				if tt.code == "" {
					run.WaitEvent(messages.EventStepQueued)
					return
				}
				run.WaitStatus(messages.RunFailed)
				if got := run.Step("only"); got.GetCode() != string(tt.code) || len(got.GetError()) > 70_000 {
					t.Errorf("the step failed of %s: %.100s", got.GetCode(), got.GetError())
				}
			})
		})
	}
	t.Run("as many outputs as are kept", func(t *testing.T) {
		t.Parallel()
		scenario(t, func(t *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			run := f.Submit(single)
			d := w.NextDispatch().Output(long[:60_000])
			d.Succeed("a="+long[:60_000], "b="+long[:60_000], "c="+long[:60_000], "d="+long[:40_000])
			run.WaitStatus(messages.RunSucceeded)
			if got := run.Step("only").GetOutputs(); len(got) != 4 || len(got["a"]) != 60_000 {
				t.Errorf("%d outputs are kept", len(got))
			}
		})
	})
	t.Run("why it drains", func(t *testing.T) {
		t.Parallel()
		scenario(t, func(t *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			w.SayDraining(long)
			if got := statusIs(t, f, "gpu-1", messages.WorkerDraining); len(got.GetReason()) > 300 {
				t.Errorf("its reason has %d bytes", len(got.GetReason()))
			}
		})
	})
}
