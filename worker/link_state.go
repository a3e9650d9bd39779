package worker

import "time"

const (
	backoffFirst = time.Second
	backoffMost  = 30 * time.Second
	// steadyAfter is how long a connection has to last to count as one: a worker that is thrown out as soon as it has
	// enrolled must not come back without any pause.
	steadyAfter = time.Second
	// silentIntervals is how many ping intervals a peer may be silent.
	silentIntervals = 3
	// writeLimit is how long one write may take at least: a peer that reads slowly is not a dead one.
	writeLimit = 45 * time.Second
)

// backoff says how long to wait before the next try: full jitter below a bound that doubles from 1 s to 30 s, also at
// its end, so that a fleet does not come back in one second.
type backoff struct{ tries int }

// next returns the pause before another try; random is in [0, 1).
func (b *backoff) next(random float64) time.Duration {
	bound := backoffMost
	if b.tries < 5 { // 1, 2, 4, 8, 16
		bound = backoffFirst << b.tries
	}
	b.tries++
	return time.Duration(random * float64(bound))
}

// connected tells that a connection has lasted for that long.
func (b *backoff) connected(lasted time.Duration) {
	if lasted >= steadyAfter {
		b.tries = 0
	}
}

// liveness tells whether the peer still lives: it has sent anything at all within three ping intervals, and takes what it
// is sent. A stall of this process is no sign of the peer's death, and gives it a fresh time.
type liveness struct {
	every  time.Duration
	heard  time.Time
	ticked time.Time
	fresh  time.Time // since when the peer has had the chance to do anything
}

func newLiveness(every time.Duration, now time.Time) liveness {
	return liveness{every: every, heard: now, ticked: now, fresh: now}
}

// hear notes when something came from the peer.
func (l *liveness) hear(at time.Time) {
	if at.After(l.heard) {
		l.heard = at
	}
}

// tick is called once each interval. It tells whether the peer is alive.
func (l *liveness) tick(now time.Time) bool {
	if now.Sub(l.ticked) >= 2*l.every {
		l.hear(now)
		l.fresh = now
	}
	l.ticked = now
	return now.Sub(l.heard) < silentIntervals*l.every
}

// stuck tells whether a write that is under way since then is too long.
func (l *liveness) stuck(since, now time.Time) bool {
	return now.Sub(later(since, l.fresh)) > max(writeLimit, silentIntervals*l.every)
}

// promises keeps when each ping was sent that has not been answered. The answer to one is the orchestrator's promise
// that it owned the books after that time.
type promises struct{ pings []ping }

type ping struct {
	id   string
	sent time.Duration // on FenceClock
}

// pingsKept bounds the unanswered pings: with more, the peer is dead before they count.
const pingsKept = 2 * silentIntervals

func (p *promises) ask(id string, sent time.Duration) {
	if len(p.pings) >= pingsKept {
		p.pings = append(p.pings[:0], p.pings[1:]...)
	}
	p.pings = append(p.pings, ping{id, sent})
}

// answered returns when the ping was sent. It and the ones before it are settled.
func (p *promises) answered(id string) (sent time.Duration, ok bool) {
	for i, q := range p.pings {
		if q.id == id {
			p.pings = append(p.pings[:0], p.pings[i+1:]...)
			return q.sent, true
		}
	}
	return 0, false
}

// refused forgets the ping without a promise.
func (p *promises) refused(id string) {
	for i, q := range p.pings {
		if q.id == id {
			p.pings = append(p.pings[:i], p.pings[i+1:]...)
			return
		}
	}
}

// terms are what the orchestrator said of time when the worker enrolled.
type terms struct {
	ping, grace, margin, kill time.Duration
}

// fence is when the steps have to be dead if the orchestrator promises nothing after sent: KILL at grace − margin, and
// TERM before that by the time that a step gets to clean up.
func (t terms) fence(sent time.Duration) Fence {
	if t.grace <= 0 {
		return Fence{}
	}
	killAt := sent + max(t.grace-t.margin, 0)
	return Fence{TermAt: max(killAt-t.kill, sent), KillAt: killAt}
}
