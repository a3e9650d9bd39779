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
