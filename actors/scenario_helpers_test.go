package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// Workflows that several tests share. Their steps want a worker with the label gpu=true.
const (
	single = `
name: single
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: only, run: work}
`
	chain = `
name: chain
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: first, run: work}
      - {name: second, run: work, dependsOn: [first]}
`
	fan = `
name: fan
labels: {gpu: "true"}
jobs:
  - name: split
    steps:
      - {name: split, run: work}
  - name: count
    dependsOn: [split]
    steps:
      - {name: a, run: work}
      - {name: b, run: work}
      - {name: c, run: work}
  - name: gather
    dependsOn: [count]
    steps:
      - {name: sum, run: work}
`
	pair = `
name: pair
labels: {gpu: "true"}
jobs:
  - name: main
    steps:
      - {name: left, run: work}
      - {name: right, run: work}
`
)

// gpu are the labels of a worker that the steps of these workflows want.
func gpu() testkit.Labels { return testkit.Labels{"gpu": "true"} }

// oneStep is a workflow with one step, which has these settings.
func oneStep(settings string) string {
	return fmt.Sprintf("name: one\njobs:\n  - name: main\n    steps:\n      - {name: only, run: work, %s}\n", settings)
}

// scenario runs a test in virtual time, on a fleet whose books are looked at after each commit.
func scenario(t *testing.T, fn func(t *testing.T, f *testkit.Fleet), options ...testkit.Option) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		fn(t, testkit.Start(t, append(options, testkit.WithEveryCommit())...))
	})
}

// waitingSteps are the names of the steps in line, the oldest first.
func waitingSteps(f *testkit.Fleet) string {
	var names []string
	for _, item := range f.Queue() {
		names = append(names, item.GetStepName())
	}
	return strings.Join(names, " ")
}

// pendings are the states of a run's pending dispatches, in the order of their episodes.
func pendings(t *testing.T, f *testkit.Fleet, run *testkit.Run, ordinal, episodes int) []string {
	t.Helper()
	var states []string
	for n := 1; n <= episodes; n++ {
		rec, err := f.Journal().Get(persistence.KindPending, fmt.Sprintf("%s.%d.q%d", run.ID, ordinal, n))
		if err != nil {
			t.Fatalf("pending dispatch %d of step %d: %v", n, ordinal, err)
		}
		states = append(states, rec.State)
	}
	return states
}

// leaseStates are the states of a step's leases, in the order of its dispatches.
func leaseStates(t *testing.T, f *testkit.Fleet, run *testkit.Run, ordinal int) []string {
	t.Helper()
	var states []string
	for n := 1; ; n++ {
		rec, err := f.Journal().Get(persistence.KindLease, persistence.LeaseID(fmt.Sprintf("%s.%d.%d", run.ID, ordinal, n), 1))
		if err != nil {
			return states
		}
		states = append(states, rec.State)
	}
}

// sinceStart is the virtual time since the bubble began.
func sinceStart() time.Duration { return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) }

// codeOf is the code of an error that the orchestrator answered with.
func codeOf(err error) messages.Code {
	if err == nil {
		return ""
	}
	return messages.CodeOf(err)
}

// watched follows a run with a watch of its own, from an event on, to its end.
func watched(t *testing.T, run *testkit.Run, after uint32, cursors map[string]uint32) []*messages.RunEvent {
	t.Helper()
	var events []*messages.RunEvent
	err := run.Watch(context.Background(), after, cursors, func(e *messages.RunEvent) bool {
		events = append(events, e)
		return true
	})
	if err != nil {
		t.Fatalf("watch %s after %d: %v", run.ID, after, err)
	}
	return events
}
