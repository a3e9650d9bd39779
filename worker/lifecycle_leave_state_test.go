package worker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

func TestLifecycle_TheFirstDrainCounts(t *testing.T) {
	t.Parallel()
	l := newLifecycle(plan{capacity: 2})
	if l.intent() != messages.IntentNone || l.slotsOffered() != 2 {
		t.Errorf("intent %s, %d slots", l.intent(), l.slotsOffered())
	}
	if !l.drain("signal", "signal", t0()) || l.drain("other", "other", t0()) || l.cause != "signal" ||
		l.intent() != messages.IntentDraining || l.slotsOffered() != 0 {
		t.Errorf("%+v", l)
	}
}

// at is a moment after t0.
func at(seconds float64) time.Time { return t0().Add(time.Duration(seconds * float64(time.Second))) }

func TestLifecycle_Triggers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		plan  plan
		given func(*lifecycle)
		want  StopReason // empty: none by itself
		due   float64    // seconds after t0
	}{
		{"no rule", plan{}, func(l *lifecycle) { l.connected(at(1)) }, "", 0},
		{"idle is counted from the enrollment", plan{idleFor: 10 * time.Second}, func(l *lifecycle) { l.connected(at(1)) }, StopIdleTimeout, 11},
		{"one that never enrolled is not idle", plan{idleFor: 10 * time.Second}, func(*lifecycle) {}, "", 0},
		{"one that is disconnected is not idle", plan{idleFor: 10 * time.Second}, func(l *lifecycle) {
			l.connected(at(1))
			l.disconnected(0, at(2))
		}, "", 0},
		{"idle begins anew with the next enrollment", plan{idleFor: 10 * time.Second}, func(l *lifecycle) {
			l.connected(at(1))
			l.disconnected(0, at(2))
			l.connected(at(7))
		}, StopIdleTimeout, 17},
		{"one that runs a step is not idle", plan{idleFor: 10 * time.Second}, func(l *lifecycle) {
			l.connected(at(1))
			l.offer("a", 1, 1, at(2))
		}, "", 0},
		{"idle begins anew with the end of the last step", plan{idleFor: 10 * time.Second}, func(l *lifecycle) {
			l.connected(at(1))
			l.offer("a", 1, 1, at(2))
			l.offer("b", 1, 2, at(2))
			l.stepGone("a", stepEnded, at(3))
			l.stepGone("b", stepEnded, at(5))
		}, StopIdleTimeout, 15},
		{"a step that runs beside one that has ended is no idleness", plan{idleFor: 10 * time.Second}, func(l *lifecycle) {
			l.connected(at(1))
			l.offer("a", 1, 1, at(2))
			l.offer("b", 1, 2, at(2))
			l.stepGone("a", stepEnded, at(3))
		}, "", 0},
		{"age is counted from the start", plan{uptime: 10 * time.Second}, func(*lifecycle) {}, StopMaxUptime, 10},
		{"age does not care for steps", plan{uptime: 10 * time.Second}, func(l *lifecycle) { l.offer("a", 1, 1, at(2)) }, StopMaxUptime, 10},
		{"what comes first wins: idle", plan{idleFor: 5 * time.Second, uptime: 10 * time.Second}, func(l *lifecycle) { l.connected(at(1)) }, StopIdleTimeout, 6},
		{"what comes first wins: age", plan{idleFor: 10 * time.Second, uptime: 10 * time.Second}, func(l *lifecycle) { l.connected(at(1)) }, StopMaxUptime, 10},
		{"the last dispatch wins over both", plan{limit: 1, idleFor: 1, uptime: 1}, func(l *lifecycle) {
			l.connected(at(1))
			l.offer("a", 1, 1, at(2))
			l.stepGone("a", stepEnded, at(3))
		}, StopMaxDispatches, 3},
		{"a dispatch that was cancelled before it ran is one", plan{limit: 1}, func(l *lifecycle) {
			l.cancelEarly("a/1")
			l.offer("a", 1, 1, at(2))
		}, StopMaxDispatches, 2},
		{"one that could not be started is none", plan{limit: 1}, func(l *lifecycle) {
			l.offer("a", 1, 1, at(2))
			l.stepGone("a", stepRefused, at(3))
		}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.plan.capacity = 4
			l := newLifecycle(tt.plan)
			l.born = t0()
			tt.given(&l)
			due := l.due()
			if tt.want == "" {
				if !due.IsZero() || l.tick(at(1e6)) != turnNone {
					t.Errorf("due at %v, stage %s", due, l.stage)
				}
				return
			}
			if !due.Equal(at(tt.due)) {
				t.Errorf("due at %v, want %v", due, at(tt.due))
			}
			if l.tick(due.Add(-1)) != turnNone {
				t.Error("too early")
			}
			if l.tick(due) != turnDrain || l.cause != tt.want || l.said != string(tt.want) || l.stopReason() != tt.want {
				t.Errorf("%+v", l.leaving)
			}
			if l.tick(due) == turnDrain {
				t.Error("it drains twice")
			}
		})
	}
}

