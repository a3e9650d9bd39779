//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shownWorker is what worker show says beyond the list.
type shownWorker struct {
	workerShown

	IntentSince, Until *time.Time
	Note               *string
	RemainingMs        *float64
	Running, Recent    []struct {
		DispatchID, RunID, JobName, StepName, Status string
		Attempt                                      int
		Error, Code                                  *string
		StartedAt, EndedAt                           *time.Time
	}
}

func (f *fleet) showWorker(name string) shownWorker {
	f.t.Helper()
	var w shownWorker
	f.ask("worker.show", fmt.Sprintf(`{"name":%q}`, name), &w)
	return w
}

// drains wants a count of drains for a reason in the metrics.
func (f *fleet) drains(reason string, want int) {
	f.t.Helper()
	r, err := f.http.Get(f.url() + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		f.t.Fatalf("metrics: %s, %v", r.Status, err)
	}
	if line := fmt.Sprintf("swamp_worker_drains_total{reason=%q} %d\n", reason, want); !strings.Contains(string(body), line) {
		f.t.Errorf("the metrics lack %s", line)
	}
}

// leftFor wants the worker to have left on purpose, for that reason.
func (w *worker) leftFor(within time.Duration, reason string) {
	w.t.Helper()
	w.exits(within, 0)
	if kind, got := stoppedEvent(w); kind != "stopped" || got != reason {
		w.t.Errorf("its last event is %s %s, not stopped %s", kind, got, reason)
	}
}

// jsonWorker is a worker that tells its life in JSON.
func (f *fleet) jsonWorker(name string, flags ...string) *worker {
	f.t.Helper()
	w := f.launchWorker(name, workerOptions{}, append(flags, "--output", "json")...)
	w.line(20*time.Second, `"enrolled"`)
	return w
}

func TestDrain_EachTriggerEndsAWorkerWellAndIsCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	never := f.launchWorker("never", workerOptions{}, "--idle-timeout", "300ms", "--output", "json") // it is never given anything
	never.leftFor(20*time.Second, "idle_timeout")

	old := f.jsonWorker("old", "--max-uptime", "1s", "--label", "pool=old")
	ledger := newLedger(f)
	id := f.detach(flow(step("longer", ledger.beating(20), "labels: {pool: old}")))
	old.leftFor(30*time.Second, "max_uptime")
	f.ends(id, 10*time.Second, "succeeded")

	once := f.jsonWorker("once", "--max-dispatches", "1", "--idle-timeout", "1h", "--label", "pool=once")
	id = f.detach(flow(step("one", ledger.script("true"), "labels: {pool: once}"), step("two", ledger.script("true"), "labels: {pool: once}")))
	once.leftFor(20*time.Second, "max_dispatches")
	f.queueHas(1, 10*time.Second)
	f.swamp("run", "cancel", id)
	f.ends(id, 10*time.Second, "cancelled")

	asked := f.jsonWorker("asked")
	if got := f.swamp("worker", "drain", "asked", "--wait"); got != "asked has left" {
		t.Errorf("worker drain says %q", got)
	}
	asked.leftFor(10*time.Second, "drained")
	if got := f.swamp("worker", "drain", "asked"); got != "asked has left already" {
		t.Errorf("another worker drain says %q", got)
	}

	stopped := f.jsonWorker("stopped")
	stopped.signal(syscall.SIGTERM)
	stopped.leftFor(10*time.Second, "signal")

	for _, reason := range []string{"idle_timeout", "max_uptime", "max_dispatches", "drained", "signal"} {
		f.drains(reason, 1)
	}
	f.drains("other", 0)
	f.booksAgree()
}

