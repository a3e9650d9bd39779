//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gone waits until none of the processes lives.
func gone(t testing.TB, within time.Duration, pids ...int) {
	t.Helper()
	eventually(t, within, "the step's processes end", func() error {
		if left := living(pids...); len(left) > 0 {
			var list []found
			for _, pid := range left {
				p, _ := readFound(pid)
				list = append(list, p)
			}
			return fmt.Errorf("still there: %v", list)
		}
		return nil
	})
}

func TestWorker_KilledNothingOfItsStepsOutlivesIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "1s")
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("tree", ledger.script(spread(f)+"\nsleep 600"), "labels: {pool: a}")))
	pids := append(spreadPIDs(t, f), ledger.pid(t, "tree"))
	w.kill()
	gone(t, 5*time.Second, pids...)
	// It waits again once the grace is over, and nobody else is there.
	f.stepIs(id, "tree", "queued", 20*time.Second)
	f.workerIs("w", "disconnected", time.Second)
	f.swamp("run", "cancel", id)
	f.ends(id, 10*time.Second, "cancelled")
}

func TestWorker_KilledAndStartedAgainItIsAdmittedAtOnceAndTheStepRunsThere(t *testing.T) {
	t.Parallel()
	f := newFleet(t) // a grace of a minute: the new instance is what ends the old one's dispatches
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.beating(10), "labels: {pool: a}")))
	ledger.started(t, "long", 1, 10*time.Second)
	w.kill()
	w.again()
	f.ends(id, 30*time.Second, "succeeded")
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	if s := f.show(id).step("long"); s.Losses != 1 {
		t.Errorf("the step has %d losses: %+v", s.Losses, s)
	}
}

func TestWorker_StoppedForLongerThanTheGraceNothingRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "2s")
	frozen := f.worker("frozen", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.beating(60), "labels: {pool: a}")))
	first := ledger.started(t, "long", 1, 10*time.Second)
	frozen.signal(syscall.SIGSTOP)
	f.worker("other", "--label", "pool=a")
	second := ledger.started(t, "long", 2, 30*time.Second)
	if left := living(first); len(left) > 0 {
		t.Errorf("process %d of the first attempt lives while %d runs the second", first, second)
	}
	f.workerIs("frozen", "disconnected", 5*time.Second)
	frozen.signal(syscall.SIGCONT)
	got := f.workerIs("frozen", "idle", 30*time.Second)
	if len(got.ActiveDispatchIDs) != 0 {
		t.Errorf("the worker that came back has %v", got.ActiveDispatchIDs)
	}
	run := f.ends(id, 60*time.Second, "succeeded")
	if s := run.step("long"); s.Worker == nil || *s.Worker != "other" || s.Losses != 1 {
		t.Errorf("the step is %+v", s)
	}
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	// The one that came back is as good as new.
	f.ends(f.detach(flow(step("target", "true", "target: frozen"))), 20*time.Second, "succeeded")
}

func TestWorker_StoppedForAMomentKeepsItsStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.beating(30), "labels: {pool: a}")))
	ledger.started(t, "long", 1, 10*time.Second)
	w.signal(syscall.SIGSTOP)
	holds(t, time.Second, "the step keeps running", func() error {
		if s := f.show(id).step("long"); s.Status != "running" {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	w.signal(syscall.SIGCONT)
	f.ends(id, 30*time.Second, "succeeded")
	ledger.check(t, map[string]int{"long": 1})
}

// stoppedEvent is the last word of a worker with --output json.
func stoppedEvent(w *worker) (kind, reason string) {
	lines := w.stdout()
	var e struct{ Kind, Reason string }
	if len(lines) > 0 {
		_ = json.Unmarshal([]byte(lines[len(lines)-1]), &e) // another kind of line is none
	}
	return e.Kind, e.Reason
}

func TestWorker_ASignalDrainsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		w := f.launchWorker("idle-"+strings.ToLower(strings.ReplaceAll(s.String(), " ", "-")), workerOptions{}, "--output", "json")
		w.line(10*time.Second, `"enrolled"`)
		w.signal(s)
		w.exits(10*time.Second, 0)
		if kind, reason := stoppedEvent(w); kind != "stopped" || reason != "signal" {
			t.Errorf("after %s its last event is %s %s", s, kind, reason)
		}
	}

	w := f.launchWorker("busy", workerOptions{}, "--output", "json", "--label", "pool=a")
	w.line(10*time.Second, `"enrolled"`)
	ledger := newLedger(f)
	id := f.detach(flow(
		step("long", ledger.script("trap 'echo caught a signal' TERM INT HUP; sleep 1"), "labels: {pool: a}"),
		step("next", ledger.script("true"), "labels: {pool: a}", "dependsOn: [long]"),
	))
	ledger.started(t, "long", 1, 10*time.Second)
	w.signal(syscall.SIGTERM)
	w.exits(20*time.Second, 0)
	f.stepIs(id, "long", "succeeded", 5*time.Second)
	f.stepIs(id, "next", "queued", 5*time.Second)
	if logs := string(f.logs(id)); logs != "" {
		t.Errorf("the step heard of the drain: %q", logs)
	}
	w.again().line(10*time.Second, `"enrolled"`)
	f.ends(id, 20*time.Second, "succeeded")
	ledger.check(t, map[string]int{"long": 1, "next": 1})
}

