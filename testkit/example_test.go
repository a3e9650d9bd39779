package testkit_test

import (
	"fmt"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// A workflow waits in an empty pool, and runs on the worker that comes.
func Example() {
	t := &recorder{} // in a test: its *testing.T
	defer t.end()

	f := testkit.Start(t)
	run := f.Submit(`
name: nightly
labels: {gpu: "true"}
jobs:
  - name: train
    steps:
      - {name: fetch, run: ./fetch.sh}
      - {name: fit, run: ./fit.sh, dependsOn: [fetch]}
`)
	fmt.Println("waiting for", run.WaitEvent(messages.EventStepQueued).GetRequirement())

	gpu := f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
	gpu.NextDispatch().Output("fetched\n").Succeed()
	fit := gpu.NextDispatch()
	fmt.Println("running:", fit.Step())
	fit.Succeed("loss=0.1")

	fmt.Println("the run has", run.Wait())
	fmt.Println("loss:", run.Step("fit").GetOutputs()["loss"])
	// Output:
	// waiting for labels gpu=true
	// running: fit
	// the run has succeeded
	// loss: 0.1
}

// What is expected reads as a sentence. A worker follows a script: it is busy, loses its connection, dies, and does it.
func Example_script() {
	t := &recorder{} // in a test: its *testing.T
	defer t.end()

	f := testkit.Start(t)
	run := f.Submit(`
name: stubborn
labels: {gpu: "true"}
jobs: [{name: main, steps: [{name: fit, run: ./fit.sh}]}]
`)
	run.Expect("fit").WaitsFor("labels gpu=true")
	does := testkit.Script(testkit.RefuseBusy, testkit.DropBeforeAccept, testkit.Die, testkit.Succeed)
	f.Worker("gpu-1", testkit.Labels{"gpu": "true"}, does)
	run.Succeeds()
	fmt.Println("dispatched", run.Step("fit").GetAttempts()+run.Step("fit").GetLosses(), "times or more, lost", run.Step("fit").GetLosses())
	// Output:
	// dispatched 2 times or more, lost 1
}

// Drains and queues can be expected too.
func Example_expectations() {
	t := &recorder{} // in a test: its *testing.T
	defer t.end()

	f := testkit.Start(t)
	f.Worker("gpu-1", testkit.Draining())
	f.Submit("name: a\njobs: [{name: main, steps: [{name: fit, run: ./fit.sh}]}]\n")
	f.Submit("name: b\njobs: [{name: main, steps: [{name: sum, run: ./sum.sh}]}]\n")
	f.Expect("gpu-1").Is(messages.WorkerDraining)
	f.ExpectQueue("fit", "sum")
	fmt.Println("nothing runs on a worker that drains")
	// Output:
	// nothing runs on a worker that drains
}
