package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// A command that panics every time is given up after a few tries: what it belongs to fails visibly, and everything else
// goes on.
func TestPoison_ACommandThatPanicsEveryTimeIsGivenUpAndNothingElse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, command string
		want          messages.RunStatus
	}{
		{"step", "assignStep", messages.RunFailed},
		{"step", "leaseEnded", messages.RunFailed},
		{"lease", "leaseFrame", messages.RunFailed},
		{"run", "stepEnded", messages.RunSucceeded}, // a run that starts again reads how its steps have ended
	}
	for _, tt := range tests {
		t.Run(tt.kind+" "+tt.command, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				at := testkit.PanicAt{Stage: "decided", Kind: tt.kind, Command: tt.command, ID: "run-0001", Times: 1_000_000}
				f := testkit.Start(t, testkit.WithPanic(at), testkit.WithQueueTimeout(time.Hour))
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Worker("gpu-1", gpu(), testkit.AutoRun())
				run.WaitStatus(tt.want)
				if tt.want == messages.RunFailed {
					run.WaitEvent(messages.EventStepFailed, "code=internal")
				}
				if sinceStart() > 10*time.Minute {
					t.Errorf("it took %s to end", sinceStart())
				}
				f.Submit(single).WaitStatus(messages.RunSucceeded)
			})
		})
	}
}

// A step that cannot go on while a worker runs it has the worker kill it: nobody else would, and the slot would stay taken.
func TestPoison_AStepThatFailsWhileItRunsLeavesNoLeaseBehind(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"beginStep", "leaseUp"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				at := testkit.PanicAt{Stage: "decided", Kind: "step", ID: "run-0001", Times: 12}
				if command != "beginStep" {
					at.Command = command
				}
				f := testkit.Start(t, testkit.WithPanic(at), testkit.WithQueueTimeout(time.Hour))
				f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
					if d.Accept().Params.GetRunId() != "run-0001" {
						d.Succeed()
					} else if d.Cancellation() {
						d.Cancelled()
					}
				}))
				f.Settle()
				run := f.Submit(single)
				run.WaitStatus(messages.RunFailed)
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				f.Submit(single).WaitStatus(messages.RunSucceeded)
			})
		})
	}
}

func TestPoison_ASubmitThatPanicsEveryTimeIsAnsweredWithInternal(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "run", Command: "submitRun", Times: 1_000_000}))
		if _, err := f.SubmitAs("mine", single); codeOf(err) != messages.CodeInternal {
			t.Errorf("got %v, want internal", err)
		}
	})
}

// What a panic has taken away may have been all that an actor was started for.
func TestPanics_AnActorThatNobodyNeedsLeaves(t *testing.T) {
	t.Parallel()
	for _, at := range []testkit.PanicAt{
		{Stage: "decided", Kind: "run", Command: "submitRun", Times: 6}, // the last one after it was given up
		{Stage: "decided", Kind: "run", Command: "cancelRun"},
		{Stage: "decided", Kind: "token", Command: "revokeToken"},
		{Stage: "decided", Kind: "lease", Command: "leaseFrame"},
	} {
		t.Run(at.Kind+" "+at.Command, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, testkit.WithPanic(at))
				w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				for _, params := range []proto.Message{
					&messages.WorkflowRunParams{RunId: "no-such-run", File: "test.yaml", Source: single}, // it does not get there, or ends
					&messages.RunCancelParams{RunId: "no-such-one"}, &messages.WorkerTokenRevokeParams{Name: "no-such-token"},
				} {
					_, _ = f.Do(ctx, messages.VerbVersion, params, nil) // some are refused
				}
				w.Send(&messages.Frame{Id: "no-such-lease.0.1/1", Body: &messages.Frame_Response{
					Response: messages.NewResponse(messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "succeeded"}),
				}})
				f.Advance(10 * time.Minute)
				for _, a := range f.Actors() {
					if strings.Contains(a.GetPid(), "no-such") {
						t.Errorf("actor %s is still there", a.GetPid())
					}
				}
				if n := f.Metrics().Restarts; n == 0 {
					t.Error("nothing has panicked")
				}
			})
		})
	}
}

func TestPoison_ASchedulerThatGivesUpEndsTheProcess(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithPanic(testkit.PanicAt{Kind: "scheduler", Times: 1000, Nth: 3}))
		system := f.System()
		if _, err := f.SubmitAs("mine", single); err != nil {
			t.Logf("submit: %v", err) // it may come too late
		}
		select {
		case <-system.Failed():
		case <-time.After(5 * time.Minute):
			t.Error("the scheduler panics again and again, and the orchestrator does not fail")
		}
		f.Crash()
	})
}

func TestPanics_ASchedulerThatPanicsWithStepsInLineKeepsThemAll(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"workerKnown", "releaseSlot", "offerStep", "offerSteps", "deadlineElapsed", "workerStirred"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, testkit.WithEveryCommit(), testkit.WithQueueTimeout(0),
					testkit.WithPanic(testkit.PanicAt{Kind: "scheduler", Command: command}))
				var runs []*testkit.Run
				for range 20 {
					runs = append(runs, f.Submit(single))
					f.Settle()
				}
				soon := f.Submit(oneStep("labels: {quantum: yes}, queueTimeout: 5"))
				soon.WaitStatus(messages.RunFailed)
				w := f.Worker("gpu-1", gpu())
				w.NextDispatch().RefuseBusy()
				f.Advance(10 * time.Millisecond)
				w.SayIdle()
				for range runs { // who offers itself first to a new scheduler may be served first
					w.NextDispatch().Succeed()
				}
				for _, run := range runs {
					run.WaitStatus(messages.RunSucceeded)
					onceEach(f, run, "only")
				}
				f.Audit()
				if n := f.Metrics().Restarts; n != 1 {
					t.Errorf("%d actors have panicked, want the scheduler once", n)
				}
			})
		})
	}
}
