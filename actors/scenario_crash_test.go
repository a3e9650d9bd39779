package actors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// The orchestrator dies right after each commit of a story, before anybody is told, and comes back. The story ends as it
// always does, and the books are clean.
func TestCrash_AfterEveryCommitOfEveryStory(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		least int // commits that the story has at least
		tell  func(t *testing.T, f *testkit.Fleet, token string)
	}{
		{"a chain waits and runs", 8, func(t *testing.T, f *testkit.Fleet, token string) {
			run := f.Submit(chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			f.Worker("gpu-1", gpu(), testkit.WithToken(token), testkit.OnDispatch(func(d *testkit.Dispatch) {
				d.Output("working\n").Succeed("done=yes")
			}))
			run.WaitStatus(messages.RunSucceeded)
			for _, step := range []string{"first", "second"} {
				if diff := cmp.Diff(map[string]string{"done": "yes"}, run.Step(step).GetOutputs()); diff != "" {
					t.Errorf("outputs of %s (-want +got):\n%s", step, diff)
				}
			}
		}},
		{"steps run side by side", 10, func(_ *testing.T, f *testkit.Fleet, token string) {
			f.Worker("gpu-1", gpu(), testkit.WithToken(token), testkit.Capacity(2), testkit.Takes(time.Second))
			one, two := f.Submit(pair), f.Submit(pair)
			one.WaitStatus(messages.RunSucceeded)
			two.WaitStatus(messages.RunSucceeded)
		}},
		{"a run is cancelled while one step runs and one waits", 8, func(_ *testing.T, f *testkit.Fleet, token string) {
			f.Worker("gpu-1", gpu(), testkit.WithToken(token), testkit.OnDispatch(func(d *testkit.Dispatch) {
				d.Accept()
				if d.Cancellation() {
					d.Cancelled()
				}
			}))
			run := f.Submit(pair)
			run.WaitEvent(messages.EventStepDispatched)
			run.Cancel()
			run.WaitStatus(messages.RunCancelled)
		}},
		{"a step waits too long", 4, func(_ *testing.T, f *testkit.Fleet, _ string) {
			run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 20`))
			run.WaitStatus(messages.RunFailed)
			run.WaitEvent(messages.EventStepFailed, "code=queue_timeout")
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
						tt.tell(t, f, token)
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

func TestCrash_AStepThatWaitedWaitsAgainInANewEpisode(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(20 * time.Second)
		f.Crash()
		f.Advance(time.Hour) // downtime is no waiting time
		f.Restart()
		f.Settle()
		if got := waitingSteps(f); got != "only" {
			t.Errorf("waiting are %q, want only", got)
		}
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestCrash_AStepThatRanOnAWorkerThatDoesNotComeBackWaitsAgain(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		w.NextDispatch().Accept()
		f.Settle()
		f.Crash()
		f.Restart()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		f.Advance(30 * time.Second)
		if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
			t.Errorf("within the grace the step is %s, want running", got)
		}
		run.WaitStatus(messages.RunSucceeded)
		if got := run.Step("only").GetLosses(); got != 0 {
			t.Errorf("losses are %d, want none: the restart was not the worker's fault", got)
		}
	})
}

func TestCrash_ACancelledRunStaysCancelled(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(pair)
		w.NextDispatch().Accept()
		run.Cancel()
		f.Settle()
		f.Crash()
		f.Restart()
		f.Worker("gpu-2", gpu(), testkit.Capacity(4)).NoDispatch()
		run.WaitStatus(messages.RunCancelled)
	})
}
