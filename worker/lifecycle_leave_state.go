package worker

import "time"

const (
	// leaveTimeout bounds what an idle worker that leaves still waits for.
	leaveTimeout = 2 * time.Second
	// forcedPatience is how long a killed worker waits for steps that were sent KILL. Their keepers go on killing.
	forcedPatience = 5 * time.Second
	// forcedReport is how long a killed worker tries to report what it killed.
	forcedReport = time.Second
	// boundReport is the same for a worker whose drain has come to its bound.
	boundReport = 5 * time.Second
)

// DrainMode says what happens to steps that still run at the bound of a drain.
type DrainMode string

// The modes.
const (
	// DrainHandback stops them and gives them back: the orchestrator runs them elsewhere where that is allowed.
	DrainHandback DrainMode = "handback"
	// DrainCancel stops them, and they count as cancelled.
	DrainCancel DrainMode = "cancel"
	// DrainFinish lets them end, however long that takes. The bound then only limits how long the worker waits for its
	// results to be acknowledged.
	DrainFinish DrainMode = "finish"
)

// AllDrainModes returns the modes, the default first.
func AllDrainModes() []DrainMode { return []DrainMode{DrainHandback, DrainCancel, DrainFinish} }

// plan is what a worker was told of its own life. Zero times and a zero limit mean that there is none.
type plan struct {
	capacity int
	limit    int           // how many dispatches it admits in its whole life
	idleFor  time.Duration // how long it stays enrolled without any dispatch
	uptime   time.Duration // how old it gets
	bound    time.Duration // how long a drain may take
	mode     DrainMode
}

// stage is how far a worker is in leaving.
//
//	working ─> draining ─> expired ─> killed
//	   ^──────────┘  └────────────────^
//
// The way back is for a drain that only the orchestrator asked for.
type stage string

const (
	working  stage = "working"
	draining stage = "draining" // takes nothing new; what runs ends, and its results are acknowledged
	expired  stage = "expired"  // the drain has come to its bound
	killed   stage = "killed"   // what runs was sent KILL
)

// leaving is the part of a lifecycle that decides when and why a worker leaves.
type leaving struct {
	stage   stage
	since   time.Time     // of the stage
	cause   StopReason    // of the drain
	said    string        // the cause as it is announced
	ordered bool          // only the orchestrator asked for the drain
	dying   time.Duration // how long after the bound the last step may take to die
	forced  bool          // something was given up to leave
	cut     int           // steps that the bound has ended
	gone    bool          // it leaves now, whatever is owed
	unheard bool          // there is nobody to report to

	born     time.Time     // since when it runs
	enrolled time.Time     // since when it is; zero while it is not
	parted   time.Time     // when its last session ended
	grace    time.Duration // of that session
	still    time.Time     // when the last step was gone
	settled  time.Time     // when the last dispatch was forgotten
}

// turn is what has become of a worker.
type turn string

const (
	turnNone    turn = ""
	turnDrain   turn = "drain"   // it drains from now on
	turnExpired turn = "expired" // the bound is over: what runs is ended as the mode says
	turnGone    turn = "gone"    // it leaves, whatever is owed
)

// drain refuses everything new from now on. The first reason stays; it tells whether this was it. A later one only makes
// sure that the drain stays, also if an orchestrator had asked for it and takes that back.
func (l *lifecycle) drain(reason StopReason, said string, now time.Time) bool {
	l.ordered = false
	if l.stage != working {
		return false
	}
	l.stage, l.since, l.cause, l.said = draining, now, reason, said
	return true
}

// order is a drain that the orchestrator asks for.
func (l *lifecycle) order(said string, now time.Time) bool {
	if l.stage != working {
		return false
	}
	if said == "" {
		said = string(StopDrained)
	}
	first := l.drain(StopDrained, said, now)
	l.ordered = true
	return first
}

// resume takes a drain back that only the orchestrator has asked for. A worker with nothing in flight is leaving already.
func (l *lifecycle) resume(now time.Time) bool {
	if l.stage != draining || !l.ordered || l.idle() || l.spent() {
		return false
	}
	l.stage, l.cause, l.said, l.ordered = working, "", "", false
	l.still = now // it is idle from now on, if it is
	return true
}

