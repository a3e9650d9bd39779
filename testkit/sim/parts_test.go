package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

func TestShrink_KeepsWhatFailsAndNothingElse(t *testing.T) {
	t.Parallel()
	has := func(s Scenario, fn func(Op) bool) bool { return slices.ContainsFunc(s.Ops, fn) }
	for seed := uint64(1); seed <= 30; seed++ {
		s := Generate(seed)
		s.Ops = append(s.Ops, Op{At: time.Hour, Kind: OpKill, Worker: "w1"}, Op{At: 2 * time.Hour, Kind: OpCrash, N: 1, Again: 2, For: time.Second})
		step := s.Ops[slices.IndexFunc(s.Ops, func(o Op) bool { return o.Kind == OpSubmit })].Flow.Jobs[0].Steps[0].Name
		fails := func(s Scenario) bool {
			return has(s, func(o Op) bool { return o.Kind == OpKill && o.At == time.Hour }) &&
				has(s, func(o Op) bool { return o.Kind == OpCrash && o.Again > 0 }) &&
				has(s, func(o Op) bool {
					return o.Kind == OpSubmit && slices.ContainsFunc(o.Flow.Jobs, func(j Job) bool {
						return slices.ContainsFunc(j.Steps, func(s Step) bool { return s.Name == step })
					})
				})
		}
		got := Shrink(s, 2000, fails)
		steps := 0
		for _, o := range got.Ops {
			if o.Flow != nil {
				for _, j := range o.Flow.Jobs {
					steps += len(j.Steps)
				}
			}
		}
		if !fails(got) || len(got.Ops) != 3 || steps != 1 || len(got.Machines) != 1 {
			t.Errorf("seed %d: what is left is\n%s", seed, got)
		}
	}
}

func TestShrink_AsksNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	asked := 0
	Shrink(Generate(3), 7, func(Scenario) bool { asked++; return false })
	if asked > 7 {
		t.Errorf("it asked %d times", asked)
	}
}

func TestFlow_WithoutAStepNamesItNoMore(t *testing.T) {
	t.Parallel()
	f := Flow{Name: "f", Jobs: []Job{
		{Name: "a", Steps: []Step{{Name: "x", Queue: -1}, {Name: "y", After: []string{"x"}, Queue: -1}}},
		{Name: "b", After: []string{"a"}, Steps: []Step{{Name: "x", Queue: -1}}},
	}}
	if got, ok := f.without("a", "x"); !ok || strings.Contains(got.YAML(), "dependsOn: [x]") || !strings.Contains(got.YAML(), "dependsOn: [a]") {
		t.Errorf("without step x of job a:\n%s", got.YAML())
	}
	if got, ok := f.without("a", ""); !ok || strings.Contains(got.YAML(), "dependsOn") {
		t.Errorf("without job a:\n%s", got.YAML())
	}
	if got, ok := (Flow{Jobs: f.Jobs[1:]}).without("b", "x"); ok {
		t.Errorf("without its only step:\n%s", got.YAML())
	}
}

func TestBooks_WhatHasEndedStaysAsItIs(t *testing.T) {
	t.Parallel()
	lease := func(version uint64, ended bool) persistence.Record {
		return persistence.Record{Kind: persistence.KindLease, ID: "l", Version: version, Ended: ended}
	}
	step := func(version uint64, state string) persistence.Record {
		return persistence.Record{Kind: persistence.KindStep, ID: "s", Version: version, State: state}
	}
	tests := []struct {
		name    string
		records []persistence.Record
		gone    bool
		want    string
	}{
		{"a lease goes on and ends", []persistence.Record{lease(1, false), lease(2, false), lease(3, true), lease(3, true)}, false, ""},
		{"a lease changes once it has ended", []persistence.Record{lease(1, false), lease(2, true), lease(3, true)}, false, "had ended at version 2"},
		{"a lease comes back", []persistence.Record{lease(2, true), lease(1, false)}, false, "had ended at version 2"},
		{"a lease disappears", []persistence.Record{lease(2, true)}, true, "is gone"},
		{"a step ends", []persistence.Record{step(1, "queued"), step(2, "running"), step(3, "succeeded")}, false, ""},
		{"a step fails once it has succeeded", []persistence.Record{step(3, "succeeded"), step(4, "failed")}, false, "had ended at version 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := books{ended: make(map[string]uint64)}
			said := ""
			for _, r := range tt.records {
				said += b.changed(r.Kind, r.ID, r, nil)
			}
			if tt.gone {
				said += b.changed(tt.records[0].Kind, tt.records[0].ID, persistence.Record{}, errors.New("not found"))
			}
			if !strings.Contains(said, tt.want) || (tt.want == "") != (said == "") {
				t.Errorf("it says %q, want something with %q", said, tt.want)
			}
		})
	}
}

