package testkit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// An expectation that is not met says so in a sentence, at once where it can never be met.
func TestExpect_SaysWhatWasExpectedAndWhatIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		expect func(f *testkit.Fleet, run *testkit.Run)
		want   string
	}{
		{"a step that waits for something else", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("gpu").WaitsFor("any worker") },
			"expected step gpu of run-0001 to wait for any worker, but it waits for labels gpu=true"},
		{"a step that waits", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("gpu").RunsOn("w1") },
			"expected step gpu of run-0001 to run on w1 within 3s, but it is queued: waiting for a worker matching labels gpu=true"},
		{"a step that waits for another reason", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("main/gpu").WaitsBecause("of the weather") },
			"but it waits, and why is: "},
		{"a step that has succeeded", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").FailsWith(messages.CodeTimeout, "") },
			"expected step any of run-0001 to fail with timeout, but it is succeeded"},
		{"a step that has failed", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("bad").Succeeds() },
			"expected step bad of run-0001 to succeed, but it is failed: exit status 7 (exit_nonzero)"},
		{"a step that was not cancelled", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").IsCancelled() },
			"to be cancelled, but it is succeeded"},
		{"a step that was not skipped", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").IsSkipped() }, "to be skipped, but it is succeeded"},
		{"a step that was dispatched once", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").WasDispatched(2) },
			"to have been dispatched 2 times within 3s, but it was 1 times"},
		{"a step that was not lost", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").WasLost(1) }, "it was 0 times"},
		{"a step that waited", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("gpu").Waited(0) }, "to have waited 0 times, but it was 1 times"},
		{"a step that printed something else", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("any").Printed("bye") },
			`expected step any of run-0001 to print "bye" within 3s, but it has printed ["hello"]`},
		{"a step that there is not", func(_ *testkit.Fleet, r *testkit.Run) { r.Expect("none").Succeeds() }, "run-0001 has no step none"},
		{"a run that goes on", func(_ *testkit.Fleet, r *testkit.Run) { r.Succeeds() }, "expected run-0001 to succeed within 3s, but it is running"},
		{"a run that does not fail so", func(_ *testkit.Fleet, r *testkit.Run) { r.FailsWith("so") }, "to fail with so within 3s, but it is running"},
		{"a run that is not cancelled", func(_ *testkit.Fleet, r *testkit.Run) { r.IsCancelled() }, "expected run-0001 to be cancelled"},
		{"a worker in another state", func(f *testkit.Fleet, _ *testkit.Run) { f.Expect("w1").Is(messages.WorkerDraining) },
			"expected worker w1 to be draining within 3s, but it is idle"},
		{"a worker that runs nothing", func(f *testkit.Fleet, _ *testkit.Run) { f.Expect("w1").Runs(1) },
			"expected worker w1 to run 1 dispatches within 3s, but it runs []"},
		{"a worker that nobody knows", func(f *testkit.Fleet, _ *testkit.Run) { f.Expect("w9").Runs(1) }, "but nobody knows it"},
		{"another queue", func(f *testkit.Fleet, _ *testkit.Run) { f.ExpectQueue() }, `expected the queue to hold [] within 3s, but it holds ["gpu"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				r := &recorder{}
				defer r.end()
				f := testkit.Start(r, testkit.WithPatience(3*time.Second))
				f.Worker("w1", testkit.Capacity(2), testkit.OnDispatch(func(d *testkit.Dispatch) {
					if d.Step() == "bad" {
						d.Fail(messages.CodeExitNonzero, "exit status 7")
						return
					}
					d.Output("hello\n").Succeed()
				}))
				run := f.Submit("name: n\njobs: [{name: main, steps: [{name: any, run: a}, {name: bad, run: b}, {name: gpu, run: c, labels: {gpu: true}}]}]\n")
				f.Settle()
				defer func() {
					said, _ := recover().(string)
					if !strings.Contains(said, tt.want) {
						t.Errorf("it says %q, want %q", said, tt.want)
					}
				}()
				tt.expect(f, run)
			})
		})
	}
}

// A test that fails shows what has happened, and the actors.
func TestFleet_AFailureShowsTheTrace(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		r := &recorder{}
		f := testkit.Start(r)
		f.Worker("w1", testkit.AutoRun())
		f.Submit(anywhere).Succeeds()
		f.Crash()
		f.Restart()
		f.T().Errorf("on purpose")
		r.end()
		shown := strings.Join(r.logs, "\n")
		for _, want := range []string{
			"story of run-0001:", "run_succeeded", "what happened last:", "run run-0001 committed", "the orchestrator dies",
			"w1 <- asks WorkerDispatch as run-0001.0.1/1", "w1 -> accepts run-0001.0.1/1", "w1 -> result of run-0001.0.1/1: succeeded",
			"the actors:", "swampd/scheduler", "log of the orchestrator:",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("it does not show %q:\n%s", want, shown)
			}
		}
	})
}
