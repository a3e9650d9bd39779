package actors

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// nearMost is how many workers a verdict names.
const nearMost = 10

// askStep asks how one step in line stands, and askWorker what one worker is given. Both are answered from the facts that the
// choice itself goes by.
type (
	askStep struct {
		queueID   string
		placement messages.Placement
		answer    *answer
	}
	askWorker struct {
		name   string
		answer *answer
	}
)

// stepStanding answers askStep.
type stepStanding struct {
	inLine   bool   // false: it is on its way into the line, or out of it
	parked   bool   // a worker has just refused it
	chosen   string // the worker that was chosen for it, and that is being told
	why      string // as in the queue
	deadline time.Time
	ahead    int // in its class
	verdicts []verdict
}

// verdict is what the scheduler thinks of one worker for one class of steps.
type verdict struct {
	worker          string
	status          messages.WorkerStatus
	taken, capacity int
	lacks           []string
	but             obstacle
}

// workerStanding answers askWorker.
type workerStanding struct {
	known           bool
	taken, capacity int
	but             obstacle
	refusedUntil    time.Time
	classes         []classStanding
}

// classStanding is one class of steps in line, as one worker sees it.
type classStanding struct {
	requirement string
	waiting     int
	lacks       []string
}

func (s *schedulerState) standing(c askStep) stepStanding {
	class := s.class(c.placement)
	st := stepStanding{why: s.whyOf(class), verdicts: s.verdicts(class)}
	if o := s.offers[c.queueID]; o != nil {
		st.deadline = o.deadline
		switch {
		case o.assigned:
			if sl := s.taken[o.dispatchID]; sl != nil {
				st.chosen = sl.worker
			}
		default:
			st.inLine, st.parked = true, slices.Contains(o.class.parked, o)
			for _, line := range [][]*offer{o.class.line, o.class.parked} {
				for _, other := range line {
					if other != o && other.before(o) {
						st.ahead++
					}
				}
			}
		}
	}
	s.forget(class)
	return st
}

// verdicts names those that match first, then those that lack least.
func (s *schedulerState) verdicts(c *demandClass) []verdict {
	var list []verdict
	for _, name := range slices.Sorted(maps.Keys(s.workers)) {
		w := s.workers[name]
		if w.loopback && !c.placement.IsZero() {
			continue
		}
		list = append(list, verdict{
			worker: name, status: w.status, taken: w.taken, capacity: w.capacity, lacks: s.lacks(c, w), but: s.obstacle(w),
		})
	}
	gone := func(v verdict) int {
		if v.status == messages.WorkerDisconnected {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b verdict) int {
		return cmp.Or(cmp.Compare(len(a.lacks), len(b.lacks)), cmp.Compare(gone(a), gone(b)))
	})
	return list[:min(len(list), nearMost)]
}

func (s *schedulerState) workerStanding(name string) workerStanding {
	var st workerStanding
	w := s.workers[name]
	if w != nil {
		st.known, st.taken, st.capacity, st.but, st.refusedUntil = true, w.taken, w.capacity, s.obstacle(w), w.refusedUntil
	}
	for _, c := range s.classes {
		if waiting := len(c.line) + len(c.parked); waiting > 0 {
			cs := classStanding{requirement: c.placement.Requirement(), waiting: waiting}
			if w != nil {
				cs.lacks = s.lacks(c, w)
			}
			st.classes = append(st.classes, cs)
		}
	}
	slices.SortFunc(st.classes, func(a, b classStanding) int {
		return cmp.Or(cmp.Compare(len(a.lacks), len(b.lacks)), -cmp.Compare(a.waiting, b.waiting), strings.Compare(a.requirement, b.requirement))
	})
	return st
}

// askGlance asks for the line and the pool in numbers.
type askGlance struct {
	limit  int
	answer *answer
}

// glance answers askGlance.
type glance struct {
	waiting, free, all int
	classes            []classGlance // those with most steps
}

// classGlance is one class of steps in line.
type classGlance struct {
	requirement, why string
	waiting          int
	oldest           string // the queue id of the step that is first
}

func (s *schedulerState) glance(limit int) glance {
	g := glance{waiting: s.waiting}
	for _, w := range s.workers {
		if w.status == messages.WorkerIdle {
			g.all += w.capacity
			g.free += max(w.capacity-w.taken, 0)
		}
	}
	var classes []*demandClass
	size := func(c *demandClass) int { return len(c.line) + len(c.parked) }
	for _, c := range s.classes {
		if size(c) > 0 {
			classes = append(classes, c)
		}
	}
	slices.SortFunc(classes, func(a, b *demandClass) int {
		return cmp.Or(-cmp.Compare(size(a), size(b)), strings.Compare(a.placement.Requirement(), b.placement.Requirement()))
	})
	for _, c := range classes[:min(len(classes), limit)] {
		first := append(append(line(nil), c.line[:min(len(c.line), 1)]...), c.parked...)
		slices.SortFunc(first, func(a, b *offer) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		g.classes = append(g.classes, classGlance{c.placement.Requirement(), s.reason(c), size(c), first[0].queueID})
	}
	return g
}
