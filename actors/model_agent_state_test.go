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

// agent is a worker process, as package worker is one: when its socket is cut it kills its steps, and when it comes back
// it names what has ended and is not acknowledged.
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
	frame     string
	key       string // of the step
	running   bool
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

// connect opens a new socket. The steps of the old one are dead.
func (a *agent) connect(w *world) {
	if !a.alive || a.session != nil {
		return
	}
	number := w.moment().sequence
	s := &modelSession{number: number, agent: a, open: true}
	w.sessions[number] = s
	a.session, a.enrolled, a.early, a.killBy = s, false, make(map[string]bool), time.Time{}
	intent := messages.IntentNone
	if a.draining {
		intent = messages.IntentDraining
	}
	var inFlight []*messages.InFlight
	for _, id := range a.dispatches() {
		_, generation, _ := strings.Cut(a.known[id].frame, "/")
		n, _ := strconv.Atoi(generation)
		inFlight = append(inFlight, &messages.InFlight{DispatchId: id, Generation: uint32(n), State: "ended", OutputOffset: a.known[id].written})
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

// lose ends the agent's end of its socket, and its steps with it.
func (a *agent) lose(w *world, why string) {
	w.tracef("agent %s-%d is cut off: %s", a.name, a.instance, why)
	if a.session != nil {
		a.session.agent = nil
		a.session.down = nil
	}
	a.session, a.enrolled, a.killBy = nil, false, time.Time{}
	for _, id := range a.dispatches() {
		if x := a.known[id]; x.running {
			a.finish(w, x, outcomeLost)
		}
	}
}

// renew starts the agent's process anew.
func (a *agent) renew(w *world) {
	a.lose(w, "a new process")
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
			a.enrolled = true
			for _, v := range r.GetInFlight() {
				if v.GetAction() == "abort" {
					delete(a.known, v.GetDispatchId())
				}
			}
			a.repeat()
			if a.draining {
				a.report()
			}
		}
	case *messages.Frame_Error:
		if messages.Code(body.Error.GetCode()).Permanent() {
			a.alive = false
		}
		a.lose(w, body.Error.GetText())
	case *messages.Frame_Request:
		if p := body.Request.GetWorkerDispatch(); p != nil {
			a.offer(w, f.GetId(), p)
		} else if g := body.Request.GetWorkerGoodbye(); g != nil {
			a.alive = g.GetReason() != "revoked"
			a.lose(w, "goodbye: "+g.GetReason())
		}
	case *messages.Frame_Cancel:
		a.cancel(w, f.GetId(), body.Cancel.GetForce())
	case *messages.Frame_Ack:
		a.acknowledged(f.GetId(), body.Ack)
	}
}

// offer decides on a dispatch as package worker does.
func (a *agent) offer(w *world, frame string, p *messages.DispatchParams) {
	id := p.GetDispatchId()
	if x := a.known[id]; x != nil {
		if x.final != nil {
			a.say(x.final)
		} else {
			a.say(accepted(frame))
		}
		return
	}
	stale := p.GetSeq() <= a.seq
	a.seq = max(a.seq, p.GetSeq())
	var refusal messages.Code
	switch {
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
	x := &execution{frame: frame, key: p.GetStepKey(), running: true}
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
		w.fatalf("step %s runs twice at once: as %s and as %s", x.key, other, x.frame)
	}
	w.running[x.key] = x.frame
	if w.admitted[x.frame]++; w.admitted[x.frame] > 1 {
		w.fatalf("dispatch %s runs a second time", x.frame)
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

func (a *agent) acknowledged(frame string, ack *messages.Ack) {
	id, _, _ := strings.Cut(frame, "/")
	x := a.known[id]
	if x == nil || x.frame != frame {
		return
	}
	x.acked = max(x.acked, ack.GetOffset())
	if ack.GetDone() && !x.running {
		delete(a.known, id)
	}
}

// write has a step say something.
func (a *agent) write(x *execution, n int) {
	c := &messages.OutputChunk{Offset: x.written, Stream: "stdout", Data: make([]byte, n)}
	x.chunks = append(x.chunks, c)
	x.written += uint32(n)
	a.say(&messages.Frame{Id: x.frame, Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Output{Output: c}}}})
}

// finish ends a step with a status, or with a refusal.
func (a *agent) finish(w *world, x *execution, status string) {
	if x.final != nil {
		return
	}
	if w.running[x.key] == x.frame {
		delete(w.running, x.key)
	}
	x.running = false
	if x.cancelled && status != outcomeSucceeded {
		status = "cancelled"
	}
	w.tracef("agent %s-%d: %s ends as %s", a.name, a.instance, x.frame, status)
	if status == string(messages.CodeWorkerCannotStart) {
		x.final = &messages.Frame{Id: x.frame, Body: &messages.Frame_Error{Error: &messages.Error{Code: status, Text: "no space"}}}
	} else {
		if status == outcomeSucceeded {
			w.good[x.key] = true
		}
		r := &messages.DispatchResult{Status: status, FinalOffset: x.written}
		if status == outcomeFailed {
			r.Code, r.Error, r.ExitCode = string(messages.CodeExitNonzero), "exit status 7", 7
		}
		x.final = &messages.Frame{Id: x.frame, Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, r)}}
	}
	a.say(x.final)
}

// repeat sends again what nobody has acknowledged, and tells whether there was any.
func (a *agent) repeat() bool {
	if !a.enrolled {
		return false
	}
	said := false
	for _, id := range a.dispatches() {
		x := a.known[id]
		for _, c := range x.chunks {
			if c.GetOffset()+uint32(len(c.GetData())) > x.acked {
				said = true
				a.say(&messages.Frame{Id: x.frame, Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Output{Output: c}}}})
			}
		}
		if x.final != nil {
			said = true
			a.say(x.final)
		}
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
		s.agent.killBy = w.now.Add(w.grace - time.Second)
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
		if s.worker != "" {
			w.tell(leaseAddress(f.GetId()), leaseFrame{f.GetId(), s.number, s.worker, f})
		}
	}
}
