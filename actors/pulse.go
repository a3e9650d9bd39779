package actors

import (
	"sync/atomic"
	"time"
)

// pulse notices when this process stood still: stopped, starved, or asleep with its machine. Whatever ran out meanwhile ran
// out for its own fault, and not for that of the peers that it could not hear: every lease gets a fresh interval then. It
// compares the time with that of its last beat, also at each look, since the timers that have run out fire before the next
// beat.
type pulse struct {
	every time.Duration
	beat  atomic.Pointer[time.Time]
	awake atomic.Pointer[time.Time]
	// hold is called before each beat; nil: nothing is.
	hold func()
}

// stillBeats is how many beats have to be missed: a busy machine delays one or two.
const stillBeats = 4

// init begins to count. The interval follows the grace window, within which a stall matters.
func (p *pulse) init(grace time.Duration) {
	p.every = min(time.Second, grace/10)
	now := time.Now()
	p.beat.Store(&now)
}

// look returns when the process last found that it had stood still; zero: never.
func (p *pulse) look(now time.Time) time.Time {
	if last := p.beat.Load(); last != nil && now.Sub(*last) > stillBeats*p.every {
		woken := now // a copy, so that the others need not be on the heap
		p.awake.Store(&woken)
		p.beat.Store(&woken)
	}
	if t := p.awake.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// run beats until done.
func (p *pulse) run(done <-chan struct{}) {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			if p.hold != nil {
				p.hold()
			}
			now := time.Now() // that of the tick is from before the stall
			p.look(now)
			p.beat.Store(&now)
		}
	}
}
