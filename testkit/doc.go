// Package testkit is the whole orchestrator inside a test: its actors on a journal in memory, and workers that follow a
// script, over connections within the process. Nothing else is needed, and nothing is left behind.
//
//	func TestNightly(t *testing.T) {
//		testkit.Bubble(t, func(t *testing.T) {
//			f := testkit.Start(t)
//			run := f.Submit(nightly)                              // nobody is there: it waits
//			run.WaitEvent("step_queued", "step=train")
//			gpu := f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
//			gpu.NextDispatch().Succeed()
//			run.WaitStatus(messages.RunSucceeded)
//		})
//	}
//
// In a [Bubble] time is virtual: an hour of waiting costs nothing, and [Fleet.Settle] returns once nothing moves any
// more. Outside of one the same test runs on the real clock.
//
// At the end of each test the books are audited (rule P12): steps, leases, queue and slots agree, nothing waits beside a
// free match, every story is whole, and no actor has outlived its record or panicked unless the test made it. Faults are
// options: [WithPanic] panics where an actor has decided or committed, [WithJitter] shuffles who comes first,
// [WithJournal] lets a disk fail, and [Fleet.Crash] is the end of the process.
//
// Methods that fail the test do so by way of its Fatal, so they belong into the goroutine of the test.
//
// It imports every package but cmd. Only tests import it.
package testkit
