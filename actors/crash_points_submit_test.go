package actors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

func submitPoints() []crashPoint {
	submitted := func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Settle()
		run := f.Submit(single) // it asks again until there is an answer
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		if got := runs(f); len(got) != 1 {
			t.Errorf("there are the runs %q, want one", got)
		}
		if _, err := f.SubmitAs(run.ID, chain); codeOf(err) != messages.CodeRunIDConflict {
			t.Errorf("another workflow under its id: %v, want a conflict", err)
		}
	}
	wide := func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(waits(300))
		f.Settle()
		f.Worker("gpu-1", gpu(), testkit.Capacity(64), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		for i := range 300 {
			onceEach(f, run, fmt.Sprintf("s%03d", i))
		}
		if n := len(run.Kinds()); n != 4+3*300 && n < 4+4*300-64 {
			t.Errorf("its story has %d events", n)
		}
	}
	half := "run running, " + strings.Join(ordinals(240, "s%03d queued"), ", ") + ", " + strings.Join(ordinals(240, "%d.q1 waiting"), ", ")
	return []crashPoint{
		{row: "S1", point: "before the commit of a submit", cases: []crashCase{
			{name: "the process dies", fault: dies(before("run", "submitRun")), onDisk: "nothing", tell: submitted},
			{name: "the run panics", fault: panics(before("run", "submitRun")), onDisk: "nothing", tell: submitted},
			{name: "the run panics for ever", fault: alwaysPanics(before("run", "submitRun")), onDisk: "nothing", tell: func(t *testing.T, f *testkit.Fleet) {
				if _, err := f.SubmitAs("mine", single); codeOf(err) != messages.CodeInternal {
					t.Errorf("submit: %v, want internal", err)
				}
				if got := runs(f); len(got) != 0 {
					t.Errorf("there are the runs %q, want none", got)
				}
			}},
		}},
		{row: "S2", point: "after the commit of a submit and before its answer", cases: []crashCase{
			{name: "the process dies", fault: dies(after("run", "slotsReserved")), onDisk: "run running, only running, 0.1/1 active", tell: submitted},
			{name: "the run panics", fault: panics(after("run", "slotsReserved")), onDisk: "run running, only running, 0.1/1 active", tell: submitted},
		}},
		{row: "S3", point: "after the commit of a submit and before its steps start", cases: []crashCase{
			{name: "the process dies", fault: dies(after("run", "slotsReserved")), onDisk: "run running, first queued, 0.q1 waiting", tell: queued},
			{name: "the run panics", fault: panics(after("run", "slotsReserved")), onDisk: "run running, first queued, 0.q1 waiting", tell: queued},
			{name: "a step panics at its start", fault: panics(before("step", "beginStep")), onDisk: "run running, only running, 0.1/1 active", tell: submitted},
		}},
		{row: "S4", point: "when the first half of the steps is there", cases: []crashCase{
			{name: "the process dies", fault: dies(before("run", "struct {}")), onDisk: half, bare: true, tell: wide},
			{name: "the run panics", fault: panics(before("run", "struct {}")), onDisk: half, bare: true, tell: wide},
		}},
		{
			row: "S5", point: "a source of more than one commit",
			cases: []crashCase{{name: "the process dies after each commit of it", tell: func(t *testing.T, f *testkit.Fleet) {
				f.Worker("gpu-1", gpu(), testkit.AutoRun())
				f.Settle()
				for n := 1; n <= 4; n++ { // three parts and a head
					source := fmt.Sprintf("# %d %s\n%s", n, strings.Repeat("x", 800<<10), single)
					f.CrashAtBatch(n, downTime)
					f.Submit(source).WaitStatus(messages.RunSucceeded)
					if want := uint64(n + 1); f.Journal().Epoch() < want {
						t.Errorf("the process is at boot %d, want %d", f.Journal().Epoch(), want)
					}
				}
				sources := 0
				if err := f.Journal().Scan(persistence.KindSource, false, "", "", func(persistence.Record) bool { sources++; return true }); err != nil {
					t.Fatal(err)
				}
				if sources != 4*4 {
					t.Errorf("there are %d parts of sources, want 16", sources)
				}
			}}},
			later: "bodies that steps write, which are files: with the data plane",
		},
	}
}

// ordinals are n words with their numbers, in the order of their ids.
func ordinals(n int, format string) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf(format, i)
	}
	slices.Sort(words)
	return words
}

