package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// books is what the auditor compares: the live part of the journal, and what the scheduler and the registry believe. Steps
// that wait may be very many, so that only what does not fit is kept of each.
type books struct {
	now      time.Time
	loopback bool

	runs     []runBook                        // live
	running  map[string]*messages.StepRecord  // steps of live runs that run, by record id
	leases   map[string]*messages.LeaseRecord // live, by record id
	waits    map[string]*waitBook             // by placement
	odd      []finding                        // a step that waits and its pending dispatch, where one is without the other
	workers  map[string]*messages.WorkerRecord
	taken    map[string][]string
	waiting  map[string]int
	refusals map[string]time.Time // workers that refused, and until when they get nothing
	parked   int
	absent   map[address]bool // runs that move, steps that run and leases that have no actor
	// full: commits are refused for want of space. A run that goes on has to wait with its next steps, and reserves slots for
	// them whenever it tries; a step that has left the line for a slot may have to wait with its dispatch.
	full bool
}

// runBook is a live run: whether a step of it waits or runs, and whether one runs.
type runBook struct {
	id, status   string
	alive, moves bool
}

// waitBook is all pending dispatches of one placement whose steps have rejoined since the last restart.
type waitBook struct {
	placement messages.Placement
	count     int
	example   string
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

// auditRuns: a live run has a step that waits or runs, and while one runs it has an actor.
func (b *books) auditRuns() []finding {
	var f []finding
	for _, r := range b.runs {
		if !r.alive && !b.full {
			f = append(f, finding{kindRun, r.id, "is " + r.status + ", and none of its steps waits or runs", runAddress(r.id)})
		}
		if r.moves && b.absent[runAddress(r.id)] {
			f = append(f, finding{kindRun, r.id, "is " + r.status + ", and has no actor", runAddress(r.id)})
		}
	}
	return f
}

// auditSteps: a step that runs has its lease in flight, and an actor.
func (b *books) auditSteps() []finding {
	f := slices.Clone(b.odd)
	for id, s := range b.running {
		at := stepAddress(s.GetRunId(), s.GetJob(), s.GetStep())
		lease := leaseID(s.GetDispatchId(), s.GetGeneration())
		if b.leases[lease] == nil && b.absent[at] {
			f = append(f, finding{kindStep, id, "runs, and its lease " + lease + " is not in flight", at})
		}
		if b.absent[at] {
			f = append(f, finding{kindStep, id, "is " + s.GetStatus() + ", and has no actor", at})
		}
	}
	return f
}

// auditLeases: a lease in flight is the one that its step runs as, or its outcome is decided and the worker has not answered.
func (b *books) auditLeases() []finding {
	var f []finding
	running := make(map[string]bool)
	for _, s := range b.running {
		running[leaseID(s.GetDispatchId(), s.GetGeneration())] = true
	}
	for id, l := range b.leases {
		if l.GetState() == string(messages.LeaseActive) && !running[id] {
			f = append(f, finding{kindLease, id, "is active, and its step does not run as it", leaseAddress(id)})
		}
		if b.absent[leaseAddress(id)] {
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
	for _, w := range b.waits {
		waits[w.placement.Requirement()] += w.count
	}
	if !maps.Equal(waits, b.waiting) && !b.full { // every run stands its waiting steps in line again
		f = append(f, finding{kindScheduler, kindScheduler, fmt.Sprintf("has %v in line, and the journal %v", b.waiting, waits), routerOf(kindRun)})
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
	if b.parked > 0 || b.full {
		return nil // a step that was refused waits for the pool to change, and any may wait for space
	}
	for _, wait := range b.waits {
		p := wait.placement
		for name, w := range b.workers {
			status := messages.StatusOf(w.GetConnected(), messages.WorkerIntent(w.GetIntent()), messages.WorkerHealth(w.GetHealth()), 0)
			free := status == messages.WorkerIdle && len(b.taken[name]) < int(w.GetCapacity()) && !b.now.Before(b.refusals[name])
			if free && b.fits(p, w) {
				f = append(f, finding{recordPending, wait.example, "waits for " + p.Requirement() + ", and worker " + name + " matches and has a free slot", schedulerAddress()})
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
