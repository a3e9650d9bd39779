//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// stages are moments in the life of a run of two steps, the second after the first. Each returns when its moment is
// there.
func stages() []struct {
	name string
	wait func(*fleet, *ledger, follower)
} {
	event := func(kind, step string) func(*fleet, *ledger, follower) {
		return func(_ *fleet, _ *ledger, run follower) { run.event(20*time.Second, kind, step) }
	}
	return []struct {
		name string
		wait func(*fleet, *ledger, follower)
	}{
		{"as soon as the run is accepted", event("run_started", "")},
		{"as soon as the step leaves the queue", event("step_dispatched", "first")},
		{"while the step runs", func(_ *fleet, l *ledger, run follower) { l.started(run.t, "first", 1, 20*time.Second) }},
		{"when the step has printed", event("step_output", "first")},
		{"when the script has come to its end", func(_ *fleet, l *ledger, run follower) {
			eventually(run.t, 20*time.Second, "the first step ends", func() error {
				if l.count(run.t, "end", "first") == 0 {
					return fmt.Errorf("not yet")
				}
				return nil
			})
		}},
		{"right after the first step succeeded", event("step_succeeded", "first")},
		{"right after the second was dispatched", event("step_dispatched", "second")},
		{"right after the second succeeded", event("step_succeeded", "second")},
	}
}

// victims are what is killed at a stage, each with how it comes back.
func victims() []struct {
	name string
	kill func(*fleet, *worker)
} {
	return []struct {
		name string
		kill func(*fleet, *worker)
	}{
		{"swampd", func(f *fleet, _ *worker) { f.restart() }},
		{"swampd twice", func(f *fleet, _ *worker) {
			f.crash()
			f.launchSwampd()
			f.d.kill()
			f.start()
		}},
		{"the worker", func(_ *fleet, w *worker) {
			w.kill()
			w.again()
		}},
		{"both", func(f *fleet, w *worker) {
			f.crash()
			w.kill()
			f.start()
			w.again()
		}},
	}
}

func TestKill_AtEveryStageTheRunEndsAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	for _, v := range victims() {
		for _, s := range stages() {
			t.Run(v.name+" "+s.name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, "--grace-window", "1s")
				w := f.worker("w", "--label", "pool=a")
				ledger := newLedger(f)
				run := f.follow(flow(
					step("first", ledger.beating(3), "labels: {pool: a}"),
					step("second", ledger.beating(2), "labels: {pool: a}", "dependsOn: [first]"),
				))
				s.wait(f, ledger, run)
				v.kill(f, w)
				run.exits(60*time.Second, 0)
				checkBooks(t, f, ledger, run)
			})
		}
	}
}

// checkBooks wants books that agree with each other and with the ledger, after a run that succeeded.
func checkBooks(t *testing.T, f *fleet, ledger *ledger, run follower) {
	t.Helper()
	events := run.events()
	if err := dense(events); err != nil {
		t.Error(err)
	}
	entries := ledger.entries(t)
	for _, w := range wrong(entries) {
		t.Error(w)
	}
	for _, e := range entries { // durable, then told
		told := func(x event) bool {
			return x.Kind == "step_dispatched" && x.DispatchID == e.dispatch && x.Step == e.step
		}
		if e.what == "start" && !slices.ContainsFunc(events, told) {
			t.Errorf("dispatch %s of step %s started, and the run's history does not have it", e.dispatch, e.step)
		}
	}
	shown := f.show(events[0].RunID)
	if shown.Status != "succeeded" {
		t.Errorf("the run is %s", shown)
	}
	for _, name := range []string{"first", "second"} {
		s := shown.step(name)
		if s.Status != "succeeded" || s.DispatchID == nil {
			t.Errorf("step %s is %+v", name, s)
			continue
		}
		// The dispatch that the books say succeeded is the one that came to its end, and it is the last one.
		starts := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.step != name || e.what != "start" })
		ends := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.step != name || e.what != "end" })
		if len(ends) == 0 || ends[len(ends)-1].dispatch != *s.DispatchID || starts[len(starts)-1].dispatch != *s.DispatchID {
			t.Errorf("step %s: the books name dispatch %s, the ledger has starts %v and ends %v", name, *s.DispatchID, starts, ends)
		}
	}
	if q := f.queue(); len(q) != 0 {
		t.Errorf("the queue still holds %+v", q)
	}
	if w := f.workerIs("w", "idle", 20*time.Second); len(w.ActiveDispatchIDs) != 0 {
		t.Errorf("the worker still has %v", w.ActiveDispatchIDs)
	}
}

