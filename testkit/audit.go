package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// repairTime is how long actors may take to repair what a test has broken: a few doublings of what they repeat.
const repairTime = 2 * time.Minute

// refusalTime is how long a refusal may keep a worker and a step apart.
const refusalTime = 30 * time.Second

// Audit compares the books, and fails the test with each finding: every story is whole, a step runs exactly if it has an
// active lease, a step waits exactly if it has one waiting pending dispatch, the scheduler's slots are the leases that have
// not ended, nothing waits beside a free match, every actor has a record and every record that is not ended an actor (rule
// P12). It runs by itself at the end of each test. Where the test has made faults, it gives the actors time to repair them.
func (f *Fleet) Audit() {
	f.t.Helper()
	deadline := time.Now()
	switch {
	case f.settings.faults && f.bubble:
		deadline = deadline.Add(repairTime)
	case f.settings.jitter && f.bubble:
		deadline = deadline.Add(time.Second) // what settles has delays in it
	case f.settings.faults || !f.bubble: // outside of a bubble nobody knows when everything has settled
		deadline = deadline.Add(f.settings.patience)
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if f.bubble {
			synctest.Wait()
		}
		findings := f.audit()
		if len(findings) == 0 {
			return
		}
		if !time.Now().Before(deadline) {
			for _, finding := range findings {
				f.t.Errorf("audit: %s", finding)
			}
			return
		}
		time.Sleep(wait)
	}
}

func (f *Fleet) audit() []string {
	ctx, cancel := f.patience()
	defer cancel()
	system := f.System()
	if system == nil {
		return nil
	}
	if err := system.Err(); err != nil {
		return []string{fmt.Sprintf("the orchestrator has failed: %v", err)}
	}
	b := &books{f: f, now: time.Now()}
	if err := b.read(ctx, system, f.Journal()); err != nil {
		return []string{fmt.Sprintf("the books cannot be read: %v", err)}
	}
	b.runsAndSteps()
	b.leasesAndQueue()
	b.slots()
	b.matches()
	b.actors()
	b.stories()
	if f.bubble && !f.settings.twice {
		b.executions()
	}
	if n := b.metrics.Findings; n > 0 {
		b.find("the orchestrator's own auditor has found %d faults", n)
	}
	own, err := system.Audit(ctx)
	if err != nil {
		b.find("the orchestrator's own auditor cannot read the books: %v", err)
	}
	for _, o := range own {
		b.find("the orchestrator's own auditor says of %s %s: %s", o.Kind, o.ID, o.Text)
	}
	if n := b.metrics.Restarts; n > 0 && !f.settings.faults {
		b.find("%d actors have panicked", n)
	}
	return b.findings
}

// books is what an audit compares.
type books struct {
	f        *Fleet
	now      time.Time
	findings []string

	runs     map[string]*messages.RunRecord
	steps    map[string]*messages.StepRecord // by run/job/step
	leases   map[string]*messages.LeaseRecord
	refused  []*messages.LeaseRecord
	waits    map[string]*messages.PendingRecord
	workers  map[string]*messages.WorkerRecord
	taken    map[string][]string
	metrics  actors.Metrics
	live     map[string][]string // actors by kind
	journal  persistence.Journal
	loopback bool
}

func (b *books) find(format string, args ...any) {
	b.findings = append(b.findings, fmt.Sprintf(format, args...))
}

func (b *books) read(ctx context.Context, system *actors.System, journal persistence.Journal) error {
	b.journal = journal
	b.loopback = b.f.settings.loopback > 0
	if err := b.readRecords(); err != nil {
		return err
	}
	if n := journal.Quarantined(); n > 0 {
		b.find("%d records cannot be decoded", n)
	}
	var err error
	if b.taken, err = system.Slots(ctx); err != nil {
		return err
	}
	if b.metrics, err = system.Metrics(ctx); err != nil {
		return err
	}
	tree, err := system.Do(ctx, messages.VerbActorTree, &messages.ActorTreeParams{}, nil)
	if err != nil {
		return err
	}
	for _, a := range tree.(*messages.ActorTreeResult).GetItems() {
		b.live[a.GetKind()] = append(b.live[a.GetKind()], a.GetPid())
	}
	return nil
}

