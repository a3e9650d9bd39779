package worker

import "time"

// A Fence is the dead-man clock of a step: two readings of FenceClock. A worker whose orchestrator is out of reach moves
// it no further, and its steps end in time; those under a keeper even if the worker itself is stopped.
type Fence struct {
	// TermAt is when a running step gets TERM.
	TermAt time.Duration
	// KillAt is when whatever is left gets KILL. 0 means that the clock is not armed.
	KillAt time.Duration
}

// moment is one reading of the two clocks that a keeper lives by.
type moment struct {
	mono time.Duration // stands still while the machine sleeps: timeouts and graces
	boot time.Duration // goes on while the machine sleeps: the fence
}

// keeperPhase is where a keeper is in the life of its step. The zero value is invalid.
//
//	running ─> lingering ─> killing ─> ended
//	   └────> stopping ────────┘
//
// Every phase ends early, as ended, when nothing is left below the keeper.
type keeperPhase string

const (
	keeperRunning   keeperPhase = "running"   // the main process lives and nobody wants it to end
	keeperLingering keeperPhase = "lingering" // it ended by itself; what it left has a moment to end too
	keeperStopping  keeperPhase = "stopping"  // TERM was sent; the grace runs
	keeperKilling   keeperPhase = "killing"   // KILL is sent again and again until nothing is left
	keeperEnded     keeperPhase = "ended"     // nothing is left, or nothing can be done about it
)

// stopReason is why a keeper stopped its step; empty if the step ended by itself. The first reason stays.
type stopReason string

const (
	stopNone       stopReason = ""
	stopTimeout    stopReason = "timeout"
	stopCancelled  stopReason = "cancelled"
	stopKilled     stopReason = "killed"
	stopWorkerGone stopReason = "worker_gone"
	stopFenced     stopReason = "fenced"
)

const (
	// lingerTime is what processes get that the main process leaves behind when it ends by itself. "exec > >(tee log)"
	// leaves one, which still has output to write.
	lingerTime = 250 * time.Millisecond
	// killPatience bounds the killing. What is still there then has KILL pending inside the kernel and will never run
	// again, or belongs to another user.
	killPatience = 30 * time.Second
	// The pause between two rounds of KILL doubles from one to the other; an exit of any child ends it early.
	firstKillPause = time.Millisecond
	lastKillPause  = 100 * time.Millisecond
	// fenceTick bounds how late the fence is noticed when a sleep of the machine stopped the timer.
	fenceTick = time.Second
)

// exitStatus is how a process ended.
type exitStatus struct {
	code   int    // 128 and the number for a signal
	signal string // without SIG, or empty
}

// keeperEventKind is what happened to a keeper. The zero value is invalid.
type keeperEventKind string

const (
	eventExited     keeperEventKind = "exited"      // the main process ended, with exit
	eventChanged    keeperEventKind = "changed"     // something else below ended, and something is left
	eventEmpty      keeperEventKind = "empty"       // nothing is left
	eventCancel     keeperEventKind = "cancel"      // the worker wants the step stopped
	eventKill       keeperEventKind = "kill"        // the worker wants it dead
	eventWorkerGone keeperEventKind = "worker_gone" // the worker's end of the pipe is closed
	eventFence      keeperEventKind = "fence"       // the worker moved the dead-man clock to fence
	eventTick       keeperEventKind = "tick"        // time has passed
)

type keeperEvent struct {
	kind  keeperEventKind
	exit  exitStatus
	fence Fence
}

// keeperEffect is what a transition wants done to the process tree.
type keeperEffect string

const (
	effectNone keeperEffect = ""
	effectTerm keeperEffect = "term" // TERM to all of it
	effectKill keeperEffect = "kill" // KILL to all of it
)

// keeperState is the whole state of a keeper. It is a value: stepKeeper returns a new one.
type keeperState struct {
	phase     keeperPhase
	reason    stopReason
	exited    bool // the main process has ended, with exit
	exit      exitStatus
	left      bool // ended although something is left
	grace     time.Duration
	timeoutAt time.Duration // mono; negative: never
	killAt    time.Duration // mono; in lingering and stopping
	nextKill  time.Duration // mono; in killing
	killPause time.Duration
	giveUpAt  time.Duration // mono; in killing
	fence     Fence
}

// startKeeper is the state when the main process has just been started.
func startKeeper(timeout, grace time.Duration, fence Fence, now moment) keeperState {
	s := keeperState{phase: keeperRunning, grace: grace, timeoutAt: -1, fence: fence}
	if timeout > 0 {
		s.timeoutAt = now.mono + timeout
	}
	return s
}

