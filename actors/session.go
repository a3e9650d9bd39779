package actors

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// Bounds of one socket: frames of it that wait to be handled, and requests of a client under way.
const (
	sessionFrames   = 1024
	sessionRequests = 100
)

// session is the actor of one socket, a worker's or a client's. It is thin: what it knows is worth nothing without its
// socket.
type session struct {
	sys       *System
	self      address
	info      *actorInfo
	number    uint64
	conn      Conn
	facts     ConnInfo
	socket    *socket
	worker    string // once its token has admitted it
	enrolling bool
	requests  map[string]context.CancelCauseFunc
}

// openSession is a session's birth.
type openSession struct {
	number uint64
	conn   Conn
	facts  ConnInfo
	socket *socket
	answer *answer
}

// sessionFrame is a frame of its socket, socketClosed the end of it, requestDone the end of a client's request.
type (
	sessionFrame struct{ frame *messages.Frame }
	socketClosed struct{ reason error }
	requestDone  struct{ id string }
)

// socket is what the edge holds of a session. Receive blocks while too many frames of it wait: the reader of that socket
// stops, and so does its peer, instead of a mailbox growing.
type socket struct {
	sys  *System
	to   address
	room chan struct{}
	gone chan struct{}
}

var _ Session = (*socket)(nil)

func (s *socket) Receive(f *messages.Frame) {
	select {
	case s.room <- struct{}{}:
		s.sys.tell(s.to, sessionFrame{f})
	case <-s.gone:
	}
}

func (s *socket) Closed(reason error) { s.sys.tell(s.to, socketClosed{reason}) }

// Connect implements Orchestrator.
func (sys *System) Connect(conn Conn, info ConnInfo) (Session, error) {
	if !sys.Ready() {
		return nil, messages.Faultf(messages.CodeNotReady, "the orchestrator starts or stops")
	}
	number := sys.journal.Sequence()
	s := &socket{sys: sys, to: sessionAddress(number), room: make(chan struct{}, sessionFrames), gone: make(chan struct{})}
	sys.conns.Store(number, conn)
	// The session has to be there before its first frame, or a frame that is routed could be overtaken by the next.
	_, err := sys.ask(sys.edges.ctx, routerOf(kindSession), func(a *answer) any {
		return route{s.to, openSession{number: number, conn: conn, facts: info, socket: s, answer: a}}
	})
	if err != nil {
		sys.conns.Delete(number)
		return nil, err
	}
	return s, nil
}

func sessionAddress(number uint64) address {
	return address{kindSession, strconv.FormatUint(number, 10)}
}

func (sys *System) transmit(number uint64, f *messages.Frame) bool {
	c, ok := sys.conns.Load(number)
	if !ok {
		return false
	}
	return c.(Conn).Send(f) == nil
}

func (sys *System) hangUp(number uint64, code messages.Code, text string) {
	if c, ok := sys.conns.Load(number); ok {
		c.(Conn).Close(code, text)
	}
}

func (sys *System) probe(e probe, self *actor.PID) {
	c, ok := sys.conns.Load(e.session)
	if !ok {
		sys.tellPID(self, probeAnswered{e.session, false})
		return
	}
	sys.edges.run(func() {
		ctx, cancel := context.WithTimeout(sys.edges.ctx, e.within)
		defer cancel()
		sys.tellPID(self, probeAnswered{e.session, c.(Conn).Ping(ctx) == nil})
	})
}

func (s *session) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		s.info = s.sys.info(ctx.Self())
		s.self = s.info.address
		s.info.state.Store("open")
		s.info.begins()
		if s.info.again() { // what the socket had said is lost, so the socket has to go
			s.lost(ctx)
		}
	case *actor.Stopping, *actor.Restarting:
		s.drop(errStopping)
	case openSession:
		s.info.received(msg)
		if s.conn == nil {
			s.number, s.conn, s.facts, s.socket = msg.number, msg.conn, msg.facts, msg.socket
			s.requests = make(map[string]context.CancelCauseFunc)
		}
		msg.answer.give(nil, nil)
	case sessionFrame:
		s.info.received(msg)
		if s.socket != nil {
			<-s.socket.room
			s.sys.hook(pointDecided, s.self, msg)
			s.frame(msg.frame)
		}
	case redeemed:
		s.info.received(msg)
		s.redeemed(msg)
	case requestDone:
		s.info.received(msg)
		delete(s.requests, msg.id)
	case socketClosed:
		s.info.received(msg)
		s.closed(ctx)
	case lookInside:
		msg.tellFacts(fact{"remote", s.facts.Remote}, fact{"client", s.facts.Client}, fact{"loopback", s.facts.Loopback}, fact{"worker", s.worker},
			fact{"enrolling", s.enrolling}, fact{"requests", slices.Sorted(maps.Keys(s.requests))}, fact{"open", s.socket != nil})
	}
	s.info.trail.done()
}

