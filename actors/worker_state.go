package actors

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
)

// withoutIt is why a lease is lost whose worker has enrolled again and has not named it.
const withoutIt = "its worker came back without it"

// probeTime is how long a connected instance has to show that it lives, when another one of its machine wants in.
const probeTime = 3 * time.Second

// cannotStartLimit is how many refusals in a row for reasons of its own make a worker unhealthy.
const cannotStartLimit = 3

// workerState is a worker of the fleet. What a person sees is derived: its status from these facts, its dispatches from
// the leases. Its record changes only when the plan may: on enrollment, loss, pause, drain and health.
//
//	none ─> connected <─> disconnected ─> (retention)
type workerState struct {
	version uint64

	name, token string
	generation  uint32 // of the token
	machine     string
	instance    string
	connected   bool
	intent      messages.WorkerIntent
	health      messages.WorkerHealth
	reason      string
	labels      messages.Labels
	platform    string
	arch        string
	build       string
	protocol    int32
	capacity    int32
	enrolledAt  time.Time
	lastSeenAt  time.Time
	goneAt      time.Time
	session     uint64
	// enrolledVersion is its version at the last enrollment, named the leases from before it that go on.
	enrolledVersion uint64
	named           []string
	// claims are leases that the instance has named and that it does not hold for us, as after a restart. Whether it goes on
	// with them is for the leases to say. They outlive the socket: the worker may be running them through its grace.
	claims   []string
	loopback bool
	ordered  bool // the drain was asked for here
	held     bool // it was paused when its drain began
	note     string
	until    time.Time // of a pause; zero: until it is resumed
	intentAt time.Time

	// Not durable.
	told        uint64 // the version that the scheduler has noted
	seq         uint32 // of the last dispatch
	seqBase     uint32 // what the instance had seen when it enrolled; durable
	leases      map[string]uint32
	newcomer    *enrollWorker
	cannotStart int
	probations  int
	timing      timing
	// admitted: this actor has seen the whole session, and knows what was sent over it.
	admitted bool
	// sessionLives: the socket that the record names is there; false after a restart of the process.
	sessionLives bool
	dismissing   bool            // it was told to go, and has not answered
	claimsLost   map[string]bool // those of the claims that the worker has lost by now
	surplus      map[string]bool // dispatches that it named beyond the bound, and was told to abort
	settled      map[string]bool // those that have come to an end
	awaiting     []awaitWorker   // of steps that hope for its return after a restart
	freed        map[string]bool // dispatches of claims that came to nothing, of whose slots the scheduler is told
	saysDraining bool            // the last that this session has said of it
	orderNoted   bool            // the worker has said that it drains
	waiters      []*answer       // of clients that wait for its departure
	resuming     bool            // it is told that it need not leave after all
	resumers     []*answer       // of clients that wait for what it says to that
}

// timing is what the orchestrator tells a worker when it enrolls.
type timing struct {
	ping, grace, margin, kill time.Duration
	storeID, version          string
	epoch                     uint64
}

// sessionEnded says that a worker's socket is gone.
type sessionEnded struct{ session uint64 }

// workerSays is a worker's report of its own state.
type workerSays struct {
	session uint64
	request string
	params  *messages.StatusParams
}

// workerKnown tells the scheduler what a worker is, now.
type workerKnown struct {
	worker   address
	name     string
	instance string
	version  uint64
	labels   messages.Labels
	platform string
	arch     string
	capacity int
	loopback bool
	status   messages.WorkerStatus // idle stands for "may be given work"
	left     bool                  // it drained and is gone: nobody waits for it
	claimed  []string              // dispatches that it has named and that may be adopted: their slots are taken
}

// workerNoted says that the scheduler knows that version.
type workerNoted struct{ version uint64 }

// probationElapsed gives an unhealthy worker another try.
type probationElapsed struct{}

// idleElapsed looks whether the actor is still needed.
type idleElapsed struct{}

const (
	timerProbation = "probation"
	timerIdle      = "idle"
)

// probation is how long an unhealthy worker gets nothing, after having been so that many times before.
func probation(before int) time.Duration {
	times := [...]time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute}
	return times[min(before, len(times)-1)]
}