// stepKeeper is the one transition function of a keeper.
func stepKeeper(s keeperState, ev keeperEvent, now moment) (keeperState, keeperEffect) {
	if s.phase == keeperEnded {
		return s, effectNone
	}
	switch ev.kind {
	case eventExited:
		s.exited, s.exit = true, ev.exit
		if s.phase == keeperRunning {
			s.phase, s.killAt = keeperLingering, now.mono+lingerTime
		}
		if s.phase == keeperKilling {
			return s.kill(now)
		}
	case eventChanged:
		// Something that forks while it is killed is chased without a pause.
		if s.phase == keeperKilling {
			return s.kill(now)
		}
	case eventEmpty:
		s.phase = keeperEnded
	case eventCancel:
		return s.stop(stopCancelled, s.grace, now)
	case eventWorkerGone:
		return s.stop(stopWorkerGone, s.grace, now)
	case eventKill:
		if s.phase != keeperKilling {
			return s.startKilling(stopKilled, now)
		}
	case eventFence:
		s.fence = ev.fence
		return s.tick(now)
	case eventTick:
		return s.tick(now)
	}
	return s, effectNone
}

func (s keeperState) tick(now moment) (keeperState, keeperEffect) {
	fenced := s.fence.KillAt > 0
	switch {
	case s.phase == keeperKilling && now.mono >= s.giveUpAt:
		s.phase, s.left = keeperEnded, true
		return s, effectNone
	case s.phase == keeperKilling && now.mono >= s.nextKill:
		return s.kill(now)
	case s.phase == keeperKilling:
		return s, effectNone
	case fenced && now.boot >= s.fence.KillAt:
		return s.startKilling(stopFenced, now)
	case s.phase == keeperRunning && fenced && now.boot >= s.fence.TermAt:
		return s.stop(stopFenced, s.fence.KillAt-now.boot, now)
	case s.phase == keeperRunning && s.timeoutAt >= 0 && now.mono >= s.timeoutAt:
		return s.stop(stopTimeout, s.grace, now)
	case s.phase != keeperRunning && now.mono >= s.killAt:
		return s.startKilling(stopNone, now)
	}
	return s, effectNone
}

// stop begins a stop with a grace. A step whose main process has ended by itself is not stopped any more: only what it
// left behind is, at once.
func (s keeperState) stop(reason stopReason, grace time.Duration, now moment) (keeperState, keeperEffect) {
	switch s.phase {
	case keeperRunning:
		if grace <= 0 {
			return s.startKilling(reason, now)
		}
		s.phase, s.reason, s.killAt = keeperStopping, reason, now.mono+grace
		return s, effectTerm
	case keeperLingering:
		return s.startKilling(stopNone, now)
	case keeperStopping:
		s.killAt = min(s.killAt, now.mono+max(grace, 0))
	case keeperKilling, keeperEnded:
	}
	return s, effectNone
}

func (s keeperState) startKilling(reason stopReason, now moment) (keeperState, keeperEffect) {
	if s.phase == keeperRunning {
		s.reason = reason
	}
	s.phase = keeperKilling
	s.giveUpAt = now.mono + killPatience
	s.killPause = firstKillPause
	return s.kill(now)
}

func (s keeperState) kill(now moment) (keeperState, keeperEffect) {
	s.nextKill = now.mono + s.killPause
	s.killPause = min(2*s.killPause, lastKillPause)
	return s, effectKill
}

// wakeIn is how long the keeper may sleep before it has to look at its clocks again; negative is for ever.
func (s keeperState) wakeIn(now moment) time.Duration {
	wake := time.Duration(-1)
	before := func(d time.Duration) {
		d = max(d, 0)
		if wake < 0 || d < wake {
			wake = d
		}
	}
	switch s.phase {
	case keeperRunning:
		if s.timeoutAt >= 0 {
			before(s.timeoutAt - now.mono)
		}
		if s.fence.KillAt > 0 {
			before(min(s.fence.TermAt-now.boot, fenceTick))
		}
	case keeperLingering, keeperStopping:
		before(s.killAt - now.mono)
	case keeperKilling:
		before(s.nextKill - now.mono)
		before(s.giveUpAt - now.mono)
	case keeperEnded:
	}
	if s.fence.KillAt > 0 && s.phase != keeperKilling && s.phase != keeperEnded {
		before(min(s.fence.KillAt-now.boot, fenceTick))
	}
	return wake
}
