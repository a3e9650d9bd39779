package testkit_test

import (
	"testing"

	"github.com/swampd/swampd/testkit"
)

// ended is a benchmark that runs its cleanups each time.
type ended struct {
	*testing.B
	cleanups []func()
}

func (e *ended) Cleanup(fn func()) { e.cleanups = append(e.cleanups, fn) }

func (e *ended) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
	e.cleanups = nil
}

// BenchmarkStart is what a test pays for the orchestrator: start, audit and stop. The aim is 20 ms.
func BenchmarkStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		e := &ended{B: b}
		testkit.Start(e)
		e.end()
	}
}

// BenchmarkWorkflow is the same with a real worker, a run and a crash.
func BenchmarkWorkflow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		e := &ended{B: b}
		f := testkit.Start(e)
		f.Agent("w1", testkit.Shell(rest(0)))
		f.Submit(anywhere).Succeeds()
		f.Crash()
		f.Restart()
		e.end()
	}
}
