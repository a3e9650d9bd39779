package actors

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/swampd/swampd/messages"
)

// A claim is a dispatch that a worker's instance names when it enrolls, and that is not among its leases. After a restart
// of the orchestrator that is what it ran all along. The worker's actor cannot know whether it may go on, so the worker is
// told to wait, and the lease is asked. The lease leads to its step, which adopts the dispatch under a new generation or
// has given it up:
//
//	worker ── claimLease ──> lease ── leaseEnded with the claim ──> step ── born lease D/g+1 ──> worker: dispatch, resumed
//	   ^                       │
//	   └──── claimSettled ─────┘
//
// A claim is told again until it is settled. While there is one, the step does not give up (rule P10): the worker's promise
// to kill what it runs counts from its enrollment on.

// claimBytes bounds the ids that one record of a worker holds, some 9,000 dispatches: the journal takes 512 KiB. What a worker
// names beyond that it has to abort; its step waits in line again once the grace has passed, when it is long dead.
const claimBytes = 384 << 10

// claimLease asks whether a worker's instance may go on with a dispatch.
type claimLease struct {
	lease    string // as the worker named it
	worker   string
	instance string
	version  uint64 // of the worker
	lost     bool   // the worker has lost it since
}

// claimSettled ends a claim: the worker has to abort it, or its lease is in flight and has a word for the worker itself.
type claimSettled struct {
	lease string
	abort bool
}

// awaitWorker asks a worker's actor to say when the worker is back without the lease; over: or cannot come back with it any
// more, since a grace has passed.
type awaitWorker struct {
	step  address
	lease string
	over  bool
}

// dispatchOf is the dispatch in the id of a lease.
func dispatchOf(lease string) string {
	dispatch, _, _ := strings.Cut(lease, "/")
	return dispatch
}

// nextGeneration is the id of the lease that adopts what this one was.
func nextGeneration(dispatch string, generation uint32) string {
	return leaseID(dispatch, generation+1)
}

// holds returns the lease under which the worker has the dispatch; empty: none.
func (w workerState) holds(dispatch string) string {
	for id := range w.leases {
		if dispatchOf(id) == dispatch {
			return id
		}
	}
	return ""
}

// open tells whether a lease is claimed and nothing has come of it yet.
func (w workerState) open(lease string) bool {
	return slices.Contains(w.claims, lease) && !w.settled[lease]
}

// hopes tells whether the dispatch of a lease is claimed, be it under an older generation, which leads on to the lease.
func (w workerState) hopes(lease string) bool {
	return slices.ContainsFunc(w.claims, func(c string) bool { return !w.settled[c] && dispatchOf(c) == dispatchOf(lease) })
}

// claimed tells whether the worker has named the dispatch of a lease, be it under an older generation, and whatever has come of
// that: the lease may be what has.
func (w workerState) claimed(lease string) bool {
	return slices.ContainsFunc(w.claims, func(c string) bool { return dispatchOf(c) == dispatchOf(lease) })
}

// bump begins the next version of the record. It names the claims that are open.
func (w *workerState) bump() {
	w.version++
	if len(w.claims) == 0 {
		return
	}
	var open []string
	for _, id := range w.claims {
		if !w.settled[id] {
			open = append(open, id)
		}
	}
	w.claims, w.settled = open, nil
}

// claim replaces the claims by those of an enrollment. The slots of those that are not named again are free.
func (w *workerState) claim(claims []string, lost map[string]bool, d *decision) {
	old := w.claims
	w.claims, w.claimsLost, w.settled = claims, lost, nil
	for _, id := range old {
		if !slices.Contains(claims, id) {
			w.freeClaim(id)
		}
	}
	w.tellAwaiting(d)
}

// settle notes that nothing is to be asked about a claim any more.
func (w *workerState) settle(lease string) {
	w.settled = maps.Clone(w.settled)
	if w.settled == nil {
		w.settled = make(map[string]bool)
	}
	w.settled[lease] = true
}

// freeClaim lets the scheduler have the slot of a claim, unless a lease holds it, or the dispatch is claimed under another
// generation.
func (w *workerState) freeClaim(lease string) {
	d := dispatchOf(lease)
	if w.holds(d) != "" || slices.ContainsFunc(w.claims, func(id string) bool { return dispatchOf(id) == d && w.open(id) }) {
		return
	}
	w.freed = maps.Clone(w.freed)
	if w.freed == nil {
		w.freed = make(map[string]bool)
	}
	w.freed[d] = true
}

// claimOver frees the slot of a claim that was adopted and has ended: a new scheduler may have learned of the claim alone.
func (w *workerState) claimOver(lease string) {
	d := dispatchOf(lease)
	for id := range w.settled {
		if dispatchOf(id) == d {
			w.freeClaim(id)
		}
	}
}

