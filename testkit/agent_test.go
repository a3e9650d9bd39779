package testkit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
	"github.com/swampd/swampd/worker"
)

const models = `
name: models
jobs:
  - name: main
    steps:
      - {name: first, task: {type: model_method, modelType: demo/adder, methodName: add, inputs: {a: 40, b: 2}}}
      - {name: second, run: echo hello, dependsOn: [first]}
`

// rest is a model that takes a while, and says so.
func rest(d time.Duration) testkit.ModelFunc {
	return func(ctx context.Context, _ worker.Task, out worker.Output) (map[string]string, error) {
		if err := out.Write(worker.Stdout, []byte("rests\n")); err != nil {
			return nil, err
		}
		select {
		case <-time.After(d):
			return map[string]string{"rested": d.String()}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func TestAgent_RunsGoModels(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		add := func(_ context.Context, task worker.Task, _ worker.Output) (map[string]string, error) {
			return map[string]string{"sum": task.Args["a"] + "+" + task.Args["b"]}, nil
		}
		f.Agent("w1", testkit.Model("demo/adder", add), testkit.Shell(rest(time.Minute)))
		run := f.Submit(models)
		run.Succeeds()
		if got := run.Step("first").GetOutputs()["sum"]; got != "40+2" {
			t.Errorf("the sum is %q", got)
		}
		run.Expect("second").Printed("rests")
	})
}

func TestAgent_WithoutAShellSaysSo(t *testing.T) {
	t.Parallel()
	f := testkit.Start(t)
	f.Agent("w1")
	run := f.Submit("name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
	run.Expect("only").FailsWith(messages.CodeInternal, "this agent has no shell")
}

// What a real worker does by itself, it does here: it comes back, goes on with its step and delivers its result once.
func TestAgent_OutlivesWhatHappensToItsConnection(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testkit.Fleet, *testkit.Agent){
		"it is cut":              func(_ *testkit.Fleet, a *testkit.Agent) { a.Drop() },
		"it is half open":        func(_ *testkit.Fleet, a *testkit.Agent) { a.HalfOpen() },
		"it is slow":             func(_ *testkit.Fleet, a *testkit.Agent) { a.Delay(700 * time.Millisecond) },
		"the orchestrator dies":  func(f *testkit.Fleet, _ *testkit.Agent) { f.Crash(); f.Advance(3 * time.Second); f.Restart() },
		"the orchestrator stops": func(f *testkit.Fleet, _ *testkit.Agent) { f.Stop(); f.Advance(3 * time.Second); f.Restart() },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t)
				a := f.Agent("w1", testkit.Shell(rest(2*time.Minute)))
				run := f.Submit("name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
				run.Expect("only").RunsOn("w1")
				happens(f, a)
				run.Succeeds()
				run.Expect("only").WasDispatched(1).WasLost(0).Printed("rests")
			})
		})
	}
}

func TestAgent_ThatDiesLosesItsStepsToTheNextProcess(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		a := f.Agent("w1", testkit.Shell(rest(2*time.Minute)))
		run := f.Submit("name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
		run.Expect("only").RunsOn("w1")
		a.Die()
		if reason, err := a.Wait(); reason != worker.StopForced {
			t.Errorf("it left because of %s: %v", reason, err)
		}
		a.Again()
		run.Succeeds()
		run.Expect("only").WasDispatched(2).WasLost(1)
	})
}

func TestAgent_LeavesWhenItHasDrained(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		a := f.Agent("w1", testkit.Shell(rest(time.Minute)))
		run := f.Submit("name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
		run.Expect("only").RunsOn("w1")
		a.Drain()
		f.Expect("w1").Is(messages.WorkerDraining)
		run.Succeeds()
		if reason, err := a.Wait(); reason != worker.StopSignal || err != nil {
			t.Errorf("it left because of %s: %v", reason, err)
		}
	})
}

func TestAgent_IsConfiguredAsAnyWorker(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		a := f.Agent("w1", testkit.Configured(func(c *worker.Config) { c.IdleTimeout = time.Hour }))
		f.Advance(59 * time.Minute)
		f.Expect("w1").Is(messages.WorkerIdle).Runs(0)
		if reason, err := a.Wait(); reason != worker.StopIdleTimeout || err != nil {
			t.Errorf("it left because of %s: %v", reason, err)
		}
	})
}

func TestAgent_AModelThatFailsFailsItsStep(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Agent("w1", testkit.Shell(func(context.Context, worker.Task, worker.Output) (map[string]string, error) {
			return nil, errors.New("out of paper")
		}))
		run := f.Submit("name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
		run.FailsWith("out of paper")
	})
}
