package actors

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// topDefault and topMost bound the lists of a glance.
const (
	topDefault = 50
	topMost    = 500
)

// actorTop is everything at a glance, for whoever asks once a second: it asks the scheduler and no other actor.
func (sys *System) actorTop(ctx context.Context, p *messages.ActorTopParams) (proto.Message, error) {
	limit := int(p.GetLimit())
	if limit <= 0 {
		limit = topDefault
	}
	limit = min(limit, topMost)
	got, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askGlance{limit, a} })
	if err != nil {
		return nil, err
	}
	pool := got.(glance)
	now := time.Now()
	stats := sys.journal.Stats()
	result := &messages.ActorTopResult{
		At: messages.Time(now), Version: sys.cfg.Version, StartedAt: messages.Time(sys.started), SlotsFree: int32(pool.free), SlotsTotal: int32(pool.all),
		Waiting: int32(pool.waiting), RunsLive: int32(sys.counters.runsLive.Load()), Commits: float64(stats.Commits), Syncs: float64(stats.Syncs),
		SyncMs: messages.Milliseconds(stats.Sync), Restarts: int32(sys.counters.restarts.Load()), Findings: int32(sys.counters.findings.Load()),
		RunsEnded: counts(sys.counters.runsEnded.all()), StepsEnded: counts(sys.counters.stepsEnded.all()),
	}
	for _, c := range pool.classes {
		class := &messages.TopClass{Requirement: c.requirement, Waiting: int32(c.waiting), Why: c.why}
		wait := &messages.PendingRecord{}
		if _, err := sys.read(persistence.KindPending, c.oldest, wait); err != nil {
			return nil, err
		}
		if at := messages.GoTime(wait.GetQueuedAt()); !at.IsZero() {
			class.OldestMs = messages.Milliseconds(max(now.Sub(at), 0))
		}
		result.Classes = append(result.Classes, class)
	}
	if err := sys.topWorkers(result, limit); err != nil {
		return nil, err
	}
	sys.topActors(result, limit)
	return result, nil
}

// topWorkers counts the workers by status, and lists those with most to do.
func (sys *System) topWorkers(result *messages.ActorTopResult, limit int) error {
	workers, err := sys.workers()
	if err != nil {
		return err
	}
	byStatus := make(map[string]uint64)
	for _, w := range workers {
		if w.GetName() == Loopback && w.GetCapacity() == 0 {
			continue
		}
		byStatus[w.GetStatus()]++
		result.Workers = append(result.Workers, &messages.TopWorker{
			Name: w.GetName(), Status: w.GetStatus(), Taken: int32(len(w.GetActiveDispatchIds())), Capacity: w.GetCapacity(), Labels: w.GetLabels(),
		})
	}
	result.WorkersByStatus = counts(byStatus)
	slices.SortFunc(result.Workers, func(a, b *messages.TopWorker) int {
		gone := func(w *messages.TopWorker) int {
			if w.GetStatus() == string(messages.WorkerDisconnected) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(gone(a), gone(b)), cmp.Compare(b.GetTaken(), a.GetTaken()), strings.Compare(a.GetName(), b.GetName()))
	})
	result.Workers = result.Workers[:min(len(result.Workers), limit)]
	return nil
}

// topActors counts the actors by kind, and lists those with most in their mailboxes, then those that took a message last.
func (sys *System) topActors(result *messages.ActorTopResult, limit int) {
	type hot struct {
		info   *actorInfo
		queued int64
		last   int64
	}
	byKind := make(map[string]uint64)
	var list []hot
	hotter := func(a, b hot) int { return cmp.Or(cmp.Compare(b.queued, a.queued), cmp.Compare(b.last, a.last)) }
	sys.byPID.Range(func(_, i any) bool {
		info := i.(*actorInfo)
		byKind[info.address.kind]++
		last, _, _ := info.trail.last()
		h := hot{info, max(info.queued.Load(), 0), last.nanos}
		if len(list) == limit && hotter(h, list[limit-1]) >= 0 {
			return true
		}
		at, _ := slices.BinarySearchFunc(list, h, hotter)
		list = slices.Insert(list, at, h)
		list = list[:min(len(list), limit)]
		return true
	})
	result.ActorsByKind = counts(byKind)
	for _, h := range list {
		result.Actors = append(result.Actors, h.info.item())
	}
}

// counts are numbers by name, in the order of the names.
func counts[K ~string](m map[K]uint64) []*messages.TopCount {
	var list []*messages.TopCount
	for name, n := range m {
		list = append(list, &messages.TopCount{Name: string(name), Count: float64(n)})
	}
	slices.SortFunc(list, func(a, b *messages.TopCount) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}
