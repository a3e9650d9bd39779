package actors

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// twin is the scheduler without a thought for cost: lists, and everything worked out anew each time.
type twin struct {
	workers []*twinWorker
	offers  []*twinOffer
	taken   map[string]twinSlot // by dispatch id
	tickets uint64
	told    []twinTold // since it was last asked
}

func newTwin(epoch uint64) *twin {
	return &twin{taken: make(map[string]twinSlot), tickets: epoch << 32}
}

type twinWorker struct {
	workerKnown
	until    time.Time // of its pause after a refusal; zero: none
	refusals int
	stale    bool
}

type twinOffer struct {
	offerStep
	parked, assigned bool
	asked            time.Time // when its deadline is told next
}

type twinSlot struct {
	worker, queueID string
	ticket          uint64
	generation      uint32 // of the lease; 0: a choice
	claim           bool
	chosen          string
	version         uint64 // of the worker that was chosen
}

// twinTold is a slot that was given, to a step in line or to a run's question.
type twinTold struct {
	dispatchID, worker string
	ticket             uint64
}

func (w *twin) worker(name string) *twinWorker {
	for _, x := range w.workers {
		if x.name == name {
			return x
		}
	}
	return nil
}

func (w *twin) offer(queueID string) *twinOffer {
	for _, o := range w.offers {
		if o.queueID == queueID {
			return o
		}
	}
	return nil
}

func (w *twin) drop(fn func(*twinOffer) bool) { w.offers = slices.DeleteFunc(w.offers, fn) }

func (w *twin) free(x *twinWorker) int {
	if x.status != messages.WorkerIdle || !x.until.IsZero() || x.stale {
		return 0
	}
	n := x.capacity
	for _, s := range w.taken {
		if s.worker == x.name {
			n--
		}
	}
	return n
}

func (x *twinWorker) fits(p messages.Placement) bool {
	if p.IsZero() {
		return !x.loopback
	}
	return !x.loopback && p.Match(messages.Candidate{Name: x.name, Instance: x.instance, Labels: x.labels, Platform: x.platform, Arch: x.arch}).OK
}

// best is the worker for a placement: most free slots, then name.
func (w *twin) best(p messages.Placement) *twinWorker {
	var fit []*twinWorker
	for _, x := range w.workers {
		if x.fits(p) && w.free(x) > 0 {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return slices.MinFunc(fit, func(a, b *twinWorker) int {
		return cmp.Or(cmp.Compare(w.free(b), w.free(a)), strings.Compare(a.name, b.name))
	})
}

func (w *twin) give(dispatchID, queueID string, x *twinWorker) {
	w.tickets++
	w.taken[dispatchID] = twinSlot{worker: x.name, queueID: queueID, ticket: w.tickets, chosen: x.name, version: x.version}
	w.told = append(w.told, twinTold{dispatchID, x.name, w.tickets})
}

// settle hands out what can be handed out, the oldest first.
func (w *twin) settle() {
	for {
		var line []*twinOffer
		for _, o := range w.offers {
			if !o.parked && !o.assigned && w.best(o.placement) != nil {
				line = append(line, o)
			}
		}
		if len(line) == 0 {
			return
		}
		o := slices.MinFunc(line, func(a, b *twinOffer) int {
			return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.ordinal, b.ordinal), strings.Compare(a.queueID, b.queueID))
		})
		o.assigned = true
		w.give(o.dispatchID, o.queueID, w.best(o.placement))
	}
}

// changed is a change of the pool: who was refused may try again.
func (w *twin) changed() {
	for _, o := range w.offers {
		o.parked = false
	}
	w.settle()
}

func (w *twin) release(c releaseSlot, now time.Time) {
	claim := c.generation == claimedSlot
	if c.from != (address{}) && !claim {
		w.drop(func(o *twinOffer) bool { return o.dispatchID == c.dispatchID && !o.assigned })
	}
	s, ok := w.taken[c.dispatchID]
	if !ok || s.claim != claim || c.ticket != 0 && c.ticket != s.ticket || c.generation != 0 && s.generation > c.generation {
		return
	}
	delete(w.taken, c.dispatchID)
	w.drop(func(o *twinOffer) bool { return o.queueID == s.queueID })
	x := w.worker(s.worker)
	switch {
	case x == nil:
	case c.stale && x.name == s.chosen && x.version == s.version:
		x.stale = true
	case c.refusedBy != "":
		x.until = now.Add(min(refusalPause<<min(x.refusals, 8), refusalPauseMax))
		x.refusals++
	default:
		x.refusals = 0
		w.changed()
	}
	w.prune()
}

