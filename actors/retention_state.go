package actors

import (
	"cmp"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// Retention says how long what is over is kept. A zero field is its default; below zero there is no bound.
type Retention struct {
	// Runs is how long an ended run is kept, with its steps, events and output, and an ended enrollment token: 7 days.
	Runs time.Duration
	// MaxRuns is how many ended runs are kept, the newest ones: 10,000.
	MaxRuns int
	// Workers is how long a worker that is disconnected is kept: 24 hours. One that somebody has paused is kept until it is
	// resumed.
	Workers time.Duration
	// Every is how often it is looked what has to go: a minute; below 0 never.
	Every time.Duration
}

func (r Retention) withDefaults() Retention {
	r.Runs = cmp.Or(r.Runs, 7*24*time.Hour)
	r.MaxRuns = cmp.Or(r.MaxRuns, 10_000)
	r.Workers = cmp.Or(r.Workers, 24*time.Hour)
	r.Every = cmp.Or(r.Every, time.Minute)
	return r
}

const (
	// restTime is how long an ended run is left alone whatever there is: its last readers, and the actors that still tell each
	// other of its end, are done with it by then.
	restTime = time.Minute
	// sourceRest is the same for a source, which is kept before the run that names it: far above the time that a submission
	// may take.
	sourceRest = time.Hour
)

// endedRun is what retention has to know of a run.
type endedRun struct {
	id string
	at time.Time
}

// removable returns the runs that have to go, the oldest first.
func removable(runs []endedRun, keep Retention, now time.Time) []string {
	slices.SortFunc(runs, func(a, b endedRun) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.id, a.id)) })
	var gone []string
	for i, r := range runs {
		age := now.Sub(r.at)
		tooOld := keep.Runs >= 0 && age > keep.Runs
		tooMany := keep.MaxRuns >= 0 && i >= keep.MaxRuns
		if age >= restTime && (tooOld || tooMany) {
			gone = append(gone, r.id)
		}
	}
	slices.Reverse(gone)
	return gone
}

// An erase removes a record with its history. Its owner decides it (rule A1), once nothing can refer to it any more.
type erase struct{ kind, id string }

// retireWorker tells a worker to forget itself if it has been away since before then. Whoever sends it has seen that the
// worker has no live lease; it cannot get one without a new connection.
type retireWorker struct{ before time.Time }

// retireToken tells a token to forget some of its bindings, and itself with the last of them, if it ended before then.
type retireToken struct {
	before   time.Time
	bindings []string
	last     bool
}

const (
	timerRetire = "retire"

	// retireTime is how long a worker that has just been read from its record waits for the scheduler to know it.
	retireTime = time.Second
)

// retirable tells whether a worker's record says that it can go.
func retirable(connected, paused bool, goneAt, before time.Time) bool {
	return !connected && !paused && goneAt.Before(before)
}

// retire erases a worker that has been away for too long. What the scheduler has confirmed to know of it is taken back by
// workerGone, so it waits for that.
func (w workerState) retire(c retireWorker) (workerState, decision) {
	switch {
	case w.newcomer != nil, len(w.leases) > 0, len(w.awaiting) > 0:
		return w, decision{}
	case w.version == 0:
		return w, decision{effects: []effect{leave{}}}
	case !retirable(w.connected, w.pauses(), w.goneAt, c.before):
		return w, decision{}
	case w.told != w.version:
		return w, decision{effects: []effect{arm{timerRetire, retireTime, c}}}
	}
	d := decision{
		erases: []erase{{kindWorker, w.name}}, requires: []require{{kindWorker, w.name, w.version}},
		effects: []effect{tell{schedulerAddress(), workerGone{w.name}}, leave{}},
	}
	return workerFrom(w.name, nil, 0, w.timing), d
}

// endedAt is when the token ended; zero: it has not.
func (t *tokenState) endedAt() time.Time { return tokenEnd(t.state, t.revokedAt, t.expiresAt) }

func tokenEnd(state messages.TokenState, revokedAt, expiresAt time.Time) time.Time {
	switch {
	case !state.Ended():
		return time.Time{}
	case state == messages.TokenRevoked && !revokedAt.IsZero():
		return revokedAt
	default:
		return expiresAt
	}
}

// retire erases bindings of a token that ended long ago, and at last the token.
func (t *tokenState) retire(c retireToken, d *decision) {
	if end := t.endedAt(); t.version == 0 || end.IsZero() || !end.Before(c.before) {
		return
	}
	d.requires = append(d.requires, require{kindToken, t.name, t.version})
	for _, id := range c.bindings {
		d.erases = append(d.erases, erase{recordBinding, id})
	}
	if c.last {
		d.erases = append(d.erases, erase{kindToken, t.name})
		*t = tokenFrom(t.name, nil, 0, nil)
	}
}
