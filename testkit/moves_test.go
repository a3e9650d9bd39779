package testkit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// anywhere is a workflow of one step that any worker can take.
const anywhere = "name: n\njobs: [{name: main, steps: [{name: only, run: work}]}]\n"

func TestScript_EachMoveIsWhatItSays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                string
		moves               []testkit.Move
		status              messages.RunStatus
		dispatched, lost    int
		executions, waiting int
	}{
		{"it succeeds", []testkit.Move{testkit.Succeed}, messages.RunSucceeded, 1, 0, 1, 0},
		{"it prints", []testkit.Move{testkit.Print("hello\n", testkit.Succeed)}, messages.RunSucceeded, 1, 0, 1, 0},
		{"it fails", []testkit.Move{testkit.Fail(messages.CodeExitNonzero, "exit status 7")}, messages.RunFailed, 1, 0, 1, 0},
		{"it is slow", []testkit.Move{testkit.Slow(59 * time.Minute)}, messages.RunSucceeded, 1, 0, 1, 0},
		{"it is busy", []testkit.Move{testkit.RefuseBusy, testkit.Succeed}, messages.RunSucceeded, 2, 0, 1, 1},
		{"it cannot start", []testkit.Move{testkit.CannotStart, testkit.Succeed}, messages.RunSucceeded, 2, 0, 1, 1},
		{"it loses its connection before it accepts", []testkit.Move{testkit.DropBeforeAccept, testkit.Succeed}, messages.RunSucceeded, 2, 0, 1, 1},
		{"it loses its connection after it accepts", []testkit.Move{testkit.DropAfterAccept, testkit.Succeed}, messages.RunSucceeded, 1, 0, 1, 0},
		{"it dies", []testkit.Move{testkit.Die, testkit.Succeed}, messages.RunSucceeded, 2, 1, 2, 1},
		{"it dies again and again", []testkit.Move{testkit.Die}, messages.RunFailed, 3, 3, 3, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, testkit.WithQueueTimeout(0))
				f.Worker("w1", testkit.Script(tt.moves...))
				run := f.Submit(anywhere)
				run.WaitStatus(tt.status)
				run.Expect("only").WasDispatched(tt.dispatched).WasLost(tt.lost).Waited(tt.waiting)
				if n := f.Executions(run, "only"); n != tt.executions {
					t.Errorf("%d executions, want %d", n, tt.executions)
				}
			})
		})
	}
}

func TestScript_AWorkerThatHangsEndsWithTheCancel(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("w1", testkit.Script(testkit.Hang))
		run := f.Submit(anywhere)
		run.Expect("only").RunsOn("w1")
		f.Advance(12 * time.Hour)
		run.Expect("only").RunsOn("w1")
		run.Cancel()
		run.IsCancelled()
	})
}

func TestScript_ADispatchThatIsIgnoredIsAskedForAgain(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		w := f.Worker("w1", testkit.Script(testkit.Ignore))
		run := f.Submit(anywhere)
		f.Advance(time.Minute)
		if d := w.Dispatches(); len(d) != 1 || d[0].Repeats() < 5 {
			t.Errorf("%d dispatches", len(d))
		}
		w.Dispatches()[0].Succeed()
		run.Succeeds()
	})
}

func TestScript_AWorkerThatDrainsGetsNothingMore(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("w1", testkit.Script(testkit.RefuseDraining))
		run := f.Submit(anywhere)
		run.Expect("only").WaitsBecause("draining")
		f.Worker("w2", testkit.AutoRun())
		run.Succeeds()
		f.Expect("w1").Is(messages.WorkerDraining)
	})
}

func TestWorker_OfAnotherProtocolIsRefusedAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		_, err := f.Enroll("old", testkit.Speaks(0, messages.ProtocolMin-1))
		if messages.CodeOf(err) != messages.CodeProtocolMismatch {
			t.Errorf("too old: %v", err)
		}
		_, err = f.Enroll("new", testkit.Speaks(messages.ProtocolVersion+1, messages.ProtocolVersion+5))
		if messages.CodeOf(err) != messages.CodeProtocolMismatch {
			t.Errorf("too new: %v", err)
		}
		if n := len(f.Workers()); n != 0 {
			t.Errorf("%d workers are known", n)
		}
		f.Worker("both", testkit.Speaks(messages.ProtocolVersion, messages.ProtocolVersion+1))
	})
}

