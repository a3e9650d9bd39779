package sim

import "time"

// spans are times in which something was not there.
type spans struct {
	list  []between
	since time.Time // zero: it is there
}

type between struct{ from, to time.Time }

func (s *spans) begin() {
	if s.since.IsZero() {
		s.since = time.Now()
	}
}

func (s *spans) end() {
	if !s.since.IsZero() {
		s.add(s.since, time.Now())
		s.since = time.Time{}
	}
}

func (s *spans) add(from, to time.Time) { s.list = append(s.list, between{from, to}) }

// longest is the longest time of not being there that reaches into the time between the two.
func (s *spans) longest(from, to time.Time) time.Duration {
	longest := time.Duration(0)
	if !s.since.IsZero() && s.since.Before(to) {
		longest = to.Sub(s.since)
	}
	for _, b := range s.list {
		if b.to.After(from) && b.from.Before(to) {
			longest = max(longest, b.to.Sub(b.from))
		}
	}
	return longest
}

// checkLoss: a step is lost only where its worker was away for about as long as its grace, or its process has ended. What
// the orchestrator does not hear because it is down, or stands still, is not its workers' fault either, but whoever was
// away then may have been so for too long: such losses are not judged. Nor are those of machines whose tokens end.
func (w *world) checkLoss(key, dispatch string, at time.Time) {
	for _, ex := range w.history[key] {
		if ex.dispatch != dispatch {
			continue
		}
		is := ex.a.is
		spared := w.tally.GivenUp > 0 || is.Forgets || is.Pool || is.Token > 0 || ex.a.revoked
		from := at.Add(-2 * w.s.Grace)
		if spared || w.out.longest(from, at) > 0 {
			continue
		}
		w.tally.Judged++
		if longest := ex.away.longest(from, at); longest < w.s.Grace/2 && (ex.life.Err() == nil || ex.away.since.After(at)) {
			w.judge.find("step %s was lost as %s, and its worker %s was never away for longer than %s", key, dispatch, ex.worker, longest)
		}
	}
}