func TestDrain_ABusyWorkerIsSeenToDrainAndGetsNothingNew(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.jsonWorker("w", "--label", "pool=a", "--concurrency", "3")
	ledger := newLedger(f)
	id := f.detach(flow(step("one", ledger.gate(), "labels: {pool: a}"), step("two", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "one", 1, 20*time.Second)
	ledger.started(t, "two", 1, 20*time.Second)
	w.signal(syscall.SIGTERM)
	f.workerIs("w", "draining", 10*time.Second)
	late := f.detach(flow(step("late", ledger.script("true"), "labels: {pool: a}")))
	if q := f.queueHas(1, 10*time.Second); !strings.HasSuffix(q[0].Why, "w is draining") {
		t.Errorf("it waits because %q", q[0].Why)
	}
	shown := f.showWorker("w")
	if shown.IntentSince == nil || shown.Reason == nil || *shown.Reason != "signal" || len(shown.Running) != 2 || len(shown.Recent) != 0 {
		t.Errorf("worker show says %+v", shown)
	}
	if list := f.client("worker", "list"); list.wait(20*time.Second) != 0 || !strings.Contains(strings.Join(list.stderr(), "\n"), "1 draining: ") {
		t.Errorf("worker list says %s", list.text())
	}
	ledger.open(t)
	w.leftFor(20*time.Second, "signal")
	f.ends(id, 10*time.Second, "succeeded")
	// It is not missed: the one that waits says so at once.
	if q := f.queue(); len(q) != 1 || !strings.HasSuffix(q[0].Why, "no worker is connected") {
		t.Errorf("the queue is %+v", q)
	}
	shown = f.showWorker("w")
	if shown.Status != "disconnected" || len(shown.Running) != 0 || len(shown.Recent) != 2 || shown.Recent[0].Status != "succeeded" {
		t.Errorf("worker show says %+v", shown)
	}
	f.worker("other", "--label", "pool=a")
	f.ends(late, 20*time.Second, "succeeded")
	exactlyOnce(t, ledger.entries(t), 3)
}

// Ctrl-C goes to the whole group of the worker. Its steps are not in that.
func TestDrain_CtrlCDoesNotReachTheSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.jsonWorker("w", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", "trap 'echo caught a signal' INT TERM HUP\n"+ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "long", 1, 20*time.Second)
	if err := syscall.Kill(-w.pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	w.line(10*time.Second, "a second signal kills it")
	f.workerIs("w", "draining", 10*time.Second)
	ledger.open(t)
	w.leftFor(20*time.Second, "signal")
	f.ends(id, 10*time.Second, "succeeded")
	if logs := string(f.logs(id)); logs != "" {
		t.Errorf("the step says %q", logs)
	}
}

func TestDrain_AWorkerWithoutAConnection(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "30s")
	idle := f.jsonWorker("idle")
	busy := f.jsonWorker("busy", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.gate(), "labels: {pool: a}"), step("next", ledger.script("true"), "labels: {pool: a}", "dependsOn: [long]")))
	ledger.started(t, "long", 1, 20*time.Second)
	f.crash()
	for _, w := range []*worker{idle, busy} {
		w.line(20*time.Second, `"retrying"`)
		w.signal(syscall.SIGTERM)
		w.line(10*time.Second, `"draining"`)
	}
	idle.leftFor(5*time.Second, "signal") // nobody is there to take leave of
	ledger.open(t)
	holds(t, time.Second, "the other one owes a result", func() error {
		if !busy.alive() {
			return fmt.Errorf("it has ended: %s", busy.text())
		}
		return nil
	})
	f.start()
	busy.leftFor(40*time.Second, "signal")
	f.worker("other", "--label", "pool=a")
	run := f.ends(id, 30*time.Second, "succeeded")
	if w := run.step("next").Worker; w == nil || *w != "other" { // it did not come back to get more
		t.Errorf("the step after it: %s", run)
	}
	if got := run.step("long"); got.Losses != 0 {
		t.Errorf("the step is %+v", got)
	}
	exactlyOnce(t, ledger.entries(t), 2) // the one that ended meanwhile was delivered
	f.booksAgree()
}

func TestDrain_AWorkerThatComesBackStillDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "30s")
	network := newProxy(t, f.addr)
	w := f.launchWorker("w", workerOptions{url: "ws://" + network.addr}, "--label", "pool=a", "--concurrency", "2", "--output", "json")
	w.line(20*time.Second, `"enrolled"`)
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "long", 1, 20*time.Second)
	if got := f.swamp("worker", "drain", "w"); got != "w drains, and leaves after 1 step" {
		t.Errorf("worker drain says %q", got)
	}
	f.workerIs("w", "draining", 10*time.Second)
	network.cut()
	w.line(20*time.Second, `"disconnected"`)
	f.workerIs("w", "draining", 20*time.Second)
	late := f.detach(flow(step("late", ledger.script("true"), "labels: {pool: a}")))
	f.queueHas(1, 10*time.Second)
	ledger.open(t)
	w.leftFor(20*time.Second, "drained")
	f.ends(id, 20*time.Second, "succeeded")
	if n := ledger.count(t, "start", "late"); n != 0 {
		t.Error("it took a step while it drained")
	}
	f.worker("other", "--label", "pool=a")
	f.ends(late, 20*time.Second, "succeeded")
}

func TestDrain_AWorkerThatIsKilledWhileItDrainsIsALoss(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "2s")
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.gate(), "labels: {pool: a}")))
	pid := ledger.started(t, "long", 1, 20*time.Second)
	w.signal(syscall.SIGTERM)
	f.workerIs("w", "draining", 10*time.Second)
	w.kill()
	gone(t, 10*time.Second, pid)
	f.workerIs("w", "disconnected", 10*time.Second)
	f.worker("other", "--label", "pool=a")
	ledger.started(t, "long", 2, 30*time.Second)
	ledger.open(t)
	run := f.ends(id, 20*time.Second, "succeeded")
	if s := run.step("long"); s.Losses != 1 {
		t.Errorf("the step is %+v", s)
	}
	for _, w := range wrong(ledger.entries(t)) {
		t.Error(w)
	}
	f.booksAgree()
}

// With one left it offers one slot, not four.
func TestDrain_MaxDispatchesWithFourSlotsUnderAFullQueue(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const steps = 30
	ledger := newLedger(f)
	var list []string
	for i := range steps {
		list = append(list, step(fmt.Sprintf("s%d", i), ledger.script("sleep 0.0$((RANDOM % 10))"), "labels: {pool: a}"))
	}
	id := f.detach(flow(list...))
	f.queueHas(steps, 20*time.Second)
	done := 0
	for _, n := range []int{1, 3, 4, 5, 6, 9} {
		w := f.launchWorker(fmt.Sprintf("w%d", n), workerOptions{}, "--label", "pool=a", "--concurrency", "4", "--max-dispatches", fmt.Sprint(n), "--output", "json")
		w.leftFor(30*time.Second, "max_dispatches")
		done += n
		f.queueHas(steps-done, 10*time.Second)
		ends := 0
		for _, e := range ledger.entries(t) {
			if e.what == "end" {
				ends++
			}
		}
		if ends != done {
			t.Fatalf("after --max-dispatches %d there are %d ends in all, not %d", n, ends, done)
		}
	}
	f.worker("rest", "--label", "pool=a", "--concurrency", "4")
	f.ends(id, 60*time.Second, "succeeded")
	exactlyOnce(t, ledger.entries(t), steps)
}