func TestWorker_ThatTalksGarbageDisturbsNobodyElse(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("w1", testkit.Labels{"good": "true"}, testkit.Takes(time.Minute))
		bad := f.Worker("bad")
		run := f.Submit("name: n\nlabels: {good: \"true\"}\njobs: [{name: main, steps: [{name: only, run: work}]}]\n")
		run.Expect("only").RunsOn("w1")
		stranger := f.Socket()
		for range 3 {
			for _, frame := range testkit.Garbage() {
				bad.Send(frame)
			}
			for _, frame := range testkit.Garbage() {
				stranger.Send(frame)
			}
		}
		f.Settle()
		run.Expect("only").RunsOn("w1").WasDispatched(1)
		run.Succeeds()
	})
}

func TestNetwork_ADelayDelaysAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		w := f.Worker("w1", testkit.Delayed(2*time.Second))
		run := f.Submit(anywhere)
		began := time.Now()
		d := w.NextDispatch()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("a dispatch takes %s", took)
		}
		for range 20 {
			d.Output("a line\n")
		}
		w.Delay(0) // what is on its way is not overtaken
		d.Output("the last line\n").Succeed()
		run.Succeeds()
		if lines := run.Lines("only"); len(lines) != 21 || lines[20] != "the last line" {
			t.Errorf("it printed %q", lines)
		}
	})
}

func TestDisk_FailsAndTheNextProcessGoesOn(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testkit.Disk){
		"before it is written": (*testkit.Disk).Fail, "after it is written": (*testkit.Disk).FailLate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t, testkit.WithFaults(), testkit.WithSupervisor(time.Second))
				f.Worker("w1", testkit.Takes(time.Minute))
				run := f.Submit(anywhere)
				run.Expect("only").RunsOn("w1")
				fail(f.Disk())
				run.Succeeds()
				run.Expect("only").WasDispatched(1)
			})
		})
	}
}

func TestDisk_WithoutASupervisorSomebodyHasToRestart(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithFaults())
		f.Disk().Fail()
		f.Go(func() { _, _ = f.SubmitAs("r1", anywhere) })
		if err := f.WaitFailed(); !errors.Is(err, testkit.ErrDisk) {
			t.Errorf("it gave up because of %v", err)
		}
		f.Crash()
		f.Restart()
		f.Worker("w1", testkit.AutoRun())
		f.Eventually("the run is there", func() bool { return len(f.RunList()) == 1 })
		f.Follow("r1").Succeeds()
	})
}

func TestDisk_ThatIsFullTakesNoNewWorkUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	for _, full := range []testkit.Fullness{testkit.NoNewWork, testkit.NoOutput, testkit.Full} {
		testkit.Bubble(t, func(t *testing.T) {
			f := testkit.Start(t, testkit.WithFaults())
			f.Worker("w1", testkit.AutoRun())
			f.Disk().Fill(full)
			if _, err := f.SubmitAs("r1", anywhere); messages.CodeOf(err) != messages.CodeNoSpace {
				t.Errorf("fullness %d: %v", full, err)
			}
			f.Disk().Fill(testkit.Roomy)
			f.Submit(anywhere).Succeeds()
		})
	}
}

func TestDisk_ThatIsSlowDelaysAndNothingElse(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Worker("w1", testkit.AutoRun())
		f.Disk().Slow(3 * time.Second)
		run := f.Submit(anywhere)
		run.Succeeds()
		run.Expect("only").WasDispatched(1)
	})
}

// A disk that has lost what it had promised is no reason for anything worse: runs that were lost are unknown, the others
// go on from what is known.
func TestCrash_ALostTailOfTheJournalLeavesBooksThatAgree(t *testing.T) {
	t.Parallel()
	for tail := 1; tail <= 12; tail++ {
		testkit.Bubble(t, func(t *testing.T) {
			f := testkit.Start(t, testkit.WithFaults())
			f.Worker("w1", testkit.Takes(time.Minute), testkit.Capacity(2))
			first := f.Submit(anywhere)
			first.Expect("only").RunsOn("w1")
			f.Advance(30 * time.Second)
			f.Submit(anywhere)
			f.Settle()
			f.Crash(testkit.LosingTail(tail))
			f.Restart()
			f.Eventually("all that is left has ended", func() bool {
				for _, r := range f.RunList() {
					if r.GetEndedAt() == nil {
						return false
					}
				}
				return true
			})
			f.Worker("w2", testkit.AutoRun()) // whatever became of the first one
			f.Submit("name: n\njobs: [{name: main, steps: [{name: later, run: work}]}]\n").Succeeds()
		})
	}
}
