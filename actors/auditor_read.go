package actors

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// readBooks reads what an audit compares.
func (sys *System) readBooks(ctx context.Context) (*books, error) {
	b := &books{
		now: sys.moment().now, full: time.Since(time.Unix(0, sys.refusedAt.Load())) < fullFor, loopback: sys.cfg.LoopbackSlots > 0, running: make(map[string]*messages.StepRecord),
		leases: make(map[string]*messages.LeaseRecord), waits: make(map[string]*waitBook), workers: make(map[string]*messages.WorkerRecord),
		absent: make(map[address]bool),
	}
	queued, err := sys.readSteps(ctx, b)
	if err != nil {
		return nil, err
	}
	waits, err := sys.readWaits(b)
	if err != nil {
		return nil, err
	}
	if waits != queued {
		if err := sys.readStrays(b); err != nil {
			return nil, err
		}
	}
	err = sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(rec persistence.Record, m proto.Message) bool {
		b.leases[rec.ID] = m.(*messages.LeaseRecord)
		return true
	})
	if err != nil {
		return nil, err
	}
	err = sys.scan(persistence.KindWorker, false, "", newBody[messages.WorkerRecord], func(rec persistence.Record, m proto.Message) bool {
		b.workers[rec.ID] = m.(*messages.WorkerRecord)
		return true
	})
	if err != nil {
		return nil, err
	}
	sys.readAbsent(b)
	got, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askPool{a} })
	if err != nil {
		return nil, err
	}
	pool := got.(poolNumbers)
	b.taken, b.waiting, b.refusals, b.parked = pool.dispatches, pool.waiting, pool.refusals, pool.parked
	return b, nil
}

// readAbsent finds who should have an actor and has none.
func (sys *System) readAbsent(b *books) {
	look := func(a address) {
		if _, ok := sys.refs.Load(a); !ok {
			b.absent[a] = true
		}
	}
	for _, r := range b.runs {
		if r.moves {
			look(runAddress(r.id))
		}
	}
	for _, s := range b.running {
		look(stepAddress(s.GetRunId(), s.GetJob(), s.GetStep()))
	}
	for id := range b.leases {
		look(leaseAddress(id))
	}
}

// readSteps reads the live runs and their steps, and returns how many wait.
func (sys *System) readSteps(ctx context.Context, b *books) (queued int, err error) {
	err = sys.scan(persistence.KindRun, false, "", newBody[messages.RunRecord], func(rec persistence.Record, m proto.Message) bool {
		b.runs = append(b.runs, runBook{id: rec.ID, status: m.(*messages.RunRecord).GetStatus()})
		return ctx.Err() == nil
	})
	if err != nil {
		return 0, err
	}
	for i := range b.runs {
		r := &b.runs[i]
		var waiting []*messages.StepRecord
		err := sys.scan(persistence.KindStep, false, r.id+"/", newBody[messages.StepRecord], func(rec persistence.Record, m proto.Message) bool {
			s := m.(*messages.StepRecord)
			switch status := messages.StepStatus(s.GetStatus()); {
			case status == messages.StepQueued:
				waiting = append(waiting, s)
			case !status.Ended():
				b.running[rec.ID] = s
				r.moves = true
			}
			return true
		})
		if err != nil {
			return 0, err
		}
		r.alive = r.moves || len(waiting) > 0
		queued += len(waiting)
		for _, s := range waiting {
			wait, err := sys.journal.Get(persistence.KindPending, s.GetQueueId())
			if err != nil && !errors.Is(err, persistence.ErrNotFound) {
				return 0, err
			}
			if err != nil || wait.Ended {
				id, at := stepRecordID(r.id, s.GetOrdinal()), stepAddress(r.id, s.GetJob(), s.GetStep())
				b.odd = append(b.odd, finding{kindStep, id, "waits, and its pending dispatch " + s.GetQueueId() + " does not", at})
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	return queued, nil
}

// readWaits reads the pending dispatches that wait, and returns how many they are.
func (sys *System) readWaits(b *books) (waits int, err error) {
	err = sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(rec persistence.Record, m proto.Message) bool {
		waits++
		w := m.(*messages.PendingRecord)
		if w.GetBootEpoch() < sys.journal.Epoch() { // its step has not rejoined yet
			return true
		}
		p := messages.PlacementFrom(w.GetPlacement())
		book := b.waits[p.Key()]
		if book == nil {
			book = &waitBook{placement: p, example: rec.ID}
			b.waits[p.Key()] = book
		}
		book.count++
		return true
	})
	return waits, err
}

// readStrays finds the pending dispatches that no step waits as.
func (sys *System) readStrays(b *books) error {
	var reading error
	err := sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(rec persistence.Record, m proto.Message) bool {
		w, s := m.(*messages.PendingRecord), &messages.StepRecord{}
		if _, reading = sys.read(persistence.KindStep, stepRecordID(w.GetRunId(), w.GetOrdinal()), s); reading != nil {
			return false
		}
		if s.GetStatus() != string(messages.StepQueued) || s.GetQueueId() != rec.ID {
			at := stepAddress(w.GetRunId(), w.GetJob(), w.GetStep())
			b.odd = append(b.odd, finding{recordPending, rec.ID, "waits, and its step does not wait as it", at})
		}
		return true
	})
	return errors.Join(err, reading)
}
