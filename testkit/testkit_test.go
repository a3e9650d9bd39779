package testkit_test

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

const oneStep = `
name: one
jobs:
  - name: main
    steps:
      - {name: hello, run: echo hello, labels: {gpu: "true"}}
`

func TestFleet_RunsAStepOnAWorkerThatComesLater(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		run := f.Submit(oneStep)
		run.WaitEvent(messages.EventStepQueued, "step=hello", "requirement=labels gpu=true")
		f.Advance(10 * time.Second)
		w := f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
		w.NextDispatch().Output("hello\n").Succeed("answer=42")
		run.WaitStatus(messages.RunSucceeded)
	})
}

func TestFleet_WorksOnTheRealClock(t *testing.T) {
	t.Parallel()
	f := testkit.Start(t)
	f.Worker("gpu-1", testkit.Labels{"gpu": "true"}, testkit.AutoRun())
	run := f.Submit(oneStep)
	run.WaitStatus(messages.RunSucceeded)
}