// kill is the end of all patience.
func (l *lifecycle) kill(now time.Time) {
	if l.stage == killed {
		return
	}
	l.drain(StopForced, string(StopForced), now)
	l.stage, l.since, l.forced = killed, now, true
}

// stopped notes that the bound ended a step before its time.
func (l *lifecycle) stopped() {
	l.cut++
	l.forced = true
}

// stopReason is why a worker that leaves does so.
func (l *lifecycle) stopReason() StopReason {
	if l.forced {
		return StopForced
	}
	return l.cause
}

// spent tells whether the worker has run as many dispatches as it may.
func (l *lifecycle) spent() bool { return l.limit > 0 && l.ended >= l.limit }

// tick lets the time act, and what has happened. It is called again until it returns turnNone, and again at due.
func (l *lifecycle) tick(now time.Time) turn {
	switch l.stage {
	case working:
		if reason, at := l.trigger(); reason != "" && !now.Before(at) {
			l.drain(reason, string(reason), now)
			return turnDrain
		}
		return turnNone
	case draining:
		if l.bound > 0 && !now.Before(l.since.Add(l.bound)) {
			l.stage, l.since = expired, now
			return turnExpired
		}
	default:
	}
	if by := l.goBy(); !l.gone && !by.IsZero() && !now.Before(by) {
		l.gone = true
		l.forced = l.forced || l.stage == expired && !l.idle()
		return turnGone
	}
	return turnNone
}

// due is when tick has to be called at the latest; zero: not before something happens.
func (l *lifecycle) due() time.Time {
	if l.stage == working {
		_, at := l.trigger()
		return at
	}
	var by time.Time
	if !l.gone {
		by = l.goBy()
	}
	if l.stage == draining && l.bound > 0 {
		by = sooner(by, l.since.Add(l.bound))
	}
	return by
}

// trigger is which of its own rules will make a working worker drain first, and when. An idle worker is one that is
// enrolled and has no dispatch: not to reach the orchestrator is no idleness, as there may be work.
func (l *lifecycle) trigger() (reason StopReason, at time.Time) {
	if l.spent() {
		return StopMaxDispatches, l.still
	}
	if l.idleFor > 0 && l.running == 0 && !l.enrolled.IsZero() {
		reason, at = StopIdleTimeout, later(l.still, l.enrolled).Add(l.idleFor)
	}
	if l.uptime > 0 && !l.born.IsZero() {
		if end := l.born.Add(l.uptime); reason == "" || end.Before(at) {
			reason, at = StopMaxUptime, end
		}
	}
	return reason, at
}

// goBy is when a worker that leaves goes whatever is owed; zero: it waits as long as it takes.
func (l *lifecycle) goBy() time.Time {
	switch {
	case l.running > 0:
		switch {
		case l.stage == killed:
			return l.since.Add(forcedPatience)
		case l.stage == expired && l.mode != DrainFinish:
			return l.since.Add(l.dying + forcedPatience)
		default:
			return time.Time{}
		}
	case l.stage == killed && (l.unheard || l.idle() && l.enrolled.IsZero()):
		return l.since // there is nobody to take leave of, and nothing to tell
	case l.stage == killed:
		return later(l.still, l.since).Add(forcedReport)
	case l.idle() && l.enrolled.IsZero():
		return time.Time{} // whoever tries to enroll has a limit of its own
	case l.idle():
		return later(later(l.settled, l.since), l.enrolled).Add(leaveTimeout)
	case l.stage == expired:
		return later(l.still, l.since).Add(boundReport)
	case l.enrolled.IsZero() && l.grace > 0 && l.owesLossesOnly():
		return later(l.parted, l.since).Add(l.grace) // by then the orchestrator has counted them as lost by itself
	default:
		return time.Time{}
	}
}

// owesLossesOnly tells whether all there is to report are steps that died with their connection.
func (l *lifecycle) owesLossesOnly() bool {
	for _, k := range l.known {
		if !k.lost {
			return false
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sooner is the earlier of two times, of which a zero one stands for never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
