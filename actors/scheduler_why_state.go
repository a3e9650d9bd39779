package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// askWhy asks why steps with these placements wait.
type askWhy struct {
	placements map[string]messages.Placement
	answer     *answer
}

// why answers by placement key.
func (s *schedulerState) why(placements map[string]messages.Placement) map[string]string {
	whys := make(map[string]string, len(placements))
	for key, p := range placements {
		class := s.class(p)
		whys[key] = s.whyOf(class)
		s.forget(class)
	}
	return whys
}

// whyOf says why a step of the class waits, from the same facts that choose decides by.
func (s *schedulerState) whyOf(c *demandClass) string {
	return waiting(c.placement, s.reason(c))
}

// An obstacle is why a worker that matches gets nothing just now.
type obstacle int

const (
	noObstacle      obstacle = iota
	obstacleStatus           // disconnected, draining, paused, unhealthy or unverified
	obstacleRefusal          // it has refused a step a moment ago
	obstacleBusy             // no slot is free
	obstacleStale            // it has just changed
	obstacleClosed           // the orchestrator hands nothing out any more
)

// obstacle goes by what [poolWorker.free] and choose go by.
func (s *schedulerState) obstacle(w *poolWorker) obstacle {
	switch {
	case w.status != messages.WorkerIdle:
		return obstacleStatus
	case !w.refusedUntil.IsZero():
		return obstacleRefusal
	case w.taken >= w.capacity:
		return obstacleBusy
	case w.stale:
		return obstacleStale
	case s.closed:
		return obstacleClosed
	default:
		return noObstacle
	}
}

// lacks is what a worker lacks for a class, which is nothing where it may serve it.
func (s *schedulerState) lacks(c *demandClass, w *poolWorker) []string {
	if s.fit(c, w) {
		return nil
	}
	if m := c.placement.Match(w.candidate()); !m.OK {
		return m.Lacks
	}
	if w.loopback {
		return []string{"is the orchestrator's own, which takes unplaced steps only"}
	}
	return []string{"is not loopback, where unplaced steps run"}
}

func (s *schedulerState) reason(c *demandClass) string {
	var connected, matching, busy, refused int
	var out []string
	nearest, lacks := "", []string(nil)
	for _, name := range slices.Sorted(maps.Keys(s.workers)) {
		w := s.workers[name]
		if w.loopback && !c.placement.IsZero() {
			continue
		}
		if w.status != messages.WorkerDisconnected {
			connected++
		}
		if !s.fit(c, w) {
			m := c.placement.Match(w.candidate())
			if w.status != messages.WorkerDisconnected && !m.OK && (lacks == nil || len(m.Lacks) < len(lacks)) {
				nearest, lacks = w.name, m.Lacks
			}
			continue
		}
		matching++
		switch s.obstacle(w) {
		case obstacleStatus:
			out = append(out, w.name+" is "+string(w.status))
		case obstacleRefusal:
			refused++
		case obstacleBusy:
			busy++
		case obstacleStale:
			out = append(out, w.name+" has just changed")
		case obstacleClosed, noObstacle:
		}
	}
	switch {
	case matching > 0:
		var parts []string
		if busy > 0 {
			parts = append(parts, fmt.Sprintf("%d matching, all busy", busy))
		}
		if refused > 0 {
			parts = append(parts, fmt.Sprintf("%d refused a moment ago", refused))
		}
		if len(out) > 3 {
			out = append(out[:3], fmt.Sprintf("%d more likewise", len(out)-3))
		}
		if parts = append(parts, out...); len(parts) > 0 {
			return strings.Join(parts, ", ")
		}
		if s.closed {
			return "the orchestrator stops"
		}
		return "a matching worker has a free slot"
	case connected == 0:
		return "no worker is connected"
	case nearest != "":
		return fmt.Sprintf("none of %d connected matches; nearest is %s, which %s", connected, nearest, strings.Join(lacks, " and "))
	default:
		return fmt.Sprintf("none of %d connected matches", connected)
	}
}

// askPool asks for the numbers of the pool.
type askPool struct{ answer *answer }

// poolNumbers answers askPool.
type poolNumbers struct {
	waiting    map[string]int // by requirement
	free, all  int
	dispatches map[string][]string // by worker
	refusals   map[string]time.Time
	parked     int
}

func (s *schedulerState) pool() poolNumbers {
	n := poolNumbers{waiting: make(map[string]int), dispatches: make(map[string][]string), refusals: make(map[string]time.Time), parked: s.parked}
	for name := range s.paused {
		n.refusals[name] = s.workers[name].refusedUntil
	}
	for _, c := range s.classes {
		if in := len(c.line) + len(c.parked); in > 0 {
			n.waiting[c.placement.Requirement()] += in
		}
	}
	for _, w := range s.workers {
		if w.status == messages.WorkerIdle {
			n.all += w.capacity
			n.free += max(w.capacity-w.taken, 0)
		}
	}
	for id, sl := range s.taken {
		n.dispatches[sl.worker] = append(n.dispatches[sl.worker], id)
	}
	return n
}
