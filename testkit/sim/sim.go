package sim

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/swampd/swampd/testkit"
)

// A Report is what came of a scenario.
type Report struct {
	// Findings are what is wrong, the first thing first; none is what everybody hopes for.
	Findings []string
	// Class is what kind of finding the first one is.
	Class string
	// Trace is a fingerprint of all that has happened: the same scenario has the same one.
	Trace uint64
	Tally Tally
	// Stories are the events of each run, for people, where something was found.
	Stories []string

	trace trace
}

// Log is all that has happened, a line for each point of an actor and each thing that a machine did.
func (r Report) Log() string { return r.trace.String() }

// Run plays a scenario, in virtual time. Options come on top of what the scenario says: tests break the orchestrator with
// them, to see that it is found.
func Run(t *testing.T, s Scenario, options ...testkit.Option) (r Report) {
	t.Helper()
	var w *world
	defer func() {
		if p := recover(); p != nil { // the bubble says that something is left, or that nothing moves any more
			r.Class = "panic"
			r.Findings = append(r.Findings, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	testkit.Bubble(t, func(t *testing.T) {
		w = play(t, s, options...)
		r = Report{Findings: w.judge.findings, Class: w.judge.class, Trace: w.trace.sum, Tally: w.tally, trace: w.trace}
		if len(r.Findings) > 0 {
			for _, id := range w.order {
				if run := w.runs[id].run; run != nil {
					r.Stories = append(r.Stories, id+":\n"+run.String())
				}
			}
		}
	})
	return r
}

// shrinkTries bounds how often a scenario that fails is played again to make it shorter.
const shrinkTries = 400

// Explain plays a scenario that fails again and again while it makes it shorter, and says what it takes to fail.
func Explain(t *testing.T, s Scenario, class string, options ...testkit.Option) (Scenario, Report) {
	t.Helper()
	var last Report
	short := Shrink(s, shrinkTries, func(s Scenario) bool {
		r := Run(t, s, options...)
		if len(r.Findings) == 0 || r.Class != class {
			return false
		}
		last = r
		return true
	})
	return short, last
}
