package actors_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// forEver are the settings of a step that waits as long as it takes.
const forEver = `labels: {gpu: "true"}, queueTimeout: 0`

func assignPoints() []crashPoint {
	// A step waits, a worker comes, and the next step finds the worker's slot free.
	assigned := func(t *testing.T, f *testkit.Fleet) {
		run, next := f.Submit(oneStep(forEver)), f.Submit(oneStep(forEver))
		run.WaitEvent(messages.EventStepQueued)
		next.WaitEvent(messages.EventStepQueued)
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		next.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		onceEach(f, next, "only")
		if got := run.Step("only").GetLosses(); got != 0 {
			t.Errorf("losses are %d, want none", got)
		}
		within(t, 20*time.Second)
	}
	first := func(at testkit.PanicAt) testkit.PanicAt { at.ID = "run-0001"; return at }
	const (
		waiting = "run running, run running, only queued, only queued, 0.q1 waiting, 0.q1 waiting"
		whole   = "run running, run running, only running, only queued, 0.q1 waiting, 0.q1 dispatched, 0.1/1 active"
	)
	return []crashPoint{
		{row: "A1", point: "the scheduler panics with steps that wait", cases: []crashCase{
			{name: "in line", fault: panics(before("scheduler", "workerKnown")), onDisk: waiting, tell: assigned},
			{name: "refused a moment ago", fault: panics(nth(2, before("scheduler", "workerStirred"))), tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(oneStep(forEver))
				w.NextDispatch().RefuseBusy()
				run.WaitEvent(messages.EventStepQueued)
				w.SayIdle()
				w.NextDispatch().RefuseBusy()
				run.WaitEvent(messages.EventStepQueued)
				w.SayIdle()
				w.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
			}},
		}},
		{row: "A2", point: "a step is told its worker, before the commit", cases: []crashCase{
			{name: "it panics", fault: panics(first(before("step", "assignStep"))), onDisk: waiting, tell: assigned},
			{name: "the process dies", fault: dies(first(before("step", "assignStep"))), onDisk: waiting, tell: assigned},
			{name: "it panics for ever", fault: alwaysPanics(first(before("step", "assignStep"))), onDisk: waiting, tell: func(_ *testing.T, f *testkit.Fleet) {
				run, next := f.Submit(oneStep(forEver)), f.Submit(oneStep(forEver))
				next.WaitEvent(messages.EventStepQueued)
				f.Worker("gpu-1", gpu(), testkit.AutoRun())
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
				next.WaitStatus(messages.RunSucceeded)
			}},
		}},
		{row: "A3", point: "the dispatch of a step that waits is written whole", cases: []crashCase{
			{name: "the step panics after it", fault: panics(first(after("step", "assignStep"))), onDisk: whole, tell: assigned},
			{name: "the process dies after it", fault: dies(first(after("step", "assignStep"))), onDisk: whole, tell: assigned},
		}},
		{row: "A4", point: "the worker is not what it was, before the commit of its dispatch", cases: []crashCase{
			changedMind("it is gone", func(_ *testkit.Fleet, w *testkit.Worker) { w.Drop() }),
			changedMind("it drains", func(_ *testkit.Fleet, w *testkit.Worker) { saysDraining(w) }),
			changedMind("it is another process", func(f *testkit.Fleet, w *testkit.Worker) {
				w.Drop()
				if err := w.TryReconnect(testkit.AsNewInstance()); err != nil {
					f.T().Errorf("reconnect: %v", err)
				}
				w.Drop()
			}),
		}},
		{row: "A5", point: "the scheduler panics when it has chosen", cases: []crashCase{
			{
				name: "before the commit of the dispatch", options: stalls(first(before("step", "assignStep")), time.Second),
				fault: panics(nth(2, before("scheduler", "reserveSlots"))), onDisk: "run running, only queued, 0.q1 waiting",
				tell: func(t *testing.T, f *testkit.Fleet) { chosenTwice(t, f) },
			},
			{
				name: "and the process dies then", options: stalls(first(before("step", "assignStep")), time.Second),
				fault: dies(nth(2, before("scheduler", "reserveSlots"))), onDisk: "run running, only queued, 0.q1 waiting",
				tell: func(t *testing.T, f *testkit.Fleet) { chosenTwice(t, f) },
			},
		}},
	}
}

// changedMind is a worker that changes between the choice of the scheduler and the commit of the step: nothing is written
// and nothing sent, and the episode goes on.
func changedMind(name string, change func(f *testkit.Fleet, w *testkit.Worker)) crashCase {
	changes := testkit.WithCall(before("step", "assignStep"), func(f *testkit.Fleet) {
		change(f, f.Find("gpu-1"))
		time.Sleep(time.Second)
	})
	// The scheduler hears of the worker a second late, so that the test knows it before.
	options := append(stalls(before("scheduler", "workerKnown"), time.Second), changes)
	return crashCase{name: name, options: options, tell: func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(oneStep(forEver))
		run.WaitEvent(messages.EventStepQueued)
		w := f.Worker("gpu-1", gpu())
		f.Advance(10 * time.Second)
		w.NoDispatch()
		if diff := cmp.Diff([]string{"waiting"}, pendings(t, f, run, 0, 1)); diff != "" {
			t.Errorf("pending dispatches (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string(nil), leaseStates(t, f, run, 0)); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		if diff := cmp.Diff([]string{"dispatched"}, pendings(t, f, run, 0, 1)); diff != "" {
			t.Errorf("pending dispatches at the end (-want +got):\n%s", diff)
		}
	}}
}

