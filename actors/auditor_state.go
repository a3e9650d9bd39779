package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// books is what the auditor compares: the live part of the journal, and what the scheduler and the registry believe.
type books struct {
	now      time.Time
	loopback bool

	runs     map[string]*messages.RunRecord     // live
	steps    map[string]*messages.StepRecord    // of live runs, by record id
	leases   map[string]*messages.LeaseRecord   // live, by record id
	waits    map[string]*messages.PendingRecord // live
	workers  map[string]*messages.WorkerRecord
	orphans  map[string]bool // waits from before the last restart, whose steps have not rejoined yet
	taken    map[string][]string
	waiting  map[string]int
	refusals map[string]time.Time // workers that refused, and until when they get nothing
	parked   int
	living   map[address]bool
	// full: new work is refused for want of space. A run that goes on has to wait with its next steps, and reserves slots for
	// them whenever it tries.
	full bool
}

// finding is one place where the books disagree.
type finding struct {
	kind, id, text string
	// at is whoever can settle it by looking at what it owes.
	at address
}

// audit returns where the books disagree (rule P12). A single audit of a system at work sees changes half done: what
// stands in two of them, some time apart, is a finding.
func audit(b *books) []finding {
	var f []finding
	f = append(f, b.auditRuns()...)
	f = append(f, b.auditSteps()...)
	f = append(f, b.auditLeases()...)
	f = append(f, b.auditSlots()...)
	f = append(f, b.auditMatches()...)
	slices.SortFunc(f, func(x, y finding) int { return strings.Compare(x.key(), y.key()) })
	return f
}

func (f finding) key() string { return f.kind + " " + f.id + " " + f.text }

// auditRuns: a live run has a step that waits or runs, and an actor.
func (b *books) auditRuns() []finding {
	var f []finding
	alive := make(map[string]bool)
	for _, s := range b.steps {
		if !messages.StepStatus(s.GetStatus()).Ended() {
			alive[s.GetRunId()] = true
		}
	}
	for id, r := range b.runs {
		if !alive[id] && !b.full {
			f = append(f, finding{kindRun, id, "is " + r.GetStatus() + ", and none of its steps waits or runs", runAddress(id)})
		}
		if !b.living[runAddress(id)] {
			f = append(f, finding{kindRun, id, "is " + r.GetStatus() + ", and has no actor", runAddress(id)})
		}
	}
	return f
}

// auditSteps: a step runs exactly if its lease is in flight, and waits exactly if it has one waiting pending dispatch.
func (b *books) auditSteps() []finding {
	var f []finding
	waiting := make(map[string]bool)
	for id, s := range b.steps {
		at := stepAddress(s.GetRunId(), s.GetJob(), s.GetStep())
		status := messages.StepStatus(s.GetStatus())
		switch status {
		case messages.StepQueued:
			waiting[s.GetQueueId()] = true
			if w := b.waits[s.GetQueueId()]; w == nil {
				f = append(f, finding{kindStep, id, "waits, and its pending dispatch " + s.GetQueueId() + " does not", at})
			}
		case messages.StepRunning:
			lease := leaseID(s.GetDispatchId(), s.GetGeneration())
			if b.leases[lease] == nil && !b.living[at] {
				f = append(f, finding{kindStep, id, "runs, and its lease " + lease + " is not in flight", at})
			}
		default:
		}
		if !status.Ended() && !b.living[at] {
			f = append(f, finding{kindStep, id, "is " + s.GetStatus() + ", and has no actor", at})
		}
	}
	for id, w := range b.waits {
		if !waiting[id] {
			at := stepAddress(w.GetRunId(), w.GetJob(), w.GetStep())
			f = append(f, finding{recordPending, id, "waits, and its step does not wait as it", at})
		}
	}
	return f
}

