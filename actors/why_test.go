package actors_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// why asks for an explanation.
func why(t *testing.T, f *testkit.Fleet, subject string) *messages.WhyResult {
	t.Helper()
	got, err := f.Ask(messages.VerbWhy, &messages.WhyParams{Subject: subject})
	if err != nil {
		t.Fatalf("why %s: %v", subject, err)
	}
	return got.(*messages.WhyResult)
}

const twoJobs = `
name: deploy
jobs:
  - name: build
    labels: {gpu: "true"}
    steps:
      - {name: compile, run: work}
      - {name: link, run: work, dependsOn: [compile]}
  - name: ship
    dependsOn: [build]
    steps:
      - {name: push, run: work, target: edge-1}
`

// Each situation is told by a file: the paragraph, and the parts of it that scripts get.
func TestWhy_TellsWhatKeepsAStepARunOrAWorker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options []testkit.Option
		make    func(f *testkit.Fleet) *testkit.Run
		ask     []string // RUN stands for the run's id
	}{
		{
			name: "nobody is connected",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(12 * time.Second)
				return run
			},
			ask: []string{"RUN", "RUN/only", "RUN/main/only"},
		},
		{
			name: "nobody matches",
			make: func(f *testkit.Fleet) *testkit.Run {
				f.Worker("cpu-1", testkit.Labels{"zone": "eu"})
				f.Worker("old-1", testkit.Labels{"gpu": "false"}, testkit.Capacity(2))
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(12 * time.Second)
				return run
			},
			ask: []string{"RUN/only", "cpu-1", "old-1"},
		},
		{
			name: "all that match are busy and others are ahead",
			make: func(f *testkit.Fleet) *testkit.Run {
				w := f.Worker("gpu-1", gpu())
				f.Submit(single)
				w.NextDispatch().Accept()
				first := f.Submit(single)
				first.WaitEvent(messages.EventStepQueued)
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(3 * time.Second)
				return run
			},
			ask: []string{"RUN/only", "gpu-1"},
		},
		{
			name: "who matches is paused",
			make: func(f *testkit.Fleet) *testkit.Run {
				f.Worker("gpu-1", gpu())
				mustAsk(f, messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", Note: "new driver", ForMs: 600_000})
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(3 * time.Second)
				return run
			},
			ask: []string{"RUN/only", "gpu-1"},
		},
		{
			name: "who matches drains",
			make: func(f *testkit.Fleet) *testkit.Run {
				w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
				f.Submit(single)
				w.NextDispatch().Accept()
				w.SayDraining("signal")
				f.Settle()
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(3 * time.Second)
				return run
			},
			ask: []string{"RUN/only", "gpu-1"},
		},
		{
			name: "the target is not there",
			make: func(f *testkit.Fleet) *testkit.Run {
				f.Worker("edge-2")
				run := f.Submit(oneStep("target: edge-1, queueTimeout: 0"))
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(90 * time.Minute)
				return run
			},
			ask: []string{"RUN/only", "edge-2"},
		},
		{
			name: "what it needs has not succeeded",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(twoJobs)
				f.Worker("gpu-1", gpu()).NextDispatch().Accept()
				f.Advance(75 * time.Second)
				return run
			},
			ask: []string{"RUN", "RUN/compile", "RUN/link", "RUN/ship/push", "gpu-1"},
		},
		{
			name: "a worker has it and is disconnected",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				w := f.Worker("gpu-1", gpu())
				w.NextDispatch().Accept()
				f.Advance(5 * time.Second)
				w.Drop()
				f.Advance(20 * time.Second)
				return run
			},
			ask: []string{"RUN/only", "gpu-1"},
		},
		{
			name: "a worker was sent it and says nothing",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				f.Worker("gpu-1", gpu()).NextDispatch()
				f.Advance(5 * time.Second)
				return run
			},
			ask: []string{"RUN/only"},
		},
		{
			name: "it was cancelled and its worker does not end it",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(pair)
				f.Worker("gpu-1", gpu()).NextDispatch().Accept()
				run.Cancel()
				f.Advance(5 * time.Second)
				return run
			},
			ask: []string{"RUN", "RUN/left", "RUN/right"},
		},
		{
			name: "it was killed and its worker does not say so",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(pair)
				f.Worker("gpu-1", gpu()).NextDispatch().Accept()
				mustAsk(f, messages.VerbRunCancel, &messages.RunCancelParams{RunId: run.ID, Step: "left", Force: true, By: "kim"})
				f.Advance(5 * time.Second)
				return run
			},
			ask: []string{"RUN/left", "gpu-1"},
		},
		{
			name:    "the orchestrator has restarted",
			options: []testkit.Option{testkit.WithGrace(time.Minute)},
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				w := f.Worker("gpu-1", gpu())
				w.NextDispatch().Accept()
				f.Advance(5 * time.Second)
				f.Crash()
				f.Restart()
				f.Advance(7 * time.Second)
				return run
			},
			ask: []string{"RUN", "RUN/only", "gpu-1"},
		},
		{
			name: "it has failed and the rest was skipped",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(chain)
				w := f.Worker("gpu-1", gpu())
				d := w.NextDispatch().Accept()
				f.Advance(5 * time.Second)
				d.Fail(messages.CodeExitNonzero, "exit status 7")
				run.Wait()
				f.Advance(time.Hour)
				return run
			},
			ask: []string{"RUN", "RUN/first", "RUN/second", "gpu-1"},
		},
		{
			name: "nobody came in time",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				run.Wait()
				f.Advance(time.Minute)
				return run
			},
			ask: []string{"RUN", "RUN/only"},
		},
		{
			name: "it has succeeded at the second worker",
			make: func(f *testkit.Fleet) *testkit.Run {
				run := f.Submit(single)
				f.Worker("gpu-1", gpu()).NextDispatch().RefuseBusy()
				f.Worker("gpu-2", gpu()).NextDispatch().Succeed()
				run.Wait()
				f.Advance(30 * time.Hour)
				return run
			},
			ask: []string{"RUN", "RUN/only"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				run := tt.make(f)
				var b strings.Builder
				for _, subject := range tt.ask {
					got := why(t, f, strings.Replace(subject, "RUN", run.ID, 1))
					b.WriteString("# why " + subject + "\n" + strings.ReplaceAll(got.GetText(), run.ID, "RUN") + "\n" + shape(t, got, run.ID, "RUN") + "\n")
				}
				f.Advance(10 * time.Minute) // a test does not end amid an adoption
				golden(t, "why/"+strings.ReplaceAll(tt.name, " ", "_")+".txt", b.String())
			}, tt.options...)
		})
	}
}

