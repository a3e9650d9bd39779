package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestSubmit_TwiceWithOneRunIDIsOneRun(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := f.SubmitAs("mine", single); err != nil {
					t.Errorf("submit: %v", err)
				}
			})
		}
		wg.Wait()
		w := f.Worker("gpu-1", gpu())
		w.NextDispatch().Succeed()
		run, err := f.SubmitAs("mine", single) // also after its end
		if err != nil {
			t.Fatalf("submit: %v", err)
		}
		run.WaitStatus(messages.RunSucceeded)
		w.NoDispatch()
	})
}

func TestSubmit_AnotherWorkflowUnderAKnownRunIDIsAConflict(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run, err := f.SubmitAs("mine", single)
		if err != nil {
			t.Fatalf("submit: %v", err)
		}
		if _, err := f.SubmitAs("mine", pair); codeOf(err) != messages.CodeRunIDConflict {
			t.Errorf("while it waits: %v, want run_id_conflict", err)
		}
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		if _, err := f.SubmitAs("mine", pair); codeOf(err) != messages.CodeRunIDConflict {
			t.Errorf("after its end: %v, want run_id_conflict", err)
		}
	})
}

func TestSubmit_AMistakeInTheWorkflowIsSaidAndNothingIsKept(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		_, err := f.SubmitAs("mine", "name: x\njobs:\n  - name: main\n    stepz: []\n")
		var fault *messages.Fault
		if !errors.As(err, &fault) || fault.Code != messages.CodeInvalid || len(fault.Details) == 0 {
			t.Fatalf("got %v, want invalid with details", err)
		}
		if _, err := f.Do(t.Context(), messages.VerbRunShow, &messages.RunShowParams{RunId: "mine"}, nil); codeOf(err) != messages.CodeNotFound {
			t.Errorf("run.show: %v, want not_found", err)
		}
	})
}

func TestWatch_GoesOnAfterAnyEventWithoutAGapOrARepetition(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
			for i := range 5 {
				d.Output(fmt.Sprintf("%s out %d\n", d.Step(), i))
				d.Stderr(fmt.Sprintf("%s err %d\n", d.Step(), i))
			}
			d.Succeed()
		}))
		run := f.Submit(chain)
		run.WaitStatus(messages.RunSucceeded)
		whole := watched(t, run, 0, nil)
		if diff := cmp.Diff(run.Events(), whole, protocmp.Transform()); diff != "" {
			t.Errorf("the story as it was lived and as it is told (-lived +told):\n%s", diff)
		}
		for k := range len(whole) + 1 { // also after the last one: then only the answer was lost
			after, cursors := cursorAt(whole[:k])
			if diff := cmp.Diff(whole[k:], watched(t, run, after, cursors), protocmp.Transform(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("after %d events (-want +got):\n%s", k, diff)
			}
		}
	})
}

// cursorAt is what a client that has had these events says when it comes back.
func cursorAt(had []*messages.RunEvent) (after uint32, cursors map[string]uint32) {
	cursors = make(map[string]uint32)
	for _, e := range had {
		if e.GetKind() == messages.EventStepOutput {
			cursors[e.GetDispatchId()] = e.GetOffset()
		} else {
			after = e.GetSeq()
		}
	}
	return after, cursors
}

func TestWatch_ThatIsCutAgainAndAgainWhileTheRunGoesOnMissesNothing(t *testing.T) {
	t.Parallel()
	for _, every := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprintf("after each %d events", every), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t)
				f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
					for i := range 5 {
						d.Output(fmt.Sprintf("%s out %d\nand ", d.Step(), i))
						time.Sleep(300 * time.Millisecond)
						d.Output("more\n")
						time.Sleep(800 * time.Millisecond)
					}
					d.Succeed()
				}))
				run := f.Submit(chain)
				var had []*messages.RunEvent
				for over := false; !over; {
					after, cursors := cursorAt(had)
					n := 0
					err := run.Watch(context.Background(), after, cursors, func(e *messages.RunEvent) bool {
						had = append(had, e)
						over = messages.EndsRun(e.GetKind())
						n++
						return n < every
					})
					if err != nil {
						t.Fatalf("watch: %v", err)
					}
				}
				run.WaitStatus(messages.RunSucceeded)
				if diff := cmp.Diff(text(run.Events()), text(had)); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
				var seq uint32
				for _, e := range had {
					if e.GetKind() == messages.EventStepOutput {
						continue
					}
					if seq++; e.GetSeq() != seq {
						t.Fatalf("event %d came as number %d", e.GetSeq(), seq)
					}
				}
			})
		})
	}
}

// text is the output of each step as one text: where a line is cut into pieces depends on when it was looked at.
func text(events []*messages.RunEvent) map[string]string {
	all := make(map[string]string)
	for _, e := range events {
		if e.GetKind() == messages.EventStepOutput {
			all[e.GetStep()] += e.GetLine()
			if !e.GetPartial() {
				all[e.GetStep()] += "\n"
			}
		}
	}
	return all
}

func TestWatch_ARunThatIsFollowedFromItsSubmitTellsTheSame(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		var told []*messages.RunEvent
		got, err := f.Do(t.Context(), messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: "mine", Source: chain, Follow: true}, func(e *messages.Event) error {
			told = append(told, e.GetRun())
			return nil
		})
		if err != nil {
			t.Fatalf("workflow.run: %v", err)
		}
		if status := got.(*messages.WorkflowRunResult).GetStatus(); status != string(messages.RunSucceeded) {
			t.Errorf("it ended as %s, want succeeded", status)
		}
		if diff := cmp.Diff(watched(t, f.Follow("mine"), 0, nil), told, protocmp.Transform()); diff != "" {
			t.Errorf("events (-watched +told):\n%s", diff)
		}
	})
}

func TestWatch_OfARunThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		for verb, params := range map[messages.Verb]func() error{
			messages.VerbRunWatch: func() error {
				_, err := f.Do(t.Context(), messages.VerbRunWatch, &messages.RunWatchParams{RunId: "none"}, func(*messages.Event) error { return nil })
				return err
			},
			messages.VerbRunShow: func() error {
				_, err := f.Do(t.Context(), messages.VerbRunShow, &messages.RunShowParams{RunId: "none"}, nil)
				return err
			},
			messages.VerbRunCancel: func() error {
				_, err := f.Do(t.Context(), messages.VerbRunCancel, &messages.RunCancelParams{RunId: "none"}, nil)
				return err
			},
		} {
			if err := params(); codeOf(err) != messages.CodeNotFound {
				t.Errorf("%s: %v, want not_found", verb, err)
			}
		}
	})
}
