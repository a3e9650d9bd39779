package embedding_test

import (
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/swampd/swampd/examples/embedding"
	"github.com/swampd/swampd/testkit"
	"github.com/swampd/swampd/worker"
)

//go:embed nightly.yaml
var nightly string

// trainer is the model of production, where an epoch takes five minutes. In a bubble that costs nothing.
var trainer = testkit.Model("acme/trainer", embedding.Trainer{Epoch: 5 * time.Minute}.Run)

func upload(_ context.Context, _ worker.Task, out worker.Output) (map[string]string, error) {
	return nil, out.Write(worker.Stdout, []byte("uploaded\n"))
}

// A crash of the orchestrator in the middle of the night costs no epoch of training.
func TestNightly_SurvivesACrash(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		f.Agent("gpu-1", testkit.Labels{"gpu": "true"}, trainer)
		f.Agent("gpu-2", testkit.Labels{"gpu": "true"}, trainer)
		f.Agent("publisher", testkit.Shell(upload))
		run := f.Submit(nightly)
		run.Expect("north").RunsOn("gpu-1")
		f.Crash()
		f.Restart()
		run.Succeeds()
		run.Expect("north").WasDispatched(1).Printed("epoch 10 of north")
	})
}

// A machine that dies gives its step to the other one, and nothing is published before both have been trained.
func TestNightly_OutlivesAMachine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		first := f.Agent("gpu-1", testkit.Labels{"gpu": "true"}, trainer)
		f.Agent("gpu-2", testkit.Labels{"gpu": "true"}, trainer)
		f.Agent("publisher", testkit.Shell(upload))
		run := f.Submit(nightly)
		f.Advance(30 * time.Minute)
		first.Die()
		run.Expect("south").Succeeds()
		run.Expect("upload").WasDispatched(0)
		run.Expect("north").RunsOn("gpu-2").WasLost(1)
		run.Succeeds()
	})
}
