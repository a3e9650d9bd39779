package testkit

import (
	"errors"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// WithEveryCommit looks at the books after each batch that the journal has applied, in the middle of all that goes on: what
// stands in one commit must never be seen apart. It reads all that lives each time, so it is for small tests.
func WithEveryCommit() Option { return func(s *settings) { s.everyCommit = true } }

// watchCommits adds that look, and a crash that is due, to what the test does in the journal.
func (f *Fleet) watchCommits(after func(*persistence.Batch) error) func(*persistence.Batch) error {
	return func(b *persistence.Batch) error {
		if store := f.Journal(); store != nil && f.System() != nil {
			if f.settings.everyCommit {
				for _, finding := range halfDone(store) {
					f.t.Errorf("after a commit: %s", finding)
				}
			}
			f.crashNow(store)
		}
		if after != nil {
			return after(b)
		}
		return nil
	}
}

// halfDone finds what no commit may leave behind: a step that waits has one waiting pending dispatch and no active lease, one
// that runs has its lease and no pending dispatch, an active lease has its step, a run that has ended has no step that
// has not, and no worker has more leases than slots.
func halfDone(journal persistence.Journal) []string {
	b := &books{journal: journal}
	switch err := b.readRecords(); {
	case errors.Is(err, persistence.ErrClosed):
		return nil // the process dies just now: its books are looked at after the boot
	case err != nil:
		return []string{err.Error()}
	}
	waiting, running := make(map[string]bool), make(map[string]bool)
	for id, s := range b.steps {
		status := messages.StepStatus(s.GetStatus())
		if run := b.runs[s.GetRunId()]; !status.Ended() && (run == nil || messages.RunStatus(run.GetStatus()).Ended()) {
			b.find("step %s is %s, and its run is %q", id, status, run.GetStatus())
		}
		switch status {
		case messages.StepQueued:
			waiting[s.GetQueueId()] = true
			if b.waits[s.GetQueueId()] == nil {
				b.find("step %s waits as %s, which is no waiting pending dispatch", id, s.GetQueueId())
			}
		case messages.StepRunning:
			lease := persistence.LeaseID(s.GetDispatchId(), s.GetGeneration())
			running[lease] = true
			if _, err := journal.Get(persistence.KindLease, lease); err != nil {
				b.find("step %s runs as %s, which is no lease", id, lease)
			}
		default:
		}
	}
	for id, w := range b.waits {
		if !waiting[id] {
			b.find("pending dispatch %s waits, and its step %s does not", id, w.GetStep())
		}
	}
	slots := make(map[string]int)
	for id, l := range b.leases {
		slots[l.GetWorker()]++
		if l.GetState() == string(messages.LeaseActive) && !running[id] {
			b.find("lease %s is active, and its step %s does not run as it", id, l.GetStep())
		}
	}
	for name, n := range slots {
		if w := b.workers[name]; w == nil || n > int(w.GetCapacity()) {
			b.find("worker %s has %d leases and %d slots", name, n, w.GetCapacity())
		}
	}
	return b.findings
}
