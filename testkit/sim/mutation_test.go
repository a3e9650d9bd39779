package sim_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/testkit"
	"github.com/swampd/swampd/testkit/sim"
)

// forgets is an orchestrator that loses every message of a kind to a kind of actor.
func forgets(kind, command string) testkit.Option {
	return testkit.WithLoss(func(p actors.Point) bool { return p.Kind == kind && p.Command == command })
}

// plain is a scenario in which nothing goes wrong but a connection: what is found in it is the orchestrator's own fault.
func plain(mood sim.Mood) sim.Scenario {
	flow := &sim.Flow{Name: "r1", Jobs: []sim.Job{
		{Name: "j1", Steps: []sim.Step{
			{Name: "s1", Where: sim.Where{Label: "gpu=true"}, Queue: -1},
			{Name: "s2", After: []string{"s1"}, Where: sim.Where{Target: "w1"}, Queue: -1},
		}},
		{Name: "j2", After: []string{"j1"}, Steps: []sim.Step{{Name: "s1", Queue: -1}, {Name: "s2", Queue: 0}}},
	}}
	return sim.Scenario{
		Seed: 1, Grace: 20 * time.Second, QueueTimeout: 10 * time.Minute,
		Machines: []sim.Machine{{Name: "w1", Labels: map[string]string{"gpu": "true"}, Platform: "linux/amd64", Capacity: 2}},
		Ops: []sim.Op{
			{At: 100 * time.Millisecond, Kind: sim.OpSubmit, Run: "r1", Flow: flow},
			{At: time.Second, Kind: sim.OpStart, Worker: "w1", Mood: mood},
			{At: 3 * time.Second, Kind: sim.OpCut, Worker: "w1"},
			{At: 3 * time.Minute, Kind: sim.OpRepeat, Run: "r1", Flow: flow},
		},
	}
}

func TestRun_FindsNothingWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	for _, mood := range []sim.Mood{{}, {Hang: 100}} {
		r := sim.Run(t, plain(mood))
		if len(r.Findings) > 0 || r.Tally.Succeeded != 1 || r.Tally.Executions != 4 {
			t.Errorf("%q, %+v", r.Findings, r.Tally)
		}
	}
}

// A simulation that finds nothing in an orchestrator which is broken is worth nothing.
func TestRun_FindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	var once sync.Once
	tests := []struct {
		name, want string
		option     testkit.Option
	}{
		{name: "a slot is never given back", want: "and the scheduler counts", option: forgets("scheduler", "releaseSlot")},
		{name: "a step never hears how its lease ended", want: "has not ended", option: forgets("step", "leaseEnded")},
		{name: "a run never hears that a step has ended", want: "the books disagree kind=run", option: forgets("run", "stepEnded")},
		{name: "a choice never arrives", want: "the books disagree", option: forgets("step", "assignStep")},
		{name: "a worker is never sent its dispatch", want: "has not ended", option: forgets("worker", "leaseHere")},
		{name: "a lease never hears that its end is known", want: "the actors are", option: forgets("lease", "leaseNoted")},
		{name: "an actor panics although nobody has wanted it", want: "the log says: actor panicked", option: testkit.WithHook(func(p actors.Point) {
			if p.Kind == "step" && p.Command == "leaseEnded" && p.Stage == "decided" {
				once.Do(func() { panic("a fault of ours") })
			}
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := sim.Run(t, plain(sim.Mood{}), tt.option)
			if all := strings.Join(r.Findings, "\n"); !strings.Contains(all, tt.want) {
				t.Errorf("it says %.2000q, want something with %q", all, tt.want)
			}
		})
	}
}

// A failure among many operations comes down to those that it takes.
func TestExplain_LeavesTheOperationsThatItTakes(t *testing.T) {
	t.Parallel()
	s := sim.Generate(5)
	broken := forgets("step", "leaseEnded")
	r := sim.Run(t, s, broken)
	if len(r.Findings) == 0 {
		t.Fatal("nothing was found")
	}
	short, last := sim.Explain(t, s, r.Class, broken)
	if len(last.Findings) == 0 || len(short.Ops) > 3 || len(short.Ops) >= len(s.Ops) {
		t.Errorf("of\n%s is left\n%s, which says %q", s, short, last.Findings)
	}
}
