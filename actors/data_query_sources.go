package actors

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// eachArtifact has the latest version of each artifact.
func (d *Data) eachArtifact(_ context.Context, after string, fn func(string, proto.Message) bool) error {
	var itemErr error
	err := d.eachLatest("", after, func(item *messages.ArtifactItem, err error) bool {
		itemErr = err
		return err == nil && fn(item.GetName(), item)
	})
	return firstErr(err, itemErr)
}

// eachLease has the leases that take a slot. They have no shape of their own.
func (d *Data) eachLease(_ context.Context, after string, fn func(string, proto.Message) bool) error {
	var shapeErr error
	err := d.sys.journal.Scan(persistence.KindLease, false, "", after, func(rec persistence.Record) bool {
		l := &messages.LeaseRecord{}
		if proto.Unmarshal(rec.Body, l) != nil {
			return true // the journal has a checksum: this is a record of a newer form
		}
		var item *structpb.Struct
		if item, shapeErr = structpb.NewStruct(map[string]any{
			"dispatchId": l.GetDispatchId(), "generation": float64(l.GetGeneration()), "status": l.GetState(), "runId": l.GetRunId(),
			"job": l.GetJob(), "step": l.GetStep(), "worker": l.GetWorker(), "attempt": float64(l.GetAttempt()),
			"hasWrites": l.GetHasWrites(), "cancelRequested": l.GetCancelRequestedAt() != nil,
			"createdAt": messages.GoTime(l.GetCreatedAt()).UTC().Format(rfc3339),
		}); shapeErr != nil {
			return false
		}
		return fn(rec.ID, item)
	})
	return firstErr(err, shapeErr)
}

// rfc3339 is how times are written in shapes.
const rfc3339 = "2006-01-02T15:04:05.999999999Z07:00"

// eachPending has who waits, as worker.queue.list shows it.
func (d *Data) eachPending(ctx context.Context, after string, fn func(string, proto.Message) bool) error {
	result, err := d.sys.queueList(ctx)
	if err != nil {
		return err
	}
	eachAbove(result.(*messages.WorkerQueueListResult).GetItems(), (*messages.QueueItem).GetQueueId, after, fn)
	return nil
}

// eachToken has the enrollment tokens, as worker.token.list shows them.
func (d *Data) eachToken(_ context.Context, after string, fn func(string, proto.Message) bool) error {
	result, err := d.sys.tokenList()
	if err != nil {
		return err
	}
	eachAbove(result.(*messages.WorkerTokenListResult).GetItems(), (*messages.TokenItem).GetName, after, fn)
	return nil
}

// eachWorker has the known workers, as worker.list shows them: also those that are not connected, and not the orchestrator's
// own.
func (d *Data) eachWorker(_ context.Context, after string, fn func(string, proto.Message) bool) error {
	items, err := d.sys.workers()
	if err != nil {
		return err
	}
	items = slices.DeleteFunc(items, func(w *messages.WorkerItem) bool { return w.GetName() == Loopback })
	eachAbove(items, (*messages.WorkerItem).GetName, after, fn)
	return nil
}

// eachAbove calls fn for the items whose id is above after, by id.
func eachAbove[T proto.Message](items []T, id func(T) string, after string, fn func(string, proto.Message) bool) {
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	for _, item := range items {
		if id(item) > after && !fn(id(item), item) {
			return
		}
	}
}