// lost ends a session that has panicked: the socket is closed, and its peer comes back with a new one.
func (s *session) lost(ctx actor.Context) {
	s.sys.conns.Range(func(n, c any) bool {
		if sessionAddress(n.(uint64)) == s.self {
			c.(Conn).Close(messages.CodeInternal, "internal error")
			s.number = n.(uint64)
			return false
		}
		return true
	})
	s.sys.tell(routerOf(kindWorker), broadcast{sessionEnded{s.number}})
	s.sys.conns.Delete(s.number)
	s.sys.leave(ctx, s.self)
}

func (s *session) drop(reason error) {
	for _, cancel := range s.requests {
		cancel(reason)
	}
}

func (s *session) closed(ctx actor.Context) {
	s.drop(errSocketClosed)
	s.sys.conns.Delete(s.number)
	if s.socket != nil {
		close(s.socket.gone)
		s.socket = nil
	}
	if s.worker != "" {
		s.sys.tell(workerAddress(s.worker), sessionEnded{s.number})
	}
	s.sys.leave(ctx, s.self)
}

var errSocketClosed = messages.Faultf(messages.CodeUnavailable, "the socket is closed")

func (s *session) refuse(id string, f *messages.Fault) {
	_ = s.conn.Send(&messages.Frame{Id: id, Body: &messages.Frame_Error{Error: messages.ErrorOf(f)}}) // a closed socket needs no answer
}

func (s *session) answer(id string, verb messages.Verb, result proto.Message) {
	_ = s.conn.Send(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: messages.NewResponse(verb, result)}})
}

// frame handles one frame of the socket.
func (s *session) frame(f *messages.Frame) {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		s.request(f.GetId(), body.Request)
	case *messages.Frame_Cancel:
		if cancel := s.requests[f.GetId()]; cancel != nil {
			cancel(context.Canceled)
		}
	case *messages.Frame_Response, *messages.Frame_Error, *messages.Frame_Event:
		action, order := strings.CutPrefix(f.GetId(), orderID)
		response, _ := body.(*messages.Frame_Response)
		switch {
		case s.worker == "":
		case response != nil && response.Response.GetWorkerGoodbye() != nil:
			s.sys.tell(workerAddress(s.worker), goodbyeHeard{s.number})
		case strings.Contains(f.GetId(), "/"):
			s.sys.tell(leaseAddress(f.GetId()), leaseFrame{f.GetId(), s.number, s.worker, f})
		case order:
			s.sys.tell(workerAddress(s.worker), orderAnswered{s.number, action})
		}
	case *messages.Frame_Ack:
	default:
		s.refuse(f.GetId(), messages.Faultf(messages.CodeMalformed, "a frame needs a request, response, error, event, cancel or ack"))
	}
}

func (s *session) request(id string, r *messages.Request) {
	verb := messages.Verb(r.GetVerb())
	params := messages.ParamsOf(r)
	switch {
	case id == "" || len(id) > 256:
		s.refuse(id, messages.Faultf(messages.CodeInvalid, "a request needs an id of 1 to 256 bytes"))
	case verb.From() != messages.PeerWorker && verb.From() != messages.PeerClient:
		s.refuse(id, messages.Faultf(messages.CodeUnknownVerb, "unknown verb %q", string(verb)))
	case params == nil && r.GetParams() != nil:
		s.refuse(id, messages.Faultf(messages.CodeInvalid, "the params of this request are not those of %s", verb))
	case verb.From() == messages.PeerClient:
		if params == nil {
			params = messages.NewParams(verb)
		}
		s.serve(id, verb, params)
	case verb == messages.VerbWorkerEnroll:
		s.enroll(id, r.GetWorkerEnroll())
	case s.worker == "":
		s.refuse(id, messages.Faultf(messages.CodeOutOfOrder, "%s comes after worker.enroll", verb))
	case verb == messages.VerbWorkerPing:
		if s.sys.Err() == nil { // an answer is a promise that this process still owns the books
			s.answer(id, verb, &messages.PingResult{})
		}
	case verb == messages.VerbWorkerStatus:
		s.sys.tell(workerAddress(s.worker), workerSays{s.number, id, r.GetWorkerStatus()})
	}
}