// What workers do is held to what they may do.
func TestWorld_FindsAStepThatRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := &world{judge: newJudge(t), running: make(map[string]*execution), history: make(map[string][]*execution)}
	dispatched := func(worker, dispatch, step string) *task {
		p := &process{a: &agent{w: w, name: worker}}
		params := &messages.DispatchParams{RunId: "r", Job: "j", Step: step, DispatchId: dispatch}
		return &task{p: p, lease: dispatch + "/1", params: params, stopped: make(chan struct{})}
	}
	first, other, again, twice := dispatched("w1", "r.0.1", "a"), dispatched("w1", "r.1.1", "b"), dispatched("w2", "r.0.2", "a"), dispatched("w3", "r.0.3", "a")
	for _, x := range []*task{first, other} {
		x.ex = x.executes()
	}
	first.stop("killed")
	again.ex = again.executes()
	if len(w.judge.findings) > 0 {
		t.Errorf("it finds %q", w.judge.findings)
	}
	twice.ex = twice.executes()
	if len(w.judge.findings) != 1 || !strings.Contains(w.judge.findings[0], "step r/j/a runs on w3 as r.0.3 while it still runs on w2 as r.0.2") {
		t.Errorf("it finds %q", w.judge.findings)
	}
}

func TestRecordOf_ReadsTheKeysOfWhatEndsForGood(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"s/r1/0": "step r1/0", "L/run/r1": "run r1", "T/run/r1": "run r1", "T/lease/r1.0.1/1": "lease r1.0.1/1", "L/pending/r1.0.q1": "pending r1.0.q1",
		"L/worker/w1": "", "L/token/w1": "", "m/head": "", "e/r1": "", "L/scheduler/scheduler": "",
	} {
		kind, id, ok := recordOf(key)
		if got := strings.TrimSpace(string(kind) + " " + id); got != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// A loss is held to how long its worker was away, unless the orchestrator itself was.
func TestWorld_FindsANeedlessLoss(t *testing.T) {
	t.Parallel()
	grace := 20 * time.Second
	at := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
	away := func(from, to time.Duration) spans { return spans{list: []between{{at.Add(-from), at.Add(-to)}}} }
	dead, die := context.WithCancel(context.Background())
	die()
	tests := []struct {
		name    string
		away    spans
		out     spans
		machine Machine
		ctx     context.Context //nolint:containedctx // a process's life
		givenUp int
		found   bool
	}{
		{name: "it was never away", found: true},
		{name: "it was away for a moment", away: away(15*time.Second, 12*time.Second), found: true},
		{name: "it was away long ago", away: away(500*time.Second, 400*time.Second), found: true},
		{name: "it is away", away: spans{since: at.Add(-grace)}},
		{name: "it has gone only afterwards", away: spans{since: at.Add(time.Second)}, ctx: dead, found: true},
		{name: "it was away for long", away: away(30*time.Second, 5*time.Second)},
		{name: "its process has died", away: spans{since: at.Add(-time.Second)}, ctx: dead},
		{name: "it keeps nothing", machine: Machine{Forgets: true}},
		{name: "its token ends", machine: Machine{Token: time.Minute}},
		{name: "the orchestrator was down", out: away(5*time.Second, 4*time.Second)},
		{name: "a command was given up", givenUp: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.ctx == nil {
				tt.ctx = context.Background()
			}
			w := &world{judge: newJudge(t), s: Scenario{Grace: grace}, out: tt.out, tally: Tally{GivenUp: tt.givenUp}}
			a := &agent{w: w, is: tt.machine}
			w.history = map[string][]*execution{"r/j/s": {
				{dispatch: "r.0.1", worker: "w1", a: a, away: &tt.away, life: tt.ctx}, {dispatch: "r.0.2", worker: "w1", a: a, away: &tt.away, life: tt.ctx},
			}}
			w.checkLoss("r/j/s", "r.0.1", at)
			if found := len(w.judge.findings) > 0; found != tt.found {
				t.Errorf("it finds %q", w.judge.findings)
			}
		})
	}
}
