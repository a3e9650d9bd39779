package actors

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Bounds of a page.
const (
	pageDefault = 100
	pageMax     = 1000
)

// runList reads the journal: live and ended runs merge by id, and ids sort by time.
func (sys *System) runList(p *messages.RunListParams) (proto.Message, error) {
	limit := int(p.GetLimit())
	if limit <= 0 {
		limit = pageDefault
	}
	limit = min(limit, pageMax)
	var items []*messages.RunSummary
	for _, over := range []bool{false, true} {
		n := 0
		err := sys.journal.ScanBack(persistence.KindRun, over, "", p.GetCursor(), func(rec persistence.Record) bool {
			r := &messages.RunRecord{}
			if proto.Unmarshal(rec.Body, r) != nil {
				return true // the journal has a checksum: this is a record of a newer form
			}
			items = append(items, &messages.RunSummary{
				RunId: r.GetRunId(), WorkflowName: r.GetWorkflowName(), Status: r.GetStatus(), StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
			})
			n++
			return n <= limit
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(items, func(a, b *messages.RunSummary) int { return strings.Compare(b.GetRunId(), a.GetRunId()) })
	items = slices.CompactFunc(items, func(a, b *messages.RunSummary) bool { return a.GetRunId() == b.GetRunId() }) // it ended between the scans
	result := &messages.RunListResult{Items: items}
	if len(items) > limit {
		result.Items = items[:limit]
		result.Cursor = &items[limit-1].RunId
	}
	result.Count = int32(len(result.Items))
	return result, nil
}

// findRun reads a run's record, or says that there is none.
func (sys *System) findRun(id string) (*messages.RunRecord, error) {
	r := &messages.RunRecord{}
	version, err := sys.read(persistence.KindRun, id, r)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, messages.Faultf(messages.CodeNotFound, "no run %s", id)
	}
	return r, nil
}

func (sys *System) runShow(p *messages.RunShowParams) (proto.Message, error) {
	r, err := sys.findRun(p.GetRunId())
	if err != nil {
		return nil, err
	}
	plan, err := sys.planOf(r)
	if err != nil {
		return nil, err
	}
	steps, err := sys.steps(p.GetRunId())
	if err != nil {
		return nil, err
	}
	byOrdinal := make(map[int]*messages.StepRecord, len(steps))
	for _, s := range steps {
		sys.fetchOutputs(s)
		byOrdinal[int(s.GetOrdinal())] = s
	}
	item := &messages.RunItem{
		RunId: r.GetRunId(), ParentRunId: optional(r.GetParentRunId()), WorkflowName: r.GetWorkflowName(), Status: r.GetStatus(),
		Error: optional(r.GetError()), CancelRequested: r.GetCancelRequestedAt() != nil, Inputs: &structpb.Struct{},
		StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
	}
	now := time.Now()
	for j := range plan.Jobs {
		job := &messages.JobItem{Name: plan.Jobs[j].Name, Status: string(messages.StepPending)}
		if j < len(r.GetJobs()) {
			job.Status = r.GetJobs()[j].GetStatus()
		}
		for _, o := range plan.Jobs[j].Steps {
			job.Steps = append(job.Steps, stepItem(plan.Steps[o].Name, byOrdinal[o], now))
		}
		item.Jobs = append(item.Jobs, job)
	}
	return item, nil
}

func stepItem(name string, r *messages.StepRecord, now time.Time) *messages.StepItem {
	if r == nil {
		return &messages.StepItem{Name: name, Status: string(messages.StepPending)}
	}
	queued := r.GetQueuedMs()
	if r.GetStatus() == string(messages.StepQueued) {
		queued += messages.Milliseconds(max(now.Sub(messages.GoTime(r.GetQueuedAt())), 0))
	}
	item := &messages.StepItem{
		Name: name, Status: r.GetStatus(), Worker: optional(r.GetWorker()), DispatchId: optional(r.GetDispatchId()),
		Losses: r.GetLosses(), QueuedMs: queued, Error: optional(r.GetError()), Code: optional(r.GetCode()),
		Outputs: outputMap(r.GetOutputs()), StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
	}
	if r.GetDispatches() > 0 {
		item.Attempts = r.GetAttempt()
	}
	return item
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// workers reads the fleet from the journal, with the dispatches of each from the leases (rule A7).
func (sys *System) workers() ([]*messages.WorkerItem, error) {
	active := make(map[string][]string)
	err := sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(_ persistence.Record, m proto.Message) bool {
		l := m.(*messages.LeaseRecord)
		active[l.GetWorker()] = append(active[l.GetWorker()], l.GetDispatchId())
		return true
	})
	if err != nil {
		return nil, err
	}
	var items []*messages.WorkerItem
	err = sys.scan(persistence.KindWorker, false, "", newBody[messages.WorkerRecord], func(_ persistence.Record, m proto.Message) bool {
		items = append(items, workerItem(m.(*messages.WorkerRecord), active[m.(*messages.WorkerRecord).GetName()]))
		return true
	})
	return items, err
}

func workerItem(w *messages.WorkerRecord, active []string) *messages.WorkerItem {
	status := messages.StatusOf(w.GetConnected(), messages.WorkerIntent(w.GetIntent()), messages.WorkerHealth(w.GetHealth()), len(active))
	seen := w.GetLastSeenAt()
	if w.GetConnected() {
		seen = messages.Time(time.Now()) // its socket is alive, or it would not be connected
	}
	return &messages.WorkerItem{
		Name: w.GetName(), Status: string(status), Connected: w.GetConnected(), Intent: w.GetIntent(), Health: w.GetHealth(),
		Reason: optional(intentReason(w, time.Now())), Labels: messages.LabelsFrom(w.GetLabels()).Map(), Platform: optional(w.GetPlatform()),
		Arch: optional(w.GetArch()), InstanceUuid: optional(w.GetInstanceUuid()), MachineId: optional(w.GetMachineId()),
		Capacity: w.GetCapacity(), ActiveDispatchIds: active, EnrolledAt: w.GetEnrolledAt(), LastSeenAt: seen, Version: optional(w.GetVersion()),
	}
}

// intentReason says why a worker is not given work, and for how long.
func intentReason(w *messages.WorkerRecord, now time.Time) string {
	if w.GetIntent() != string(messages.IntentPaused) || !w.GetConnected() {
		return w.GetReason()
	}
	reason := w.GetNote()
	if until := messages.GoTime(w.GetUntil()); !until.IsZero() {
		left := max(until.Sub(now), 0).Round(time.Second)
		reason = strings.TrimSpace(reason + " (" + left.String() + " left)")
	}
	return reason
}

func (sys *System) workerList(_ context.Context, p *messages.WorkerListParams) (proto.Message, error) {
	items, err := sys.workers()
	if err != nil {
		return nil, err
	}
	if !p.GetAll() {
		items = slices.DeleteFunc(items, func(w *messages.WorkerItem) bool { return !w.GetConnected() || w.GetName() == Loopback })
	}
	return &messages.WorkerListResult{Items: items, Count: int32(len(items))}, nil
}

// queueList reads who waits from the journal, and asks the scheduler why.
func (sys *System) queueList(ctx context.Context) (proto.Message, error) {
	var waits []*messages.PendingRecord
	err := sys.scan(persistence.KindPending, false, "", newBody[messages.PendingRecord], func(_ persistence.Record, m proto.Message) bool {
		waits = append(waits, m.(*messages.PendingRecord))
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(waits, func(a, b *messages.PendingRecord) int {
		return cmp.Or(cmp.Compare(a.GetQueuedSeq(), b.GetQueuedSeq()), cmp.Compare(a.GetOrdinal(), b.GetOrdinal()))
	})
	placements := make(map[string]messages.Placement)
	keys := make([]string, len(waits))
	for i, w := range waits {
		p := messages.PlacementFrom(w.GetPlacement())
		keys[i] = p.Key()
		placements[keys[i]] = p
	}
	whys := make(map[string]string)
	if len(placements) > 0 {
		got, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askWhy{placements, a} })
		if err != nil {
			return nil, err
		}
		whys = got.(map[string]string)
	}
	result := &messages.WorkerQueueListResult{Count: int32(len(waits))}
	now := time.Now()
	for i, w := range waits {
		p := placements[keys[i]]
		result.Items = append(result.Items, &messages.QueueItem{
			QueueId: w.GetQueueId(), Requirement: p.Requirement(), Why: whys[keys[i]], Target: optional(p.Target), Labels: p.Labels.Map(),
			Platform: optional(p.Platform), RunId: w.GetRunId(), WorkflowName: w.GetWorkflowName(), JobName: w.GetJob(), StepName: w.GetStep(),
			ModelType: w.GetModelType(), MethodName: w.GetMethodName(), QueuedAt: w.GetQueuedAt(),
			AgeMs: messages.Milliseconds(max(now.Sub(messages.GoTime(w.GetQueuedAt())), 0)),
		})
	}
	return result, nil
}

func (sys *System) tokenList() (proto.Message, error) {
	result := &messages.WorkerTokenListResult{}
	now := time.Now()
	var bindErr error
	err := sys.scan(persistence.KindToken, false, "", newBody[messages.TokenRecord], func(_ persistence.Record, m proto.Message) bool {
		t := m.(*messages.TokenRecord)
		item := &messages.TokenItem{
			Name: t.GetName(), State: t.GetState(), CreatedAt: t.GetCreatedAt(), ExpiresAt: t.GetExpiresAt(), MaxEnrollments: maxValue(t.GetMaxEnrollments()),
		}
		if !messages.TokenState(item.State).Ended() && !now.Before(messages.GoTime(t.GetExpiresAt())) {
			item.State = string(messages.TokenExpired)
		}
		var bindings []*messages.BindingRecord
		if bindings, bindErr = sys.bindings(t.GetName(), t.GetGeneration()); bindErr != nil {
			return false
		}
		for _, b := range bindings {
			item.Bindings = append(item.Bindings, &messages.BindingItem{MachineId: b.GetMachineId(), Worker: b.GetWorker(), EnrolledAt: b.GetEnrolledAt()})
		}
		result.Items = append(result.Items, item)
		return true
	})
	if err == nil {
		err = bindErr
	}
	result.Count = int32(len(result.Items))
	return result, err
}

// Metrics implements Orchestrator.
func (sys *System) Metrics(ctx context.Context) (Metrics, error) {
	got, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askPool{a} })
	if err != nil {
		return Metrics{}, err
	}
	pool := got.(poolNumbers)
	stats := sys.journal.Stats()
	m := Metrics{
		Waiting: pool.waiting, Workers: make(map[messages.WorkerStatus]int), SlotsFree: pool.free, SlotsTotal: pool.all,
		RunsLive: int(sys.counters.runsLive.Load()), RunsEnded: sys.counters.runsEnded.all(), StepsEnded: sys.counters.stepsEnded.all(), Drains: sys.counters.drains.all(),
		Restarts: sys.counters.restarts.Load(), Findings: sys.counters.findings.Load(), Commits: stats.Commits, Syncs: stats.Syncs, SyncTime: stats.Sync,
	}
	items, err := sys.workers()
	if err != nil {
		return Metrics{}, err
	}
	for _, w := range items {
		if w.GetName() != Loopback {
			m.Workers[messages.WorkerStatus(w.GetStatus())]++
		}
	}
	return m, nil
}

// splitStep takes JOB/STEP apart; without a slash it is a step's name in any job.
func splitStep(s string) (job, step string) {
	if job, step, ok := strings.Cut(s, "/"); ok {
		return job, step
	}
	return "", s
}
