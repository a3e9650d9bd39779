package actors

import (
	"fmt"

	"github.com/swampd/swampd/messages"
)

// reconciled counts what a boot's sweep has brought to a true state.
type reconciled struct {
	leases, pendings, workers, runs, quarantined int
}

func (r reconciled) nothing() bool { return r == reconciled{} }

// String is the one line that a boot says.
func (r reconciled) String() string {
	return fmt.Sprintf("reconciled: %d leases expired, %d pending dispatches orphaned, %d workers disconnected, %d runs resumed, %d records quarantined",
		r.leases, r.pendings, r.workers, r.runs, r.quarantined)
}

// expireLease ends a lease that a dead orchestrator left behind. Its step decides what that means: the worker may still
// have the dispatch. A lease that was fenced had told its outcome, or will be asked for it: it keeps that.
func expireLease(r *messages.LeaseRecord, version uint64, at moment) write {
	l := leaseFrom(r, version, "", nil)
	if l.state == messages.LeaseActive {
		l.outcome = &messages.Outcome{
			Status: outcomeRestart, Code: string(messages.CodeWorkerLost), Error: "the orchestrator restarted", FinalOffset: r.GetOffset(),
			EndedAt: messages.Time(at.now),
		}
	}
	l.state, l.endedAt = messages.LeaseExpired, at.now
	l.version++
	return l.write()
}

// disconnectWorker notes that a worker which looks connected is not: its socket ended with the process.
func disconnectWorker(r *messages.WorkerRecord, version uint64, at moment) write {
	w := workerFrom(r.GetName(), r, version, timing{})
	w.connected, w.goneAt = false, at.now
	w.bump()
	return w.write()
}

// orphaned tells whether a pending dispatch counts as orphaned by this boot's sweep: it waits, and stems from a boot that
// the sweep before this one has not looked at. The step's new episode ends the record itself, so that a hundred thousand
// of them do not delay a boot.
func orphaned(r *messages.PendingRecord, swept, epoch uint64) bool {
	return r.GetState() == string(messages.PendingWaiting) && r.GetBootEpoch() >= swept && r.GetBootEpoch() < epoch
}

// orphanWait ends a pending dispatch that no step waits as.
func orphanWait(id string, r *messages.PendingRecord, version uint64, at moment) write {
	r.State, r.EndedAt = string(messages.PendingOrphaned), messages.Time(at.now)
	return write{kind: recordPending, id: id, replaces: version, state: r.GetState(), ended: true, body: r}
}
