package worker

import (
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
)

// read takes frames until the connection ends. It waits for nothing else: pings are answered by it, and a peer whose
// frames are not read looks dead to the other side.
func (s *session) read() {
	for {
		f, err := s.link.Read(s.ctx)
		if err != nil {
			s.end(endingOf(s.cause(err), s.a.cfg, false))
			return
		}
		s.heard.Store(int64(time.Since(s.start)))
		s.onFrame(f)
	}
}

func (s *session) onFrame(f *messages.Frame) {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		s.onRequest(f.GetId(), f.GetTrace(), body.Request)
	case *messages.Frame_Response:
		s.onAnswer(f.GetId(), true)
	case *messages.Frame_Error:
		if f.GetId() != "" {
			s.onAnswer(f.GetId(), false)
			return
		}
		// It is about the connection or a frame that could not be read. The orchestrator closes if it has to.
		fault := body.Error.Fault()
		s.a.cfg.Logger.Warn("the orchestrator complains", messages.KeyCode, string(fault.Code), messages.KeyErr, fault)
	case *messages.Frame_Cancel:
		s.a.onCancel(f.GetId(), body.Cancel.GetForce())
	case *messages.Frame_Ack:
		s.a.onAck(f.GetId(), body.Ack.GetOffset(), body.Ack.GetDone())
	case *messages.Frame_Event:
		// A worker asks for nothing that streams.
	default:
		s.say(errorFrame(f.GetId(), messages.CodeMalformed, "the frame says nothing that this worker knows"))
	}
}

func (s *session) onRequest(id, trace string, r *messages.Request) {
	switch params := r.GetParams().(type) {
	case *messages.Request_WorkerDispatch:
		s.a.onDispatch(s, id, traced(params.WorkerDispatch, trace))
	case *messages.Request_WorkerAbort:
		s.a.onAbort(id, params.WorkerAbort)
	case *messages.Request_WorkerOrder:
		s.onOrder(id, params.WorkerOrder)
	case *messages.Request_WorkerGoodbye:
		end := endingOf(goodbyeFault(params.WorkerGoodbye), s.a.cfg, false)
		end.goodbye = id
		s.end(end)
	default:
		s.say(errorFrame(id, messages.CodeUnknownVerb, fmt.Sprintf("a worker has no verb %q, or it came without its params", r.GetVerb())))
	}
	s.a.mu.Lock()
	flooded := s.a.out.control.len() > controlLimit
	s.a.mu.Unlock()
	if flooded {
		s.end(ending{err: errFloodedSend})
	}
}

// onOrder does what the orchestrator orders. What the worker has in mind then is told before the answer, so that whoever
// has the answer knows.
func (s *session) onOrder(id string, p *messages.OrderParams) {
	switch action := p.GetAction(); action {
	case orderDrain, orderResume:
		s.a.obey(action, p.GetReason())
		s.say(responseTo(id, messages.VerbWorkerOrder, &messages.OrderResult{}))
	default:
		s.say(errorFrame(id, messages.CodeInvalid, fmt.Sprintf("a worker knows no order %q: want drain or resume", action)))
	}
}

// onAnswer settles what the worker itself asked.
func (s *session) onAnswer(id string, well bool) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == s.status {
		// Also a no: the orchestrator has heard it.
		s.told = true
		a.pokeServe()
		return
	}
	if !well {
		s.promises.refused(id)
		return
	}
	if sent, ok := s.promises.answered(id); ok {
		a.promised(s, sent)
	}
}

// goodbyeFault is what an orchestrator says that ends the connection.
func goodbyeFault(g *messages.GoodbyeParams) error {
	code := messages.Code(g.GetCode())
	if code == "" {
		switch g.GetReason() {
		case "superseded":
			code = messages.CodeSuperseded
		case "revoked":
			code = messages.CodeTokenRevoked
		case "expired":
			code = messages.CodeTokenExpired
		default: // restart, moved, and what a later orchestrator may say
			return fmt.Errorf("%w (%s)", errRestarting, g.GetReason())
		}
	}
	return &messages.Fault{Code: code, Text: g.GetText()}
}
