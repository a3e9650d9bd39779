package worker

import "time"

// fenced is what a fence asks of the steps behind it.
type fenced string

const (
	fenceOpen fenced = "open" // nothing
	fenceTerm fenced = "term" // TERM is due
	fenceKill fenced = "kill" // KILL is due
)

// at tells what the fence asks for at that time on FenceClock.
func (f Fence) at(now time.Duration) fenced {
	switch {
	case f.KillAt <= 0:
		return fenceOpen
	case now >= f.KillAt:
		return fenceKill
	case now >= f.TermAt:
		return fenceTerm
	default:
		return fenceOpen
	}
}

// next is how long to sleep until the fence may ask for more: never longer than fenceTick, as a timer does not notice
// when the machine sleeps.
func (f Fence) next(now time.Duration) time.Duration {
	due := f.TermAt
	if now >= due {
		due = f.KillAt
	}
	return max(min(due-now, fenceTick), 0)
}

const (
	// tooLate is the time left for steps below which it is no use to hurry for them.
	tooLate = 200 * time.Millisecond
	// leastTry is what a try to connect gets at least, however little time the steps have left.
	leastTry = 5 * time.Second
)

// hurried cuts a pause before a try to connect, so that steps which live for that much longer do not die of the pause:
// there are always three more tries for them.
func hurried(pause, left time.Duration) time.Duration {
	if left < tooLate {
		return pause
	}
	return min(pause, left/4)
}

// tryFor is how long one try to connect may take, of most.
func tryFor(most, left time.Duration) time.Duration {
	if left < tooLate {
		return most
	}
	return min(most, max(left/4, leastTry))
}
