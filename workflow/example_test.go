package workflow_test

import (
	"errors"
	"fmt"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

func Example() {
	plan, err := workflow.Parse("build.yaml", []byte(`
name: build
labels: {pool: cpu}
jobs:
  - name: main
    steps:
      - {name: compile, run: make}
      - {name: test, run: make test, dependsOn: [compile], platform: linux}
      - {name: publish, run: make publish, dependsOn: [test]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range plan.Steps {
		fmt.Println(s.Name, "needs", s.Placement.Requirement())
	}

	run := workflow.NewProgress(plan)
	fmt.Println("ready:", run.Begin().Ready)
	fmt.Println("ready:", run.End(0, messages.StepSucceeded).Ready)
	last := run.End(1, messages.StepFailed)
	fmt.Println("skipped:", last.Skipped, "run:", last.RunStatus)
	// Output:
	// compile needs labels pool=cpu
	// test needs labels pool=cpu and platform 'linux'
	// publish needs labels pool=cpu
	// ready: [0]
	// ready: [1]
	// skipped: [2] run: failed
}

func ExampleParse_errors() {
	_, err := workflow.Parse("build.yaml", []byte(`name: build
jobs:
  - name: main
    steps:
      - name: compile
        run: make
        labelz: {gpu: true}
        timeout: 5m
`))
	var found workflow.Diagnoses
	if errors.As(err, &found) {
		fmt.Print(found.Detail())
	}
	// Output:
	// build.yaml:7:9: unknown key 'labelz' in a step: did you mean 'labels'?
	//   7 |         labelz: {gpu: true}
	//     |         ^
	// build.yaml:8:18: 'timeout' is a number of seconds, not the text '5m': write seconds, such as 300
	//   8 |         timeout: 5m
	//     |                  ^
}