// chosenTwice has a scheduler choose for a step while the choice of the one before it is under way.
func chosenTwice(t *testing.T, f *testkit.Fleet) {
	t.Helper()
	run := f.Submit(oneStep(forEver))
	run.WaitEvent(messages.EventStepQueued)
	w := f.Worker("gpu-1", gpu(), testkit.Capacity(2), testkit.AutoRun())
	f.Settle()
	next := f.Submit(oneStep(forEver))
	run.WaitStatus(messages.RunSucceeded)
	next.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "only")
	onceEach(f, next, "only")
	f.Settle()
	if n := len(w.Dispatches()); n != 2 {
		t.Errorf("the worker got %d dispatches, want one for each step", n)
	}
}

func leasePoints() []crashPoint {
	const active = "run running, only running, 0.1/1 active"
	// A worker is there, and gets a step.
	taken := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Settle()
		run := f.Submit(single)
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		if got := run.Step("only").GetLosses(); got != 0 {
			t.Errorf("losses are %d, want none", got)
		}
		within(t, 20*time.Second) // and not a grace
		next := f.Submit(single)
		next.WaitStatus(messages.RunSucceeded) // its slot is free
		if got := len(w.Dispatches()); got > 3 {
			t.Errorf("the worker got %d dispatches", got)
		}
	}
	gone := func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu())
		f.Settle()
		run := f.Submit(oneStep(forEver))
		run.WaitEvent(messages.EventStepWorkerLost)
		if got, want := sinceStart(), downTime+time.Minute; got < want || got > want+time.Second {
			t.Errorf("its worker was waited for until %s, want one grace after the restart at %s", got, want)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	}
	failed := func(_ *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Settle()
		run := f.Submit(single)
		run.WaitEvent(messages.EventStepFailed, "code=internal")
		run.WaitStatus(messages.RunFailed)
	}
	return []crashPoint{
		{row: "L1", point: "a lease is there, and its worker's actor has not heard of it", cases: []crashCase{
			{name: "the process dies", fault: dies(after("run", "slotsReserved")), onDisk: active, tell: taken},
			{name: "the process dies and the worker does not come back", fault: dies(after("run", "slotsReserved")), onDisk: active, tell: gone},
		}},
		{row: "L2", point: "a lease is there, and has not told its worker", cases: []crashCase{
			{name: "its run panics", fault: panics(after("run", "slotsReserved")), onDisk: active, tell: taken},
			{name: "it panics", fault: panics(before("lease", "ensureLease")), onDisk: active, tell: taken},
			{name: "it panics for ever", fault: alwaysPanics(before("lease", "ensureLease")), onDisk: active, tell: taken},
		}},
		{row: "L3", point: "a worker's actor has a lease and has not sent it", cases: []crashCase{
			{name: "it panics", fault: panics(before("worker", "leaseHere")), onDisk: active, tell: taken},
			{name: "the process dies", fault: dies(before("worker", "leaseHere")), onDisk: active, tell: taken},
			{name: "it panics for ever", fault: alwaysPanics(before("worker", "leaseHere")), onDisk: active, tell: failed},
		}},
		{row: "L4", point: "a dispatch finds no space", cases: []crashCase{
			{name: "of a step that waits", tell: func(t *testing.T, f *testkit.Fleet) {
				run := f.Submit(oneStep(forEver))
				run.WaitEvent(messages.EventStepQueued)
				w := f.Worker("gpu-1", gpu(), testkit.Draining())
				f.Settle()
				f.Journal().SetSpace(persistence.Space{Free: 1, NewWork: 100, Data: 50, Hard: 20})
				f.Advance(time.Minute)
				w.NoDispatch()
				if diff := cmp.Diff([]string{"waiting"}, pendings(t, f, run, 0, 1)); diff != "" {
					t.Errorf("pending dispatches (-want +got):\n%s", diff)
				}
				f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50, Hard: 20})
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if diff := cmp.Diff([]string{"dispatched"}, pendings(t, f, run, 0, 1)); diff != "" {
					t.Errorf("pending dispatches at the end (-want +got):\n%s", diff)
				}
			}},
			{name: "with a worker that has a slot", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				first := f.Submit(single)
				d := w.NextDispatch().Accept()
				run := f.Submit(oneStep(forEver))
				run.WaitEvent(messages.EventStepQueued)
				other := f.Worker("gpu-2", testkit.Labels{"gpu": "true", "more": "yes"}, testkit.Capacity(2))
				other.NextDispatch().RefuseBusy()
				run.WaitEvent(messages.EventStepQueued)
				f.Journal().SetSpace(persistence.Space{Free: 1, NewWork: 100, Data: 50, Hard: 20})
				other.SayIdle()
				f.Advance(time.Minute)
				other.NoDispatch()
				if got := waitingSteps(f); got != "only" {
					t.Errorf("waiting are %q, want the step", got)
				}
				f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50, Hard: 20})
				other.NextDispatch().Succeed()
				run.WaitStatus(messages.RunSucceeded)
				d.Succeed()
				first.WaitStatus(messages.RunSucceeded)
				within(t, 70*time.Second)
			}},
		}},
	}
}
