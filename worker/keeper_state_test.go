package worker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestKeeperState_Scenarios(t *testing.T) {
	t.Parallel()
	type at struct {
		at     time.Duration
		event  keeperEvent
		phase  keeperPhase
		effect keeperEffect
	}
	exit0 := keeperEvent{kind: eventExited}
	tick := keeperEvent{kind: eventTick}
	cancel := keeperEvent{kind: eventCancel}
	kill := keeperEvent{kind: eventKill}
	gone := keeperEvent{kind: eventWorkerGone}
	empty := keeperEvent{kind: eventEmpty}
	changed := keeperEvent{kind: eventChanged}
	fenceAt := func(term, kill time.Duration) keeperEvent {
		return keeperEvent{kind: eventFence, fence: Fence{TermAt: term, KillAt: kill}}
	}
	const (
		s  = time.Second
		ms = time.Millisecond
	)
	tests := []struct {
		name    string
		timeout time.Duration
		grace   time.Duration
		events  []at
		reason  stopReason
		left    bool
	}{
		{
			name: "a step that ends by itself and leaves nothing", grace: 10 * s,
			events: []at{{s, exit0, keeperLingering, effectNone}, {s, empty, keeperEnded, effectNone}},
		},
		{
			name: "what it leaves is killed after a moment", grace: 10 * s,
			events: []at{
				{s, exit0, keeperLingering, effectNone},
				{s + lingerTime - 1, tick, keeperLingering, effectNone},
				{s + lingerTime, tick, keeperKilling, effectKill},
				{s + lingerTime, changed, keeperKilling, effectKill},
				{s + lingerTime, empty, keeperEnded, effectNone},
			},
		},
		{
			name: "a cancel while it lingers ends what is left at once, and is no reason", grace: 10 * s,
			events: []at{{s, exit0, keeperLingering, effectNone}, {s, cancel, keeperKilling, effectKill}},
		},
		{
			name: "a timeout while it lingers is none", timeout: 2 * s, grace: 10 * s,
			events: []at{{2*s - 1, exit0, keeperLingering, effectNone}, {2 * s, tick, keeperLingering, effectNone}},
		},
		{
			name: "timeout, grace, kill", timeout: 2 * s, grace: 10 * s, reason: stopTimeout,
			events: []at{
				{2*s - 1, tick, keeperRunning, effectNone},
				{2 * s, tick, keeperStopping, effectTerm},
				{12*s - 1, tick, keeperStopping, effectNone},
				{12 * s, tick, keeperKilling, effectKill},
				{12 * s, tick, keeperKilling, effectNone},
				{12*s + 1*ms, tick, keeperKilling, effectKill},
				{12*s + 2*ms, tick, keeperKilling, effectNone},
				{12*s + 3*ms, tick, keeperKilling, effectKill},
			},
		},
		{
			name: "the whole tree has the grace, not only the main process", grace: 10 * s, reason: stopCancelled,
			events: []at{
				{s, cancel, keeperStopping, effectTerm},
				{s, exit0, keeperStopping, effectNone},
				{11*s - 1, tick, keeperStopping, effectNone},
				{11 * s, tick, keeperKilling, effectKill},
			},
		},
		{
			name: "the first reason stays", timeout: 2 * s, grace: 10 * s, reason: stopCancelled,
			events: []at{
				{s, cancel, keeperStopping, effectTerm},
				{2 * s, tick, keeperStopping, effectNone},
				{3 * s, gone, keeperStopping, effectNone},
				{4 * s, kill, keeperKilling, effectKill},
				{4 * s, kill, keeperKilling, effectNone},
				{4 * s, cancel, keeperKilling, effectNone},
			},
		},
		{
			name: "a kill has no grace", grace: 10 * s, reason: stopKilled,
			events: []at{{s, kill, keeperKilling, effectKill}},
		},
		{
			name: "without a grace a cancel kills", reason: stopCancelled,
			events: []at{{s, cancel, keeperKilling, effectKill}},
		},
		{
			name: "a worker that is gone", grace: 10 * s, reason: stopWorkerGone,
			events: []at{{s, gone, keeperStopping, effectTerm}, {11 * s, tick, keeperKilling, effectKill}},
		},
		{
			name: "a fence that is not moved", grace: 10 * s, reason: stopFenced,
			events: []at{
				{s, fenceAt(5*s, 7*s), keeperRunning, effectNone},
				{5*s - 1, tick, keeperRunning, effectNone},
				{5 * s, tick, keeperStopping, effectTerm},
				{7*s - 1, tick, keeperStopping, effectNone},
				{7 * s, tick, keeperKilling, effectKill},
			},
		},
		{
			name: "a fence that is moved in time", grace: 10 * s,
			events: []at{
				{s, fenceAt(5*s, 7*s), keeperRunning, effectNone},
				{4 * s, fenceAt(9*s, 11*s), keeperRunning, effectNone},
				{8 * s, tick, keeperRunning, effectNone},
				{8 * s, keeperEvent{kind: eventFence}, keeperRunning, effectNone},
				{100 * s, tick, keeperRunning, effectNone},
			},
		},
		{
			name: "a fence that is over when it is heard of", grace: 10 * s, reason: stopFenced,
			events: []at{{s, fenceAt(1, 2), keeperKilling, effectKill}},
		},
		{
			name: "a fence cuts the grace of a cancel", grace: 10 * s, reason: stopCancelled,
			events: []at{
				{s, fenceAt(5*s, 7*s), keeperRunning, effectNone},
				{4 * s, cancel, keeperStopping, effectTerm},
				{7 * s, tick, keeperKilling, effectKill},
			},
		},
		{
			name: "a cancel cuts the grace of a fence", grace: s, reason: stopFenced,
			events: []at{
				{s, fenceAt(s, 60*s), keeperStopping, effectTerm},
				{2 * s, cancel, keeperStopping, effectNone},
				{3 * s, tick, keeperKilling, effectKill},
			},
		},
		{
			name: "what cannot be killed is given up", grace: 10 * s, reason: stopKilled, left: true,
			events: []at{
				{s, kill, keeperKilling, effectKill},
				{s + killPatience - 1, tick, keeperKilling, effectKill},
				{s + killPatience, tick, keeperEnded, effectNone},
				{s + killPatience, empty, keeperEnded, effectNone},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := startKeeper(tt.timeout, tt.grace, Fence{}, moment{})
			for i, e := range tt.events {
				var effect keeperEffect
				st, effect = stepKeeper(st, e.event, moment{mono: e.at, boot: e.at})
				if st.phase != e.phase || effect != e.effect {
					t.Fatalf("after event %d (%s): %s with effect %q, want %s with %q", i, e.event.kind, st.phase, effect, e.phase, e.effect)
				}
			}
			if st.reason != tt.reason || st.left != tt.left {
				t.Errorf("reason %q, left %v", st.reason, st.left)
			}
		})
	}
}

