//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// restarts are the ways in which an orchestrator goes and comes back.
func restarts() map[string]func(*fleet) {
	return map[string]func(*fleet){
		"kill -9": func(f *fleet) { f.crash(); f.restart() },
		"a clean restart": func(f *fleet) {
			f.d.signal(syscall.SIGTERM)
			f.d.exits(30*time.Second, 0)
			f.restart()
		},
	}
}

func TestAdoption_AStepOutlivesRestartsOfTheOrchestrator(t *testing.T) {
	t.Parallel()
	for name, again := range restarts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.worker("w", "--label", "pool=a")
			ledger := newLedger(f)
			run := f.follow(flow(step("count", ledger.script(counting), "labels: {pool: a}")))
			for i := range 3 {
				eventually(t, 20*time.Second, "more output", func() error {
					if have := strings.Count(output(run.events(), "count", ""), "\n"); have < 12*i+5 {
						return fmt.Errorf("%d lines so far", have)
					}
					return nil
				})
				again(f)
			}
			run.exits(60*time.Second, 0)
			wantOnce(t, f, ledger, run, "count", counted())
			f.workerIs("w", "idle", 20*time.Second)
			if !w.alive() {
				t.Error("the worker has left")
			}
		})
	}
}

// What ended while the orchestrator was away counts when it is back.
func TestAdoption_AResultWaitsForTheOrchestrator(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"success": "true", "failure": "exit 7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.worker("w", "--label", "pool=a")
			ledger := newLedger(f)
			run := f.follow(flow(step("late", ledger.gate()+"\necho the end\n"+script, "labels: {pool: a}")))
			ledger.started(t, "late", 1, 20*time.Second)
			f.crash()
			ledger.open(t)
			w.line(30*time.Second, "finished dispatch")
			f.restart()
			want := 0
			if name == "failure" {
				want = 1
			}
			run.exits(60*time.Second, want)
			if got := output(run.events(), "late", "stdout"); got != "the end\n" {
				t.Errorf("it printed %q", got)
			}
			shown := f.show(run.events()[0].RunID).step("late")
			if shown.Losses != 0 || shown.Attempts != 1 || ledger.count(t, "start", "late") != 1 {
				t.Errorf("it started %d times: %+v", ledger.count(t, "start", "late"), shown)
			}
			if err := dense(run.events()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cancel that was accepted before a restart reaches what goes on running through it.
func TestAdoption_ACancelledStepIsNotAdopted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	f.behind(network, "w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.detach(flow(step("long", ledger.gate(), "labels: {pool: a}")))
	pid := ledger.started(t, "long", 1, 20*time.Second)
	network.deny(true)
	network.cut()
	f.swamp("run", "cancel", run)
	f.crash()
	f.restart()
	network.deny(false)
	f.ends(run, 60*time.Second, "cancelled")
	eventually(t, 30*time.Second, "the step's end", func() error {
		if left := living(pid); len(left) > 0 {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
	f.workerIs("w", "idle", 30*time.Second)
}

// A worker that is too late has killed its step before it runs elsewhere; that counts as no loss, since the orchestrator was
// what was away.
func TestAdoption_BeyondTheGraceAStepRunsElsewhereAndLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "3s")
	network := newProxy(t, f.addr)
	f.behind(network, "w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("long", ledger.beating(15), "labels: {pool: a}")))
	first := ledger.started(t, "long", 1, 20*time.Second)
	network.deny(true)
	network.cut()
	f.crash()
	f.restart()
	f.worker("other", "--label", "pool=a")
	run.exits(60*time.Second, 0)
	network.deny(false)
	for _, x := range wrong(ledger.entries(t)) {
		t.Error(x)
	}
	if left := living(first); len(left) > 0 {
		t.Errorf("process %d of the first try lives on", first)
	}
	if s := f.show(run.events()[0].RunID).step("long"); s.Losses != 0 || s.Worker == nil || *s.Worker != "other" {
		t.Errorf("the step is %+v", s)
	}
}

// An orchestrator that was stopped itself does not blame its workers: within the grace nothing happens, and beyond it the
// keepers have rightly killed what they had, which waits again and is no loss.
func TestStall_OfTheOrchestratorIsNotItsWorkersFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		stop   time.Duration
		starts int
	}{{"shorter than the grace", 2 * time.Second, 1}, {"longer than the grace", 9 * time.Second, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "--grace-window", "6s")
			f.worker("w", "--label", "pool=a")
			ledger := newLedger(f)
			run := f.follow(flow(step("long", ledger.gate(), "labels: {pool: a}")))
			ledger.started(t, "long", 1, 20*time.Second)
			f.d.signal(syscall.SIGSTOP)
			stopped := time.Now()
			eventually(t, patient(tt.stop)+10*time.Second, "the time of the stall", func() error {
				if left := tt.stop - time.Since(stopped); left > 0 {
					return fmt.Errorf("%v are left", left)
				}
				return nil
			})
			f.d.signal(syscall.SIGCONT)
			ledger.started(t, "long", tt.starts, 60*time.Second)
			ledger.open(t)
			run.exits(60*time.Second, 0)
			for _, x := range wrong(ledger.entries(t)) {
				t.Error(x)
			}
			if s := f.show(run.events()[0].RunID).step("long"); s.Losses != 0 {
				t.Errorf("the step is %+v", s)
			}
			if n := ledger.count(t, "start", "long"); n != tt.starts {
				t.Errorf("it started %d times, want %d", n, tt.starts)
			}
		})
	}
}
