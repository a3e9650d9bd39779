package actors

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

const (
	// ranKept is how many dispatches of a worker are kept in mind, and shown.
	ranKept = 10
	// ranRead is how many ended leases of the journal are looked through for those from before the start, the newest runs
	// first.
	ranRead = 10_000
	// ranError is how many bytes of an error are kept.
	ranError = 256
)

// ranBook knows the last dispatches of each worker that ended since the start. It is for people to look at; what it holds
// stands in the journal too, from where older ones come, but there it is not found by its worker.
type ranBook struct {
	mu      sync.Mutex
	workers map[string][]ran // the newest last
}

// ran is one dispatch that has ended.
type ran struct {
	lease string
	item  *messages.DispatchItem
}

// take notes what a commit says: leases that ended, workers that were removed.
func (b *ranBook) take(d decision) {
	for _, w := range d.writes {
		if l, ok := w.body.(*messages.LeaseRecord); ok && w.ended && wasRun(l) {
			b.add(l.GetWorker(), ran{w.id, dispatchItem(l)})
		}
	}
	for _, e := range d.erases {
		if e.kind == kindWorker {
			b.forget(e.id)
		}
	}
}

func (b *ranBook) add(worker string, r ran) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.workers == nil {
		b.workers = make(map[string][]ran)
	}
	list := b.workers[worker]
	if len(list) == ranKept {
		list = slices.Delete(list, 0, 1)
	}
	b.workers[worker] = append(list, r)
}

func (b *ranBook) forget(worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, worker)
}

func (b *ranBook) of(worker string) []ran {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.workers[worker])
}

// wasRun tells whether a lease was more than an offer that its worker did not take.
func wasRun(l *messages.LeaseRecord) bool { return l.GetState() != string(messages.LeaseRefused) }

// worker reads one worker, and its live leases in the order in which they began.
func (sys *System) worker(name string) (*messages.WorkerRecord, []*messages.LeaseRecord, error) {
	if err := checkWorkerName(name); err != nil {
		return nil, nil, err
	}
	w := &messages.WorkerRecord{}
	version, err := sys.read(persistence.KindWorker, name, w)
	if err != nil {
		return nil, nil, err
	}
	if version == 0 {
		return nil, nil, sys.noWorker(name)
	}
	var leases []*messages.LeaseRecord
	err = sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(_ persistence.Record, m proto.Message) bool {
		if l := m.(*messages.LeaseRecord); l.GetWorker() == name {
			leases = append(leases, l)
		}
		return true
	})
	slices.SortStableFunc(leases, func(a, b *messages.LeaseRecord) int {
		return messages.GoTime(a.GetCreatedAt()).Compare(messages.GoTime(b.GetCreatedAt()))
	})
	return w, leases, err
}

// workerItem is one worker as it stands in the list.
func (sys *System) workerItem(name string) (*messages.WorkerItem, error) {
	w, leases, err := sys.worker(name)
	if err != nil {
		return nil, err
	}
	return itemOf(w, leases), nil
}

func itemOf(w *messages.WorkerRecord, leases []*messages.LeaseRecord) *messages.WorkerItem {
	var active []string
	for _, l := range leases {
		active = append(active, l.GetDispatchId())
	}
	return workerItem(w, active)
}

func (sys *System) workerShow(ctx context.Context, p *messages.WorkerShowParams) (proto.Message, error) {
	w, leases, err := sys.worker(p.GetName())
	if err != nil {
		return nil, err
	}
	i := itemOf(w, leases)
	detail := &messages.WorkerDetail{
		Name: i.GetName(), Status: i.GetStatus(), Connected: i.GetConnected(), Intent: i.GetIntent(), Health: i.GetHealth(), Reason: i.Reason,
		Labels: i.GetLabels(), Platform: i.Platform, Arch: i.Arch, InstanceUuid: i.InstanceUuid, MachineId: i.MachineId, Capacity: i.GetCapacity(),
		ActiveDispatchIds: i.GetActiveDispatchIds(), EnrolledAt: i.GetEnrolledAt(), LastSeenAt: i.GetLastSeenAt(), Version: i.Version,
		Note: optional(w.GetNote()), Until: w.GetUntil(),
	}
	if i.GetIntent() != string(messages.IntentNone) {
		detail.IntentSince = w.GetIntentAt()
	}
	if until := messages.GoTime(w.GetUntil()); !until.IsZero() {
		left := messages.Milliseconds(max(time.Until(until), 0))
		detail.RemainingMs = &left
	}
	for _, l := range leases {
		detail.Running = append(detail.Running, dispatchItem(l))
	}
	detail.Recent, err = sys.ranLately(ctx, w.GetName())
	return detail, err
}

// dispatchItem is a lease for people. It keeps nothing that is large.
func dispatchItem(l *messages.LeaseRecord) *messages.DispatchItem {
	i := &messages.DispatchItem{
		DispatchId: l.GetDispatchId(), RunId: l.GetRunId(), JobName: l.GetJob(), StepName: l.GetStep(), Attempt: l.GetAttempt(),
		Status: string(messages.StepRunning), StartedAt: l.GetCreatedAt(),
	}
	if o := l.GetOutcome(); o != nil {
		i.Status, i.Error, i.Code = o.GetStatus(), optional(shorten(o.GetError(), ranError)), optional(o.GetCode())
		i.StartedAt, i.EndedAt = cmp.Or(o.GetStartedAt(), i.StartedAt), cmp.Or(o.GetEndedAt(), l.GetEndedAt())
	}
	return i
}

// ranLately is what a worker ran, the newest first: what is kept in mind and, where that is less than is shown, what the
// journal has from before the start.
func (sys *System) ranLately(ctx context.Context, worker string) ([]*messages.DispatchItem, error) {
	kept := sys.ran.of(worker)
	items, known := make([]*messages.DispatchItem, 0, ranKept), make(map[string]bool, len(kept))
	for _, r := range kept {
		items, known[r.lease] = append(items, r.item), true
	}
	if len(items) < ranKept {
		var decodeErr error
		read := 0
		err := sys.journal.ScanBack(persistence.KindLease, true, "", "", func(rec persistence.Record) bool {
			l := &messages.LeaseRecord{}
			if decodeErr = proto.Unmarshal(rec.Body, l); decodeErr != nil {
				return false
			}
			if l.GetWorker() == worker && wasRun(l) && !known[rec.ID] {
				items = append(items, dispatchItem(l))
			}
			read++
			return read < ranRead && ctx.Err() == nil
		})
		if err = cmp.Or(err, decodeErr, context.Cause(ctx)); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(items, func(a, b *messages.DispatchItem) int {
		return cmp.Or(messages.GoTime(b.GetEndedAt()).Compare(messages.GoTime(a.GetEndedAt())), strings.Compare(b.GetDispatchId(), a.GetDispatchId()))
	})
	return items[:min(len(items), ranKept)], nil
}

// shorten cuts text to about so many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
