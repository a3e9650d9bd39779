package actors_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
	"github.com/swampd/swampd/testkit"
)

var errDisk = errors.New("input/output error")

// A commit whose outcome nobody knows ends the process (rule P11), and nobody is told of what it would have said (rule A2).
// The next process goes on from what the disk has.
func TestJournal_AFailedCommitEndsTheProcessAndTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		for n := 1; n <= 10; n++ {
			t.Run(fmt.Sprintf("batch %d applied %t", n, applied), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) {
					var left atomic.Int64 // batches to go; 0 and below: none
					fail := func(*persistence.Batch) error {
						if left.Add(-1) == 0 {
							return errDisk
						}
						return nil
					}
					options := memstore.Options{Before: fail}
					if applied {
						options = memstore.Options{After: fail}
					}
					f := testkit.Start(t, testkit.WithJournal(options), testkit.WithFaults(), testkit.WithQueueTimeout(0))
					f.Worker("gpu-1", gpu(), testkit.AutoRun())
					f.Settle()
					system := f.System()
					left.Store(int64(n))
					submitted := make(chan error, 1)
					go func() { // it asks again until there is an answer
						_, err := f.SubmitAs("mine", chain)
						submitted <- err
					}()
					f.Advance(time.Second)
					if left.Load() <= 0 {
						select {
						case <-system.Failed():
							if !errors.Is(system.Err(), errDisk) {
								t.Errorf("it failed with %v, want the disk's error", system.Err())
							}
						default:
							t.Error("a commit has failed, and the orchestrator goes on")
						}
					}
					f.Crash()
					left.Store(0)
					f.Restart()
					if err := <-submitted; err != nil {
						t.Errorf("submit: %v", err)
					}
					run := f.Follow("mine")
					run.WaitStatus(messages.RunSucceeded)
				})
			})
		}
	}
}

func TestJournal_WithoutSpaceNewWorkIsRefusedAndWhatRunsEndsWell(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		waiting := f.Submit(oneStep("labels: {quantum: yes}"))
		waiting.WaitEvent(messages.EventStepQueued)
		f.Journal().SetSpace(persistence.Space{Free: 10, NewWork: 100, Data: 5})
		if _, err := f.SubmitAs("refused", single); codeOf(err) != messages.CodeNoSpace {
			t.Errorf("submit: %v, want no_space", err)
		}
		if _, err := f.Do(t.Context(), messages.VerbRunShow, &messages.RunShowParams{RunId: "refused"}, nil); codeOf(err) != messages.CodeNotFound {
			t.Errorf("run.show of what was refused: %v, want not_found", err)
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		waiting.Cancel()
		waiting.WaitStatus(messages.RunCancelled)
		f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 5})
		again, err := f.SubmitAs("refused", single)
		if err != nil {
			t.Fatalf("with space again: %v", err)
		}
		w.NextDispatch().Succeed()
		again.WaitStatus(messages.RunSucceeded)
	})
}

func TestJournal_ARunThatGoesOnWaitsForSpaceAndLosesNothing(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(chain)
		d := w.NextDispatch().Accept()
		f.Journal().SetSpace(persistence.Space{Free: 10, NewWork: 100, Data: 5})
		d.Succeed()
		run.WaitEvent(messages.EventStepSucceeded, "step=first")
		f.Advance(95 * time.Second) // the auditor finds nothing wrong with that
		w.NoDispatch()
		f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 5})
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() > 100*time.Second {
			t.Errorf("it went on %s after there was space again", sinceStart()-95*time.Second)
		}
	})
}