// stepWorker is the transition of a worker.
func stepWorker(w workerState, cmd any, at moment) (workerState, decision) {
	switch c := cmd.(type) {
	case enrollWorker:
		return w.enroll(c, at)
	case probeAnswered:
		return w.probed(c, at)
	case sessionEnded:
		switch {
		case c.session != w.session: // a superseded socket's late close
			return w, decision{}
		case !w.connected:
			return w.dismissed(c.session, false)
		default:
			return w.disconnect(at)
		}
	case workerSays:
		return w.says(c, at)
	case tokenGone:
		return w.tokenGone(c, at)
	case goodbyeHeard:
		return w.dismissed(c.session, true)
	case dismissElapsed:
		return w.dismissed(w.session, false)
	case dismissAgain:
		w.dismissing = true
		return w, decision{effects: w.dismiss(messages.Code(w.reason))}
	case leaseHere:
		return w.leaseHere(c, at)
	case leaseOver:
		return w.leaseOver(c, at)
	case awaitWorker:
		return w.await(c)
	case claimSettled:
		return w.claimSettled(c)
	case slotNoted:
		return w.slotFreed(c.dispatchID), decision{}
	case drainWorker:
		return w.drain(c, at)
	case pauseWorker:
		return w.pause(c, at)
	case resumeWork:
		return w.resumeWork(c, at)
	case pauseElapsed:
		return w.pauseOver(at)
	case orderElapsed:
		return w.orderAgain()
	case orderAnswered:
		return w.orderAnswered(c)
	case awaitGone:
		return w.awaitGone(c)
	case probationElapsed:
		if w.health != messages.HealthUnhealthy {
			return w, decision{}
		}
		w.health, w.reason, w.cannotStart = messages.HealthOK, "", cannotStartLimit-1
		w.bump()
		return w, decision{writes: []write{w.write()}}
	case cancelDispatch:
		if w.cameWithout(c.lease, c.version) {
			return w, decision{effects: []effect{tell{leaseAddress(c.lease), leaseLost{reason: withoutIt}}}}
		}
		if w.connected {
			return w, decision{effects: []effect{transmit{w.session, &messages.Frame{
				Id: c.lease, Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{Reason: "cancelled", Force: c.force}},
			}}}}
		}
	case poisoned:
		return w, w.poisoned(c)
	case workerNoted:
		w.told = c.version
		w.freeSettled()
	case idleElapsed:
		return w.mayLeave()
	case retireWorker:
		return w.retire(c)
	case schedulerStarted:
		w.told = 0
	case commitRefused:
		if e, ok := c.cmd.(enrollWorker); ok {
			return w, w.refuse(e, messages.Faultf(messages.CodeTokenRevoked, "enrollment token %s was revoked or has expired", e.token))
		}
	}
	return w, decision{}
}

// resumeWorker is what is owed for a worker.
func resumeWorker(w workerState, _ moment) []obligation {
	if w.version == 0 {
		return nil
	}
	owed := w.owedClaims()
	if w.told != w.version {
		// Each version is an obligation of its own: one that repeated an older version would never be confirmed.
		owed = append(owed, obligation{id: "known " + strconv.FormatUint(w.version, 10), to: schedulerAddress(), msg: w.known()})
	}
	return owed
}

func (w workerState) known() workerKnown {
	return workerKnown{
		worker: workerAddress(w.name), name: w.name, instance: w.instance, version: w.version, labels: w.labels,
		platform: w.platform, arch: w.arch, capacity: int(w.capacity), loopback: w.loopback,
		status: messages.StatusOf(w.connected, w.intent, w.health, 0), left: !w.connected && w.intent == messages.IntentDraining,
		claimed: w.claimedDispatches(),
	}
}

// poisoned answers for a command that is given up. A lease that cannot be sent, or cancelled, would be asked for for ever:
// it is given up too.
func (w workerState) poisoned(c poisoned) decision {
	switch cmd := c.cmd.(type) {
	case enrollWorker:
		return w.refuse(cmd, messages.Faultf(messages.CodeInternal, "internal error: see the orchestrator's log"))
	case leaseHere:
		return decision{effects: []effect{tell{leaseAddress(cmd.lease), c}}}
	case cancelDispatch:
		return decision{effects: []effect{tell{leaseAddress(cmd.lease), c}}}
	default:
		return decision{}
	}
}

// disconnect notes the loss of the socket. The leases hold, each on a clock of its own.
func (w workerState) disconnect(at moment) (workerState, decision) {
	w.connected, w.goneAt, w.lastSeenAt = false, at.now, at.now
	w.bump()
	d := decision{writes: []write{w.write()}}
	for _, id := range sortedKeys(w.leases) {
		d.then(tell{leaseAddress(id), leaseSocketLost{}})
	}
	if w.newcomer != nil {
		n := *w.newcomer
		w.newcomer = nil
		d.then(again{n})
	}
	d.then(w.idle())
	d.then(w.farewell()...)
	return w, d
}

// farewell answers those who wait for the worker to leave, or hope that it stays.
func (w *workerState) farewell() []effect {
	effects := w.answerWaiters(nil)
	w.waiters = nil
	return append(effects, w.endResuming(w.hasLeft())...)
}

// idle sets the time after which the actor of a worker that is gone looks whether it can leave.
func (w workerState) idle() effect { return arm{timerIdle, w.timing.grace, idleElapsed{}} }