func TestDrain_ItsBoundHoldsWhateverAStepPrints(t *testing.T) {
	t.Parallel()
	const endless = "while true; do echo tick; sleep 0.1; done"
	tests := []struct {
		mode  string
		keys  string
		code  int
		check func(t *testing.T, f *fleet, id string, w *worker)
	}{
		{"handback", "labels: {pool: a}", 1, func(t *testing.T, f *fleet, id string, _ *worker) {
			f.stepIs(id, "endless", "queued", 10*time.Second)
			if q := f.queueHas(1, 10*time.Second); !strings.HasSuffix(q[0].Why, "no worker is connected") {
				t.Errorf("it waits because %q", q[0].Why)
			}
			if s := f.show(id).step("endless"); s.Losses != 0 {
				t.Errorf("the step is %+v", s)
			}
			f.swamp("run", "cancel", id)
		}},
		{"handback", "labels: {pool: a}, onWorkerLost: fail", 1, func(t *testing.T, f *fleet, id string, _ *worker) {
			f.ends(id, 10*time.Second, "failed")
			f.endsFor(id, "endless", "worker w drained before the step had ended, and onWorkerLost is fail")
		}},
		{"cancel", "labels: {pool: a}", 1, func(t *testing.T, f *fleet, id string, _ *worker) {
			f.ends(id, 10*time.Second, "failed")
			f.endsFor(id, "endless", "worker w drained before the step had ended")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.mode+" "+tt.keys, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.jsonWorker("w", "--label", "pool=a", "--drain-timeout", "1s", "--drain-mode", tt.mode)
			ledger := newLedger(f)
			id := f.detach(flow(step("endless", ledger.script(endless), strings.Split(tt.keys, ", ")...)))
			pid := ledger.started(t, "endless", 1, 20*time.Second)
			w.signal(syscall.SIGTERM)
			w.exits(20*time.Second, tt.code)
			if kind, reason := stoppedEvent(w); kind != "stopped" || reason != "forced" {
				t.Errorf("its last event is %s %s", kind, reason)
			}
			gone(t, 5*time.Second, pid)
			tt.check(t, f, id, w)
		})
	}
	t.Run("finish", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		w := f.jsonWorker("w", "--label", "pool=a", "--drain-timeout", "300ms", "--drain-mode", "finish")
		ledger := newLedger(f)
		id := f.detach(flow(step("long", ledger.beating(20), "labels: {pool: a}")))
		ledger.started(t, "long", 1, 20*time.Second)
		w.signal(syscall.SIGTERM)
		w.leftFor(20*time.Second, "signal")
		f.ends(id, 10*time.Second, "succeeded")
	})
}

// endsFor wants a step to be cancelled for that reason, and its run to have failed for it.
func (f *fleet) endsFor(id, step, reason string) {
	f.t.Helper()
	run := f.show(id)
	if s := run.step(step); s.Status != "cancelled" || s.Error == nil || *s.Error != reason || s.Code == nil || *s.Code != "cancelled" {
		f.t.Errorf("the step is %s", run)
	}
	if want := fmt.Sprintf("step %s of job main was cancelled: %s", step, reason); run.Error == nil || *run.Error != want {
		f.t.Errorf("the run says %s", run)
	}
}

