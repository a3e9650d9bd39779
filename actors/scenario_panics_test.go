package actors_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// story is something that happens on a fleet, and has to end the same way whatever panics on its way.
type story struct {
	name    string
	options []testkit.Option
	tell    func(f *testkit.Fleet)
}

// stories are told by TestPanics with a panic at every point that they pass.
func stories() []story {
	return []story{
		{name: "a chain waits in an empty pool and runs when a match enrolls", tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			f.Worker("gpu-1", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a worker is there already", tell: func(f *testkit.Fleet) {
			f.Worker("gpu-1", gpu(), testkit.Capacity(2), testkit.OnDispatch(func(d *testkit.Dispatch) {
				d.Output("working\n").Succeed("done=yes")
			}))
			f.Settle()
			run := f.Submit(chain)
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
			run.WaitEvent(messages.EventStepOutput, "step=first", "line=working")
			run.WaitEvent(messages.EventStepOutput, "step=second", "line=working")
		}},
		{name: "steps fan out over several workers and are gathered", tell: func(f *testkit.Fleet) {
			run := f.Submit(fan)
			for i := range 2 {
				f.Worker(fmt.Sprintf("gpu-%d", i), gpu(), testkit.Takes(time.Second))
			}
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "split", "a", "b", "c", "sum")
		}},
		{name: "a run is cancelled while one step runs and one waits", tell: func(f *testkit.Fleet) {
			f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
				d.Accept()
				d.WaitCancel()
				d.Cancelled()
			}))
			run := f.Submit(pair)
			run.WaitEvent(messages.EventStepDispatched)
			run.WaitEvent(messages.EventStepQueued)
			f.Settle()
			run.Cancel()
			run.WaitStatus(messages.RunCancelled)
		}},
		{name: "a worker is lost and another one takes the step", options: []testkit.Option{testkit.WithQueueTimeout(time.Hour)}, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			run.WaitEvent(messages.EventStepQueued, "step=first")
			first := f.Worker("gpu-1", gpu())
			first.NextDispatch().Accept()
			first.Drop()
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
		}},
		{name: "a worker is cut off and comes back within its grace", tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			w := f.Worker("gpu-1", gpu())
			d := w.NextDispatch().Output("before\n")
			w.Drop()
			f.Advance(10 * time.Second)
			d.Output("after\n").Succeed()
			w.Reconnect()
			w.NextDispatch().Succeed()
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a worker refuses once", options: []testkit.Option{testkit.WithQueueTimeout(time.Hour)}, tell: func(f *testkit.Fleet) {
			var refused sync.Once
			f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) {
				first := false
				refused.Do(func() { first = true })
				if first {
					d.RefuseBusy()
					return
				}
				d.Succeed()
			}))
			run := f.Submit(chain)
			run.WaitStatus(messages.RunSucceeded)
			onceEach(f, run, "first", "second")
		}},
		{name: "a step fails and what needs it is skipped", tell: func(f *testkit.Fleet) {
			f.Worker("gpu-1", gpu(), testkit.OnDispatch(func(d *testkit.Dispatch) { d.Fail(messages.CodeExitNonzero, "exit status 7") }))
			run := f.Submit(chain)
			run.WaitStatus(messages.RunFailed)
			onceEach(f, run, "first")
		}},
		{name: "a step waits too long", tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			run.WaitStatus(messages.RunFailed)
			run.WaitEvent(messages.EventStepFailed, "step=first", "code=queue_timeout")
		}},
		{name: "a token is revoked while its worker runs a step", options: []testkit.Option{testkit.WithQueueTimeout(time.Hour)}, tell: func(f *testkit.Fleet) {
			run := f.Submit(chain)
			f.Worker("gpu-1", gpu()).NextDispatch().Accept()
			f.RevokeToken("gpu-1")
			run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
			f.Worker("gpu-2", gpu(), testkit.AutoRun())
			run.WaitStatus(messages.RunSucceeded)
		}},
	}
}

// onceEach checks that no step was executed more than once.
func onceEach(f *testkit.Fleet, run *testkit.Run, steps ...string) {
	for _, s := range steps {
		if n := f.Executions(run, s); n != 1 {
			f.T().Errorf("step %s was executed %d times", s, n)
		}
	}
}

// TestPanics_AtEveryPointOfEveryStory tells each story again for each point that it passes, with a panic there: before a commit, where the command is
// lost, and after it, where everybody still has to be told (rules A3, P1 to P3). The story ends as it always does, and the
// audit finds the books clean.
func TestPanics_AtEveryPointOfEveryStory(t *testing.T) {
	t.Parallel()
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			panicEverywhere(t, s)
		})
	}
}

func panicEverywhere(t *testing.T, s story) {
	t.Helper()
	points := pointsOf(t, s)
	missed := 0
	for _, at := range points {
		t.Run(fmt.Sprintf("%s %s %s %d", at.Stage, at.Kind, at.Command, at.Nth), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, append(s.options, testkit.WithPanic(at), testkit.WithEveryCommit())...)
				s.tell(f)
				f.Audit()
				switch n := f.Metrics().Restarts; n {
				case 0: // who came first was another one this time
					missed++
				case 1:
				default:
					t.Errorf("%d actors have panicked, want one", n)
				}
			})
		})
	}
	if missed > len(points)/5 {
		t.Errorf("%d of %d points were not reached again", missed, len(points))
	}
}

