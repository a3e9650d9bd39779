package worker

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// earlyCancelLimit bounds how many cancels of unknown dispatches a session remembers. The oldest goes first: the
// orchestrator repeats a cancel until it is answered.
const earlyCancelLimit = 4096

// admission is what becomes of a dispatch that the orchestrator sent.
type admission string

const (
	admitted          admission = "admitted"           // it takes a slot and runs
	admittedCancelled admission = "admitted_cancelled" // its cancel came first: it ends without having run
	repeated          admission = "repeated"           // it is known; what was said is said again
	adopted           admission = "adopted"            // it is known, and goes on under a higher generation
	adoptedCancelled  admission = "adopted_cancelled"  // the same, and the cancel came first
	ignored           admission = "ignored"            // an older generation of one that is known
	refusedBusy       admission = "refused_busy"
	refusedDraining   admission = "refused_draining"
	refusedEnded      admission = "refused_ended" // older than what this instance saw, or begun elsewhere, and not known here
)

// code is what a refusal says on the wire.
func (a admission) code() messages.Code {
	switch a {
	case refusedBusy:
		return messages.CodeWorkerBusy
	case refusedDraining:
		return messages.CodeWorkerDraining
	default:
		return messages.CodeEnded
	}
}

// passing is how a step was over.
type passing string

const (
	stepEnded   passing = "ended"   // it ran, however well
	stepRefused passing = "refused" // this worker could not start it
	stepLost    passing = "lost"    // it was killed as the worker was out of reach for too long, or is stopped
)

// admittedAs is a dispatch that was taken and that the orchestrator has not said to forget.
type admittedAs struct {
	generation uint32
	running    bool
	lost       bool
}

// lifecycle decides what a worker takes, and when it leaves (lifecycle_leave_state.go). A dispatch is running from its
// admission until its step is gone, and known until its result is acknowledged:
//
//	offer ─> running ─> (stepGone) ended ─> (forget) unknown again, and never taken a second time
//
// A known dispatch is under one generation, which only rises: the orchestrator that has restarted goes on with what the
// worker still has under a new one.
//
// It knows no clock and is not safe for concurrent use: Agent.mu guards it, so that slots, draining and the order of
// dispatches are decided together. In particular a dispatch and a timer that fires beside it are decided one after the
// other: whichever comes second sees what the first has done.
type lifecycle struct {
	plan
	leaving

	seq        uint32 // the highest dispatch number seen, refused ones included
	running    int
	taken      int  // dispatches admitted, without those that this worker could not start
	ended      int  // those of them whose step is gone
	turnedAway bool // a dispatch found no free slot: the orchestrator is to hear when there is one
	known      map[string]admittedAs
	early      map[string]struct{} // cancels of unknown dispatches, by frame id
	earlyAge   fifo[string]
}

func newLifecycle(p plan) lifecycle {
	return lifecycle{plan: p, leaving: leaving{stage: working}, known: map[string]admittedAs{}, early: map[string]struct{}{}}
}

// offer decides on a dispatch. A refusal comes before the test for age, as a repeated refusal says more than "ended". A
// higher generation than the first is of a dispatch that a worker has already: where it is not known, it is over.
func (l *lifecycle) offer(id string, generation, seq uint32, now time.Time) admission {
	stale := seq <= l.seq
	l.seq = max(l.seq, seq)
	if k, ok := l.known[id]; ok {
		return l.offerAgain(id, k.generation, generation)
	}
	switch {
	case generation > 1:
		return refusedEnded
	case l.stage != working:
		return refusedDraining
	case l.slotsOffered() == 0, len(l.known) >= l.mostKnown():
		l.turnedAway = true
		return refusedBusy
	case stale:
		return refusedEnded
	}
	l.taken++
	if l.cancelledEarly(frameID(id, generation)) {
		l.known[id] = admittedAs{generation: generation}
		l.ended++
		l.still = now
		return admittedCancelled
	}
	l.known[id] = admittedAs{generation: generation, running: true}
	l.running++
	return admitted
}

// offerAgain decides on a dispatch that is known.
func (l *lifecycle) offerAgain(id string, known, offered uint32) admission {
	switch {
	case offered < known:
		return ignored
	case offered == known:
		return repeated
	}
	l.adopt(id, offered)
	if l.cancelledEarly(frameID(id, offered)) {
		return adoptedCancelled
	}
	return adopted
}

// mostKnown bounds the results that wait for their acknowledgement. An orchestrator that gives a slot away before it has
// acknowledged what ran in it is at most a few frames ahead.
func (l *lifecycle) mostKnown() int { return 2*l.capacity + 64 }

// stepGone gives the slot of a dispatch back: nothing of its step is left.
func (l *lifecycle) stepGone(id string, how passing, now time.Time) {
	k, ok := l.known[id]
	if !ok || !k.running {
		return
	}
	k.running, k.lost = false, how == stepLost
	l.known[id] = k
	l.running--
	if how == stepRefused {
		l.taken--
	} else {
		l.ended++
	}
	l.still = now
}

// forget ends what is remembered of a dispatch. One that still runs is not forgotten.
func (l *lifecycle) forget(id string, now time.Time) bool {
	k, ok := l.known[id]
	if !ok || k.running {
		return false
	}
	delete(l.known, id)
	l.settled = now
	return true
}

// adopt gives a dispatch the generation under which the orchestrator goes on with it.
func (l *lifecycle) adopt(id string, generation uint32) {
	k := l.known[id]
	k.generation = generation
	l.known[id] = k
}

// cancelledEarly tells whether the cancel of a dispatch was there before it, once.
func (l *lifecycle) cancelledEarly(frame string) bool {
	_, ok := l.early[frame]
	delete(l.early, frame)
	return ok
}

// cancelEarly remembers a cancel that came before its dispatch.
func (l *lifecycle) cancelEarly(frame string) {
	if _, ok := l.early[frame]; ok {
		return
	}
	for l.earlyAge.len() >= earlyCancelLimit {
		oldest, _ := l.earlyAge.pop()
		delete(l.early, oldest)
	}
	l.early[frame] = struct{}{}
	l.earlyAge.push(frame)
}

// connected begins a session: what belongs to the one before is forgotten.
func (l *lifecycle) connected(now time.Time) {
	clear(l.early)
	l.earlyAge = fifo[string]{}
	l.enrolled, l.turnedAway = now, false
}

// disconnected ends a session; after grace its orchestrator has given up what was lost with it.
func (l *lifecycle) disconnected(grace time.Duration, now time.Time) {
	l.enrolled, l.parted, l.grace = time.Time{}, now, grace
}

// slotsOffered is how many more dispatches would be taken now.
func (l *lifecycle) slotsOffered() int {
	if l.stage != working {
		return 0
	}
	free := l.capacity - l.running
	if l.limit > 0 {
		free = min(free, l.limit-l.taken)
	}
	return max(free, 0)
}

// roomToTell tells whether the orchestrator cannot know by itself how many slots there are, once a dispatch was forgotten:
// it had sent one too many before, or the worker offers fewer than are empty.
func (l *lifecycle) roomToTell() bool {
	offered := l.slotsOffered()
	if l.stage != working || offered == 0 {
		return false
	}
	tell := l.turnedAway || offered < l.capacity-l.running
	l.turnedAway = false
	return tell
}

// intent is what the worker wants, in the words of the wire.
func (l *lifecycle) intent() messages.WorkerIntent {
	if l.stage == working {
		return messages.IntentNone
	}
	return messages.IntentDraining
}

// idle tells whether nothing is owed: no step runs, and every result is acknowledged.
func (l *lifecycle) idle() bool { return len(l.known) == 0 }
