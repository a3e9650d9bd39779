package actors

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// modelSession is one socket: the orchestrator's session on it, what is on the way, and the worker at the other end.
type modelSession struct {
	number    uint64
	agent     *agent // nil: gone from its end
	up, down  []*messages.Frame
	mail      []any // for the session's actor
	worker    string
	enrolling bool
	open      bool // at the orchestrator's end
	hungUp    bool // closes behind what is queued
}

// agent is a worker process, as package worker is one: when its socket is cut its steps go on until its time without the
// orchestrator is over, and when it comes back it names what is not acknowledged.
type agent struct {
	name     string
	instance int
	capacity int
	labels   messages.Labels
	platform string
	alive    bool
	draining bool
	session  *modelSession
	enrolled bool
	seq      uint32
	known    map[string]*execution // by dispatch id
	early    map[string]bool       // cancels before their dispatch
	killBy   time.Time             // its steps are dead by then, if its socket is cut
	cannot   bool                  // it cannot start steps
}

// execution is a dispatch that an agent has taken.
type execution struct {
	id        string
	frame     string // the id of its frames: with the generation
	key       string // of the step
	running   bool
	waiting   bool // the orchestrator has not said yet whether it goes on
	refused   bool // final is a refusal
	cancelled bool
	chunks    []*messages.OutputChunk
	written   uint32
	acked     uint32
	final     *messages.Frame
}

func modelDigest(name string) []byte {
	d := sha256.Sum256([]byte(name))
	return d[:]
}

func (a *agent) slots() int {
	n := 0
	for _, x := range a.known {
		if x.running {
			n++
		}
	}
	return a.capacity - n
}

func (a *agent) dispatches() []string { return slices.Sorted(maps.Keys(a.known)) }

// connect opens a new socket.
func (a *agent) connect(w *world) {
	if !a.alive || a.session != nil {
		return
	}
	number := w.moment().sequence
	s := &modelSession{number: number, agent: a, open: true}
	w.sessions[number] = s
	a.session, a.enrolled, a.early = s, false, make(map[string]bool)
	intent := messages.IntentNone
	if a.draining {
		intent = messages.IntentDraining
	}
	var inFlight []*messages.InFlight
	for _, id := range a.dispatches() {
		_, generation, _ := strings.Cut(a.known[id].frame, "/")
		n, _ := strconv.Atoi(generation)
		f := &messages.InFlight{DispatchId: id, Generation: uint32(n), State: "running", OutputOffset: a.known[id].written}
		if final := a.known[id].final; final != nil {
			f.State, f.Result = "ended", final.GetResponse().GetWorkerDispatch()
		}
		inFlight = append(inFlight, f)
	}
	a.say(&messages.Frame{Id: "enroll", Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerEnroll, &messages.EnrollParams{
		MachineId: "machine of " + a.name, InstanceUuid: fmt.Sprintf("%s-%d", a.name, a.instance), Labels: a.labels.Proto(),
		Platform: a.platform, Arch: "amd64", Capacity: int32(a.capacity), DispatchSeq: a.seq, Intent: string(intent), InFlight: inFlight,
	})}})
	w.tracef("agent %s-%d connects as session %d", a.name, a.instance, number)
}

func (a *agent) say(f *messages.Frame) {
	if a.session != nil && a.session.open {
		a.session.up = append(a.session.up, f)
	}
}

// speak says something of a dispatch, unless it has to wait.
func (a *agent) speak(x *execution, f *messages.Frame) {
	if a.enrolled && !x.waiting {
		a.say(&messages.Frame{Id: x.frame, Body: f.GetBody()})
	}
}

// lose ends the agent's end of its socket. Its steps go on for as long as the orchestrator has promised to wait.
func (a *agent) lose(w *world, why string) {
	w.tracef("agent %s-%d is cut off: %s", a.name, a.instance, why)
	if a.session != nil {
		a.session.agent = nil
		a.session.down = nil
	}
	if a.killBy.IsZero() {
		a.killBy = w.fence()
	}
	a.session, a.enrolled = nil, false
}

// fence is when a worker's steps are dead that is cut off now.
func (w *world) fence() time.Time { return w.now.Add(w.grace - time.Second) }

