//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// behind starts a worker that reaches the orchestrator by a proxy.
func (f *fleet) behind(network *proxy, name string, flags ...string) *worker {
	f.t.Helper()
	w := f.launchWorker(name, workerOptions{url: "ws://" + network.addr}, flags...)
	w.enrolled()
	return w
}

// wantOnce wants a run that succeeded with its step carried out once, and its output whole.
func wantOnce(t *testing.T, f *fleet, ledger *ledger, run follower, name, want string) {
	t.Helper()
	wantWhole(t, run.events(), name, want)
	ledger.check(t, map[string]int{name: 1})
	if s := f.show(run.events()[0].RunID).step(name); s.Losses != 0 || s.Attempts != 1 {
		t.Errorf("the step is %+v", s)
	}
}

func TestCut_AStepOutlivesTheConnectionsOfItsWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	f.behind(network, "w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("count", ledger.script(counting), "labels: {pool: a}")))
	for i := range 4 {
		eventually(t, 20*time.Second, "more output", func() error {
			if have := strings.Count(output(run.events(), "count", ""), "\n"); have < 12*i+5 {
				return fmt.Errorf("%d lines so far", have)
			}
			return nil
		})
		network.cut()
	}
	run.exits(60*time.Second, 0)
	wantOnce(t, f, ledger, run, "count", counted())
	if n := network.accepted(); n < 4 {
		t.Errorf("the worker connected %d times: the test has cut nothing", n)
	}
}

// A cut of some seconds, under which the step ends.
func TestCut_AResultWaitsUntilTheWorkerIsBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	w := f.behind(network, "w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("count", ledger.script(counting), "labels: {pool: a}")))
	run.event(20*time.Second, "step_output", "count")
	network.deny(true)
	network.cut()
	w.line(60*time.Second, "finished dispatch")
	network.deny(false)
	run.exits(60*time.Second, 0)
	wantOnce(t, f, ledger, run, "count", counted())
}

func TestCut_AConnectionThatSwallowsEverythingIsFoundByTheWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "20s")
	network := newProxy(t, f.addr)
	w := f.behind(network, "w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("wait", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "wait", 1, 20*time.Second)
	network.halfOpen()
	w.line(60*time.Second, "disconnected: ")
	f.workerIs("w", "busy", 60*time.Second)
	ledger.open(t)
	run.exits(60*time.Second, 0)
	wantOnce(t, f, ledger, run, "wait", "")
}

// What cannot be back in time ends before it begins elsewhere, whether its worker is cut off or stopped.
func TestCut_BeyondTheGraceAStepRunsElsewhereAndNeverTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		off, on func(*worker, *proxy)
	}{
		{"cut off", func(_ *worker, n *proxy) { n.deny(true); n.cut() }, func(_ *worker, n *proxy) { n.deny(false) }},
		{"a network that swallows everything", func(_ *worker, n *proxy) { n.deny(true); n.halfOpen() }, func(_ *worker, n *proxy) { n.deny(false) }},
		{"stopped", func(w *worker, _ *proxy) { w.signal(syscall.SIGSTOP) }, func(w *worker, _ *proxy) { w.signal(syscall.SIGCONT) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "--grace-window", "3s")
			network := newProxy(t, f.addr)
			w := f.behind(network, "w", "--label", "pool=a")
			ledger := newLedger(f)
			// It ends at its second start. The first one does not care for TERM.
			script := "trap '' TERM\n" + ledger.script(fmt.Sprintf(`[ "$(grep -c ^start %[1]s)" -gt 1 ] || while true; do
  sleep 0.05
  echo "beat $SWAMP_RUN_ID $SWAMP_STEP $SWAMP_ATTEMPT $$ $SWAMP_DISPATCH_ID" >> %[1]s
done`, ledger.path))
			run := f.follow(flow(step("long", script, "labels: {pool: a}")))
			first := ledger.started(t, "long", 1, 20*time.Second)
			f.worker("other", "--label", "pool=a")
			tt.off(w, network)
			run.exits(60*time.Second, 0)
			tt.on(w, network)
			f.workerIs("w", "idle", 60*time.Second)
			for _, x := range wrong(ledger.entries(t)) {
				t.Error(x)
			}
			if n := ledger.count(t, "start", "long"); n != 2 {
				t.Errorf("it started %d times", n)
			}
			if left := living(first); len(left) > 0 {
				t.Errorf("process %d of the first try lives on", first)
			}
			if s := f.show(run.events()[0].RunID).step("long"); s.Losses != 1 || s.Worker == nil || *s.Worker != "other" {
				t.Errorf("the step is %+v", s)
			}
		})
	}
}

// A process that comes after one that was killed enrolls only when nothing of that one's steps is left.
func TestCut_ANewProcessOfAMachineWaitsForTheOldStepsToEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	script := "trap 'sleep 2; exit 1' TERM\n" + ledger.script(fmt.Sprintf(`[ "$(grep -c ^start %[1]s)" -gt 1 ] || while true; do
  sleep 0.05
  echo "beat $SWAMP_RUN_ID $SWAMP_STEP $SWAMP_ATTEMPT $$ $SWAMP_DISPATCH_ID" >> %[1]s
done`, ledger.path))
	run := f.follow(flow(step("long", script, "labels: {pool: a}")))
	first := ledger.started(t, "long", 1, 20*time.Second)
	w.kill()
	again := w.again()
	again.enrolled()
	if left := living(first); len(left) > 0 {
		t.Errorf("it enrolled while process %d of its predecessor lived", first)
	}
	run.exits(60*time.Second, 0)
	for _, x := range wrong(ledger.entries(t)) {
		t.Error(x)
	}
}

// Output beyond what may be under way goes to the worker's disk while it is cut off, and from there to the run, whole.
func TestCut_OutputWaitsOnTheWorkersDisk(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	w := f.behind(network, "w", "--label", "pool=a")
	const lines = 200_000
	run := f.follow(flow(step("talk", "sleep 1; seq 1 200000", "labels: {pool: a}")))
	run.event(20*time.Second, "step_dispatched", "talk")
	network.deny(true)
	network.cut()
	w.line(60*time.Second, "finished dispatch")
	network.deny(false)
	run.exits(60*time.Second, 0)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if got := output(run.events(), "talk", "stdout"); got != want.String() {
		t.Errorf("%d bytes of output came, want %d, or others", len(got), want.Len())
	}
}
