package worker

import "github.com/swampd/swampd/messages"

// earlyCancelLimit bounds how many cancels of unknown dispatches a session remembers. The oldest goes first: the
// orchestrator repeats a cancel until it is answered.
const earlyCancelLimit = 4096

// admission is what becomes of a dispatch that the orchestrator sent.
type admission string

const (
	admitted          admission = "admitted"           // it takes a slot and runs
	admittedCancelled admission = "admitted_cancelled" // its cancel came first: it ends without having run
	repeated          admission = "repeated"           // it is known; what was said is said again
	refusedBusy       admission = "refused_busy"
	refusedDraining   admission = "refused_draining"
	refusedEnded      admission = "refused_ended" // older than what this instance saw, and forgotten
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

// admittedAs is a dispatch that was taken and that the orchestrator has not said to forget.
type admittedAs struct {
	generation uint32
	running    bool
}

// lifecycle decides what a worker takes. A dispatch is running from its admission until its step is gone, and known
// until its result is acknowledged:
//
//	offer ─> running ─> (stepGone) ended ─> (forget) unknown again, and never taken a second time
//
// It is not safe for concurrent use: Agent.mu guards it, so that slots, draining and the order of dispatches are decided
// together.
type lifecycle struct {
	capacity int
	draining bool
	reason   string // of the drain; the first one stays
	seq      uint32 // the highest dispatch number seen, refused ones included
	running  int
	known    map[string]admittedAs
	early    map[string]struct{} // cancels of unknown dispatches, by frame id
	earlyAge fifo[string]
}

func newLifecycle(capacity int) lifecycle {
	return lifecycle{capacity: capacity, known: map[string]admittedAs{}, early: map[string]struct{}{}}
}

// offer decides on a dispatch. A refusal comes before the test for age, as a repeated refusal says more than "ended".
func (l *lifecycle) offer(id string, generation, seq uint32) admission {
	if k, ok := l.known[id]; ok {
		if k.generation != generation {
			return refusedEnded
		}
		return repeated
	}
	stale := seq <= l.seq
	l.seq = max(l.seq, seq)
	switch {
	case l.draining:
		return refusedDraining
	case l.running >= l.capacity:
		return refusedBusy
	case stale:
		return refusedEnded
	}
	frame := frameID(id, generation)
	if _, cancelled := l.early[frame]; cancelled {
		delete(l.early, frame)
		l.known[id] = admittedAs{generation: generation}
		return admittedCancelled
	}
	l.known[id] = admittedAs{generation: generation, running: true}
	l.running++
	return admitted
}

// stepGone gives the slot of a dispatch back: nothing of its step is left.
func (l *lifecycle) stepGone(id string) {
	if k, ok := l.known[id]; ok && k.running {
		k.running = false
		l.known[id] = k
		l.running--
	}
}

// forget ends what is remembered of a dispatch. One that still runs is not forgotten.
func (l *lifecycle) forget(id string) bool {
	k, ok := l.known[id]
	if !ok || k.running {
		return false
	}
	delete(l.known, id)
	return true
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

// newSession forgets what belongs to one connection.
func (l *lifecycle) newSession() {
	clear(l.early)
	l.earlyAge = fifo[string]{}
}

// drain refuses everything new from now on. It tells whether this was the first time.
func (l *lifecycle) drain(reason string) bool {
	if l.draining {
		return false
	}
	l.draining, l.reason = true, reason
	return true
}

// slotsOffered is how many more dispatches would be taken now.
func (l *lifecycle) slotsOffered() int {
	if l.draining {
		return 0
	}
	return max(l.capacity-l.running, 0)
}

// intent is what the worker wants, in the words of the wire.
func (l *lifecycle) intent() messages.WorkerIntent {
	if l.draining {
		return messages.IntentDraining
	}
	return messages.IntentNone
}

// idle tells whether nothing is owed: no step runs, and every result is acknowledged.
func (l *lifecycle) idle() bool { return len(l.known) == 0 }