// kill ends its steps.
func (a *agent) kill(w *world, why string) {
	w.tracef("agent %s-%d: %s", a.name, a.instance, why)
	a.killBy = time.Time{}
	for _, id := range a.dispatches() {
		if x := a.known[id]; x.running {
			a.finish(w, x, outcomeLost)
		}
	}
}

// leave is the end of its process on purpose, or because it was told to go.
func (a *agent) leave(w *world, why string) {
	a.alive = false
	a.lose(w, why)
	a.kill(w, "it leaves")
}

// renew starts the agent's process anew.
func (a *agent) renew(w *world) {
	a.lose(w, "a new process")
	a.kill(w, "the old process is gone")
	a.known = make(map[string]*execution)
	a.instance++
	a.alive, a.draining, a.seq, a.cannot = true, false, 0, false
}

// drain makes it take nothing more.
func (a *agent) drain(w *world) {
	a.draining = true
	w.tracef("agent %s-%d drains", a.name, a.instance)
	a.report()
}

// report says how it is.
func (a *agent) report() {
	if !a.enrolled {
		return
	}
	intent := messages.IntentNone
	if a.draining {
		intent = messages.IntentDraining
	}
	a.say(&messages.Frame{Id: "status", Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerStatus, &messages.StatusParams{
		SlotsOffered: int32(a.slots()), Intent: string(intent), Reason: "test",
	})}})
}

// read takes the next frame from the orchestrator.
func (a *agent) read(w *world) {
	s := a.session
	f := s.down[0]
	s.down = s.down[1:]
	w.tracef("agent %s-%d reads %s %s", a.name, a.instance, f.GetId(), frameKind(f))
	switch body := f.GetBody().(type) {
	case *messages.Frame_Response:
		if r := body.Response.GetWorkerEnroll(); r != nil {
			a.enrolled, a.killBy = true, time.Time{}
			for _, x := range a.known {
				x.waiting = true
			}
			for _, v := range r.GetInFlight() {
				switch x := a.known[v.GetDispatchId()]; {
				case x == nil || v.GetAction() == "wait":
				case v.GetAction() == "abort":
					a.forget(w, x)
				default:
					a.goOn(x, v.GetGeneration())
				}
			}
			a.repeat()
			if a.draining {
				a.report()
			}
		}
	case *messages.Frame_Error:
		if messages.Code(body.Error.GetCode()).Permanent() {
			a.leave(w, body.Error.GetText())
			return
		}
		a.lose(w, body.Error.GetText())
	case *messages.Frame_Request:
		if p := body.Request.GetWorkerDispatch(); p != nil {
			a.offer(w, f.GetId(), p)
		} else if g := body.Request.GetWorkerGoodbye(); g != nil {
			if g.GetReason() == "revoked" {
				a.kill(w, "goodbye: revoked")
				a.say(&messages.Frame{Id: f.GetId(), Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerGoodbye, &messages.GoodbyeResult{})}})
				a.leave(w, "goodbye: revoked")
				return
			}
			a.lose(w, "goodbye: "+g.GetReason())
		} else if p := body.Request.GetWorkerAbort(); p != nil {
			if x := a.known[p.GetDispatchId()]; x != nil && x.frame == leaseID(p.GetDispatchId(), p.GetGeneration()) {
				a.forget(w, x)
			}
		}
	case *messages.Frame_Cancel:
		a.cancel(w, f.GetId(), body.Cancel.GetForce())
	case *messages.Frame_Ack:
		a.acknowledged(w, f.GetId(), body.Ack)
	}
}

// goOn goes on with a dispatch under a generation.
func (a *agent) goOn(x *execution, generation uint32) {
	x.frame, x.waiting = leaseID(x.id, generation), false
	if !x.refused {
		a.speak(x, accepted(x.frame))
	}
}

// forget kills a dispatch that nobody wants to hear of.
func (a *agent) forget(w *world, x *execution) {
	if w.running[x.key] == x.id {
		delete(w.running, x.key)
	}
	delete(a.known, x.id)
}