// What was acknowledged to be over is over: it must not run again after a crash.
func TestKill_RightAfterSuccessNothingRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "1s")
	f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	want := map[string]int{}
	for i := range 6 {
		name := fmt.Sprintf("s%d", i)
		// A connection that lasts less than a second makes a worker come back later each time.
		run := f.follow(flow(step(name, ledger.script("sleep 1"), "labels: {pool: a}")))
		run.event(30*time.Second, "step_succeeded", name)
		f.restart()
		run.exits(30*time.Second, 0)
		f.workerIs("w", "idle", 30*time.Second)
		want[name] = 1
	}
	ledger.check(t, want)
}

func TestKill_ARunThatWasAcceptedIsThereAndWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var ids []string
	for i := range 8 {
		ids = append(ids, f.detach(flow(step("wait", "true", "labels: {pool: a}"), step("later", "true", "dependsOn: [wait]"))))
		if i%2 == 0 {
			f.restart()
		}
	}
	f.restart()
	got := f.queueHas(len(ids), 10*time.Second)
	for i, q := range got { // oldest first, and a restart costs nobody its place
		if q.RunID != ids[i] || q.StepName != "wait" {
			t.Errorf("place %d of the queue has %s of run %s, not wait of run %s", i, q.StepName, q.RunID, ids[i])
		}
	}
	f.worker("w", "--label", "pool=a")
	for _, id := range ids {
		f.ends(id, 30*time.Second, "succeeded")
	}
}

func TestKill_ACancelThatWasAcceptedHolds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "1s")
	f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	running := f.detach(flow(step("running", ledger.script("sleep 600"), "labels: {pool: a}"), step("after", ledger.script("true"), "dependsOn: [running]")))
	ledger.started(t, "running", 1, 20*time.Second)
	queued := f.detach(flow(step("queued", ledger.script("true"), "labels: {pool: a}")))
	f.queueHas(1, 10*time.Second)
	for _, id := range []string{queued, running} { // the other way round the freed slot would be the queued one's
		f.swamp("run", "cancel", id)
	}
	f.restart()
	for _, id := range []string{running, queued} {
		f.ends(id, 30*time.Second, "cancelled")
	}
	f.workerIs("w", "idle", 20*time.Second)
	for step, want := range map[string]int{"running": 1, "queued": 0, "after": 0} {
		if n := ledger.count(t, "start", step); n != want {
			t.Errorf("step %s started %d times, not %d", step, n, want)
		}
	}
}

func TestKill_TheBootTellsWhatItFoundInOneLine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "2s")
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	f.detach(flow(step("busy", ledger.script("sleep 600"), "labels: {pool: a}")))
	for range 2 {
		f.detach(flow(step("waiting", "true", "labels: {pool: b}")))
	}
	ledger.started(t, "busy", 1, 20*time.Second)
	f.queueHas(2, 10*time.Second)
	f.crash()
	w.kill()
	f.start()
	const want = "reconciled: 1 leases expired, 2 pending dispatches orphaned, 1 workers disconnected, 3 runs resumed, 0 records quarantined"
	f.d.line(5*time.Second, want)
	f.workerIs("w", "disconnected", 5*time.Second)
	f.queueHas(3, 20*time.Second) // the grace is over: the step waits again
}

func TestKill_AnUnplacedStepOnLoopbackDiesWithItsOrchestratorAndRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ledger := newLedger(f)
	id := f.detach(flow(step("own", ledger.gate())))
	first := ledger.started(t, "own", 1, 20*time.Second)
	f.restart()
	ledger.started(t, "own", 2, 20*time.Second)
	ledger.open(t)
	f.ends(id, 30*time.Second, "succeeded")
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	if left := living(first); len(left) > 0 {
		t.Errorf("process %d of the first attempt lives on", first)
	}
	if n := ledger.count(t, "end", "own"); n != 1 {
		t.Errorf("the step came to its end %d times", n)
	}
}

func TestStop_SwampdEndsWith0AndSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ledger := newLedger(f)
	f.detach(flow(step("own", ledger.script("trap '' TERM; while true; do sleep 1; done"))))
	pid := ledger.started(t, "own", 1, 20*time.Second)
	f.d.signal(syscall.SIGTERM)
	f.d.exits(40*time.Second, 0)
	eventually(t, 5*time.Second, "the step of the loopback ends with it", func() error {
		if left := living(pid); len(left) > 0 {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}
