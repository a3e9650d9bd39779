package actors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

func TestQueue_AStepWaitsInAnEmptyPoolAndRunsWhenAMatchEnrolls(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(single)
		e := run.WaitEvent(messages.EventStepQueued, "step=only")
		if want := "waiting for a worker matching labels gpu=true: no worker is connected"; e.GetWhy() != want {
			t.Errorf("why is %q, want %q", e.GetWhy(), want)
		}
		f.Advance(30 * time.Second)
		w := f.Worker("gpu-1", gpu())
		d := w.NextDispatch()
		if sinceStart() != 30*time.Second {
			t.Errorf("it was dispatched %s after the start, want at once", sinceStart())
		}
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		want := []string{"run_started", "job_started", "step_started", "step_queued", "step_dispatched", "step_succeeded", "job_succeeded", "run_succeeded"}
		if diff := cmp.Diff(want, run.Kinds()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if got := run.Step("only").GetQueuedMs(); got != 30_000 {
			t.Errorf("queuedMs is %v, want 30000", got)
		}
	})
}

func TestQueue_AStepNobodyMatchesWaitsBesideIdleWorkers(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		other := f.Worker("cpu-1", testkit.Labels{"gpu": "false"})
		run := f.Submit(single)
		e := run.WaitEvent(messages.EventStepQueued)
		want := "waiting for a worker matching labels gpu=true: none of 1 connected matches; nearest is cpu-1, which has gpu=false instead of gpu=true"
		if e.GetWhy() != want {
			t.Errorf("why is %q, want %q", e.GetWhy(), want)
		}
		other.NoDispatch()
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestQueue_AStepWithAFreeWorkerNeverWaits(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run := f.Submit(chain)
		run.WaitStatus(messages.RunSucceeded)
		for _, kind := range run.Kinds() {
			if kind == messages.EventStepQueued {
				t.Error("a step was queued")
			}
		}
	})
}

func TestQueue_TheRequirementIsSaidInTheEventAndInTheQueue(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, settings, want string }{
		{"labels in key order", `labels: {region: eu, gpu: "true"}`, "labels gpu=true,region=eu"},
		{"a target", `target: gpu-1`, "target 'gpu-1'"},
		{"a platform", `platform: linux/arm64`, "platform 'linux/arm64'"},
		{"all together", `target: gpu-1, labels: {gpu: "true"}, platform: linux`, "target 'gpu-1' and labels gpu=true and platform 'linux'"},
		{"nothing", `timeout: 5`, "any worker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				run := f.Submit(oneStep(tt.settings))
				e := run.WaitEvent(messages.EventStepQueued)
				if e.GetRequirement() != tt.want {
					t.Errorf("step_queued says %q, want %q", e.GetRequirement(), tt.want)
				}
				if want := "waiting for a worker matching " + tt.want; !strings.HasPrefix(e.GetWhy(), want) {
					t.Errorf("step_queued says why %q, want it to begin with %q", e.GetWhy(), want)
				}
				queue := f.Queue()
				if len(queue) != 1 || queue[0].GetRequirement() != tt.want || queue[0].GetQueueId() != e.GetQueueId() {
					t.Errorf("the queue is %v, want one item with requirement %q and id %s", queue, tt.want, e.GetQueueId())
				}
			})
		})
	}
}

func TestQueue_AllConstraintsHoldTogether(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		near := []*testkit.Worker{
			f.Worker("lacks-label", testkit.Platform("linux/arm64")),
			f.Worker("wrong-value", testkit.Labels{"gpu": "false", "region": "eu"}, testkit.Platform("linux/arm64")),
			f.Worker("one-label", gpu(), testkit.Platform("linux/arm64")),
			f.Worker("wrong-arch", testkit.Labels{"gpu": "true", "region": "eu"}),
			f.Worker("wrong-os", testkit.Labels{"gpu": "true", "region": "eu"}, testkit.Platform("darwin/arm64")),
		}
		run := f.Submit(oneStep(`labels: {gpu: "true", region: eu}, platform: linux/arm64`))
		run.WaitEvent(messages.EventStepQueued)
		for _, w := range near {
			w.NoDispatch()
		}
		match := f.Worker("match", testkit.Labels{"gpu": "true", "region": "eu", "more": "yes"}, testkit.Platform("linux/arm64"))
		// It is lost, and the same test decides who may have the step next.
		match.NextDispatch().Accept()
		match.Drop()
		match.Reconnect(testkit.AsNewInstance())
		d := match.NextDispatch()
		d.RefuseDraining()
		for _, w := range near {
			w.NoDispatch()
		}
		f.Advance(10 * time.Second)
		for _, w := range near {
			w.NoDispatch()
		}
		f.Worker("match-2", testkit.Labels{"gpu": "true", "region": "eu"}, testkit.Platform("linux/arm64"), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		if got := run.Step("only").GetWorker(); got != "match-2" {
			t.Errorf("it ran on %s, want match-2", got)
		}
	})
}

