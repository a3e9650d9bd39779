package worker

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFence_AsksForTermThenKill(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := []struct {
		name  string
		fence Fence
		now   time.Duration
		want  fenced
		next  time.Duration
	}{
		{"none asks for nothing", Fence{}, 100 * s, fenceOpen, 0},
		{"long before", Fence{TermAt: 50 * s, KillAt: 60 * s}, 10 * s, fenceOpen, s},
		{"a moment before", Fence{TermAt: 50 * s, KillAt: 60 * s}, 50*s - 1, fenceOpen, 1},
		{"at TERM", Fence{TermAt: 50 * s, KillAt: 60 * s}, 50 * s, fenceTerm, s},
		{"a moment before KILL", Fence{TermAt: 50 * s, KillAt: 60 * s}, 60*s - 1, fenceTerm, 1},
		{"at KILL", Fence{TermAt: 50 * s, KillAt: 60 * s}, 60 * s, fenceKill, 0},
		{"without time to clean up", Fence{TermAt: 50 * s, KillAt: 50 * s}, 50 * s, fenceKill, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.fence.at(tt.now); got != tt.want {
				t.Errorf("it asks for %s, want %s", got, tt.want)
			}
			if tt.fence.KillAt > 0 && tt.fence.next(tt.now) != tt.next {
				t.Errorf("next in %v, want %v", tt.fence.next(tt.now), tt.next)
			}
		})
	}
}

func TestHurried_LeavesTimeForMoreTries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		left := time.Duration(rapid.Int64Range(-int64(time.Minute), int64(10*time.Minute)).Draw(t, "left"))
		pause := time.Duration(rapid.Int64Range(0, int64(backoffMost)).Draw(t, "pause"))
		got := hurried(pause, left)
		switch {
		case got > pause:
			t.Fatalf("%v became %v", pause, got)
		case left < tooLate && got != pause:
			t.Fatalf("there is nothing to hurry for, and it waits for %v", got)
		case left >= tooLate && got > left/4:
			t.Fatalf("%v of %v", got, left)
		}
		if most := tryFor(dialTimeout, left); most > dialTimeout || most < leastTry || left >= tooLate && most > max(left/4, leastTry) {
			t.Fatalf("a try may take %v of %v", most, left)
		}
	})
}
