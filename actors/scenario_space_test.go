package actors_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
	"github.com/swampd/swampd/testkit"
)

// submitted submits a workflow as a client does that asks again when there is no space.
func submitted(f *testkit.Fleet, workflow string) *testkit.Run {
	for {
		run, err := f.SubmitAs("mine", workflow)
		if codeOf(err) != messages.CodeNoSpace {
			if err != nil {
				f.T().Errorf("submit: %v", err)
			}
			return run
		}
		time.Sleep(time.Second)
	}
}

// After each commit of a story the disk is full, so that nothing at all fits any more, endings included. When there is space
// again, the story goes on as if nothing had been: what was refused is not forgotten, whoever it came from.
func TestSpace_AFullDiskDelaysAndNothingElse(t *testing.T) {
	t.Parallel()
	stories := []struct {
		name string
		tell func(t *testing.T, f *testkit.Fleet)
	}{
		{"a chain waits and runs", func(_ *testing.T, f *testkit.Fleet) {
			run := submitted(f, chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			f.Worker("gpu-1", gpu(), testkit.Takes(time.Second))
			run.WaitStatus(messages.RunSucceeded)
		}},
		{"a worker is lost and comes back", func(_ *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			run := submitted(f, single)
			w.NextDispatch().Accept()
			w.Drop()
			run.WaitEvent(messages.EventStepWorkerLost)
			w.Reconnect(testkit.AsNewInstance())
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
		}},
		{"the orchestrator restarts with a step in line and one that runs", func(_ *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu())
			run := submitted(f, pair)
			w.NextDispatch().Accept()
			f.Settle()
			f.Crash()
			f.Restart()
			w.Reconnect(testkit.AsNewInstance())
			w.NextDispatch().Succeed()
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
		}},
		{"a token is revoked and a pause ends", func(_ *testing.T, f *testkit.Fleet) {
			w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
			_, _ = f.Do(f.T().Context(), messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1", ForMs: 5000}, nil)
			run := submitted(f, single)
			run.WaitStatus(messages.RunSucceeded)
			f.RevokeToken("gpu-1")
			w.WaitClosed()
		}},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			over := false
			for n := 1; !over && n < 60; n++ {
				t.Run(fmt.Sprintf("commit %d", n), func(t *testing.T) {
					testkit.Bubble(t, func(t *testing.T) {
						var f *testkit.Fleet
						var mu sync.Mutex
						left, full := 0, make(chan struct{})
						options := memstore.Options{After: func(*persistence.Batch) error {
							mu.Lock()
							defer mu.Unlock()
							if left--; left == 0 {
								f.Journal().SetSpace(persistence.Space{Free: 1, NewWork: 4, Data: 3, Hard: 2})
								close(full)
							}
							return nil
						}}
						f = testkit.Start(t, testkit.WithJournal(options), testkit.WithQueueTimeout(0), testkit.WithFaults())
						f.Settle()
						mu.Lock()
						left = n
						mu.Unlock()
						done := make(chan struct{})
						go func() {
							defer close(done)
							select {
							case <-full:
								time.Sleep(7 * time.Second)
								f.Journal().SetSpace(persistence.Space{Free: 5, NewWork: 4, Data: 3, Hard: 2})
							case <-time.After(10 * time.Minute):
								over = true
							}
						}()
						s.tell(t, f)
						<-done
					})
				})
			}
			if !over {
				t.Error("the story has no end")
			}
		})
	}
}

// A worker whose output does not fit waits for space with its step, and goes on when there is some.
func TestSpace_OutputThatDidNotFitIsWrittenWhenItDoes(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Journal().SetSpace(persistence.Space{Free: 10, NewWork: 100, Data: 50})
		d.Output(strings.Repeat("x", 40<<10) + "\n")
		d.WaitAcked(40 << 10) // so much is taken anyway
		d.Output(strings.Repeat("y", 40<<10) + "\n")
		f.Advance(time.Minute)
		f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50})
		d.WaitAcked(80 << 10)
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}