// readRecords reads what the journal holds.
func (b *books) readRecords() error {
	b.runs, b.steps = make(map[string]*messages.RunRecord), make(map[string]*messages.StepRecord)
	b.leases, b.waits = make(map[string]*messages.LeaseRecord), make(map[string]*messages.PendingRecord)
	b.workers, b.live = make(map[string]*messages.WorkerRecord), make(map[string][]string)
	run := func(_ string, r *messages.RunRecord) { b.runs[r.GetRunId()] = r }
	step := func(_ string, r *messages.StepRecord) { b.steps[r.GetRunId()+"/"+r.GetJob()+"/"+r.GetStep()] = r }
	lease := func(id string, r *messages.LeaseRecord) { b.leases[id] = r }
	ended := func(_ string, r *messages.LeaseRecord) {
		if r.GetState() == string(messages.LeaseRefused) {
			b.refused = append(b.refused, r)
		}
	}
	wait := func(id string, r *messages.PendingRecord) { b.waits[id] = r }
	worker := func(id string, r *messages.WorkerRecord) { b.workers[id] = r }
	return errors.Join(
		scan(b.journal, persistence.KindRun, false, run), scan(b.journal, persistence.KindRun, true, run),
		scan(b.journal, persistence.KindStep, false, step), scan(b.journal, persistence.KindLease, false, lease),
		scan(b.journal, persistence.KindLease, true, ended), scan(b.journal, persistence.KindPending, false, wait),
		scan(b.journal, persistence.KindWorker, false, worker),
	)
}

// scan reads all records of a kind.
func scan[M any, P interface {
	*M
	proto.Message
}](journal persistence.Journal, kind persistence.Kind, over bool, fn func(string, P)) error {
	var bad error
	err := journal.Scan(kind, over, "", "", func(rec persistence.Record) bool {
		m := P(new(M))
		if err := proto.Unmarshal(rec.Body, m); err != nil {
			bad = fmt.Errorf("decode %s %s: %w", kind, rec.ID, err)
			return false
		}
		fn(rec.ID, m)
		return true
	})
	return errors.Join(err, bad)
}

// runsAndSteps: a run has ended exactly if its steps have, and one that goes on has a step that does.
func (b *books) runsAndSteps() {
	alive := make(map[string]int)
	for id, s := range b.steps {
		if !messages.StepStatus(s.GetStatus()).Ended() {
			alive[s.GetRunId()]++
			if r := b.runs[s.GetRunId()]; r == nil || messages.RunStatus(r.GetStatus()).Ended() {
				b.find("step %s is %s, and its run has ended as %s", id, s.GetStatus(), r.GetStatus())
			}
		}
	}
	for id, r := range b.runs {
		if !messages.RunStatus(r.GetStatus()).Ended() && alive[id] == 0 {
			b.find("run %s is %s, and none of its steps waits or runs", id, r.GetStatus())
		}
	}
}

// leasesAndQueue: a step runs exactly if its lease is active, and waits exactly if it has one waiting pending dispatch.
func (b *books) leasesAndQueue() {
	running, waiting := make(map[string]bool), make(map[string]bool)
	for id, s := range b.steps {
		switch messages.StepStatus(s.GetStatus()) {
		case messages.StepRunning:
			lease := persistence.LeaseID(s.GetDispatchId(), s.GetGeneration())
			running[lease] = true
			if l := b.leases[lease]; (l == nil || l.GetState() != string(messages.LeaseActive)) && !b.awaited(lease) {
				b.find("step %s runs as %s, and that lease is %q", id, lease, l.GetState())
			}
		case messages.StepQueued:
			waiting[s.GetQueueId()] = true
			if w := b.waits[s.GetQueueId()]; w == nil || w.GetState() != string(messages.PendingWaiting) {
				b.find("step %s waits as %s, and that pending dispatch is %q", id, s.GetQueueId(), w.GetState())
			}
		default:
		}
	}
	for id, l := range b.leases {
		if l.GetState() == string(messages.LeaseActive) && !running[id] {
			b.find("lease %s is active, and its step %s does not run as it", id, l.GetStep())
		}
	}
	for id, w := range b.waits {
		if !waiting[id] {
			b.find("pending dispatch %s is %s, and its step %s does not wait as it", id, w.GetState(), w.GetStep())
		}
	}
}

// awaited tells whether a restart of the orchestrator has expired the lease: its step waits for the worker to come back.
func (b *books) awaited(lease string) bool {
	r := &messages.LeaseRecord{}
	rec, err := b.journal.Get(persistence.KindLease, lease)
	return err == nil && proto.Unmarshal(rec.Body, r) == nil && r.GetOutcome().GetStatus() == "restart"
}

