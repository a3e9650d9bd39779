package actors

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// waveWidth is how many runs are roused at once, and waveTime how long it may be until one of them is up; then the next are
// roused anyway.
const (
	waveWidth = 16
	waveTime  = 30 * time.Second
)

// wave wakes every run that has not ended, the oldest first and a few at a time: their steps commit what a restart made of
// them, and a hundred thousand of them at once would hold a goroutine each, and keep everybody else's commits waiting.
type wave struct {
	runs  []string // still to be woken
	under int      // woken, and not up yet
	up    bool     // one has come up since the last tick
	ticks bool     // a tick is on its way
	timer *time.Timer
}

// stop takes back the tick that is on its way.
func (w *wave) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// waveTick comes while a wave is under way.
type waveTick struct{}

// rouseAll begins a wave, in place of one that is under way.
func (r *router) rouseAll(ctx actor.Context) error {
	r.wave.runs, r.wave.under = nil, 0
	err := r.sys.journal.Scan(persistence.KindRun, false, "", "", func(rec persistence.Record) bool {
		r.wave.runs = append(r.wave.runs, rec.ID)
		return true
	})
	if err != nil {
		return fmt.Errorf("read live runs: %w", err)
	}
	r.roll(ctx)
	return nil
}

// lineUp has every run stand its waiting steps in line again.
func (r *router) lineUp(ctx actor.Context) {
	for _, c := range r.children {
		if !c.leaving {
			r.sys.tellPID(c.pid, lineUp{})
		}
	}
	if err := r.rouseAll(ctx); err != nil {
		r.sys.log.Error("live runs not read", slog.Any(messages.KeyErr, err)) // the auditor asks again
	}
}

// roll wakes the next runs.
func (r *router) roll(ctx actor.Context) {
	w := &r.wave
	for len(w.runs) > 0 && w.under < waveWidth {
		id := w.runs[0]
		w.runs = w.runs[1:]
		w.under++
		r.route(ctx, route{runAddress(id), wakeRun{}})
	}
	if len(w.runs) == 0 {
		w.runs = nil
	}
	if w.under > 0 && !w.ticks {
		w.ticks = true
		self := ctx.Self()
		w.timer = time.AfterFunc(waveTime, func() { r.sys.tellPID(self, waveTick{}) })
	}
}

func (r *router) runUp(ctx actor.Context) {
	r.wave.up = true
	r.wave.under = max(r.wave.under-1, 0)
	r.roll(ctx)
}

// tick goes on without runs that do not say that they are up: a panic may have taken the question with it.
func (r *router) tick(ctx actor.Context) {
	r.wave.ticks = false
	if !r.wave.up {
		r.wave.under = 0
	}
	r.wave.up = false
	r.roll(ctx)
}