// queued is a run that waits for a worker.
func queued(_ *testing.T, f *testkit.Fleet) {
	run := f.Submit(chain)
	run.WaitEvent(messages.EventStepQueued, "step=first")
	f.Worker("gpu-1", gpu(), testkit.AutoRun())
	run.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "first", "second")
}

func enqueuePoints() []crashPoint {
	// A worker refuses the step, which enters the queue.
	refused := func(_ *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Settle()
		run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 0`))
		w.NextDispatch().RefuseDraining()
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(10 * time.Second)
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
	}
	const (
		unwritten = "run running, only running, 0.1/1 refused"
		born      = "run running, first queued, 0.q1 waiting"
		written   = "run running, only queued, 0.q1 waiting, 0.1/1 refused"
	)
	// ghosts checks that the queue is empty when its one step has ended.
	ghosts := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Settle()
		run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 0`))
		w.NextDispatch().RefuseDraining()
		run.WaitEvent(messages.EventStepQueued)
		f.Advance(10 * time.Second)
		if got := waitingSteps(f); got != "only" {
			t.Errorf("waiting are %q, want the step once", got)
		}
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
		f.Settle()
		if got := waitingSteps(f); got != "" {
			t.Errorf("waiting are %q, want nobody", got)
		}
	}
	return []crashPoint{
		{row: "Q1", point: "before the commit of a wait", cases: []crashCase{
			{name: "the process dies", fault: dies(before("step", "leaseEnded")), onDisk: unwritten, tell: refused},
			{name: "the step panics", fault: panics(before("step", "leaseEnded")), onDisk: unwritten, tell: refused},
			{name: "the step panics for ever", fault: alwaysPanics(before("step", "leaseEnded")), onDisk: unwritten, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(single)
				w.NextDispatch().RefuseDraining()
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
			}},
		}},
		{row: "Q2", point: "a wait is written whole", cases: []crashCase{
			{name: "the process dies after it", fault: dies(after("step", "leaseEnded")), onDisk: written, tell: ghosts},
			{name: "the step panics after it", fault: panics(after("step", "leaseEnded")), onDisk: written, tell: ghosts},
			{name: "a submit dies after it", fault: dies(after("run", "slotsReserved")), onDisk: "run running, only queued, 0.q1 waiting", tell: func(t *testing.T, f *testkit.Fleet) {
				run := f.Submit(single)
				run.WaitEvent(messages.EventStepQueued)
				f.Worker("gpu-1", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if diff := cmp.Diff([]string{"orphaned", "dispatched"}, pendings(t, f, run, 0, 2)); diff != "" {
					t.Errorf("pending dispatches (-want +got):\n%s", diff)
				}
			}},
		}},
		{row: "Q3", point: "the offer of a step that waits is lost", cases: []crashCase{
			{name: "with the step", fault: panics(after("step", "leaseEnded")), onDisk: written, tell: refused},
			{name: "with the scheduler", fault: panics(before("scheduler", "offerStep")), onDisk: written, tell: refused},
			{name: "with the process", fault: dies(before("scheduler", "offerStep")), onDisk: written, tell: refused},
			{name: "with the run", fault: panics(after("run", "slotsReserved")), onDisk: born, tell: queued},
			{name: "of a run, with the scheduler", fault: panics(before("scheduler", "offerSteps")), onDisk: born, tell: queued},
			{name: "of a run, with the process", fault: dies(before("scheduler", "offerSteps")), onDisk: born, tell: queued},
			{name: "with the scheduler every time", fault: alwaysPanics(before("scheduler", "offerStep")), onDisk: written, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(oneStep(`labels: {gpu: "true"}, queueTimeout: 0`))
				w.NextDispatch().RefuseDraining()
				run.WaitEvent(messages.EventStepFailed, "code=internal")
				run.WaitStatus(messages.RunFailed)
			}},
		}},
		{row: "Q4", point: "the deadline and an assignment cross", cases: crossings()},
		{row: "Q5", point: "there is no space for a wait", cases: []crashCase{
			{name: "and then there is", tell: func(t *testing.T, f *testkit.Fleet) { noSpaceForTheNext(t, f, func() {}) }},
			{
				name: "and the run panics meanwhile", fault: panics(nth(3, before("run", "spaceElapsed"))),
				onDisk: "run running, first succeeded, 0.1/1 completed",
				tell:   func(t *testing.T, f *testkit.Fleet) { noSpaceForTheNext(t, f, func() {}) },
			},
			{name: "and the process dies meanwhile", tell: func(t *testing.T, f *testkit.Fleet) {
				noSpaceForTheNext(t, f, func() { f.Crash(); f.Advance(downTime); f.Restart() })
			}},
		}},
		{row: "Q6", point: "many wait", cases: []crashCase{{name: "and the process dies", bare: true, options: []testkit.Option{testkit.WithQueueTimeout(0)}, tell: func(t *testing.T, f *testkit.Fleet) {
			const steps, each = 500, 100
			var all []*testkit.Run
			for range steps / each {
				all = append(all, f.Submit(waits(each)))
				f.Settle()
			}
			order := waitingSteps(f)
			f.Crash()
			f.Advance(downTime)
			f.Restart()
			f.Settle()
			if got := waitingSteps(f); got != order {
				t.Errorf("in line are %d steps, want the same %d in the same order", len(strings.Fields(got)), steps)
			}
			f.Worker("gpu-1", gpu(), testkit.Capacity(64), testkit.AutoRun())
			for _, run := range all {
				run.WaitStatus(messages.RunSucceeded)
				for i := range each {
					onceEach(f, run, fmt.Sprintf("s%03d", i))
					if diff := cmp.Diff([]string{"orphaned", "dispatched"}, pendings(t, f, run, i, 2)); diff != "" {
						t.Fatalf("pending dispatches (-want +got):\n%s", diff)
					}
				}
			}
		}}}},
	}
}