// prune takes workers out that drained and are gone, and have nothing in flight.
func (w *twin) prune() {
	n := len(w.workers)
	w.workers = slices.DeleteFunc(w.workers, func(x *twinWorker) bool {
		for _, s := range w.taken {
			if s.worker == x.name {
				return false
			}
		}
		return x.left
	})
	if len(w.workers) < n {
		w.changed()
	}
}

// take does one command, and returns the deadlines that it tells.
func (w *twin) take(cmd any, now time.Time) (dead []string) {
	switch c := cmd.(type) {
	case offerStep:
		w.takeOffer(c, now)
	case offerSteps:
		for _, o := range c.items {
			w.takeOffer(o, now)
		}
	case withdrawStep:
		w.drop(func(o *twinOffer) bool { return o.queueID == c.queueID && !o.assigned })
		if c.dispatchID != "" {
			w.release(releaseSlot{dispatchID: c.dispatchID}, now)
		}
	case releaseSlot:
		w.release(c, now)
	case reserveSlots:
		for _, item := range c.items {
			w.release(releaseSlot{dispatchID: item.dispatchID}, now)
			if x := w.best(item.placement); x != nil {
				w.give(item.dispatchID, "", x)
			}
		}
	case holdSlot:
		old, had := w.taken[c.dispatchID]
		w.taken[c.dispatchID] = twinSlot{worker: c.worker, queueID: old.queueID, ticket: old.ticket, generation: c.generation, chosen: old.chosen, version: old.version}
		w.drop(func(o *twinOffer) bool { return o.dispatchID == c.dispatchID && !o.assigned })
		if had && old.worker != c.worker && w.worker(old.worker) != nil {
			w.changed()
			w.prune()
		}
	case workerKnown:
		x := w.worker(c.name)
		switch {
		case x == nil:
			x = &twinWorker{}
			w.workers = append(w.workers, x)
		case x.version >= c.version:
			return nil
		}
		if x.instance != c.instance {
			x.until, x.refusals = time.Time{}, 0
		}
		x.workerKnown, x.stale = c, false
		maps.DeleteFunc(w.taken, func(id string, sl twinSlot) bool {
			return sl.claim && sl.worker == c.name && !slices.Contains(c.claimed, id)
		})
		for _, id := range c.claimed {
			if _, ok := w.taken[id]; !ok {
				w.taken[id] = twinSlot{worker: c.name, claim: true}
			}
		}
		w.changed()
		w.prune()
	case workerStirred:
		if x := w.worker(c.worker); x != nil {
			x.until, x.refusals = time.Time{}, 0
			w.changed()
		}
	case workerGone:
		n := len(w.workers)
		w.workers = slices.DeleteFunc(w.workers, func(x *twinWorker) bool {
			return x.name == c.worker && x.status == messages.WorkerDisconnected
		})
		if len(w.workers) < n {
			w.changed()
		}
	case deadlineElapsed:
		return w.elapsed(now)
	}
	return nil
}

func (w *twin) takeOffer(c offerStep, now time.Time) {
	if o := w.offer(c.queueID); o != nil {
		if o.assigned {
			s := w.taken[o.dispatchID]
			w.told = append(w.told, twinTold{o.dispatchID, s.worker, s.ticket})
		}
		return
	}
	if _, ok := w.taken[c.dispatchID]; ok {
		w.release(releaseSlot{dispatchID: c.dispatchID}, now)
	}
	paused := slices.ContainsFunc(w.workers, func(x *twinWorker) bool { return !x.until.IsZero() })
	w.offers = append(w.offers, &twinOffer{offerStep: c, parked: c.parked && paused, asked: c.deadline})
	w.settle()
}

func (w *twin) elapsed(now time.Time) (dead []string) {
	for _, o := range w.offers {
		if !o.assigned && !o.deadline.IsZero() && !o.asked.After(now) {
			dead = append(dead, o.queueID)
			o.asked = now.Add(time.Second)
		}
	}
	names := make(map[string]bool)
	for _, x := range w.workers {
		names[x.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x := w.worker(name); !x.until.IsZero() && !now.Before(x.until) {
			x.until = time.Time{}
			w.changed()
		}
	}
	slices.Sort(dead)
	return dead
}
