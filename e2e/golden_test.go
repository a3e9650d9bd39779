//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGoldenPath_APlacedStepWaitsInAnEmptyPoolAndRunsWhenAWorkerEnrolls(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	run := f.follow(flow(step("train", `echo trained by $SWAMP_STEP on $SWAMP_WORKER`, "labels: {gpu: true}")))
	queued := run.event(10*time.Second, "step_queued", "train")
	if queued.Requirement != "labels gpu=true" {
		t.Errorf("the event names %q", queued.Requirement)
	}
	got := f.queueHas(1, 5*time.Second)[0]
	want := waiting{
		QueueID: queued.QueueID, Requirement: "labels gpu=true", RunID: queued.RunID, WorkflowName: "flow", JobName: "main", StepName: "train",
		ModelType: "command/shell", MethodName: "run", Labels: map[string]string{"gpu": "true"}, Why: got.Why, AgeMs: got.AgeMs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("worker queue (-want +got):\n%s", diff)
	}
	if !strings.Contains(got.Why, "no worker is connected") {
		t.Errorf("it waits because %q", got.Why)
	}

	f.worker("cpu", "--label", "gpu=false")
	holds(t, 300*time.Millisecond, "a worker that does not match leaves the step alone", func() error {
		if n := len(f.queue()); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	f.worker("gpu", "--label", "gpu=true")
	run.exits(20*time.Second, 0)

	events := run.events()
	if err := dense(events); err != nil {
		t.Error(err)
	}
	if got := output(events, "train", "stdout"); got != "trained by train on gpu\n" {
		t.Errorf("the step printed %q", got)
	}
	wantKinds := []string{"run_started", "job_started", "step_started", "step_queued", "step_dispatched", "step_output", "step_succeeded", "job_succeeded", "run_succeeded"}
	if diff := cmp.Diff(wantKinds, kinds(events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if q := f.queue(); len(q) != 0 {
		t.Errorf("the queue still holds %+v", q)
	}
}

func TestGoldenPath_OneWorkflowOverTwoDemandClasses(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	run := f.follow(flow(
		step("prepare", "echo prepared", "labels: {tier: a}"),
		step("train", "echo trained", "labels: {tier: b}", "dependsOn: [prepare]"),
		step("report", "echo reported", "dependsOn: [train]"),
	))
	run.event(10*time.Second, "step_queued", "prepare")
	f.worker("second", "--label", "tier=b")
	f.worker("first", "--label", "tier=a")
	run.exits(20*time.Second, 0)
	var ran []string
	for _, e := range run.events() {
		if e.Kind == "step_dispatched" {
			ran = append(ran, e.Step+" on "+e.Worker)
		}
	}
	if diff := cmp.Diff([]string{"prepare on first", "train on second", "report on loopback"}, ran); diff != "" {
		t.Errorf("dispatches (-want +got):\n%s", diff)
	}
}

// meet is a script that waits until n steps are in it at once: it passes only if they run together.
func meet(folder string, n int) string {
	return fmt.Sprintf(`mkdir -p %[1]s
touch "%[1]s/$SWAMP_STEP"
for i in $(seq 1000); do
  if [ "$(ls %[1]s | wc -l)" -ge %[2]d ]; then exit 0; fi
  sleep 0.02
done
exit 1`, folder, n)
}

func TestSlots_CapacityTwoRunsTwoAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--concurrency", "2", "--label", "pool=a")
	script := meet(f.path("meeting"), 2)
	id := f.detach(flow(step("one", script, "labels: {pool: a}"), step("two", script, "labels: {pool: a}")))
	f.ends(id, 30*time.Second, "succeeded")
}

func TestSlots_TwoStepsAndOneSlotRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(
		step("one", ledger.script("sleep 0.3"), "labels: {pool: a}"),
		step("two", ledger.script("sleep 0.3"), "labels: {pool: a}"),
	))
	second := run.event(10*time.Second, "step_queued", "")
	if !strings.Contains(second.Why, "1 matching, all busy") {
		t.Errorf("the second waits because %q", second.Why)
	}
	run.exits(20*time.Second, 0)
	ledger.check(t, map[string]int{"one": 1, "two": 1})
	if got := f.workerIs("w", "idle", 5*time.Second); len(got.ActiveDispatchIDs) != 0 {
		t.Errorf("the worker still has %v", got.ActiveDispatchIDs)
	}
}

func TestSlots_AFreedSlotWakesWhatWaitsBehindABusyWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--concurrency", "2", "--label", "pool=a")
	endless := f.detach(flow(step("endless", "sleep 600", "labels: {pool: a}")))
	f.stepIs(endless, "endless", "running", 10*time.Second)
	var steps []string
	for i := range 10 {
		steps = append(steps, step(fmt.Sprintf("s%d", i), "true", "labels: {pool: a}"))
	}
	f.ends(f.detach(flow(steps...)), 30*time.Second, "succeeded")
	if s := f.show(endless).step("endless"); s.Status != "running" || s.Attempts != 1 {
		t.Errorf("the endless step is %+v", s)
	}
	f.swamp("run", "cancel", endless)
	f.ends(endless, 20*time.Second, "cancelled")
	f.workerIs("w", "idle", 5*time.Second)
}

func TestExitCodes_OfWorkflowRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, tt := range []struct {
		name, yaml string
		want       int
	}{
		{"a run that succeeds is 0", flow(step("one", "true")), 0},
		{"a run that fails is 1", flow(step("one", "exit 7")), 1},
		{"a step that waits too long fails its run", strings.Replace(flow(step("one", "true", "target: nobody")), "queueTimeout: 0", "queueTimeout: 0.2", 1), 1},
		{"a file that is wrong is 2", "name: x\njobs: 7\n", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := f.client("workflow", "run", f.write(tt.yaml))
			p.exits(30*time.Second, tt.want)
		})
	}
}
