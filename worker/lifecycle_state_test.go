package worker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestLifecycle_Offer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		given func(*lifecycle)
		id    string
		gen   uint32
		seq   uint32
		want  admission
	}{
		{"an idle worker takes it", func(*lifecycle) {}, "d", 1, 1, admitted},
		{"a full worker is busy", func(l *lifecycle) { l.offer("a", 1, 1, t0()) }, "d", 1, 2, refusedBusy},
		{"one that runs is repeated", func(l *lifecycle) { l.offer("d", 1, 1, t0()) }, "d", 1, 1, repeated},
		{"one that runs is repeated while draining", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.drain("x", "x", t0()) }, "d", 1, 1, repeated},
		{"one whose result waits is repeated", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.stepGone("d", stepEnded, t0()) }, "d", 1, 1, repeated},
		{"a higher generation of one that runs goes on with it", func(l *lifecycle) { l.offer("d", 1, 1, t0()) }, "d", 2, 2, adopted},
		{"a higher generation of one whose result waits goes on with it", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.stepGone("d", stepEnded, t0()) }, "d", 3, 2, adopted},
		{"a higher generation is adopted while draining", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.drain("x", "x", t0()) }, "d", 2, 2, adopted},
		{"an adopted one is repeated", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.offer("d", 2, 2, t0()) }, "d", 2, 2, repeated},
		{"a lower generation is ignored", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.offer("d", 2, 2, t0()) }, "d", 1, 1, ignored},
		{"a higher generation of one that is not known is over", func(*lifecycle) {}, "d", 2, 1, refusedEnded},
		{"a higher generation of one that is not known is over while draining", func(l *lifecycle) { l.drain("x", "x", t0()) }, "d", 2, 1, refusedEnded},
		{"a cancel that overtakes an adoption counts", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.cancelEarly("d/2") }, "d", 2, 2, adoptedCancelled},
		{"an adoption's number counts", func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.offer("a", 2, 7, t0())
			l.stepGone("a", stepEnded, t0())
		}, "d", 1, 6, refusedEnded},
		{"results that nobody acknowledges hold new work up in the end", func(l *lifecycle) {
			for i := range l.mostKnown() {
				l.offer(fmt.Sprint(i), 1, uint32(i+1), t0())
				l.stepGone(fmt.Sprint(i), stepEnded, t0())
			}
		}, "d", 1, 1000, refusedBusy},
		{"a forgotten one is not taken again", func(l *lifecycle) { l.offer("d", 1, 1, t0()); l.stepGone("d", stepEnded, t0()); l.forget("d", t0()) }, "d", 1, 1, refusedEnded},
		{"a refused one is not taken later", func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.offer("d", 1, 2, t0())
			l.stepGone("a", stepEnded, t0())
		}, "d", 1, 2, refusedEnded},
		{"an older number than any seen is not taken", func(l *lifecycle) { l.offer("a", 1, 7, t0()); l.stepGone("a", stepEnded, t0()) }, "d", 1, 6, refusedEnded},
		{"a draining worker takes nothing", func(l *lifecycle) { l.drain("x", "x", t0()) }, "d", 1, 1, refusedDraining},
		{"a full draining worker says that it drains", func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.drain("x", "x", t0()) }, "d", 1, 2, refusedDraining},
		{"a slot is free once the step is gone", func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.stepGone("a", stepEnded, t0()) }, "d", 1, 2, admitted},
		{"a cancel that came first ends it", func(l *lifecycle) { l.cancelEarly("d/1") }, "d", 1, 1, admittedCancelled},
		{"a cancel of another generation does not", func(l *lifecycle) { l.cancelEarly("d/2") }, "d", 1, 1, admitted},
		{"a cancel of an earlier session does not", func(l *lifecycle) { l.cancelEarly("d/1"); l.connected(t0()) }, "d", 1, 1, admitted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLifecycle(plan{capacity: 1})
			tt.given(&l)
			if got := l.offer(tt.id, tt.gen, tt.seq, t0()); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLifecycle_RefusalsHaveCodes(t *testing.T) {
	t.Parallel()
	for a, want := range map[admission]messages.Code{
		refusedBusy: messages.CodeWorkerBusy, refusedDraining: messages.CodeWorkerDraining, refusedEnded: messages.CodeEnded,
	} {
		if a.code() != want {
			t.Errorf("%s is %s", a, a.code())
		}
	}
}

func TestLifecycle_EarlyCancelsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLifecycle(plan{capacity: 1})
	for i := range 3 * earlyCancelLimit {
		l.cancelEarly(fmt.Sprintf("d%d/1", i))
		l.cancelEarly(fmt.Sprintf("d%d/1", i))
	}
	if len(l.early) != earlyCancelLimit || l.earlyAge.len() != earlyCancelLimit {
		t.Errorf("%d cancels are remembered", len(l.early))
	}
	if got := l.offer(fmt.Sprintf("d%d", 3*earlyCancelLimit-1), 1, 1, t0()); got != admittedCancelled {
		t.Errorf("the newest is forgotten: %s", got)
	}
}