func TestKeeperState_TimeoutAndFence_WhileTheMachineSleeps(t *testing.T) {
	t.Parallel()
	st := startKeeper(time.Minute, time.Second, Fence{TermAt: time.Hour, KillAt: 2 * time.Hour}, moment{})
	if wake := st.wakeIn(moment{}); wake > fenceTick {
		t.Errorf("with a fence it sleeps for %v on a clock that stands still with the machine", wake)
	}
	// Half an hour of sleep: no timeout.
	st, effect := stepKeeper(st, keeperEvent{kind: eventTick}, moment{mono: time.Second, boot: 30 * time.Minute})
	if st.phase != keeperRunning || effect != effectNone {
		t.Errorf("after a sleep: %s %s", st.phase, effect)
	}
	// Three hours: whatever runs is believed dead by others.
	st, effect = stepKeeper(st, keeperEvent{kind: eventTick}, moment{mono: 2 * time.Second, boot: 3 * time.Hour})
	if st.phase != keeperKilling || effect != effectKill || st.reason != stopFenced {
		t.Errorf("after a long sleep: %s %s %s", st.phase, effect, st.reason)
	}
}

func drawEvent(t *rapid.T) keeperEvent {
	ev := keeperEvent{kind: rapid.SampledFrom([]keeperEventKind{
		eventExited, eventChanged, eventEmpty, eventCancel, eventKill, eventWorkerGone, eventFence, eventTick, eventTick,
	}).Draw(t, "kind")}
	if ev.kind == eventFence {
		ev.fence.TermAt = time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "term"))
		ev.fence.KillAt = time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "kill"))
	}
	return ev
}

