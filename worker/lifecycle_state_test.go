package worker

import (
	"fmt"
	"testing"

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
		{"a full worker is busy", func(l *lifecycle) { l.offer("a", 1, 1) }, "d", 1, 2, refusedBusy},
		{"one that runs is repeated", func(l *lifecycle) { l.offer("d", 1, 1) }, "d", 1, 1, repeated},
		{"one that runs is repeated while draining", func(l *lifecycle) { l.offer("d", 1, 1); l.drain("x") }, "d", 1, 1, repeated},
		{"one whose result waits is repeated", func(l *lifecycle) { l.offer("d", 1, 1); l.stepGone("d") }, "d", 1, 1, repeated},
		{"another generation of one that runs is not taken beside it", func(l *lifecycle) { l.offer("d", 1, 1) }, "d", 2, 2, refusedEnded},
		{"a forgotten one is not taken again", func(l *lifecycle) { l.offer("d", 1, 1); l.stepGone("d"); l.forget("d") }, "d", 1, 1, refusedEnded},
		{"a refused one is not taken later", func(l *lifecycle) { l.offer("a", 1, 1); l.offer("d", 1, 2); l.stepGone("a") }, "d", 1, 2, refusedEnded},
		{"an older number than any seen is not taken", func(l *lifecycle) { l.offer("a", 1, 7); l.stepGone("a") }, "d", 1, 6, refusedEnded},
		{"a draining worker takes nothing", func(l *lifecycle) { l.drain("x") }, "d", 1, 1, refusedDraining},
		{"a full draining worker says that it drains", func(l *lifecycle) { l.offer("a", 1, 1); l.drain("x") }, "d", 1, 2, refusedDraining},
		{"a slot is free once the step is gone", func(l *lifecycle) { l.offer("a", 1, 1); l.stepGone("a") }, "d", 1, 2, admitted},
		{"a cancel that came first ends it", func(l *lifecycle) { l.cancelEarly("d/1") }, "d", 1, 1, admittedCancelled},
		{"a cancel of another generation does not", func(l *lifecycle) { l.cancelEarly("d/2") }, "d", 1, 1, admitted},
		{"a cancel of an earlier session does not", func(l *lifecycle) { l.cancelEarly("d/1"); l.newSession() }, "d", 1, 1, admitted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLifecycle(1)
			tt.given(&l)
			if got := l.offer(tt.id, tt.gen, tt.seq); got != tt.want {
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
	l := newLifecycle(1)
	for i := range 3 * earlyCancelLimit {
		l.cancelEarly(fmt.Sprintf("d%d/1", i))
		l.cancelEarly(fmt.Sprintf("d%d/1", i))
	}
	if len(l.early) != earlyCancelLimit || l.earlyAge.len() != earlyCancelLimit {
		t.Errorf("%d cancels are remembered", len(l.early))
	}
	if got := l.offer(fmt.Sprintf("d%d", 3*earlyCancelLimit-1), 1, 1); got != admittedCancelled {
		t.Errorf("the newest is forgotten: %s", got)
	}
}

func TestLifecycle_TheFirstDrainCounts(t *testing.T) {
	t.Parallel()
	l := newLifecycle(2)
	if l.intent() != messages.IntentNone || l.slotsOffered() != 2 {
		t.Errorf("intent %s, %d slots", l.intent(), l.slotsOffered())
	}
	if !l.drain("signal") || l.drain("other") || l.reason != "signal" || l.intent() != messages.IntentDraining || l.slotsOffered() != 0 {
		t.Errorf("%+v", l)
	}
}

// TestLifecycle_Property checks what has to hold after any history: never more steps than slots, nothing taken after a
// drain, no dispatch taken twice, and slots that agree with what is known.
func TestLifecycle_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 4).Draw(t, "capacity")
		l := newLifecycle(capacity)
		taken := map[string]bool{}
		running := map[string]bool{}
		drained := false
		// Each dispatch has one number, and they may arrive in any order and more than once.
		numbers := rapid.Permutation([]uint32{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "numbers")
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				switch l.offer(id, 1, numbers[id[0]-'a']) {
				case admitted:
					if drained || taken[id] {
						t.Fatalf("took %s; drained %t, taken before %t", id, drained, taken[id])
					}
					taken[id], running[id] = true, true
				case admittedCancelled:
					if drained || taken[id] {
						t.Fatalf("took %s; drained %t, taken before %t", id, drained, taken[id])
					}
					taken[id] = true
				default:
				}
			},
			"gone": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				l.stepGone(id)
				delete(running, id)
			},
			"forget": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if l.forget(id) && running[id] {
					t.Fatalf("forgot %s, which runs", id)
				}
			},
			"cancel": func(t *rapid.T) { l.cancelEarly(ids.Draw(t, "id") + "/1") },
			"drain": func(*rapid.T) {
				l.drain("x")
				drained = true
			},
			"session": func(*rapid.T) { l.newSession() },
			"": func(t *rapid.T) {
				if l.running != len(running) || l.running > capacity {
					t.Fatalf("%d run, %d counted, capacity %d", len(running), l.running, capacity)
				}
				want := capacity - len(running)
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
			},
		})
	})
}