// noSpaceForTheNext ends the first step of a chain while there is no space for the wait of the second one.
func noSpaceForTheNext(t *testing.T, f *testkit.Fleet, meanwhile func()) {
	t.Helper()
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	run := f.Submit(chain)
	d := w.NextDispatch().Accept()
	f.Settle()
	f.Journal().SetSpace(persistence.Space{Free: 10, NewWork: 100, Data: 5})
	d.Succeed()
	run.WaitEvent(messages.EventStepSucceeded, "step=first")
	f.Advance(5 * time.Second)
	if got := run.Kinds("step=second"); len(got) != 0 {
		t.Errorf("of the second step is told %q, want nothing that is not durable", got)
	}
	meanwhile()
	f.Advance(time.Second)
	f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 5})
	w.NextDispatch().Succeed()
	run.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "first", "second")
	within(t, 20*time.Second)
}

// crossings let the deadline of a wait and the choice of a worker meet. The step's mailbox decides, and whoever comes
// second gives its slot back.
func crossings() []crashCase {
	patient := oneStep(`labels: {gpu: "true"}, queueTimeout: 20`)
	// While the step is between the commit of its end and its effects, the scheduler chooses a worker for it.
	slow := func() []testkit.Option { return stalls(after("step", "rouseStep"), 2*time.Second) }
	late := func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(patient)
		f.Advance(21 * time.Second)
		w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunFailed)
		run.WaitEvent(messages.EventStepFailed, "code=queue_timeout")
		f.Advance(10 * time.Second)
		if n := len(w.Dispatches()); n != 0 {
			t.Errorf("the worker got %d dispatches, want none", n)
		}
		f.Submit(single).WaitStatus(messages.RunSucceeded) // its slot is free
	}
	// The same with the step before the commit of its dispatch, and the deadline behind it.
	early := stalls(before("step", "assignStep"), 2*time.Second)
	won := func(_ *testing.T, f *testkit.Fleet) {
		run := f.Submit(patient)
		f.Advance(19 * time.Second)
		f.Worker("gpu-1", gpu(), testkit.Takes(5*time.Second))
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
	}
	const timedOut = "run running, only failed, 0.q1 timed_out"
	return []crashCase{
		{name: "and the deadline is first", options: slow(), tell: late},
		{
			name: "and the deadline is first and the refusal is lost", options: slow(),
			fault: panics(before("step", "assignStep")), onDisk: timedOut, tell: late,
		},
		{
			name: "and the deadline is first and the process dies with the refusal", options: slow(),
			fault: dies(before("step", "assignStep")), onDisk: timedOut, tell: late,
		},
		{name: "and the assignment is first", options: early, tell: won},
	}
}
