package actors

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

// storyOf takes random commands one after another, from a state that the walk knows, and crashes now and then: the state is
// then the one that its record gives. Every transition is held to what holds of all.
func storyOf[S any](u *under[S], states map[string]func() S, commands map[string]func() any, extra func(*rapid.T, S, S)) func(*rapid.T) {
	stateNames, commandNames := slices.Sorted(maps.Keys(states)), slices.Sorted(maps.Keys(commands))
	return func(t *rapid.T) {
		s := states[rapid.SampledFrom(stateNames).Draw(t, "state")]()
		at := walkNow()
		owed := make(map[string]obligation)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			at.now = at.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			at.sequence++
			name := rapid.SampledFrom(commandNames).Draw(t, "command")
			before := s
			// A machine's state may share a set with the one before, so each use gets a state of its own.
			s = u.check(t, name, func() S { return private(before) }, commands[name], at)
			extra(t, before, s)
			if u.version(s) > 0 && rapid.IntRange(0, 5).Draw(t, "crash") == 5 {
				s = u.reload(s)
				owed = make(map[string]obligation)
			}
			owed = sameIDSameMessage(t, name, owed, u.resume(s, at))
		}
	}
}

// private copies the sets that a worker's or a token's actor changes in place.
func private[S any](s S) S {
	switch s := any(&s).(type) {
	case *workerState:
		s.leases = maps.Clone(s.leases)
		s.awaiting, s.waiters, s.resumers = slices.Clone(s.awaiting), slices.Clone(s.waiters), slices.Clone(s.resumers)
	case *tokenState:
		s.machines, s.gone = maps.Clone(s.machines), maps.Clone(s.gone)
	case *leaseState:
		s.buffer = slices.Clone(s.buffer)
	}
	return s
}

// sameIDSameMessage holds that an obligation which goes on under its id says the same: the ledger repeats the message that
// it has, and a newer one would never be told.
func sameIDSameMessage(t *rapid.T, name string, before map[string]obligation, owed []obligation) map[string]obligation {
	t.Helper()
	after := make(map[string]obligation)
	for _, o := range owed {
		if _, twice := after[o.id]; twice {
			t.Errorf("%s: %q is owed twice", name, o.id)
		}
		after[o.id] = o
		if old, ok := before[o.id]; ok {
			if diff := differ([]any{old.to, old.msg}, []any{o.to, o.msg}); diff != "" {
				t.Errorf("%s: %q goes on under its id and says something else:\n%s", name, o.id, diff)
			}
		}
	}
	return after
}

func TestStep_AnyStoryKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, stepStory())
}

func stepStory() func(*rapid.T) {
	return storyOf(stepUnder(), stepStates(), stepCommands(), func(t *rapid.T, before, after stepState) {
		if after.dispatches < before.dispatches || after.episode < before.episode || after.losses < before.losses {
			t.Errorf("a count fell: %+v became %+v", before, after)
		}
		if before.place != after.place {
			t.Errorf("its place in line changed from %d to %d", before.place, after.place)
		}
		if after.status == messages.StepQueued && after.pending != 1 && after.version > before.version {
			t.Errorf("it waits with version %d of its pending dispatch", after.pending)
		}
	})
}

func TestLease_AnyStoryKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, leaseStory())
}

func leaseStory() func(*rapid.T) {
	return storyOf(leaseUnder(), leaseStates(), leaseCommands(), func(t *rapid.T, before, after leaseState) {
		if after.durable < before.durable && before.version > 0 {
			t.Errorf("durable output fell from %d to %d", before.durable, after.durable)
		}
		if before.hasWrites && !after.hasWrites {
			t.Error("a first write was forgotten")
		}
		if before.outcome != nil && after.outcome != before.outcome {
			t.Errorf("a decided outcome changed from %v to %v", before.outcome, after.outcome)
		}
	})
}

func TestWorker_AnyStoryKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, workerStory())
}

func workerStory() func(*rapid.T) {
	return storyOf(workerUnder(), workerStates(), workerCommands(), func(t *rapid.T, before, after workerState) {
		if after.seq < before.seq && after.version > 0 {
			t.Errorf("the number of the last dispatch fell from %d to %d", before.seq, after.seq)
		}
		if before.pauses() && !after.pauses() && before.instance != after.instance {
			t.Error("a pause did not survive a new instance")
		}
		if len(after.resumers) > 0 && !after.resuming {
			t.Error("somebody waits for a drain to be taken back, and nobody tells the worker")
		}
	})
}

func TestToken_AnyStoryKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, tokenStory())
}

func tokenStory() func(*rapid.T) {
	return storyOf(tokenUnder(), tokenStates(), tokenCommands(), func(t *rapid.T, before, after tokenState) {
		if after.max >= 0 && len(after.machines) > max(int(after.max), len(before.machines)) {
			t.Errorf("a token for %d machines admitted %d", after.max, len(after.machines))
		}
		if before.state.Ended() && !after.state.Ended() && after.generation != before.generation+1 && after.version > 0 {
			t.Errorf("an ended token of generation %d is %s in generation %d", before.generation, after.state, after.generation)
		}
	})
}