func TestWorker_ASecondSignalKillsItsStepsAndThatIsNoSuccess(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.launchWorker("w", workerOptions{}, "--output", "json", "--label", "pool=a")
	w.line(10*time.Second, `"enrolled"`)
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.script("sleep 600"), "labels: {pool: a}")))
	pid := ledger.started(t, "long", 1, 10*time.Second)
	w.signal(syscall.SIGTERM)
	w.line(10*time.Second, `"draining"`)
	w.signal(syscall.SIGTERM)
	w.exits(10*time.Second, 1)
	gone(t, 5*time.Second, pid)
	if kind, reason := stoppedEvent(w); kind != "stopped" || reason != "forced" {
		t.Errorf("its last event is %s %s", kind, reason)
	}
	// The worker has said so: nobody waits for a grace of a minute.
	f.stepIs(id, "long", "queued", 10*time.Second)
}

func TestWorker_ADrainingWorkerWhoseConnectionIsCutFinishesAndDelivers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	w := f.launchWorker("w", workerOptions{url: "ws://" + network.addr}, "--label", "pool=a")
	w.enrolled()
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.beating(20), "labels: {pool: a}"), step("next", ledger.script("true"), "labels: {pool: a}", "dependsOn: [long]")))
	ledger.started(t, "long", 1, 10*time.Second)
	w.signal(syscall.SIGTERM)
	f.workerIs("w", "draining", 10*time.Second)
	network.cut()
	w.exits(30*time.Second, 0)
	f.stepIs(id, "long", "succeeded", 10*time.Second)
	f.worker("other", "--label", "pool=a")
	shown := f.ends(id, 40*time.Second, "succeeded")
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	if n := ledger.count(t, "start", "long"); n != 1 {
		t.Errorf("its step started %d times", n)
	}
	if by := shown.step("next").Worker; by == nil || *by != "other" {
		t.Errorf("a draining worker took another step: %+v", shown.step("next"))
	}
}

func TestWorker_TheSameMachineTwiceIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	twin := w.again()
	twin.exits(20*time.Second, 1)
	if got := strings.Join(twin.stderr(), "\n"); !strings.Contains(got, w.cache) {
		t.Errorf("it does not name the folder that is in use: %q", got)
	}
	f.workerIs("w", "idle", time.Second)
	f.ends(f.detach(flow(step("one", "true", "labels: {pool: a}"))), 20*time.Second, "succeeded")
}

func TestWorker_RestartedWithOtherLabelsTheLastEnrollmentHolds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a", "--label", "old=1")
	f.detach(flow(step("one", "true", "labels: {pool: b}")))
	f.queueHas(1, 10*time.Second)
	w.signal(syscall.SIGTERM)
	w.exits(10*time.Second, 0)
	w.flags = []string{"--label", "pool=b", "--concurrency", "3"}
	w.again().enrolled()
	f.queueHas(0, 20*time.Second)
	got := f.workerIs("w", "idle", 10*time.Second)
	if got.Capacity != 3 || len(got.Labels) != 1 || got.Labels["pool"] != "b" {
		t.Errorf("worker list says %+v", got)
	}
	if n := len(f.workers()); n != 2 {
		t.Errorf("worker list has %d rows, not loopback and w", n)
	}
}

func TestWorker_AnOrchestratorThatForgotItRefusesItForGood(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w")
	f.crash()
	f.data = f.path("another")
	f.start()
	w.exits(30*time.Second, 1)
	if !strings.Contains(w.text(), "invalid_token") {
		t.Errorf("it does not name the code: %s", w.text())
	}
}

func TestWorker_WithoutAnOrchestratorItGoesOnTryingAndWithNoReconnectItIs3(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	patient := f.launchWorker("patient", workerOptions{token: "patient.abcdef"})
	once := f.launchWorker("once", workerOptions{token: "once.abcdef"}, "--no-reconnect")
	once.exits(20*time.Second, 3)
	patient.line(30*time.Second, "connecting (try 2)")
	patient.signal(syscall.SIGTERM)
	patient.exits(10*time.Second, 0)
}

func TestWorker_ASilentNetworkIsFoundByBothEndsAndTheWorkGoesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "3s")
	network := newProxy(t, f.addr)
	w := f.launchWorker("w", workerOptions{url: "ws://" + network.addr}, "--label", "pool=a")
	w.enrolled()
	network.halfOpen()
	eventually(t, 30*time.Second, "the worker is back on a new connection", func() error {
		if network.accepted() < 2 {
			return fmt.Errorf("one connection so far")
		}
		return nil
	})
	f.ends(f.detach(flow(step("one", "true", "labels: {pool: a}"))), 30*time.Second, "succeeded")
	if !slices.ContainsFunc(w.stdout(), func(l string) bool { return strings.Contains(l, "disconnected") }) {
		t.Errorf("the worker says nothing of it: %s", w.text())
	}
}

func TestWorker_AnUnreliableNetworkRunsEveryStepAndNoneTwiceAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "2s")
	network := newProxy(t, f.addr)
	w := f.launchWorker("w", workerOptions{url: "ws://" + network.addr}, "--label", "pool=a", "--concurrency", "2")
	w.enrolled()
	ledger := newLedger(f)
	var steps []string
	for i := range 8 {
		steps = append(steps, step(fmt.Sprintf("s%d", i), ledger.beating(2), "labels: {pool: a}"))
	}
	id := f.detach(flow(steps...))
	for range 3 {
		n := len(ledger.entries(t))
		eventually(t, 40*time.Second, "something is done", func() error {
			if len(ledger.entries(t)) == n && !f.show(id).ended() {
				return fmt.Errorf("nothing since the last cut")
			}
			return nil
		})
		network.cut()
	}
	run := f.show(id)
	eventually(t, 90*time.Second, "the run ends", func() error {
		if run = f.show(id); !run.ended() {
			return fmt.Errorf("%s", run)
		}
		return nil
	})
	if run.Status != "succeeded" {
		t.Errorf("the run is %s", run)
	}
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	f.workerIs("w", "idle", 20*time.Second)
}