func TestQueue_ATargetIsAWorkersNameOrItsInstance(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"gpu-2", "the-instance"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			scenario(t, func(t *testing.T, f *testkit.Fleet) {
				other := f.Worker("gpu-1", testkit.Capacity(8))
				f.Worker("gpu-2", testkit.Instance("the-instance"), testkit.AutoRun())
				run := f.Submit(oneStep("target: " + target))
				run.WaitStatus(messages.RunSucceeded)
				other.NoDispatch()
			})
		})
	}
}

func TestQueue_ATargetThatIsBusyOrDrainsIsWaitedFor(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1")
		f.Worker("gpu-2", testkit.Capacity(4))
		busy := f.Submit(oneStep("target: gpu-1"))
		d := w.NextDispatch().Accept()
		next := f.Submit(oneStep("target: gpu-1, queueTimeout: 0"))
		e := next.WaitEvent(messages.EventStepQueued)
		if want := "waiting for a worker matching target 'gpu-1': 1 matching, all busy"; e.GetWhy() != want {
			t.Errorf("why is %q, want %q", e.GetWhy(), want)
		}
		w.SayDraining("signal")
		if got, want := f.Queue()[0].GetWhy(), "waiting for a worker matching target 'gpu-1': gpu-1 is draining"; got != want {
			t.Errorf("why is %q, want %q", got, want)
		}
		d.Succeed()
		busy.WaitStatus(messages.RunSucceeded)
		w.NoDispatch()
		if got := f.WorkerNamed("gpu-1").GetStatus(); got != string(messages.WorkerDraining) {
			t.Errorf("the worker is %s, want draining", got)
		}
		w.Drop()
		f.Advance(time.Hour)
		if got := waitingSteps(f); got != "only" {
			t.Errorf("waiting are %q, want only", got)
		}
		w.Reconnect(testkit.AsNewInstance()) // a drain lasts as long as the instance
		w.NextDispatch().Succeed()
		next.WaitStatus(messages.RunSucceeded)
	})
}

func TestQueue_TheWorkerWithMostFreeSlotsIsChosenThenByName(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		big := f.Worker("big", gpu(), testkit.Capacity(4))
		for range 3 {
			f.Submit(single)
			big.NextDispatch().Accept()
		}
		b, a := f.Worker("b", gpu(), testkit.Capacity(2)), f.Worker("a", gpu(), testkit.Capacity(2))
		f.Submit(single)
		a.NextDispatch().Accept() // 2 free like b, and 1 at big
		f.Submit(single)
		b.NextDispatch().Accept()
		big.NoDispatch()
	})
}

func TestQueue_TwoStepsAndOneSlotRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(pair)
		run.WaitEvent(messages.EventStepQueued, "step=left")
		run.WaitEvent(messages.EventStepQueued, "step=right")
		w := f.Worker("gpu-1", gpu())
		d := w.NextDispatch().Accept()
		w.NoDispatch()
		if got := waitingSteps(f); d.Step() != "left" || got != "right" {
			t.Errorf("%s runs and %q wait, want left and right", d.Step(), got)
		}
		if got, want := f.Queue()[0].GetWhy(), "waiting for a worker matching labels gpu=true: 1 matching, all busy"; got != want {
			t.Errorf("why is %q, want %q", got, want)
		}
		d.Succeed()
		w.NextDispatch().Succeed()
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestQueue_CapacityTwoRunsTwoAtOnce(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Capacity(2))
		first, second := f.Submit(pair), f.Submit(single)
		one, two := w.NextDispatch().Accept(), w.NextDispatch().Accept()
		w.NoDispatch()
		if got := f.WorkerNamed("gpu-1"); len(got.GetActiveDispatchIds()) != 2 || got.GetStatus() != string(messages.WorkerBusy) {
			t.Errorf("the worker is %s with %v, want busy with two", got.GetStatus(), got.GetActiveDispatchIds())
		}
		one.Succeed()
		three := w.NextDispatch().Accept()
		two.Succeed()
		three.Succeed()
		first.WaitStatus(messages.RunSucceeded)
		second.WaitStatus(messages.RunSucceeded)
	})
}

func TestQueue_AStepThatCanNeverStartDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		never := f.Submit(oneStep("labels: {quantum: yes}, queueTimeout: 0"))
		never.WaitEvent(messages.EventStepQueued)
		f.Advance(time.Minute)
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		start := sinceStart()
		for range 20 {
			f.Submit(chain).WaitStatus(messages.RunSucceeded)
		}
		if sinceStart() != start {
			t.Errorf("the others took %s, want no time", sinceStart()-start)
		}
		if got := waitingSteps(f); got != "only" {
			t.Errorf("waiting are %q, want the one that nobody can run", got)
		}
	})
}

func TestQueue_TheOldestWaitIsServedFirst(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		var runs []*testkit.Run
		for i := range 10 {
			settings := `labels: {gpu: "true"}`
			if i%2 == 1 {
				settings = `labels: {gpu: "true"}, platform: linux` // another demand class
			}
			runs = append(runs, f.Submit(oneStep(settings)))
			f.Advance(time.Second)
		}
		w := f.Worker("gpu-1", gpu())
		for i, run := range runs {
			d := w.NextDispatch()
			if d.Params.GetRunId() != run.ID {
				t.Fatalf("dispatch %d is of %s, want %s", i, d.Params.GetRunId(), run.ID)
			}
			d.Succeed()
			run.WaitStatus(messages.RunSucceeded)
		}
	})
}

func TestQueue_UnplacedStepsRunOnLoopbackOnlyWhileThereIsOne(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.Capacity(8)).NoDispatch()
		unplaced := f.Submit(oneStep("timeout: 60"))
		unplaced.WaitEvent(messages.EventStepQueued, "requirement=any worker")
		f.Loopback(testkit.AutoRun())
		unplaced.WaitStatus(messages.RunSucceeded)
		if got := unplaced.Step("only").GetWorker(); got != "loopback" {
			t.Errorf("it ran on %s, want loopback", got)
		}
		placed := f.Submit(oneStep("platform: plan9"))
		placed.WaitEvent(messages.EventStepQueued)
		placed.WaitStatus(messages.RunFailed) // placement does not fall back
	}, testkit.WithLoopback(2))
}

func TestQueue_UnplacedStepsRunAnywhereWithoutLoopback(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("gpu-1", gpu(), testkit.AutoRun())
		f.Submit(oneStep("timeout: 60")).WaitStatus(messages.RunSucceeded)
	})
}

func TestQueue_AThousandStepsRunOverSixtyFourSlots(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithQueueTimeout(0))
		var b strings.Builder
		b.WriteString("name: wide\nlabels: {gpu: \"true\"}\njobs:\n  - name: main\n    steps:\n")
		const steps, slots = 1000, 64
		for i := range steps {
			fmt.Fprintf(&b, "      - {name: s%d, run: work}\n", i)
		}
		run := f.Submit(b.String())
		for i := range 4 {
			f.Worker(fmt.Sprintf("gpu-%d", i), gpu(), testkit.Capacity(slots/4), testkit.Takes(time.Second))
		}
		run.WaitStatus(messages.RunSucceeded)
		// Sixteen rounds of a second: no slot stood empty while a step waited.
		if got, want := sinceStart(), time.Duration((steps+slots-1)/slots)*time.Second; got != want {
			t.Errorf("it took %s, want %s", got, want)
		}
	})
}
