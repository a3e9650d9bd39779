package actors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestQueueTimeout_TheInnermostWinsAndZeroIsNever(t *testing.T) {
	t.Parallel()
	const never = time.Duration(0)
	type layers struct{ workflow, job, step string } // "" is: not set
	tests := []struct {
		name   string
		server time.Duration
		layers layers
		want   time.Duration
	}{
		{"the orchestrator's, where nothing is set", 45 * time.Second, layers{}, 45 * time.Second},
		{"the workflow's before the orchestrator's", 45 * time.Second, layers{workflow: "30"}, 30 * time.Second},
		{"the job's before the workflow's", 45 * time.Second, layers{workflow: "30", job: "20"}, 20 * time.Second},
		{"the step's before the job's", 45 * time.Second, layers{workflow: "30", job: "20", step: "10"}, 10 * time.Second},
		{"the step's, also where it is longer", 5 * time.Second, layers{workflow: "6", job: "7", step: "90"}, 90 * time.Second},
		{"the step's before the orchestrator's", 45 * time.Second, layers{step: "10"}, 10 * time.Second},
		{"a fraction of a second", 45 * time.Second, layers{step: "1.5"}, 1500 * time.Millisecond},
		{"0 at the step is never, whatever stands around it", 1 * time.Second, layers{workflow: "2", job: "3", step: "0"}, never},
		{"0 at the job is never", 1 * time.Second, layers{workflow: "2", job: "0"}, never},
		{"0 at the workflow is never", 1 * time.Second, layers{workflow: "0"}, never},
		{"0 at the orchestrator is never", 0, layers{}, never},
		{"a limit inside a workflow without one", 0, layers{workflow: "0", step: "4"}, 4 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				line := func(indent, value string) string {
					if value == "" {
						return ""
					}
					return fmt.Sprintf("%squeueTimeout: %s\n", indent, value)
				}
				run := f.Submit("name: layers\nlabels: {gpu: \"true\"}\n" + line("", tt.layers.workflow) +
					"jobs:\n  - name: main\n" + line("    ", tt.layers.job) +
					"    steps:\n      - name: only\n        run: work\n" + line("        ", tt.layers.step))
				run.WaitEvent(messages.EventStepQueued)
				if tt.want == never {
					f.Advance(6 * time.Hour)
					if got := waitingSteps(f); got != "only" {
						t.Fatalf("after six hours %q wait, want only", got)
					}
					f.Worker("gpu-1", gpu(), testkit.AutoRun())
					run.WaitStatus(messages.RunSucceeded)
					return
				}
				f.Advance(tt.want - time.Millisecond)
				if got := waitingSteps(f); got != "only" {
					t.Fatalf("a moment before its deadline %q wait, want only", got)
				}
				e := run.WaitEvent(messages.EventStepFailed, "code=queue_timeout")
				if sinceStart() != tt.want {
					t.Errorf("it failed after %s, want %s", sinceStart(), tt.want)
				}
				want := fmt.Sprintf("timed out after %vs waiting for a worker matching labels gpu=true", tt.want.Seconds())
				if e.GetError() != want {
					t.Errorf("the error is %q, want %q", e.GetError(), want)
				}
				run.WaitStatus(messages.RunFailed)
				if diff := cmp.Diff([]string{"timed_out"}, pendings(t, f, run, 0, 1)); diff != "" {
					t.Errorf("pending dispatches (-want +got):\n%s", diff)
				}
				if got := len(f.Queue()); got != 0 {
					t.Errorf("%d steps are in the queue, want none", got)
				}
			}, testkit.WithQueueTimeout(tt.server))
		})
	}
}

func TestQueueTimeout_TheDeadlineSpansTheEpisodesOfAStep(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 10`))
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(6 * time.Second) // it waits for six seconds
		w := f.Worker("gpu-1", gpu())
		d := w.NextDispatch().Accept()
		f.Settle()
		w.Drop()
		f.Advance(30 * time.Second) // while it runs, or may run, no wait passes
		run.WaitEvent(messages.EventStepQueued)
		lost := sinceStart()
		e := run.WaitEvent(messages.EventStepFailed, "code=queue_timeout")
		if got := sinceStart() - lost; got != 4*time.Second {
			t.Errorf("the second episode lasted %s, want the 4s that were left", got)
		}
		if want := "timed out after 10s waiting for a worker matching labels gpu=true"; e.GetError() != want {
			t.Errorf("the error is %q, want %q", e.GetError(), want)
		}
		if got := run.Step("only").GetQueuedMs(); got != 10_000 {
			t.Errorf("queuedMs is %v, want 10000", got)
		}
		if diff := cmp.Diff([]string{"dispatched", "timed_out"}, pendings(t, f, run, 0, 2)); diff != "" {
			t.Errorf("pending dispatches (-want +got):\n%s", diff)
		}
		w.Reconnect()
		d.Succeed() // too late: it is acknowledged, and changes nothing
		run.WaitStatus(messages.RunFailed)
	}, testkit.WithGrace(30*time.Second))
}

func TestQueueTimeout_EachStepHasItsOwn(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(`
name: several
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: slow, run: work, queueTimeout: 20}
      - {name: fast, run: work, queueTimeout: 5}
      - {name: patient, run: work, queueTimeout: 0}
`)
		run.WaitEvent(messages.EventStepFailed, "step=fast")
		if sinceStart() != 5*time.Second {
			t.Errorf("fast failed after %s, want 5s", sinceStart())
		}
		run.WaitEvent(messages.EventStepFailed, "step=slow")
		if sinceStart() != 20*time.Second {
			t.Errorf("slow failed after %s, want 20s", sinceStart())
		}
		f.Advance(time.Hour)
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitEvent(messages.EventStepSucceeded, "step=patient")
		run.WaitStatus(messages.RunFailed)
	})
}

func TestQueueTimeout_AWorkerThatComesAtTheDeadlineMeetsOneOutcome(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 10`))
				run.WaitEvent(messages.EventStepQueued)
				f.Advance(10*time.Second - 20*time.Millisecond)
				f.Worker("gpu-1", gpu(), testkit.AutoRun())
				status := run.Wait()
				f.Settle()
				states, leases := pendings(t, f, run, 0, 1), leaseStates(t, f, run, 0)
				switch status {
				case messages.RunSucceeded:
					if states[0] != "dispatched" || len(leases) != 1 {
						t.Errorf("it ran, its wait is %v and its leases are %v", states, leases)
					}
				case messages.RunFailed:
					if states[0] != "timed_out" || len(leases) != 0 {
						t.Errorf("it timed out, its wait is %v and its leases are %v", states, leases)
					}
				default:
					t.Errorf("the run is %s", status)
				}
			}, testkit.WithJitter(seed, 10*time.Millisecond))
		})
	}
}