// auditLeases: a lease in flight is the one that its step runs as, or its outcome is decided and the worker has not answered.
func (b *books) auditLeases() []finding {
	var f []finding
	running := make(map[string]bool)
	for _, s := range b.steps {
		if s.GetStatus() == string(messages.StepRunning) {
			running[leaseID(s.GetDispatchId(), s.GetGeneration())] = true
		}
	}
	for id, l := range b.leases {
		if l.GetState() == string(messages.LeaseActive) && !running[id] {
			f = append(f, finding{kindLease, id, "is active, and its step does not run as it", leaseAddress(id)})
		}
		if !b.living[leaseAddress(id)] {
			f = append(f, finding{kindLease, id, "is " + l.GetState() + ", and has no actor", leaseAddress(id)})
		}
	}
	return f
}

// auditSlots: the slots that the scheduler takes for taken are the leases in flight, and its line is the waits.
func (b *books) auditSlots() []finding {
	var f []finding
	leases := make(map[string][]string)
	for _, l := range b.leases {
		leases[l.GetWorker()] = append(leases[l.GetWorker()], l.GetDispatchId())
	}
	for worker, taken := range b.taken {
		if b.workers[worker] == nil {
			f = append(f, finding{kindWorker, worker, fmt.Sprintf("is not known, and the scheduler counts %q for it", taken), schedulerAddress()})
		}
	}
	for worker := range b.workers {
		want := slices.Sorted(slices.Values(leases[worker]))
		have := slices.Sorted(slices.Values(b.withoutClaims(worker, want)))
		reserves := b.full && !slices.ContainsFunc(want, func(d string) bool { return !slices.Contains(have, d) })
		if !slices.Equal(want, have) && !reserves {
			f = append(f, finding{kindWorker, worker, fmt.Sprintf("has the leases %q, and the scheduler counts %q", want, have), workerAddress(worker)})
		}
	}
	waits := make(map[string]int)
	for id, w := range b.waits {
		if !b.orphans[id] {
			waits[messages.PlacementFrom(w.GetPlacement()).Requirement()]++
		}
	}
	if !maps.Equal(waits, b.waiting) {
		f = append(f, finding{kindScheduler, kindScheduler, fmt.Sprintf("has %v in line, and the journal %v", b.waiting, waits), schedulerAddress()})
	}
	return f
}

// withoutClaims are the slots that the scheduler takes for taken, but for those of dispatches that the worker claims and that
// may be adopted.
func (b *books) withoutClaims(worker string, leases []string) []string {
	claimed := b.workers[worker].GetClaimedLeases()
	if len(claimed) == 0 {
		return b.taken[worker]
	}
	return slices.DeleteFunc(slices.Clone(b.taken[worker]), func(dispatch string) bool {
		return !slices.Contains(leases, dispatch) && slices.ContainsFunc(claimed, func(c string) bool { return dispatchOf(c) == dispatch })
	})
}

// auditMatches: nothing waits beside a free match, refusals of a moment ago apart.
func (b *books) auditMatches() []finding {
	var f []finding
	if b.parked > 0 {
		return nil // a step that was refused waits for the pool to change
	}
	for id, wait := range b.waits {
		p := messages.PlacementFrom(wait.GetPlacement())
		for name, w := range b.workers {
			status := messages.StatusOf(w.GetConnected(), messages.WorkerIntent(w.GetIntent()), messages.WorkerHealth(w.GetHealth()), 0)
			free := status == messages.WorkerIdle && len(b.taken[name]) < int(w.GetCapacity()) && !b.now.Before(b.refusals[name])
			if free && b.fits(p, w) && !b.orphans[id] {
				f = append(f, finding{recordPending, id, "waits for " + p.Requirement() + ", and worker " + name + " matches and has a free slot", schedulerAddress()})
			}
		}
	}
	return f
}

func (b *books) fits(p messages.Placement, w *messages.WorkerRecord) bool {
	loopback := w.GetName() == Loopback
	if p.IsZero() {
		return loopback == b.loopback
	}
	return !loopback && p.Match(messages.Candidate{
		Name: w.GetName(), Instance: w.GetInstanceUuid(), Labels: messages.LabelsFrom(w.GetLabels()), Platform: w.GetPlatform(), Arch: w.GetArch(),
	}).OK
}