func TestKeeperState_Safety(t *testing.T) {
	t.Parallel()
	next := map[keeperPhase][]keeperPhase{
		keeperRunning:   {keeperRunning, keeperLingering, keeperStopping, keeperKilling, keeperEnded},
		keeperLingering: {keeperLingering, keeperKilling, keeperEnded},
		keeperStopping:  {keeperStopping, keeperKilling, keeperEnded},
		keeperKilling:   {keeperKilling, keeperEnded},
		keeperEnded:     {keeperEnded},
	}
	rapid.Check(t, func(t *rapid.T) {
		var now moment
		st := startKeeper(
			time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "timeout")),
			time.Duration(rapid.Int64Range(-1, int64(20*time.Second)).Draw(t, "grace")), Fence{}, now)
		terms := 0
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			awake := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "awake"))
			asleep := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "asleep"))
			now.mono += awake
			now.boot += awake + asleep
			before := st
			var effect keeperEffect
			st, effect = stepKeeper(st, drawEvent(t), now)
			allowed := false
			for _, p := range next[before.phase] {
				allowed = allowed || p == st.phase
			}
			if !allowed {
				t.Fatalf("from %s to %s", before.phase, st.phase)
			}
			if before.phase == keeperEnded && (!cmp.Equal(before, st, cmp.AllowUnexported(keeperState{}, exitStatus{})) || effect != effectNone) {
				t.Fatal("something changed after the end")
			}
			if before.reason != stopNone && before.reason != st.reason {
				t.Fatalf("reason %s became %s", before.reason, st.reason)
			}
			if before.phase == keeperLingering && st.reason != stopNone {
				t.Fatalf("a step that had ended by itself got the reason %s", st.reason)
			}
			if (effect == effectTerm) != (before.phase == keeperRunning && st.phase == keeperStopping) {
				t.Fatalf("effect %q from %s to %s", effect, before.phase, st.phase)
			}
			if effect == effectTerm {
				terms++
			}
			if before.phase != keeperKilling && st.phase == keeperKilling && effect != effectKill {
				t.Fatal("killing began without a kill")
			}
			if effect == effectKill && st.phase != keeperKilling {
				t.Fatalf("a kill in %s", st.phase)
			}
		}
		if terms > 1 {
			t.Fatalf("%d times TERM", terms)
		}
	})
}

// TestKeeperState_Liveness lets only time pass, as far as the state asks for it: whatever came before, a keeper that
// is asked to stop ends in bounded time though nothing that it kills ever dies.
func TestKeeperState_Liveness(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var now moment
		grace := time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "grace"))
		st := startKeeper(0, grace, Fence{}, now)
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			ev := drawEvent(t)
			if ev.kind != eventEmpty {
				st, _ = stepKeeper(st, ev, now)
			}
			now.mono += time.Second
			now.boot += time.Second
		}
		st, _ = stepKeeper(st, keeperEvent{kind: eventCancel}, now)
		deadline := now.mono + grace + lingerTime + killPatience
		for rounds := 0; st.phase != keeperEnded; rounds++ {
			wake := st.wakeIn(now)
			if wake < 0 {
				t.Fatalf("sleeps for ever in %s", st.phase)
			}
			now.mono += wake
			now.boot += wake
			if now.mono > deadline {
				t.Fatalf("still in %s", st.phase)
			}
			if rounds > 1000 {
				t.Fatalf("spins in %s", st.phase)
			}
			st, _ = stepKeeper(st, keeperEvent{kind: eventTick}, now)
		}
		if !st.left {
			t.Fatal("ended as if nothing were left")
		}
	})
}