func TestLifecycle_OffersWhatIsLeft(t *testing.T) {
	t.Parallel()
	l := newLifecycle(plan{capacity: 4, limit: 6})
	var seq uint32
	offer := func(want admission) string {
		t.Helper()
		seq++
		id := fmt.Sprintf("d%d", seq)
		if got := l.offer(id, 1, seq, t0()); got != want {
			t.Fatalf("dispatch %d is %s, want %s", seq, got, want)
		}
		return id
	}
	slots := func(want int) {
		t.Helper()
		if got := l.slotsOffered(); got != want {
			t.Fatalf("after %d dispatches it offers %d slots, want %d", seq, got, want)
		}
	}
	slots(4)
	for left := 3; left >= 0; left-- {
		offer(admitted)
		slots(left)
	}
	offer(refusedBusy)
	l.stepGone("d1", stepEnded, t0())
	slots(1)
	l.stepGone("d2", stepRefused, t0()) // it could not be started: it does not count
	slots(2)
	l.stepGone("d3", stepLost, t0())
	slots(3)
	l.stepGone("d4", stepEnded, t0())
	slots(3) // of four that are free, as three have been had
	offer(admitted)
	offer(admitted)
	slots(1)
	offer(admitted)
	slots(0)
	offer(refusedBusy) // not draining: one of those that run may still turn out not to count
	if l.tick(t0()) != turnNone {
		t.Error("it drains before they have ended")
	}
	for _, id := range []string{"d6", "d7", "d8"} {
		l.stepGone(id, stepEnded, t0())
	}
	if l.tick(t0()) != turnDrain || l.cause != StopMaxDispatches {
		t.Errorf("%+v", l.leaving)
	}
	offer(refusedDraining)
}

func TestLifecycle_RoomToTell(t *testing.T) {
	t.Parallel()
	end := func(l *lifecycle, ids ...string) {
		for _, id := range ids {
			l.stepGone(id, stepEnded, t0())
			l.forget(id, t0())
		}
	}
	tests := []struct {
		name  string
		plan  plan
		given func(*lifecycle)
		want  bool
	}{
		{"a slot that was taken and is free again", plan{capacity: 1}, func(l *lifecycle) { l.offer("a", 1, 1, t0()); end(l, "a") }, false},
		{"a slot for which one was turned away", plan{capacity: 1}, func(l *lifecycle) { l.offer("a", 1, 1, t0()); l.offer("b", 1, 2, t0()); end(l, "a") }, true},
		{"no slot yet for the one that was turned away", plan{capacity: 1}, func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.stepGone("a", stepEnded, t0())
			l.offer("b", 1, 2, t0())
			l.offer("c", 1, 3, t0())
			l.forget("a", t0())
		}, false},
		{"fewer slots than are empty", plan{capacity: 4, limit: 2}, func(l *lifecycle) { l.offer("a", 1, 1, t0()); end(l, "a") }, true},
		{"as many slots as are empty, although they are counted", plan{capacity: 4, limit: 9}, func(l *lifecycle) { l.offer("a", 1, 1, t0()); end(l, "a") }, false},
		{"a drain", plan{capacity: 1}, func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.offer("b", 1, 2, t0())
			l.drain("x", "x", t0())
			end(l, "a")
		}, false},
		{"one that was turned away on an earlier connection", plan{capacity: 1}, func(l *lifecycle) {
			l.offer("a", 1, 1, t0())
			l.offer("b", 1, 2, t0())
			l.connected(t0())
			end(l, "a")
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLifecycle(tt.plan)
			tt.given(&l)
			if got := l.roomToTell(); got != tt.want {
				t.Errorf("got %t", got)
			}
			if l.roomToTell() && tt.plan.limit == 0 {
				t.Error("it is told twice")
			}
		})
	}
}