// mayLeave ends the actor of a worker that is disconnected and has nothing left to do. Its record stays.
func (w workerState) mayLeave() (workerState, decision) {
	switch {
	case w.connected || w.newcomer != nil:
		return w, decision{}
	case len(w.leases) > 0 || len(w.awaiting) > 0 || len(w.owedClaims()) > 0 || w.told != w.version:
		// What the worker claimed it has killed by now: a grace has passed since its last connection.
		d := decision{effects: []effect{w.idle()}}
		w.dropClaims(&d)
		return w, d
	default:
		return w, decision{effects: []effect{tell{schedulerAddress(), workerGone{w.name}}, leave{}}}
	}
}

// says takes a worker's own report: it drains, or has slots again.
func (w workerState) says(c workerSays, at moment) (workerState, decision) {
	if c.session != w.session || !w.connected {
		return w, decision{}
	}
	var d decision
	w.lastSeenAt = at.now
	w.saysDraining = c.params.GetIntent() == string(messages.IntentDraining)
	switch draining := w.saysDraining; {
	case draining && w.intent != messages.IntentDraining:
		w.beginDrain(c.params.GetReason(), &d, at)
		w.bump()
		d.writes = append(d.writes, w.write())
	case draining:
		w.orderNoted = true
		if !w.resuming {
			d.then(disarm{timerOrder})
		}
	case w.resuming: // it has not come to the end of the order yet
	case w.intent == messages.IntentDraining && (w.orderNoted || !w.ordered):
		// What it says now is what it does. Only an order that it has not seen yet is newer.
		w, d = w.worksAgain(d)
	default:
		d.then(tell{schedulerAddress(), workerStirred{w.name}})
	}
	d.then(transmit{c.session, &messages.Frame{Id: c.request, Body: &messages.Frame_Response{Response: &messages.Response{
		Result: &messages.Response_WorkerStatus{WorkerStatus: &messages.StatusResult{}},
	}}}})
	return w, d
}

// cameWithout tells whether the worker has enrolled without a lease since that version. The lease was told so then, but may
// not have heard it.
func (w workerState) cameWithout(lease string, version uint64) bool {
	_, known := w.leases[lease]
	return !known && version < w.enrolledVersion && !slices.Contains(w.named, lease) && !w.claimed(lease)
}

// unsent tells whether a lease that is not known yet is a choice of this session: the worker has not named it, and it is
// no adoption of what runs there already.
func (w workerState) unsent(c leaseHere) bool {
	return c.dispatch != nil && c.dispatch.GetGeneration() <= 1 && !slices.Contains(w.named, c.lease)
}

// leaves tells whether the worker has said that it drains, or has gone then, so that a dispatch which it was not sent need
// not be sent. An actor that has not seen the whole session does not know what was sent.
func (w workerState) leaves() bool {
	return w.admitted && w.intent == messages.IntentDraining && (w.saysDraining || !w.connected)
}

// leaseHere registers a lease, and sends its dispatch. A repeat has the same number, so that the worker knows it.
func (w workerState) leaseHere(c leaseHere, at moment) (workerState, decision) {
	seq, known := w.leases[c.lease]
	var d decision
	switch {
	case w.cameWithout(c.lease, c.version): // what is lost is never sent again: its step may be running elsewhere by then
		return w, decision{effects: []effect{tell{leaseAddress(c.lease), leaseLost{reason: withoutIt}}}}
	case !known && w.unsent(c) && w.leaves(): // it may be gone before it reads another frame
		return w, decision{effects: []effect{tell{leaseAddress(c.lease), leaseTurnedAway{}}}}
	case !known && c.version < w.enrolledVersion: // it has not heard either
		d.then(tell{leaseAddress(c.lease), leaseNamed{w.enrolledVersion, w.session}})
	}
	if !known {
		w = w.claimAdopted(c.lease)
		// Above all that came before, also for an actor that has restarted: the journal's sequence has risen at least once for
		// each dispatch of this boot.
		w.seq = max(w.seq+1, w.seqBase+uint32(at.sequence))
		seq = w.seq
		w.leases = with(w.leases, c.lease, seq)
	}
	switch {
	case !w.connected: // a lease that has been told ignores it; one that has restarted does not know
		d.then(tell{leaseAddress(c.lease), leaseSocketLost{}})
	case w.connected && c.dispatch != nil:
		if c.dispatch.GetSeq() != seq { // a repeat is on its way already, and only read
			c.dispatch.Seq = seq
		}
		d.then(transmit{w.session, &messages.Frame{Id: c.lease, Trace: messages.Traceparent(c.dispatch.GetRunId(), c.dispatch.GetDispatchId()), Body: &messages.Frame_Request{Request: &messages.Request{
			Verb: string(messages.VerbWorkerDispatch), Params: &messages.Request_WorkerDispatch{WorkerDispatch: c.dispatch},
		}}}})
	}
	return w, d
}

