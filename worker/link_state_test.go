package worker

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoff_DoublesToItsBound(t *testing.T) {
	t.Parallel()
	var b backoff
	for i, seconds := range []float64{1, 2, 4, 8, 16, 30, 30, 30} {
		if got := b.next(1); got.Seconds() != seconds {
			t.Errorf("pause %d is %v, want %v s", i, got, seconds)
		}
	}
	for range 1000 {
		b.next(1)
	}
	if got := b.next(0.5); got != 15*time.Second {
		t.Errorf("half of the bound is %v", got)
	}
	if got := b.next(0); got != 0 {
		t.Errorf("no part of the bound is %v", got)
	}
}

func TestBackoff_OnlyASteadyConnectionResetsIt(t *testing.T) {
	t.Parallel()
	var b backoff
	b.next(1)
	b.connected(steadyAfter - 1)
	if got := b.next(1); got != 2*time.Second {
		t.Errorf("after a short connection: %v", got)
	}
	b.connected(steadyAfter)
	if got := b.next(1); got != time.Second {
		t.Errorf("after a steady connection: %v", got)
	}
}

func TestLiveness_AWriteIsStuckAfterItsLimitWithoutAStallOfOurOwn(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name  string
		every time.Duration
		ticks []int
		since int
		want  bool
	}{
		{"within the limit", 10 * time.Second, []int{10, 20, 30, 40, 50}, 5, false},
		{"beyond it", 10 * time.Second, []int{10, 20, 30, 40, 50, 60}, 5, true},
		{"a stall gives a fresh time", 10 * time.Second, []int{10, 20, 200, 210}, 5, false},
		{"which ends too", 10 * time.Second, []int{10, 20, 200, 210, 220, 230, 240, 250}, 5, true},
		{"a long interval gives more", time.Minute, []int{60, 120, 180}, 5, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLiveness(tt.every, start)
			for _, s := range tt.ticks {
				l.tick(at(s))
			}
			if got := l.stuck(at(tt.since), at(tt.ticks[len(tt.ticks)-1])); got != tt.want {
				t.Errorf("stuck: %t", got)
			}
		})
	}
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	const every = 10 * time.Second
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	type event struct {
		hear, tick int // seconds; one of the two
		alive      bool
	}
	tests := []struct {
		name   string
		events []event
	}{
		{"silence of three intervals is death", []event{{tick: 10, alive: true}, {tick: 20, alive: true}, {tick: 30}}},
		{"a frame gives three more", []event{{tick: 10, alive: true}, {tick: 20, alive: true}, {hear: 25}, {tick: 30, alive: true}, {tick: 40, alive: true}, {tick: 50, alive: true}, {tick: 60}}},
		{"an older frame changes nothing", []event{{hear: 9}, {hear: 2}, {tick: 10, alive: true}, {tick: 20, alive: true}, {tick: 30, alive: true}, {tick: 40}}},
		{"a late tick is no stall", []event{{tick: 10, alive: true}, {tick: 21, alive: true}, {tick: 32}}},
		{"a stall of our own gives a fresh time", []event{
			{tick: 10, alive: true}, {tick: 500, alive: true}, {tick: 510, alive: true}, {tick: 520, alive: true}, {tick: 530},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLiveness(every, start)
			for i, e := range tt.events {
				if e.hear > 0 {
					l.hear(at(e.hear))
					continue
				}
				if got := l.tick(at(e.tick)); got != e.alive {
					t.Fatalf("event %d, at %d s: alive is %t", i, e.tick, got)
				}
			}
		})
	}
}

func TestPromises_CountFromWhenThePingWasSent(t *testing.T) {
	t.Parallel()
	var p promises
	p.ask("1", 10)
	p.ask("2", 20)
	p.ask("3", 30)
	p.refused("1")
	p.refused("unknown")
	if sent, ok := p.answered("2"); !ok || sent != 20 {
		t.Errorf("answer to 2: %v %t", sent, ok)
	}
	if _, ok := p.answered("1"); ok {
		t.Error("a refused ping was a promise")
	}
	if _, ok := p.answered("2"); ok {
		t.Error("a ping was answered twice")
	}
	if sent, ok := p.answered("3"); !ok || sent != 30 {
		t.Errorf("answer to 3: %v %t", sent, ok)
	}
	for range 100 {
		p.ask("x", 1)
	}
	if len(p.pings) != pingsKept {
		t.Errorf("%d pings are kept", len(p.pings))
	}
}

func TestTerms_Fence(t *testing.T) {
	t.Parallel()
	s := time.Second
	tests := []struct {
		name  string
		terms terms
		want  Fence
	}{
		{"no grace, no fence", terms{}, Fence{}},
		{"the defaults", terms{grace: 60 * s, margin: 2600 * time.Millisecond, kill: 10 * s}, Fence{TermAt: 147400 * time.Millisecond, KillAt: 157400 * time.Millisecond}},
		{"a margin above the grace", terms{grace: s, margin: 2 * s, kill: 10 * s}, Fence{TermAt: 100 * s, KillAt: 100 * s}},
		{"no time to clean up", terms{grace: 5 * s, margin: s, kill: 10 * s}, Fence{TermAt: 100 * s, KillAt: 104 * s}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.terms.fence(100 * s); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestTerms_FenceProperty: a step is dead before the orchestrator gives it up, which is no earlier than grace after the
// orchestrator heard the ping.
func TestTerms_FenceProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(0, int64(time.Hour))
		tm := terms{
			grace: time.Duration(d.Draw(t, "grace")) + 1, margin: time.Duration(d.Draw(t, "margin")), kill: time.Duration(d.Draw(t, "kill")),
		}
		sent := time.Duration(d.Draw(t, "sent"))
		f := tm.fence(sent)
		if f.KillAt > sent+tm.grace || f.TermAt > f.KillAt || f.TermAt < sent {
			t.Fatalf("%+v gives %+v", tm, f)
		}
	})
}