// offer decides on a dispatch as package worker does.
func (a *agent) offer(w *world, frame string, p *messages.DispatchParams) {
	id := p.GetDispatchId()
	if x := a.known[id]; x != nil {
		if p.GetGeneration() < generationOf(x.frame) {
			return
		}
		x.acked = max(x.acked, p.GetOutputFromOffset())
		a.goOn(x, p.GetGeneration())
		a.repeatOne(x)
		return
	}
	stale := p.GetSeq() <= a.seq
	a.seq = max(a.seq, p.GetSeq())
	var refusal messages.Code
	switch {
	case p.GetGeneration() > 1:
		refusal = messages.CodeEnded
	case a.draining:
		refusal = messages.CodeWorkerDraining
	case a.slots() <= 0:
		refusal = messages.CodeWorkerBusy
	case stale:
		refusal = messages.CodeEnded
	}
	if refusal != "" {
		w.tracef("  refused: %s", refusal)
		a.say(&messages.Frame{Id: frame, Body: &messages.Frame_Error{Error: &messages.Error{Code: string(refusal), Text: "no"}}})
		return
	}
	x := &execution{id: id, frame: frame, key: p.GetStepKey(), running: true}
	a.known[id] = x
	a.say(accepted(frame))
	if a.early[frame] {
		x.cancelled = true
		a.finish(w, x, "cancelled")
		return
	}
	w.begins(x)
}

func accepted(frame string) *messages.Frame {
	return &messages.Frame{Id: frame, Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}}}}
}

// begins holds that a step runs once at a time, and that no dispatch is taken twice.
func (w *world) begins(x *execution) {
	if other, ok := w.running[x.key]; ok {
		w.fatalf("step %s runs twice at once: as %s and as %s", x.key, other, x.id)
	}
	if other, ok := w.wrote[x.key]; ok {
		w.fatalf("step %s runs again as %s, and as %s it has written", x.key, x.id, other)
	}
	w.running[x.key] = x.id
	if w.admitted[x.id]++; w.admitted[x.id] > 1 {
		w.fatalf("dispatch %s runs a second time", x.id)
	}
}

func (a *agent) cancel(w *world, frame string, force bool) {
	id, _, _ := strings.Cut(frame, "/")
	x := a.known[id]
	switch {
	case x == nil:
		a.early[frame] = true
	case x.final != nil:
	case force:
		a.finish(w, x, "cancelled")
	default:
		x.cancelled = true
	}
}

func (a *agent) acknowledged(w *world, frame string, ack *messages.Ack) {
	id, _, _ := strings.Cut(frame, "/")
	x := a.known[id]
	if x == nil || x.frame != frame {
		return
	}
	x.acked = max(x.acked, ack.GetOffset())
	if ack.GetDone() {
		l := &messages.LeaseRecord{}
		if w.store.read(kindLease, frame, l); x.waiting && l.GetOutcome().GetStatus() == outcomeRestart {
			w.fatalf("%s is to be forgotten, and whether it goes on is for its step to decide", frame)
		}
		a.forget(w, x)
	}
}

// write has a step say something.
func (a *agent) write(x *execution, n int) {
	c := &messages.OutputChunk{Offset: x.written, Stream: "stdout", Data: make([]byte, n)}
	x.chunks = append(x.chunks, c)
	x.written += uint32(n)
	a.speak(x, outputFrame(c))
}

func outputFrame(c *messages.OutputChunk) *messages.Frame {
	return &messages.Frame{Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Output{Output: c}}}}
}

// finish ends a step with a status, or with a refusal.
func (a *agent) finish(w *world, x *execution, status string) {
	if x.final != nil {
		return
	}
	if w.running[x.key] == x.id {
		delete(w.running, x.key)
	}
	x.running = false
	if x.cancelled && status != outcomeSucceeded {
		status = "cancelled"
	}
	w.tracef("agent %s-%d: %s ends as %s", a.name, a.instance, x.frame, status)
	if status == string(messages.CodeWorkerCannotStart) {
		x.refused = true
		x.final = &messages.Frame{Body: &messages.Frame_Error{Error: &messages.Error{Code: status, Text: "no space"}}}
	} else {
		if status == outcomeSucceeded {
			w.good[x.key] = true
		}
		r := &messages.DispatchResult{Status: status, FinalOffset: x.written}
		if status == outcomeFailed {
			r.Code, r.Error, r.ExitCode = string(messages.CodeExitNonzero), "exit status 7", 7
		}
		x.final = &messages.Frame{Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, r)}}
	}
	a.speak(x, x.final)
}

