package actors

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// sweepID is the record that says which boot was swept last.
const sweepID = "reconciler"

// sweepBatch is how many records one commit of the sweep writes.
const sweepBatch = 200

// reconcile brings what a crash left stale to a true state, before any actor starts and any connection is accepted. It
// is the only writer until then. It looks at what is live only, and finds nothing when it is done again.
func (sys *System) reconcile() error {
	at := sys.moment()
	var r reconciled
	var writes []write
	var last time.Time
	seen := func(rec persistence.Record) {
		if rec.Epoch < at.epoch && rec.Time.After(last) {
			last = rec.Time
		}
	}
	err := sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(rec persistence.Record, m proto.Message) bool {
		seen(rec)
		writes = append(writes, expireLease(m.(*messages.LeaseRecord), rec.Version, at))
		r.leases++
		return true
	})
	if err != nil {
		return err
	}
	err = sys.scan(persistence.KindWorker, false, "", newBody[messages.WorkerRecord], func(rec persistence.Record, m proto.Message) bool {
		seen(rec)
		if w := m.(*messages.WorkerRecord); w.GetConnected() {
			writes = append(writes, disconnectWorker(w, rec.Version, at))
			if w.GetName() != Loopback {
				r.workers++
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	if alive, err := sys.journal.Get(persistence.KindScheduler, aliveID); err == nil {
		seen(alive)
	}
	swept := &messages.SchedulerRecord{}
	sweptVersion, err := sys.read(persistence.KindScheduler, sweepID, swept)
	if err != nil {
		return err
	}
	again := swept.GetEpoch() == at.epoch
	live := make(map[string]bool)
	err = sys.journal.Scan(persistence.KindRun, false, "", "", func(rec persistence.Record) bool {
		seen(rec)
		live[rec.ID] = true
		if !again {
			r.runs++
		}
		return true
	})
	if err != nil {
		return err
	}
	sys.counters.runsLive.Store(int64(len(live)))
	strays := strayWaits{sys: sys, live: live}
	err = sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(rec persistence.Record, m proto.Message) bool {
		seen(rec)
		p := m.(*messages.PendingRecord)
		switch {
		case strays.take(rec, p):
		case orphaned(p, swept.GetEpoch(), at.epoch):
			r.pendings++
		}
		return true
	})
	if err != nil {
		return err
	}
	stray, err := strays.find(at, swept.GetEpoch())
	if err != nil {
		return err
	}
	writes = append(writes, stray.writes...)
	r.pendings += stray.uncounted
	// What a worker was promised holds, also if the grace window is shorter now.
	sys.adoptionGrace = max(sys.adoptionGrace, sys.timing.grace, messages.Duration(swept.GetGraceMs()))
	if !again {
		writes = append(writes, write{
			kind: kindScheduler, id: sweepID, replaces: sweptVersion, state: "current", body: &messages.SchedulerRecord{Epoch: at.epoch, GraceMs: messages.Milliseconds(sys.timing.grace)},
		})
	}
	for len(writes) > 0 {
		n := min(len(writes), sweepBatch)
		if err := sys.commit(decision{writes: writes[:n]}); err != nil {
			return err
		}
		writes = writes[n:]
	}
	r.quarantined = sys.journal.Quarantined()
	sys.aliveUntil = last
	if !r.nothing() {
		//nolint:sloglint // the line is a contract: people and scripts look for the sentence
		sys.log.Info(r.String(), slog.Int(messages.KeyCount, r.leases+r.pendings+r.workers+r.runs+r.quarantined))
	}
	return nil
}