func TestPause_AroundARunningStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a", "--concurrency", "2")
	ledger := newLedger(f)
	first := f.detach(flow(step("runs", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "runs", 1, 20*time.Second)
	if got := f.swamp("worker", "pause", "w", "--for", "1h", "--note", "new driver"); got != "w is paused for 1h, and finishes 1 step" {
		t.Errorf("worker pause says %q", got)
	}
	shown := f.showWorker("w")
	if shown.Status != "paused" || shown.Note == nil || *shown.Note != "new driver" || shown.RemainingMs == nil || *shown.RemainingMs < 3_500_000 || len(shown.Running) != 1 {
		t.Errorf("worker show says %+v", shown)
	}
	second := f.detach(flow(step("waits", ledger.script("true"), "labels: {pool: a}")))
	if q := f.queueHas(1, 10*time.Second); !strings.HasSuffix(q[0].Why, "w is paused") {
		t.Errorf("it waits because %q", q[0].Why)
	}
	ledger.open(t)
	f.ends(first, 20*time.Second, "succeeded")
	f.restart() // the pause survives that,
	f.workerIs("w", "paused", 30*time.Second)
	w.signal(syscall.SIGTERM)
	w.exits(10*time.Second, 0)
	w = w.again() // and another process of the machine
	w.enrolled()
	f.workerIs("w", "paused", 10*time.Second)
	holds(t, 500*time.Millisecond, "nothing is given to it", func() error {
		if n := ledger.count(t, "start", "waits"); n != 0 {
			return fmt.Errorf("a step has started")
		}
		return nil
	})
	if got := f.swamp("worker", "resume", "w"); got != "w is idle" && got != "w is busy" {
		t.Errorf("worker resume says %q", got)
	}
	f.ends(second, 20*time.Second, "succeeded")

	f.swamp("worker", "pause", "w", "--for", "500ms")
	third := f.detach(flow(step("waits again", ledger.script("true"), "labels: {pool: a}")))
	f.ends(third, 20*time.Second, "succeeded") // it ends by itself
	f.booksAgree()
}

func TestDrain_IsTakenBackOnlyIfTheWorkerStays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a", "--concurrency", "2")
	ledger := newLedger(f)
	first := f.detach(flow(step("runs", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "runs", 1, 20*time.Second)
	waits := f.client("worker", "drain", "w", "--wait")
	f.workerIs("w", "draining", 10*time.Second)
	second := f.detach(flow(step("waits", ledger.script("true"), "labels: {pool: a}")))
	f.queueHas(1, 10*time.Second)
	if got := f.swamp("worker", "resume", "w"); got != "w is busy" {
		t.Errorf("worker resume says %q", got)
	}
	waits.exits(10*time.Second, 1)
	if !strings.Contains(waits.text(), "the drain of worker w was taken back") {
		t.Errorf("worker drain --wait says %s", waits.text())
	}
	f.ends(second, 20*time.Second, "succeeded")
	w.signal(syscall.SIGTERM)
	f.workerIs("w", "draining", 10*time.Second)
	no := f.client("worker", "resume", "w")
	no.exits(10*time.Second, 1)
	if !strings.Contains(no.text(), "worker w drains by itself (signal): it cannot be kept") {
		t.Errorf("worker resume says %s", no.text())
	}
	ledger.open(t)
	f.ends(first, 20*time.Second, "succeeded")
	w.exits(10*time.Second, 0)
}

func TestDrain_OfNobodyNamesTheNearest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("gpu-1").kill()
	f.workerIs("gpu-1", "disconnected", 20*time.Second)
	for _, tt := range []struct{ command, says string }{
		{"drain gpu-2", "no worker gpu-2: the nearest are gpu-1"},
		{"drain gpu-2 --wait", "no worker gpu-2: the nearest are gpu-1"},
		{"pause gpu-2", "no worker gpu-2: the nearest are gpu-1"},
		{"resume gpu-2", "no worker gpu-2: the nearest are gpu-1"},
		{"show gpu-2", "no worker gpu-2: the nearest are gpu-1"},
		{"drain gpu-1", "worker gpu-1 is not connected: there is nothing to drain"},
		{"drain loopback", "loopback is part of the orchestrator"},
	} {
		p := f.client(append([]string{"worker"}, strings.Fields(tt.command)...)...)
		p.exits(10*time.Second, 1)
		if err := p.stderr(); len(err) != 1 || !strings.Contains(err[0], tt.says) {
			t.Errorf("worker %s says %q", tt.command, err)
		}
	}
}

// A worker that cannot make a scratch folder refuses steps, is left alone for a while, and gets one more try.
func TestProbation_OfAWorkerThatCannotStartSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	scratch := filepath.Join(w.cache, "scratch")
	if err := os.RemoveAll(scratch); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(scratch, nil, 0o600); err != nil { // no folder can be made below a file
		t.Fatal(err)
	}
	ledger := newLedger(f)
	id := f.detach(flow(step("one", ledger.script("true"), "labels: {pool: a}")))
	got := f.workerIs("w", "unhealthy", 30*time.Second)
	if got.Reason == nil || !strings.Contains(*got.Reason, "scratch folder") {
		t.Errorf("worker list says %+v", got)
	}
	if q := f.queueHas(1, 10*time.Second); !strings.HasSuffix(q[0].Why, "w is unhealthy") {
		t.Errorf("it waits because %q", q[0].Why)
	}
	if err := os.Remove(scratch); err != nil {
		t.Fatal(err)
	}
	f.ends(id, 60*time.Second, "succeeded") // after 30 s
	f.workerIs("w", "idle", 10*time.Second)
	ledger.check(t, map[string]int{"one": 1})
}