// repeat sends again what nobody has acknowledged, and tells whether there was any.
func (a *agent) repeat() bool {
	if !a.enrolled {
		return false
	}
	said := false
	for _, id := range a.dispatches() {
		if x := a.known[id]; !x.waiting {
			said = a.repeatOne(x) || said
		}
	}
	return said
}

func (a *agent) repeatOne(x *execution) bool {
	said := false
	for _, c := range x.chunks {
		if c.GetOffset()+uint32(len(c.GetData())) > x.acked {
			said = true
			a.speak(x, outputFrame(c))
		}
	}
	if x.final != nil {
		said = true
		a.speak(x, x.final)
	}
	return said
}

func frameKind(f *messages.Frame) string {
	switch b := f.GetBody().(type) {
	case *messages.Frame_Request:
		return b.Request.GetVerb()
	case *messages.Frame_Response:
		return "response"
	case *messages.Frame_Error:
		return "error " + b.Error.GetCode()
	case *messages.Frame_Event:
		if b.Event.GetAccepted() != nil {
			return "accepted"
		}
		return fmt.Sprintf("output %d", b.Event.GetOutput().GetOffset())
	case *messages.Frame_Ack:
		return fmt.Sprintf("ack %d done:%v", b.Ack.GetOffset(), b.Ack.GetDone())
	case *messages.Frame_Cancel:
		return fmt.Sprintf("cancel force:%v", b.Cancel.GetForce())
	default:
		return "nothing"
	}
}

// transmit queues a frame on a socket.
func (w *world) transmit(e transmit) bool {
	s := w.sessions[e.session]
	if s == nil || !s.open {
		return false
	}
	if s.agent != nil {
		s.down = append(s.down, e.frame)
	}
	return true
}

// probe asks a socket's peer for a sign of life.
func (w *world) probe(n *node, e probe) {
	s := w.sessions[e.session]
	n.mail = append(n.mail, probeAnswered{e.session, s != nil && s.open && s.agent != nil})
}

// serverLost is the orchestrator's end of a socket closing. The agent may notice later, but not too late.
func (s *modelSession) serverLost(w *world) {
	if !s.open {
		return
	}
	s.open, s.up, s.down = false, nil, nil
	if s.agent != nil {
		s.agent.killBy = w.fence()
	}
}

// closed is the session's actor noticing it.
func (s *modelSession) closed(w *world) {
	if !s.open {
		return
	}
	w.tracef("session %d is closed", s.number)
	s.serverLost(w)
	if s.worker != "" {
		w.tell(workerAddress(s.worker), sessionEnded{s.number})
	}
}

// take handles what has come for the session: from its token, or from the socket.
func (s *modelSession) take(w *world) {
	if len(s.mail) > 0 {
		r := s.mail[0].(redeemed)
		s.mail = s.mail[1:]
		s.enrolling = false
		if r.fault != nil {
			w.transmit(transmit{s.number, &messages.Frame{Id: r.request, Body: &messages.Frame_Error{Error: messages.ErrorOf(r.fault)}}})
			return
		}
		s.worker = r.worker
		if !s.open {
			w.tell(workerAddress(s.worker), sessionEnded{s.number})
		}
		return
	}
	f := s.up[0]
	s.up = s.up[1:]
	w.tracef("session %d gets %s %s", s.number, f.GetId(), frameKind(f))
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		switch {
		case body.Request.GetWorkerEnroll() != nil:
			p := body.Request.GetWorkerEnroll()
			token := strings.TrimPrefix(p.GetMachineId(), "machine of ")
			s.enrolling = true
			w.tell(tokenAddress(token), redeemToken{
				digest: modelDigest(token), worker: token, session: sessionAddress(s.number), number: s.number, request: f.GetId(),
				protocol: messages.ProtocolVersion, params: p,
			})
		case s.worker != "":
			w.tell(workerAddress(s.worker), workerSays{s.number, f.GetId(), body.Request.GetWorkerStatus()})
		}
	default:
		if r, ok := body.(*messages.Frame_Response); ok && r.Response.GetWorkerGoodbye() != nil && s.worker != "" {
			w.tell(workerAddress(s.worker), goodbyeHeard{s.number})
			return
		}
		if s.worker != "" {
			w.tell(leaseAddress(f.GetId()), leaseFrame{f.GetId(), s.number, s.worker, f})
		}
	}
}