// TestLifecycle_Property checks what has to hold after any history: never more steps than slots, never more dispatches
// than the limit, nothing taken after a drain, no dispatch taken twice, and slots that agree with what is known.
func TestLifecycle_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := plan{
			capacity: rapid.IntRange(1, 4).Draw(t, "capacity"), limit: rapid.IntRange(0, 4).Draw(t, "limit"),
			idleFor: rapid.SampledFrom([]time.Duration{0, 4 * time.Second}).Draw(t, "idle"),
			uptime:  rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "uptime"),
			bound:   rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "bound"),
			mode:    rapid.SampledFrom(AllDrainModes()).Draw(t, "mode"),
		}
		l := newLifecycle(p)
		now := t0()
		l.born = now
		taken := map[string]bool{}
		running := map[string]bool{}
		counted := 0 // admitted, without those that could not be started
		drained := false
		var cause StopReason
		// Each dispatch has one number, and they may arrive in any order and more than once.
		numbers := rapid.Permutation([]uint32{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "numbers")
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				verdict := l.offer(id, 1, numbers[id[0]-'a'], now)
				if verdict != admitted && verdict != admittedCancelled {
					return
				}
				if drained || taken[id] {
					t.Fatalf("took %s; drained %t, taken before %t", id, drained, taken[id])
				}
				taken[id] = true
				counted++
				if verdict == admitted {
					running[id] = true
				}
			},
			"gone": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				how := rapid.SampledFrom([]passing{stepEnded, stepRefused, stepLost}).Draw(t, "how")
				l.stepGone(id, how, now)
				if running[id] && how == stepRefused {
					counted--
				}
				delete(running, id)
			},
			"forget": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if l.forget(id, now) && running[id] {
					t.Fatalf("forgot %s, which runs", id)
				}
			},
			"cancel": func(t *rapid.T) { l.cancelEarly(ids.Draw(t, "id") + "/1") },
			"drain": func(*rapid.T) {
				l.drain(StopSignal, "signal", now)
				drained = true
			},
			"order": func(*rapid.T) {
				l.order("", now)
				drained = true
			},
			"resume": func(t *rapid.T) {
				before := l.leaving
				if l.resume(now) {
					if before.stage != draining || before.cause != StopDrained || len(l.known) == 0 {
						t.Fatalf("took back %+v", before)
					}
					drained, cause = false, ""
				}
			},
			"kill":    func(*rapid.T) { l.kill(now); drained = true },
			"session": func(*rapid.T) { l.connected(now) },
			"drop":    func(*rapid.T) { l.disconnected(20*time.Second, now) },
			"time": func(t *rapid.T) {
				now = now.Add(rapid.Custom(func(t *rapid.T) time.Duration {
					return time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond
				}).Draw(t, "step"))
			},
			"": func(t *rapid.T) {
				for n := 0; ; n++ {
					turn := l.tick(now)
					if turn == turnNone {
						break
					}
					if n > 3 {
						t.Fatalf("it does not come to rest: %s", turn)
					}
					if turn == turnDrain {
						drained = true
					}
				}
				if due := l.due(); !due.IsZero() && !due.After(now) {
					t.Fatalf("at %v there is something due at %v", now, due)
				}
				if drained != (l.stage != working) {
					t.Fatalf("drained %t, stage %s", drained, l.stage)
				}
				if cause != "" && l.cause != cause {
					t.Fatalf("the cause was %s and is %s", cause, l.cause)
				}
				cause = l.cause
				if l.running != len(running) || l.running > p.capacity {
					t.Fatalf("%d run, %d counted, capacity %d", len(running), l.running, p.capacity)
				}
				want := p.capacity - len(running)
				if p.limit > 0 {
					if counted > p.limit {
						t.Fatalf("took %d of %d", counted, p.limit)
					}
					want = min(want, p.limit-counted)
				}
				if drained {
					want = 0
				}
				if l.slotsOffered() != want {
					t.Fatalf("offers %d slots, want %d", l.slotsOffered(), want)
				}
				for id := range running {
					if _, ok := l.known[id]; !ok {
						t.Fatalf("%s runs and is not known", id)
					}
				}
				if l.idle() != (len(l.known) == 0) {
					t.Fatal("idle")
				}
				if l.gone && !drained {
					t.Fatal("it goes and nobody asked it to")
				}
			},
		})
	})
}
