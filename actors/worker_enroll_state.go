package actors

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// enrollWorker is a machine that its token has admitted.
type enrollWorker struct {
	name     string
	token    string
	tokenGen uint32
	// tokenVersion must still be the token's when the enrollment commits; 0: loopback, which has none.
	tokenVersion uint64
	session      uint64
	request      string // the id of the frame to answer
	protocol     int32
	params       *messages.EnrollParams
	loopback     bool
}

// probeAnswered is the outcome of a probe of a session.
type probeAnswered struct {
	session uint64
	alive   bool
}

func (w workerState) refuse(c enrollWorker, f *messages.Fault) decision {
	return decision{effects: []effect{transmit{c.session, &messages.Frame{Id: c.request, Body: &messages.Frame_Error{Error: messages.ErrorOf(f)}}}}}
}

// enroll connects an instance of the machine. While another instance is connected, that one is asked for a sign of life
// first; the same instance on a newer socket wins over its older one.
func (w workerState) enroll(c enrollWorker, at moment) (workerState, decision) {
	if c.session < w.session {
		// It was on its way while the worker gave that socket up and came over another one: what it names is out of date.
		text := "a newer connection of worker " + w.name + " has enrolled"
		d := w.refuse(c, messages.Faultf(messages.CodeUnavailable, "%s", text))
		d.then(hangUp{c.session, messages.CodeUnavailable, text})
		return w, d
	}
	if w.connected && w.session != c.session && w.instance != c.params.GetInstanceUuid() {
		if w.newcomer != nil {
			return w, w.refuse(c, w.alreadyConnected())
		}
		w.newcomer = &c
		return w, decision{effects: []effect{probe{w.session, probeTime}}}
	}
	return w.admit(c, at)
}

func (w workerState) alreadyConnected() *messages.Fault {
	return messages.Faultf(messages.CodeAlreadyConnected, "worker %s is connected already, as another process on that machine id", w.name)
}

func (w workerState) probed(c probeAnswered, at moment) (workerState, decision) {
	n := w.newcomer
	if n == nil {
		return w, decision{}
	}
	w.newcomer = nil
	if c.alive && w.connected && c.session == w.session {
		return w, w.refuse(*n, w.alreadyConnected())
	}
	return w.admit(*n, at)
}

// admit is the commit of an enrollment.
func (w workerState) admit(c enrollWorker, at moment) (workerState, decision) {
	var d decision
	p := c.params
	old, same := w, w.instance == p.GetInstanceUuid()
	if old.connected && old.session != c.session {
		text := "a newer connection of this worker took over"
		d.then(transmit{old.session, goodbye("superseded", messages.CodeSuperseded, text)}, hangUp{old.session, messages.CodeSuperseded, text})
	}
	w.name, w.token, w.generation, w.machine, w.instance = c.name, c.token, c.tokenGen, p.GetMachineId(), p.GetInstanceUuid()
	w.labels, w.platform, w.arch = messages.LabelsFrom(p.GetLabels()), p.GetPlatform(), p.GetArch()
	w.build, w.protocol, w.capacity = p.GetVersion(), c.protocol, p.GetCapacity()
	w.connected, w.session, w.loopback = true, c.session, c.loopback
	w.enrolledAt, w.lastSeenAt, w.goneAt, w.enrolledVersion = at.now, at.now, time.Time{}, w.version+1
	w.seqBase = p.GetDispatchSeq()
	w.health, w.reason, w.cannotStart = messages.HealthOK, "", 0
	w.admitIntent(old, same, p, &d, at)
	w.bump()
	verdicts := w.reconcile(same, p.GetInFlight(), &d)
	d.writes = append(d.writes, w.write())
	if c.tokenVersion > 0 {
		d.requires = append(d.requires, require{kindToken, c.token, c.tokenVersion})
	}
	d.then(transmit{c.session, w.welcome(c, verdicts)})
	w.sessionLives, w.dismissing, w.admitted = true, false, true
	return w, d
}

// reconcile settles the leases that the worker had: those that the same instance names go on, the others are lost. What it
// names beyond them it has to wait for.
func (w *workerState) reconcile(same bool, inFlight []*messages.InFlight, d *decision) []*messages.InFlightVerdict {
	named := make(map[string]bool, len(inFlight))
	lost := make(map[string]bool)
	held := make(map[string]string, len(w.leases)) // by dispatch: it may know an older generation
	if same {
		for id := range w.leases {
			held[dispatchOf(id)] = id
		}
	}
	var claims []string
	seen := make(map[string]bool)
	room := claimBytes
	for _, id := range held {
		room -= len(id)
	}
	w.surplus = nil
	var verdicts []*messages.InFlightVerdict
	for _, f := range inFlight {
		id := leaseID(f.GetDispatchId(), f.GetGeneration())
		v := &messages.InFlightVerdict{DispatchId: f.GetDispatchId(), Generation: f.GetGeneration(), Action: "wait"}
		ours := held[f.GetDispatchId()]
		switch {
		case ours != "":
			named[ours] = true
			v.Action, v.Generation = "resume", generationOf(ours)
		case seen[id]:
		case len(id) > room:
			v.Action = "abort"
			if w.surplus == nil {
				w.surplus = make(map[string]bool)
			}
			w.surplus[f.GetDispatchId()] = true
		default:
			seen[id] = true
			room -= len(id)
			claims = append(claims, id)
			lost[id] = f.GetResult().GetStatus() == outcomeLost
		}
		verdicts = append(verdicts, v)
	}
	kept := make(map[string]uint32, len(named)) // a new map: the commit may be refused
	for _, id := range sortedKeys(w.leases) {
		if named[id] {
			kept[id] = w.leases[id]
			d.then(tell{leaseAddress(id), leaseNamed{w.version, w.session}})
			continue
		}
		d.then(tell{leaseAddress(id), leaseLost{reason: withoutIt, untaken: same}})
	}
	w.leases, w.named = kept, sortedKeys(kept)
	w.claim(claims, lost, d)
	return verdicts
}

func (w workerState) welcome(c enrollWorker, verdicts []*messages.InFlightVerdict) *messages.Frame {
	t := w.timing
	return &messages.Frame{Id: c.request, Body: &messages.Frame_Response{Response: &messages.Response{
		Result: &messages.Response_WorkerEnroll{WorkerEnroll: &messages.EnrollResult{
			Worker: w.name, PingMs: messages.Milliseconds(t.ping), GraceMs: messages.Milliseconds(t.grace),
			KillMarginMs: messages.Milliseconds(t.margin), KillGraceMs: messages.Milliseconds(t.kill), StoreId: t.storeID,
			Epoch: float64(t.epoch), Protocol: c.protocol, Version: t.version, InFlight: verdicts,
		}},
	}}}
}

func goodbye(reason string, code messages.Code, text string) *messages.Frame {
	return &messages.Frame{Id: "goodbye", Body: &messages.Frame_Request{Request: &messages.Request{
		Verb:   string(messages.VerbWorkerGoodbye),
		Params: &messages.Request_WorkerGoodbye{WorkerGoodbye: &messages.GoodbyeParams{Reason: reason, Code: string(code), Text: text}},
	}}}
}