// pointsOf tells a story undisturbed, and returns the points that it passes.
func pointsOf(t *testing.T, s story) []testkit.PanicAt {
	t.Helper()
	var mu sync.Mutex
	over := false
	seen := make(map[testkit.PanicAt]int)
	count := func(p actors.Point) {
		mu.Lock()
		defer mu.Unlock()
		// A panic at received loses what one at decided loses, and one of a session costs its peer the socket: not every worker
		// here dials again.
		if !over && p.Stage != "received" && p.Kind != "session" {
			seen[testkit.PanicAt{Stage: p.Stage, Kind: p.Kind, Command: p.Command}]++
		}
	}
	t.Run("undisturbed", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			f := testkit.Start(t, append(s.options, testkit.WithHook(count))...)
			s.tell(f)
			f.Audit()
			mu.Lock()
			defer mu.Unlock()
			over = true // what follows belongs to the end of the test
		})
	})
	var points []testkit.PanicAt
	for p, n := range seen {
		for p.Nth = 1; p.Nth <= n; p.Nth++ {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b testkit.PanicAt) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Command, b.Command), cmp.Compare(a.Stage, b.Stage), a.Nth-b.Nth)
	})
	return points
}

// A worker's actor that has panicked does not know what it has sent. What a lease has asked it to send before must not make
// a step run again that is over by the time that it gets there.
func TestPanics_AWorkersActorThatStartsAnewMakesNoStepRunTwice(t *testing.T) {
	t.Parallel()
	var late sync.Once
	hold := func(p actors.Point) {
		if p.Kind == "worker" && p.Command == "leaseHere" && sinceStart() > 3*time.Second && p.Stage == "received" {
			late.Do(func() { time.Sleep(5 * time.Second) })
		}
	}
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch()
		f.Advance(4 * time.Second)
		go func() {
			_, _ = f.Do(context.Background(), messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: "gpu-1"}, nil)
		}()
		f.Advance(time.Second)
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		f.Advance(time.Minute)
		if n := len(w.Dispatches()); n != 1 {
			t.Errorf("the worker has taken %d dispatches of one step", n)
		}
		if n := f.Metrics().Restarts; n != 1 {
			t.Errorf("%d actors have panicked, want one", n)
		}
	}, testkit.WithHook(hold), testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "worker", Command: "pauseWorker"}))
}

// A run takes the actors of its steps with it when it panics, and bears them anew. The restart that was due to one of them
// meets the one that has its name now.
func TestPanics_OfARunAndItsStepLeaveNobodyAsleep(t *testing.T) {
	t.Parallel()
	for panics := 1; panics <= 5; panics++ {
		for _, ms := range []int{5, 15, 30, 60, 100, 200, 400} {
			t.Run(fmt.Sprintf("%d of the step, and the run after %d ms", panics, ms), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) {
					f := testkit.Start(t,
						testkit.WithPanic(testkit.PanicAt{Stage: "committed", Kind: "run", Command: "slotsReserved"}), // nobody is told
						testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "step", Command: "rejoin", Times: panics}),
						testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "run", Command: "cancelRun"}))
					f.Worker("gpu-1", gpu(), testkit.AutoRun())
					f.Settle()
					began := sinceStart()
					submitted := make(chan *testkit.Run)
					go func() { // the first answer is lost
						run, err := f.SubmitAs("mine", single)
						if err != nil {
							t.Error(err)
						}
						submitted <- run
					}()
					f.Advance(time.Duration(ms) * time.Millisecond)
					_, _ = f.Do(context.Background(), messages.VerbRunCancel, &messages.RunCancelParams{RunId: "mine", Step: "no-such"}, nil)
					(<-submitted).Wait()
					if took := sinceStart() - began; took > 10*time.Second {
						t.Errorf("the run took %s to end", took)
					}
				})
			})
		}
	}
}

// A run that was never accepted may have got slots before its actor panicked. They come back, though nobody asks for that run
// again; those of a run that goes on are kept.
func TestPanics_SlotsReservedForNobodyComeBack(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		busy := f.Worker("gpu-2", gpu())
		long := f.Submit(single)
		d := busy.NextDispatch().Accept()
		w := f.Worker("gpu-1", gpu())
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		p := &messages.WorkflowRunParams{RunId: "nobody", File: "test.yaml", Source: single}
		if _, err := f.Do(ctx, messages.VerbWorkflowRun, p, nil); err == nil {
			t.Error("the run was accepted, although its actor has panicked")
		}
		run := f.Submit(single)
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
		if sinceStart() > time.Minute {
			t.Errorf("the slot came back after %s", sinceStart())
		}
		f.Advance(5 * time.Minute)
		f.Submit(single)
		f.Submit(single) // the slot of the long one is not given away meanwhile
		busy.NoDispatch()
		d.Succeed()
		long.WaitStatus(messages.RunSucceeded)
		w.NextDispatch().Succeed()
		busy.NextDispatch().Succeed()
	}, testkit.WithQueueTimeout(time.Hour), testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "run", Command: "slotsReserved", ID: "nobody"}))
}

// A scheduler that starts anew knows the slots that are taken, also while the leases have not introduced themselves.
func TestPanics_ANewSchedulerDoesNotGiveASlotTwice(t *testing.T) {
	t.Parallel()
	late := func(p actors.Point) {
		if p.Kind == "lease" && p.Command == "schedulerStarted" && p.Stage == "received" {
			time.Sleep(time.Second)
		}
	}
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		first := f.Submit(single)
		d := w.NextDispatch().Accept()
		second := f.Submit(single)
		w.NoDispatch()
		f.Advance(10 * time.Second)
		w.NoDispatch()
		if n := f.Metrics().Restarts; n != 1 {
			t.Errorf("%d actors have panicked, want one", n)
		}
		d.Succeed()
		w.NextDispatch().Succeed()
		first.WaitStatus(messages.RunSucceeded)
		second.WaitStatus(messages.RunSucceeded)
	}, testkit.WithHook(late), testkit.WithPanic(testkit.PanicAt{Stage: "decided", Kind: "scheduler", Command: "offerSteps"}))
}