// slots: what the scheduler takes for taken are the leases that have not ended, and its line is the waits.
func (b *books) slots() {
	leases := make(map[string][]string)
	for _, l := range b.leases {
		leases[l.GetWorker()] = append(leases[l.GetWorker()], l.GetDispatchId())
	}
	for _, worker := range slices.Sorted(maps.Keys(b.workers)) {
		slices.Sort(leases[worker])
		if !slices.Equal(leases[worker], b.taken[worker]) {
			b.find("worker %s has the leases %q, and the scheduler counts %q", worker, leases[worker], b.taken[worker])
		}
	}
	for worker, taken := range b.taken {
		if b.workers[worker] == nil {
			b.find("the scheduler counts %q of a worker %s that is not known", taken, worker)
		}
	}
	waiting := make(map[string]int)
	for _, w := range b.waits {
		waiting[messages.PlacementFrom(w.GetPlacement()).Requirement()]++
	}
	if !maps.Equal(waiting, b.metrics.Waiting) {
		b.find("the queue holds %v, and the scheduler's line %v", waiting, b.metrics.Waiting)
	}
}

// matches: nothing waits beside a free match, a refusal of a moment ago apart.
func (b *books) matches() {
	leases := make(map[string]int)
	for _, l := range b.leases {
		leases[l.GetWorker()]++
	}
	recent := func(r *messages.LeaseRecord) bool { return b.now.Sub(messages.GoTime(r.GetEndedAt())) <= refusalTime }
	for id, wait := range b.waits {
		placement := messages.PlacementFrom(wait.GetPlacement())
		for name, w := range b.workers {
			status := messages.StatusOf(w.GetConnected(), messages.WorkerIntent(w.GetIntent()), messages.WorkerHealth(w.GetHealth()), 0)
			if status != messages.WorkerIdle || leases[name] >= int(w.GetCapacity()) || !b.fits(placement, w) {
				continue
			}
			refused := slices.ContainsFunc(b.refused, func(r *messages.LeaseRecord) bool {
				mine := r.GetRunId() == wait.GetRunId() && r.GetOrdinal() == wait.GetOrdinal()
				return (mine || r.GetWorker() == name) && recent(r)
			})
			if !refused {
				b.find("%s waits for %s, and worker %s matches and has a free slot", id, placement.Requirement(), name)
			}
		}
	}
}

func (b *books) fits(p messages.Placement, w *messages.WorkerRecord) bool {
	loopback := w.GetName() == actors.Loopback
	if p.IsZero() {
		return loopback == b.loopback
	}
	return !loopback && p.Match(messages.Candidate{
		Name: w.GetName(), Instance: w.GetInstanceUuid(), Labels: messages.LabelsFrom(w.GetLabels()), Platform: w.GetPlatform(), Arch: w.GetArch(),
	}).OK
}

// actors: what has not ended has an actor, and what has ended has none.
func (b *books) actors() {
	want := map[string][]string{"run": nil, "step": nil, "lease": nil}
	for id, r := range b.runs {
		if !messages.RunStatus(r.GetStatus()).Ended() {
			want["run"] = append(want["run"], id)
		}
	}
	for id, s := range b.steps {
		if !messages.StepStatus(s.GetStatus()).Ended() {
			want["step"] = append(want["step"], id)
		}
	}
	for id := range b.leases {
		want["lease"] = append(want["lease"], id)
	}
	for kind, ids := range want {
		if have := b.live[kind]; len(have) != len(ids) {
			slices.Sort(ids)
			b.find("the %ss %q have not ended, and the actors are %q", kind, ids, have)
		}
	}
}

// executions: no step ran on two workers at once. A worker kills its step before the orchestrator may give up on it.
func (b *books) executions() {
	b.f.mu.Lock()
	workers, agents := b.f.workers, b.f.agents
	b.f.mu.Unlock()
	spans := make(map[string][]span)
	for _, a := range agents {
		a.mu.Lock()
		for _, s := range a.spans {
			if s.to.IsZero() {
				s.to = b.now
			}
			spans[s.step] = append(spans[s.step], s)
		}
		a.mu.Unlock()
	}
	for _, w := range workers {
		w.mu.Lock()
		for _, d := range w.dispatches {
			if !d.accepted() {
				continue
			}
			to := d.endedAt
			if to.IsZero() {
				to = b.now
				if w.link == nil {
					to = w.downSince.Add(w.killAfter)
				}
			}
			p := d.Params
			key := strings.Join([]string{p.GetRunId(), p.GetJob(), p.GetStep()}, "/")
			spans[key] = append(spans[key], span{step: key, worker: w.name, from: d.acceptedAt, to: to})
		}
		w.mu.Unlock()
	}
	for step, list := range spans {
		slices.SortFunc(list, func(x, y span) int { return x.from.Compare(y.from) })
		for i := 1; i < len(list); i++ {
			if list[i].from.Before(list[i-1].to) {
				b.find("step %s ran on %s while it still ran on %s", step, list[i].worker, list[i-1].worker)
			}
		}
	}
}
