package actors

import (
	"errors"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// strayWaits finds pending dispatches that wait although no step waits as them: their run has ended or is gone, or their
// step has moved on. No commit of this program leaves any, but nobody would ever end one that an older program, or a hand,
// has left, and it would stand in the queue for ever.
//
// To ask each of a hundred thousand waits for its step would delay a boot, so they are counted first: where as many wait as
// there are steps that do, none is stray.
type strayWaits struct {
	sys   *System
	live  map[string]bool // the runs that have not ended
	waits int             // of live runs
	found []strayWait
}

type strayWait struct {
	id      string
	record  *messages.PendingRecord
	version uint64
}

// strays are what was found: how it is ended, and how many of it the sweep has not counted yet.
type strays struct {
	writes    []write
	uncounted int
}

// take looks at one pending dispatch, and tells whether it is stray on the face of it.
func (s *strayWaits) take(rec persistence.Record, p *messages.PendingRecord) bool {
	if s.live[p.GetRunId()] {
		s.waits++
		return false
	}
	s.found = append(s.found, strayWait{rec.ID, p, rec.Version})
	return true
}

// find returns all that are stray.
func (s *strayWaits) find(at moment, swept uint64) (strays, error) {
	out := strays{uncounted: len(s.found)}
	queued, err := s.queued()
	if err != nil {
		return strays{}, err
	}
	if queued != s.waits {
		counted, err := s.compare(at, swept)
		if err != nil {
			return strays{}, err
		}
		out.uncounted = len(s.found) - counted
	}
	for _, f := range s.found {
		s.sys.log.Debug("pending dispatch without a step", slog.String(messages.KeyQueueID, f.id), slog.String(messages.KeyRun, f.record.GetRunId()))
		out.writes = append(out.writes, orphanWait(f.id, f.record, f.version, at))
	}
	return out, nil
}

// queued counts the steps of live runs that wait. Their state stands in the envelope, so none is decoded.
func (s *strayWaits) queued() (int, error) {
	n := 0
	for run := range s.live {
		err := s.sys.journal.Scan(persistence.KindStep, false, run+"/", "", func(rec persistence.Record) bool {
			if rec.State == string(messages.StepQueued) {
				n++
			}
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// compare asks each wait of a live run for its step, and returns how many of the strays the sweep has counted already.
func (s *strayWaits) compare(at moment, swept uint64) (counted int, err error) {
	var failed error
	err = s.sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(rec persistence.Record, m proto.Message) bool {
		p := m.(*messages.PendingRecord)
		if !s.live[p.GetRunId()] {
			return true
		}
		step := &messages.StepRecord{}
		if _, failed = s.sys.read(persistence.KindStep, stepRecordID(p.GetRunId(), p.GetOrdinal()), step); failed != nil {
			return false
		}
		if step.GetStatus() == string(messages.StepQueued) && step.GetQueueId() == rec.ID {
			return true
		}
		s.found = append(s.found, strayWait{rec.ID, p, rec.Version})
		if orphaned(p, swept, at.epoch) {
			counted++
		}
		return true
	})
	return counted, errors.Join(err, failed)
}