// A record is the durable part of a state, whole: what goes through it comes back.
func TestRecords_GiveTheirStateBack(t *testing.T) {
	t.Parallel()
	for name, state := range stepStates() {
		s := state()
		u := stepUnder()
		if diff := cmp.Diff(u.record(s), u.record(u.reload(s)), protocmp.Transform()); diff != "" {
			t.Errorf("step %s (-before +after):\n%s", name, diff)
		}
		got, want := u.reload(s), s
		want.schedulerEpoch, want.leaseUp, want.runKnows, want.parked, want.awaiting, want.awaitNoted, want.orphan = 0, false, false, false, false, false, false
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(stepState{}), protocmp.Transform(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("step %s (-before +after):\n%s", name, diff)
		}
	}
	for name, state := range leaseStates() {
		if l, u := state(), leaseUnder(); l.unknown == "" {
			if diff := cmp.Diff(u.record(l), u.record(u.reload(l)), protocmp.Transform(), protocmp.IgnoreFields(u.record(l), "first_lost_at")); diff != "" {
				t.Errorf("lease %s (-before +after):\n%s", name, diff)
			}
		}
	}
	for name, state := range workerStates() {
		w, u := state(), workerUnder()
		if diff := cmp.Diff(u.record(w), u.record(u.reload(w)), protocmp.Transform()); diff != "" {
			t.Errorf("worker %s (-before +after):\n%s", name, diff)
		}
	}
	for name, state := range tokenStates() {
		k, u := state(), tokenUnder()
		if diff := cmp.Diff(u.record(k), u.record(u.reload(k)), protocmp.Transform()); diff != "" {
			t.Errorf("token %s (-before +after):\n%s", name, diff)
		}
		if diff := cmp.Diff(k.machines, u.reload(k).machines); diff != "" {
			t.Errorf("machines of token %s (-before +after):\n%s", name, diff)
		}
	}
}

// A run is not written per step: its record and those of its steps give back what it knows.
func TestRecords_GiveARunBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plan := anyPlan(t)
		s, at, steps := &runState{id: "r"}, walkNow(), make(map[int]*messages.StepRecord)
		take := func(cmd any) {
			at.now = at.now.Add(time.Second)
			_, d := stepRun(s, []any{cmd}, at)
			for _, w := range d.writes {
				if r, ok := w.body.(*messages.StepRecord); ok {
					steps[int(r.GetOrdinal())] = r
				}
			}
		}
		take(submitRun{file: "f", parent: "p", sourceDigest: "d", submitDigest: "d", plan: plan, answer: newAnswer()})
		for range rapid.IntRange(1, 12).Draw(t, "moves") {
			running := append(ordinals(s, live), ordinals(s, resting)...)
			switch {
			case s.reserving != 0:
				take(reserveElapsed{s.reserving})
			case s.status.Ended():
			case rapid.IntRange(0, 5).Draw(t, "cancel") == 5:
				take(cancelRun{by: "me", force: rapid.Bool().Draw(t, "force"), answer: newAnswer()})
			case rapid.IntRange(0, 9).Draw(t, "poison") == 9:
				take(poisoned{stepEnded{}})
			case len(running) > 0:
				o := rapid.SampledFrom(running).Draw(t, "step")
				status := rapid.SampledFrom([]messages.StepStatus{messages.StepSucceeded, messages.StepFailed, messages.StepCancelled}).Draw(t, "status")
				steps[o].Status, steps[o].Error = string(status), "e"
				take(stepEnded{s.stepAddress(o), uint32(o), status, "e", "c"})
			}
		}
		if s.version == 0 || s.reserving != 0 {
			return // nothing of it is durable, or a commit is to come
		}
		found := foundRun{record: s.write().body.(*messages.RunRecord), version: s.version, plan: plan}
		for _, r := range steps {
			found.steps = append(found.steps, foundStep{record: r, version: 1})
		}
		slices.SortFunc(found.steps, func(a, b foundStep) int { return int(a.record.GetOrdinal()) - int(b.record.GetOrdinal()) })
		got := runFrom(found, at)
		if s.status.Ended() { // it is never written again, and what it knew of its jobs is in its events
			if got.status != s.status || got.errText != s.errText {
				t.Fatalf("%s, %q became %s, %q", s.status, s.errText, got.status, got.errText)
			}
			return
		}
		// Which of several failures it names is the first in the order of steps where nobody has seen an order.
		opts := cmp.Options{cmp.AllowUnexported(write{}), protocmp.Transform(), protocmp.IgnoreFields(&messages.RunRecord{}, "error")}
		if diff := cmp.Diff(s.write(), got.write(), opts); diff != "" {
			t.Fatalf("record (-before +after):\n%s", diff)
		}
		if s.forced != got.forced || s.fault != got.fault {
			t.Fatalf("kill %v, fault %q became %v, %q", s.forced, s.fault, got.forced, got.fault)
		}
		if diff := cmp.Diff(ordinals(s, ended), ordinals(got, ended)); diff != "" {
			t.Fatalf("ended steps (-before +after):\n%s", diff)
		}
		if s.liveSteps != got.liveSteps || got.resting != got.liveSteps {
			t.Fatalf("%d live steps became %d, of which %d rest", s.liveSteps, got.liveSteps, got.resting)
		}
	})
}

// ordinals are the steps of a run in a phase.
func ordinals(s *runState, in phase) []int {
	var list []int
	for o, p := range s.phases {
		if p == in {
			list = append(list, o)
		}
	}
	return list
}
