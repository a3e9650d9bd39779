package actors

import (
	"fmt"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// crowd is a scheduler with waiting steps in classes of their own, and one worker that can take them all, one at a time.
func crowd(steps, classes int) *schedulerState {
	s := newScheduler(1, false)
	labels := make(map[string]string, classes)
	for c := range classes {
		labels[fmt.Sprintf("class-%d", c)] = "yes"
	}
	for i := range steps {
		_, _ = stepScheduler(s, offerStep{
			step: stepAddress("r", "j", fmt.Sprint(i)), queueID: fmt.Sprintf("r.%d.q1", i), dispatchID: firstDispatch("r", i),
			placement: messages.Placement{Labels: messages.Labels{{Key: fmt.Sprintf("class-%d", i%classes), Value: "yes"}}},
			place:     uint64(i), ordinal: uint32(i), deadline: sampleTime(0).Add(time.Duration(i) * time.Second),
		}, walkNow())
	}
	_, _ = stepScheduler(s, workerKnown{
		worker: workerAddress("a"), name: "a", instance: "i", version: 1, labels: messages.LabelsOf(labels), platform: "linux", arch: "amd64",
		capacity: 1, status: messages.WorkerIdle,
	}, walkNow())
	return s
}

// BenchmarkScheduler_Drain is what one freed slot costs while a hundred thousand steps wait: it goes by the number of
// classes and not by the length of the line.
func BenchmarkScheduler_Drain(b *testing.B) {
	for _, steps := range []int{1_000, 100_000} {
		for _, classes := range []int{1, 100, 10_000} {
			if classes > steps {
				continue
			}
			b.Run(fmt.Sprintf("waiting=%d/classes=%d", steps, classes), func(b *testing.B) {
				b.ReportAllocs()
				s, next := crowd(steps, classes), 0
				for b.Loop() {
					if next == steps {
						b.StopTimer()
						s, next = crowd(steps, classes), 0
						b.StartTimer()
					}
					_, d := stepScheduler(s, releaseSlot{dispatchID: firstDispatch("r", next), from: leaseAddress(firstDispatch("r", next) + "/1")}, walkNow())
					if next++; next < steps && len(d.effects) < 2 {
						b.Fatal("the freed slot went to nobody")
					}
				}
			})
		}
	}
}

// BenchmarkScheduler_Choose is what an offer costs by the size of the pool.
func BenchmarkScheduler_Choose(b *testing.B) {
	for _, workers := range []int{10, 1_000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			b.ReportAllocs()
			s := newScheduler(1, false)
			for i := range workers {
				know(s, fmt.Sprintf("w-%04d", i), 4, messages.WorkerIdle, "gpu", "true")
			}
			o := offerStep{
				step: stepAddress("r", "j", "x"), queueID: "q", dispatchID: "d",
				placement: messages.Placement{Labels: messages.LabelsOf(map[string]string{"gpu": "true"})},
			}
			for b.Loop() {
				_, _ = stepScheduler(s, o, walkNow())
				_, _ = stepScheduler(s, releaseSlot{dispatchID: "d", from: leaseAddress("d/1")}, walkNow())
			}
		})
	}
}

// BenchmarkRun_Fan is what a step of a wide run costs its run's machine, from its birth to the run's end.
func BenchmarkRun_Fan(b *testing.B) {
	for _, steps := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			b.ReportAllocs()
			plan := &workflow.Plan{Name: "fan", Jobs: []workflow.Job{{Name: "j"}}}
			for i := range steps {
				plan.Jobs[0].Steps = append(plan.Jobs[0].Steps, i)
				plan.Steps = append(plan.Steps, workflow.Step{Name: fmt.Sprint(i), Model: "m", Method: "n", OnWorkerLost: messages.LostRequeue})
			}
			done := 0
			for b.Loop() {
				s := &runState{id: "r"}
				_, _ = stepRun(s, []any{submitRun{file: "f", plan: plan}}, walkNow())
				for s.liveSteps < steps { // a commit holds some births, the rest follow behind it
					_, _ = stepRun(s, []any{reserveElapsed{s.reserving}}, walkNow())
				}
				for i := range steps {
					_, _ = stepRun(s, []any{stepEnded{step: s.stepAddress(i), ordinal: uint32(i), status: messages.StepSucceeded}}, walkNow())
				}
				if s.status != messages.RunSucceeded {
					b.Fatalf("the run is %s", s.status)
				}
				done += steps
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/step")
		})
	}
}