// freeSettled tells a scheduler that was told of the claims as the record has them what has become of them since.
func (w *workerState) freeSettled() {
	for id := range w.settled {
		w.freeClaim(id)
	}
}

// tellAwaiting tells the steps whose dispatch is not claimed that they wait for nothing.
func (w *workerState) tellAwaiting(d *decision) {
	var kept []awaitWorker
	for _, a := range w.awaiting {
		if w.hopes(a.lease) || w.surplus[dispatchOf(a.lease)] {
			kept = append(kept, a)
			continue
		}
		d.then(tell{a.step, workerBack{}})
	}
	w.awaiting = kept
}

// await notes a step that hopes for its worker, or tells it that there is no hope.
func (w workerState) await(c awaitWorker) (workerState, decision) {
	if !w.hopes(c.lease) && (c.over || w.connected && w.sessionLives && !w.surplus[dispatchOf(c.lease)]) {
		return w, decision{effects: []effect{tell{c.step, workerBack{}}}}
	}
	if !slices.Contains(w.awaiting, c) {
		w.awaiting = append(slices.Clip(w.awaiting), c)
	}
	return w, decision{effects: []effect{tell{c.step, awaitNoted{}}}}
}

func (w workerState) claimSettled(c claimSettled) (workerState, decision) {
	var d decision
	if !w.open(c.lease) { // said twice
		return w, d
	}
	w.settle(c.lease)
	w.awaiting = slices.DeleteFunc(slices.Clone(w.awaiting), func(a awaitWorker) bool { return dispatchOf(a.lease) == dispatchOf(c.lease) })
	if !c.abort {
		return w, d
	}
	w.freeClaim(c.lease)
	if w.connected {
		d.then(transmit{w.session, abortFrame(c.lease)})
	}
	return w, d
}

// claimAdopted settles the claim that has become a lease.
func (w workerState) claimAdopted(lease string) workerState {
	d := dispatchOf(lease)
	for _, id := range w.claims {
		if dispatchOf(id) == d {
			w.settle(id)
		}
	}
	return w.slotFreed(d)
}

// slotFreed notes that nothing is owed about the slot of a claim.
func (w workerState) slotFreed(dispatch string) workerState {
	if w.freed[dispatch] {
		w.freed = maps.Clone(w.freed)
		delete(w.freed, dispatch)
	}
	return w
}

// dropClaims gives up what the worker has named: it is gone. A step that hopes for anything else hopes on, for as long as it
// has to.
func (w *workerState) dropClaims(d *decision) {
	var kept []awaitWorker
	for _, a := range w.awaiting {
		if w.hopes(a.lease) {
			d.then(tell{a.step, workerBack{}})
		} else {
			kept = append(kept, a)
		}
	}
	w.awaiting = kept
	for _, id := range w.claims {
		if !w.settled[id] {
			w.settle(id)
			w.freeClaim(id)
		}
	}
}

// owedClaims are the claims that are not settled, and the slots of those that came to nothing.
func (w workerState) owedClaims() []obligation {
	owed := make([]obligation, 0, len(w.claims)+len(w.freed))
	at := " " + strconv.FormatUint(w.version, 10)
	for _, id := range w.claims {
		if w.settled[id] {
			continue
		}
		c := claimLease{lease: id, worker: w.name, instance: w.instance, version: w.version, lost: w.claimsLost[id]}
		owed = append(owed, obligation{id: "claim " + id + at, to: leaseAddress(id), msg: c})
	}
	for _, d := range slices.Sorted(maps.Keys(w.freed)) {
		owed = append(owed, obligation{id: "free " + d, to: schedulerAddress(), msg: releaseSlot{dispatchID: d, from: workerAddress(w.name), generation: claimedSlot}})
	}
	return owed
}

// claimedDispatches are those whose slots may be taken.
func (w workerState) claimedDispatches() []string {
	if len(w.claims) == 0 {
		return nil
	}
	list := make([]string, len(w.claims))
	for i, id := range w.claims {
		list[i] = dispatchOf(id)
	}
	return list
}

func abortFrame(lease string) *messages.Frame {
	dispatch, g, _ := strings.Cut(lease, "/")
	generation, _ := strconv.ParseUint(g, 10, 32)
	return &messages.Frame{Id: "abort-" + dispatch + "." + g, Body: &messages.Frame_Request{Request: &messages.Request{
		Verb:   string(messages.VerbWorkerAbort),
		Params: &messages.Request_WorkerAbort{WorkerAbort: &messages.AbortParams{DispatchId: dispatch, Generation: uint32(generation)}},
	}}}
}