func TestLifecycle_Resume(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		given func(*lifecycle)
		want  bool
	}{
		{"one that works has nothing to take back", func(*lifecycle) {}, false},
		{"an order is taken back while a step runs", func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.order("", t0()) }, true},
		{"and while a result is not acknowledged", func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.order("", t0())
			l.stepGone("a", stepEnded, t0())
		}, true},
		{"not with nothing in flight", func(l *lifecycle) { l.order("", t0()) }, false},
		{"not a drain of the worker's own", func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.drain(StopSignal, "", t0()) }, false},
		{"not one for which there was a signal too", func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.order("", t0())
			l.drain(StopSignal, "", t0())
		}, false},
		{"not one that began before the order", func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.drain(StopSignal, "", t0())
			l.order("", t0())
		}, false},
		{"not beyond the last dispatch", func(l *lifecycle) {
			l.limit = 1
			l.offer("a", 1, 1, t0())
			l.order("", t0())
			l.stepGone("a", stepEnded, t0())
		}, false},
		{"not when it was killed", func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.order("", t0()); l.kill(t0()) }, false},
		{"not beyond the bound", func(l *lifecycle) {
			l.bound = time.Second
			l.offer("a", 1, 1, t0())
			l.order("", t0())
			l.tick(at(1))
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLifecycle(plan{capacity: 2})
			tt.given(&l)
			before := l.stage
			if got := l.resume(t0()); got != tt.want || got != (before != l.stage) {
				t.Errorf("got %t, stage %s", got, l.stage)
			}
		})
	}
}

// TestLifecycle_GoesBy says when a worker that leaves goes although something is owed.
func TestLifecycle_GoesBy(t *testing.T) {
	t.Parallel()
	step := func(l *lifecycle) { l.offer("a", 1, 1, t0()) }
	result := func(l *lifecycle) { step(l); l.stepGone("a", stepEnded, at(1)) }
	loss := func(l *lifecycle) {
		step(l)
		l.stepGone("a", stepLost, at(1))
		l.disconnected(60*time.Second, at(1))
	}
	drainAt := func(s float64) func(*lifecycle) { return func(l *lifecycle) { l.drain(StopSignal, "", at(s)) } }
	unheard := func(l *lifecycle) { l.unheard = true }
	killAt := func(s float64) func(*lifecycle) { return func(l *lifecycle) { l.kill(at(s)) } }
	expireAt := func(s float64) func(*lifecycle) {
		return func(l *lifecycle) {
			l.bound = at(s).Sub(l.since)
			if l.tick(at(s)) != turnExpired {
				t.Error("it has no bound")
			}
			l.dying = 10 * time.Second
		}
	}
	tests := []struct {
		name   string
		mode   DrainMode
		given  []func(*lifecycle)
		want   float64 // seconds after t0; 0 is never
		reason StopReason
	}{
		{"a step runs", "", []func(*lifecycle){step, drainAt(2)}, 0, StopSignal},
		{"a result waits", "", []func(*lifecycle){result, drainAt(2)}, 0, StopSignal},
		{"an idle one takes leave", "", []func(*lifecycle){drainAt(2)}, 4, StopSignal},
		{"the last result was acknowledged", "", []func(*lifecycle){result, drainAt(2), func(l *lifecycle) { l.forget("a", at(7)) }}, 9, StopSignal},
		{"an idle one that has just come back", "", []func(*lifecycle){drainAt(2), func(l *lifecycle) { l.connected(at(30)) }}, 32, StopSignal},
		{"a result waits and there is no connection", "", []func(*lifecycle){result, func(l *lifecycle) { l.disconnected(60*time.Second, at(2)) }, drainAt(3)}, 0, StopSignal},
		{"only losses wait and there is no connection", "", []func(*lifecycle){loss, drainAt(3)}, 63, StopSignal},
		{"only losses wait, of a connection that was lost in the drain", "", []func(*lifecycle){step, drainAt(0.5), func(l *lifecycle) {
			l.stepGone("a", stepLost, at(1))
			l.disconnected(60*time.Second, at(1))
		}}, 61, StopSignal},
		{"a killed step", "", []func(*lifecycle){step, killAt(2)}, 7, StopForced},
		{"the result of a killed step", "", []func(*lifecycle){step, killAt(2), func(l *lifecycle) { l.stepGone("a", stepLost, at(4)) }}, 5, StopForced},
		{"a result from before the kill", "", []func(*lifecycle){result, killAt(2)}, 3, StopForced},
		{"an idle one is killed", "", []func(*lifecycle){killAt(2)}, 3, StopForced},
		{"one that is not connected is killed with nothing to tell", "", []func(*lifecycle){func(l *lifecycle) { l.disconnected(0, at(1)) }, killAt(2)}, 2, StopForced},
		{"the result of a killed step that nobody is left to hear", "", []func(*lifecycle){unheard, step, killAt(2), func(l *lifecycle) { l.stepGone("a", stepLost, at(4)) }}, 2, StopForced},
		{"a killed step of which nobody is left to hear", "", []func(*lifecycle){unheard, step, killAt(2)}, 7, StopForced},
		{"a step at the bound is handed back", DrainHandback, []func(*lifecycle){step, drainAt(2), expireAt(5)}, 20, StopForced},
		{"a step at the bound is cancelled", DrainCancel, []func(*lifecycle){step, drainAt(2), expireAt(5)}, 20, StopForced},
		{"a step at the bound ends by itself", DrainFinish, []func(*lifecycle){step, drainAt(2), expireAt(5)}, 0, StopSignal},
		{"the result of a step that ended after the bound", DrainFinish, []func(*lifecycle){step, drainAt(2), expireAt(5), func(l *lifecycle) { l.stepGone("a", stepEnded, at(9)) }}, 14, StopForced},
		{"a result that waits at the bound", DrainHandback, []func(*lifecycle){result, drainAt(2), expireAt(5)}, 10, StopForced},
		{"a kill after the bound", DrainHandback, []func(*lifecycle){step, drainAt(2), expireAt(5), killAt(6)}, 11, StopForced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLifecycle(plan{capacity: 2, mode: tt.mode})
			l.connected(t0())
			for _, f := range tt.given {
				f(&l)
			}
			by := l.due()
			if tt.want == 0 {
				if !by.IsZero() {
					t.Errorf("it goes at %v", by.Sub(t0()))
				}
				return
			}
			if !by.Equal(at(tt.want)) {
				t.Fatalf("it goes at %v, want %v", by.Sub(t0()), at(tt.want).Sub(t0()))
			}
			if l.tick(by.Add(-1)) != turnNone || l.tick(by) != turnGone || l.tick(by) != turnNone {
				t.Errorf("%+v", l.leaving)
			}
			if l.stopReason() != tt.reason {
				t.Errorf("reason %s, want %s", l.stopReason(), tt.reason)
			}
		})
	}
}