// leaseOver forgets a lease, and learns from how the worker took it: one that drains is out, one that cannot start steps
// three times in a row is unhealthy until it gets another try.
func (w workerState) leaseOver(c leaseOver, at moment) (workerState, decision) {
	var d decision
	if w.connected {
		d.then(transmit{w.session, ackFrame(c.lease, c.durable, true)})
	}
	if _, known := w.leases[c.lease]; !known { // said twice
		return w, d
	}
	w.leases = without(w.leases, c.lease)
	if w.settled != nil {
		w.claimOver(c.lease)
	}
	switch {
	case c.refusal == "":
		w.cannotStart, w.probations = 0, 0
		return w, d
	case c.refusal == messages.CodeWorkerDraining && w.connected && w.intent != messages.IntentDraining:
		w.beginDrain(c.text, &d, at)
	case c.refusal == messages.CodeWorkerCannotStart && w.health == messages.HealthOK:
		if w.cannotStart++; w.cannotStart < cannotStartLimit {
			return w, d
		}
		w.health, w.reason = messages.HealthUnhealthy, c.text
		d.then(arm{timerProbation, probation(w.probations), probationElapsed{}})
		w.probations++
	default:
		return w, d
	}
	w.bump()
	d.writes = append(d.writes, w.write())
	return w, d
}

// with and without change a set that belongs to one actor. It is shared with the state before, which nobody looks at
// once the transition has been taken; a commit in between adds nothing to it.
func with(m map[string]uint32, key string, value uint32) map[string]uint32 {
	if m == nil {
		m = make(map[string]uint32)
	}
	m[key] = value
	return m
}

func without(m map[string]uint32, key string) map[string]uint32 {
	delete(m, key)
	return m
}

func sortedKeys(m map[string]uint32) []string { return slices.Sorted(maps.Keys(m)) }

func (w workerState) write() write {
	return write{
		kind: kindWorker, id: w.name, replaces: w.version - 1, state: string(messages.StatusOf(w.connected, w.intent, w.health, 0)),
		body: &messages.WorkerRecord{
			Name: w.name, Token: w.token, TokenGeneration: w.generation, MachineId: w.machine, InstanceUuid: w.instance,
			Connected: w.connected, Intent: string(w.intent), Health: string(w.health), Reason: w.reason, Labels: w.labels.Proto(),
			Platform: w.platform, Arch: w.arch, Version: w.build, Protocol: w.protocol, Capacity: w.capacity,
			EnrolledAt: messages.Time(w.enrolledAt), LastSeenAt: messages.Time(w.lastSeenAt), DisconnectedAt: messages.Time(w.goneAt),
			Session: w.session, DispatchSeq: w.seqBase, EnrolledVersion: w.enrolledVersion, NamedLeases: w.named, ClaimedLeases: w.claims,
			DrainOrdered: w.ordered, Note: w.note, Until: messages.Time(w.until),
			IntentAt: messages.Time(w.intentAt), PauseHeld: w.held,
		},
	}
}

// workerFrom is the state of a worker as its record has it.
func workerFrom(name string, r *messages.WorkerRecord, version uint64, t timing) workerState {
	if r == nil {
		return workerState{name: name, timing: t}
	}
	return workerState{
		version: version, name: r.GetName(), token: r.GetToken(), generation: r.GetTokenGeneration(), machine: r.GetMachineId(),
		instance: r.GetInstanceUuid(), connected: r.GetConnected(), intent: messages.WorkerIntent(r.GetIntent()),
		health: messages.WorkerHealth(r.GetHealth()), reason: r.GetReason(), labels: messages.LabelsFrom(r.GetLabels()),
		platform: r.GetPlatform(), arch: r.GetArch(), build: r.GetVersion(), protocol: r.GetProtocol(), capacity: r.GetCapacity(),
		enrolledAt: messages.GoTime(r.GetEnrolledAt()), lastSeenAt: messages.GoTime(r.GetLastSeenAt()),
		goneAt: messages.GoTime(r.GetDisconnectedAt()), session: r.GetSession(), seqBase: r.GetDispatchSeq(), enrolledVersion: r.GetEnrolledVersion(), named: r.GetNamedLeases(), claims: r.GetClaimedLeases(),
		ordered: r.GetDrainOrdered(),
		note:    r.GetNote(), until: messages.GoTime(r.GetUntil()), intentAt: messages.GoTime(r.GetIntentAt()), held: r.GetPauseHeld(), loopback: r.GetName() == Loopback, timing: t,
	}
}

// Loopback is the name of the orchestrator's own worker.
const Loopback = "loopback"