// serve answers a client's request beside the actor, which goes on with the socket's other frames.
func (s *session) serve(id string, verb messages.Verb, params proto.Message) {
	switch {
	case !s.facts.Client:
		s.refuse(id, messages.Faultf(messages.CodeUnauthorized, "%s needs a server token", verb))
		return
	case s.requests[id] != nil:
		s.refuse(id, messages.Faultf(messages.CodeDuplicateID, "a request with id %q is under way", id))
		return
	case len(s.requests) >= sessionRequests:
		s.refuse(id, messages.Faultf(messages.CodeTooManyRequests, "%d requests are under way on this socket", len(s.requests)))
		return
	}
	ctx, cancel := context.WithCancelCause(s.sys.edges.ctx)
	s.requests[id] = cancel
	conn, self := s.conn, s.self
	ok := s.sys.edges.run(func() {
		defer cancel(nil)
		result, err := s.sys.Do(ctx, verb, params, func(e *messages.Event) error {
			return conn.SendWait(ctx, &messages.Frame{Id: id, Body: &messages.Frame_Event{Event: e}})
		})
		frame := &messages.Frame{Id: id}
		if err != nil {
			frame.Body = &messages.Frame_Error{Error: messages.ErrorOf(s.sys.faultOf(ctx, verb, err))}
		} else {
			frame.Body = &messages.Frame_Response{Response: messages.NewResponse(verb, result)}
		}
		_ = conn.SendWait(ctx, frame) // a closed socket needs no answer
		s.sys.tell(self, requestDone{id})
	})
	if !ok {
		delete(s.requests, id)
		cancel(errStopping)
		s.refuse(id, messages.Faultf(messages.CodeNotReady, "the orchestrator stops"))
	}
}

// faultOf gives every error of a client's request a code. What is no fault of the client's is logged here, once.
func (sys *System) faultOf(ctx context.Context, verb messages.Verb, err error) error {
	switch {
	case messages.CodeOf(err) != messages.CodeInternal:
		return err
	case ctx.Err() != nil:
		return messages.Faultf(messages.CodeCancelled, "the request was cancelled")
	default:
		sys.log.Error("request failed", slog.String(messages.KeyCommand, string(verb)), slog.Any(messages.KeyErr, err))
		return err
	}
}

// enroll hands a worker's first request to its token, or for loopback to its worker at once.
func (s *session) enroll(id string, p *messages.EnrollParams) {
	if s.worker != "" || s.enrolling {
		s.refuse(id, messages.Faultf(messages.CodeOutOfOrder, "this socket is enrolled, or about to be"))
		return
	}
	protocol, err := s.checkEnroll(p)
	if err != nil {
		s.refuse(id, messages.Faultf(messages.CodeOf(err), "%s", err.Error()))
		return
	}
	if s.facts.Loopback {
		s.worker = Loopback
		s.sys.tell(workerAddress(Loopback), enrollWorker{name: Loopback, session: s.number, request: id, protocol: protocol, params: p, loopback: true})
		return
	}
	if s.sys.failures.tooMany(host(s.facts.Remote)) {
		s.refuse(id, messages.Faultf(messages.CodeRateLimited, "too many failed enrollments from this address: wait a minute"))
		return
	}
	dot := max(strings.LastIndex(p.GetToken(), "."), 0) // a name may have dots, a secret has none
	name, secret := p.GetToken()[:dot], strings.TrimPrefix(p.GetToken()[dot:], ".")
	if secret == "" || !validName(name) {
		s.failed(id, messages.Faultf(messages.CodeInvalidToken, "the enrollment token is malformed: it has the form NAME.SECRET"))
		return
	}
	digest := sha256.Sum256([]byte(secret))
	s.enrolling = true
	s.sys.tell(tokenAddress(name), redeemToken{
		digest: digest[:], worker: fleetName(name, p.GetMachineId()), session: s.self, number: s.number, request: id,
		protocol: protocol, params: withoutToken(p),
	})
}

// withoutToken keeps the secret out of the actors: what they hold may be shown.
func withoutToken(p *messages.EnrollParams) *messages.EnrollParams {
	p.Token = ""
	return p
}

// fleetName is the name of one of several machines of a token.
func fleetName(token, machine string) string {
	digest := sha256.Sum256([]byte(machine))
	return token + "-" + hex.EncodeToString(digest[:4])
}

func (s *session) redeemed(r redeemed) {
	s.enrolling = false
	if r.fault != nil {
		s.failed(r.request, r.fault)
		return
	}
	s.worker = r.worker
	if s.socket == nil { // closed meanwhile
		s.sys.tell(workerAddress(s.worker), sessionEnded{s.number})
	}
}

func (s *session) failed(id string, f *messages.Fault) {
	s.sys.failures.add(host(s.facts.Remote))
	s.sys.log.Warn("enrollment refused", slog.String(messages.KeyAddr, s.facts.Remote), slog.String(messages.KeyCode, string(f.Code)))
	if s.conn != nil {
		s.refuse(id, f)
	}
}

func host(remote string) string {
	if h, _, err := net.SplitHostPort(remote); err == nil {
		return h
	}
	return remote
}
