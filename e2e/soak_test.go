//go:build e2e

package e2e

import (
	"syscall"
	"testing"
	"time"
)

// TestSoak is weather of every kind for SOAK_TIME, every second or so: connections that are cut, for a moment or for longer
// than the grace, or that swallow everything; an orchestrator that is killed, restarted or stopped; workers that are. What
// a step does is never done twice at once, what was shown stays true, and nothing is stuck at the end.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newStorm(t, "SOAK", "6s")
	s.mix = []chance{
		{6, func(_ int, d time.Duration) { s.killSwampd(d) }},
		{3, func(_ int, d time.Duration) { s.stopSwampd(d) }},
		{4, func(_ int, d time.Duration) { s.freezeSwampd(3 * d) }},
		{5, s.killWorker},
		{3, s.drainWorker},
		{5, func(i int, d time.Duration) { s.freezeWorker(i, 4*d) }},
		{12, func(i int, _ time.Duration) { s.counts["cut"]++; s.networks[i].cut() }},
		{6, func(i int, d time.Duration) { s.unplug(i, 4*d) }},
		{4, func(i int, _ time.Duration) { s.counts["half-open"]++; s.networks[i].halfOpen() }},
		{4, func(i int, _ time.Duration) { s.cancel(i) }},
	}
	s.fleet(func(string) string {
		n := newProxy(t, s.f.addr)
		s.networks = append(s.networks, n)
		return "ws://" + n.addr
	})
	s.rage(2 * time.Second)
}

// unplug cuts a worker off for a while.
func (s *storm) unplug(i int, long time.Duration) {
	s.counts["unplug"]++
	s.networks[i].deny(true)
	s.networks[i].cut()
	s.later(long, func() { s.networks[i].deny(false) })
}

// freezeSwampd stops the orchestrator's process for a while.
func (s *storm) freezeSwampd(long time.Duration) {
	if !s.f.d.alive() {
		return
	}
	s.counts["freeze swampd"]++
	frozen := s.f.d
	frozen.signal(syscall.SIGSTOP)
	s.later(long, func() { frozen.signal(syscall.SIGCONT) })
}