// mustAsk asks for what cannot fail here.
func mustAsk(f *testkit.Fleet, verb messages.Verb, params proto.Message) {
	if _, err := f.Ask(verb, params); err != nil {
		panic(err)
	}
}

func TestWhy_SaysThatTheSchedulerIsStuck(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		var armed atomic.Bool
		f := testkit.Start(t, testkit.WithHook(func(p actors.Point) {
			if p.Kind == "scheduler" && p.Stage == "received" && armed.CompareAndSwap(true, false) {
				held <- struct{}{}
				<-hold
			}
		}))
		f.Worker("gpu-1")
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepQueued)
		f.Settle()
		armed.Store(true)
		f.Go(func() { _, _ = f.Ask(messages.VerbWorkerQueueList, &messages.WorkerQueueListParams{}) })
		<-held
		for _, subject := range []string{run.ID + "/only", "gpu-1"} {
			if got := why(t, f, subject).GetText(); !strings.Contains(strings.ToLower(got), "the scheduler does not answer") {
				t.Errorf("why %s: %s", subject, got)
			}
		}
		if got := inspect(t, f, "scheduler"); got.GetLife() != "stuck" || got.GetCurrent() != "askWhy" || got.GetMailbox() < 2 {
			t.Errorf("the scheduler is %s with %s in hand and %d waiting", got.GetLife(), got.GetCurrent(), got.GetMailbox())
		}
		close(hold)
		run.Cancel()
		run.Wait()
	})
}

func TestWhy_SaysThatALeaseIsStuck(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		var armed atomic.Bool
		f := testkit.Start(t, testkit.WithHook(func(p actors.Point) {
			if p.Kind == "lease" && p.Command == "leaseSocketLost" && armed.CompareAndSwap(true, false) {
				held <- struct{}{}
				<-hold
			}
		}))
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		f.Settle()
		armed.Store(true)
		w.Drop()
		<-held
		for subject, want := range map[string]string{run.ID + "/only": "The actor of its lease does not answer", "gpu-1": "is disconnected"} {
			if got := why(t, f, subject).GetText(); !strings.Contains(got, want) || strings.Contains(got, "not accepted") {
				t.Errorf("why %s: %s", subject, got)
			}
		}
		close(hold)
		w.Reconnect()
		w.Dispatches()[0].Succeed()
		run.Wait()
	})
}

func TestWhy_OfWhatIsNotThereNamesTheNearest(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run := f.Submit(twoJobs)
		run.WaitEvent(messages.EventStepQueued, "step=push")
		tests := []struct {
			subject, want string
			code          messages.Code
		}{
			{"gpu-2", "no run and no worker gpu-2: the nearest is gpu-1", messages.CodeNotFound},
			{"r1/x", "no run r1", messages.CodeNotFound},
			{run.ID + "/pus", "has no step pus: the nearest are ship/push, build/link, build/compile", messages.CodeNotFound},
			{"", "why needs a run's id", messages.CodeInvalid},
			{strings.Repeat("x", 600), "why needs a run's id", messages.CodeInvalid},
		}
		for _, tt := range tests {
			_, err := f.Ask(messages.VerbWhy, &messages.WhyParams{Subject: tt.subject})
			var fault *messages.Fault
			if !errors.As(err, &fault) || fault.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("why %q: %v, want %s: %s", tt.subject, err, tt.code, tt.want)
			}
		}
		run.Cancel()
		run.Wait()
	})
}