// TestLifecycle_IdleTimerAgainstADispatch lets both come within a few moments of each other, in either order, over and
// over: the step runs and the worker stays, or it is refused as draining, and never before its time.
func TestLifecycle_IdleTimerAgainstADispatch(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	ran, refused := 0, 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := newLifecycle(plan{capacity: 1 + r.IntN(4), idleFor: idle})
		l.connected(t0())
		quiet, clock, seq := t0(), t0(), uint32(0) // quiet: since when nothing runs
		for round := range 5 {
			// Dispatches and looks at the clock, all around the time at which the worker may leave.
			var moments []time.Time
			for range 1 + r.IntN(6) {
				moments = append(moments, quiet.Add(idle+time.Duration(r.IntN(7)-3)))
			}
			dispatched := ""
			for i, now := range moments {
				if now.Before(clock) {
					now = clock
				}
				clock = now
				if i == r.IntN(len(moments)) {
					seq++
					id := fmt.Sprintf("d%d", seq)
					switch v := l.offer(id, 1, seq, now); v {
					case admitted:
						dispatched = id
						ran++
					case refusedDraining:
						refused++
						if now.Before(quiet.Add(idle)) {
							t.Fatalf("seed %d, round %d: refused %v after the last step", seed, round, now.Sub(quiet))
						}
					default:
						t.Fatalf("seed %d, round %d: %s", seed, round, v)
					}
				}
				if l.tick(now) == turnDrain && (dispatched != "" || now.Before(quiet.Add(idle))) {
					t.Fatalf("seed %d, round %d: it drains %v after the last step, with %q in flight", seed, round, now.Sub(quiet), dispatched)
				}
				if dispatched != "" {
					break
				}
			}
			if dispatched == "" {
				break
			}
			clock = clock.Add(time.Duration(r.IntN(3)) * idle) // the step may take far longer than that
			if l.tick(clock) != turnNone {
				t.Fatalf("seed %d, round %d: it leaves in the middle of a step", seed, round)
			}
			l.stepGone(dispatched, stepEnded, clock)
			quiet = clock
		}
	}
	if ran < 100 || refused < 100 {
		t.Errorf("%d ran and %d were refused: the two hardly met", ran, refused)
	}
}
