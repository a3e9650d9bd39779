package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// A Link is a connection to an orchestrator, over whatever carries frames. Read and Write are called by one goroutine
// each, all with the context of the connection, whose end ends them. Neither end changes a frame after it was written.
type Link interface {
	// Read returns the next frame. An error ends the connection; where the peer gave a code, it is a *messages.Fault.
	Read(ctx context.Context) (*messages.Frame, error)
	// Write sends a frame, or takes it to be sent in order.
	Write(ctx context.Context, f *messages.Frame) error
	// Close says good-bye with a code, which may be empty, and releases everything. It may be called beside Read and
	// Write and more than once, and returns soon once the context of the connection has ended.
	Close(code messages.Code, text string) error
}

// batchLink is a Link that sends several frames better at once than one after the other.
type batchLink interface {
	WriteBatch(ctx context.Context, frames []*messages.Frame) error
}

// defaultPing is how often a worker pings an orchestrator that does not say, leastPing the shortest interval it accepts.
const (
	defaultPing = 15 * time.Second
	leastPing   = 10 * time.Millisecond
)

var (
	errSilent      = errors.New("the orchestrator is silent")
	errWriteStuck  = errors.New("the orchestrator does not read")
	errNoAnswer    = errors.New("the orchestrator does not answer the enrollment")
	errRestarting  = errors.New("the orchestrator restarts")
	errConnEnded   = errors.New("the connection has ended")
	errFloodedSend = errors.New("too much waits to be sent")
)

// controlLimit bounds the answers that wait to be sent. A peer that asks faster than it reads is cut off.
const controlLimit = 1 << 16

// session is one connection, from the dial to its end.
type session struct {
	a      *Agent
	link   Link
	ctx    context.Context //nolint:containedctx // it is the connection's life
	cancel context.CancelCauseFunc
	over   chan ending   // the first reason to end
	halt   chan struct{} // closed to have the writer return
	start  time.Time
	heard  atomic.Int64 // when a frame came last, since start
	busy   atomic.Int64 // since when a write is under way, since start; 0 if none is

	worker string // set by enroll
	terms  terms  // set by enroll
	fence  Fence  // as the last promise has it

	// Agent.mu guards these, and fence.
	ids       int
	status    string // the id of the last announcement, or empty
	told      bool   // it was answered
	announced bool   // it says that the worker drains
	saidAt    time.Time
	writing   bool // frames were taken that may not be written yet
	promises  promises
}

func newSession(a *Agent, link Link) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &session{a: a, link: link, ctx: ctx, cancel: cancel, over: make(chan ending, 1), halt: make(chan struct{}), start: time.Now()}
}

// newID returns an id for a request. The caller holds Agent.mu, or is alone.
func (s *session) newID() string {
	s.ids++
	return strconv.Itoa(s.ids)
}

// say queues a control frame.
func (s *session) say(f *messages.Frame) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.out.say(f)
	s.a.wake()
}

// end ends the connection, if it is the first reason.
func (s *session) end(e ending) {
	select {
	case s.over <- e:
	default:
	}
}

// enroll introduces the worker, and what it has in flight. Since no frame of this connection is taken before the answer,
// what it names is all that it has then, but for steps that end meanwhile.
func (s *session) enroll() error {
	var enrolled atomic.Bool
	giveUp := func(err error) func() {
		return func() {
			if !enrolled.Load() {
				s.cancel(err)
			}
		}
	}
	limit := enrollTimeout
	if left, ok := s.a.timeLeft(); ok {
		limit = tryFor(limit, left)
	}
	timer := time.AfterFunc(limit, giveUp(errNoAnswer))
	defer timer.Stop()
	// Somebody who leaves waits for the answer a little, so that the orchestrator does not have to miss the worker.
	defer context.AfterFunc(s.a.leaving, func() { timer.Reset(leaveTimeout) })()
	defer context.AfterFunc(s.a.gone, giveUp(errLeaving))()

	id := s.newID()
	sent := s.a.clock()
	if err := s.link.Write(s.ctx, requestFrame(id, messages.VerbWorkerEnroll, s.introduction())); err != nil {
		return fmt.Errorf("enroll: %w", s.cause(err))
	}
	r, err := s.enrollAnswer(id)
	if err != nil {
		return err
	}
	enrolled.Store(true)
	if s.ctx.Err() != nil { // it was given up at the same moment
		return fmt.Errorf("enroll: %w", context.Cause(s.ctx))
	}
	s.worker = r.GetWorker()
	s.terms = terms{
		ping: messages.Duration(r.GetPingMs()), grace: messages.Duration(r.GetGraceMs()),
		margin: messages.Duration(r.GetKillMarginMs()), kill: messages.Duration(r.GetKillGraceMs()),
	}
	if s.terms.ping <= 0 {
		s.terms.ping = defaultPing
	}
	s.terms.ping = max(s.terms.ping, leastPing)
	s.a.enter(s, r, sent)
	return nil
}

func (s *session) introduction() *messages.EnrollParams {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	return &messages.EnrollParams{
		Token: a.cfg.Token.Reveal(), MachineId: a.cfg.MachineID, InstanceUuid: a.instance,
		ProtocolMin: messages.ProtocolMin, ProtocolMax: messages.ProtocolVersion,
		Version: a.cfg.Version, Platform: runtime.GOOS, Arch: runtime.GOARCH, Labels: a.cfg.Labels.Proto(),
		Capacity: int32(a.cfg.Concurrency), SlotsOffered: int32(a.life.slotsOffered()),
		Intent: string(a.life.intent()), Reason: a.life.said, DispatchSeq: a.life.seq,
		InFlight: a.inFlight(), LastSession: a.lastSession,
	}
}

// enrollAnswer reads until the answer.
func (s *session) enrollAnswer(id string) (*messages.EnrollResult, error) {
	for {
		f, err := s.link.Read(s.ctx)
		if err != nil {
			return nil, fmt.Errorf("enroll: %w", s.cause(err))
		}
		switch body := f.GetBody().(type) {
		case *messages.Frame_Response:
			if r := body.Response.GetWorkerEnroll(); f.GetId() == id && r != nil {
				return r, nil
			}
		case *messages.Frame_Error:
			// An error without an id is about the connection.
			if f.GetId() == id || f.GetId() == "" {
				return nil, body.Error.Fault()
			}
		case *messages.Frame_Request:
			if g := body.Request.GetWorkerGoodbye(); g != nil {
				return nil, goodbyeFault(g)
			}
		}
	}
}

// cause prefers the reason for which we ended the connection over what the link makes of it.
func (s *session) cause(err error) error {
	if c := context.Cause(s.ctx); c != nil {
		return c
	}
	return err
}

// serve works on the connection until it has ended and its goroutines have. The steps go on.
func (s *session) serve() ending {
	a := s.a
	var loops sync.WaitGroup
	written := make(chan struct{})
	loops.Go(s.read)
	loops.Go(func() { defer close(written); s.write() })
	end := s.watch()
	switch {
	case end.err == nil:
		s.leave()
	case end.stop != "" && end.goodbye != "":
		s.sayGone(end, written)
	}
	s.cancel(errConnEnded)
	_ = s.link.Close("", "")
	loops.Wait()

	a.mu.Lock()
	defer a.mu.Unlock()
	end.lost = len(a.life.known)
	a.part(s)
	return end
}

// watch pings, and notices when the connection has to end.
func (s *session) watch() ending {
	a := s.a
	live := newLiveness(s.terms.ping, time.Now())
	ticker := time.NewTicker(s.terms.ping)
	defer ticker.Stop()
	for {
		select {
		case end := <-s.over:
			return end
		case <-ticker.C:
			now := time.Now()
			live.hear(s.start.Add(time.Duration(s.heard.Load())))
			if !live.tick(now) {
				return ending{err: fmt.Errorf("%w for %v", errSilent, (silentIntervals * s.terms.ping).Round(time.Millisecond))}
			}
			if since := s.busy.Load(); since != 0 && live.stuck(s.start.Add(time.Duration(since)), now) {
				return ending{err: errWriteStuck}
			}
			s.ping()
			s.announceAgain()
		case <-a.changed:
		case <-a.gone.Done():
		}
		if end, leaves := s.leaves(); leaves {
			return end
		}
	}
}

// announceAgain repeats an announcement that is not answered.
func (s *session) announceAgain() {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.announced && !s.told && time.Since(s.saidAt) >= s.terms.ping {
		s.a.say(s)
	}
}

// leaves tells whether the worker goes now, and how.
func (s *session) leaves() (_ ending, now bool) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.life.gone && a.life.running > 0:
		return ending{stop: a.life.stopReason(), err: errStepsLeft}, true
	case a.life.gone, a.life.stage != working && a.life.idle() && s.told && s.quiet():
		return ending{stop: a.life.stopReason()}, true
	default:
		return ending{}, false
	}
}

// quiet tells whether everything that was said is written. A dispatch that came before the announcement was answered is
// refused before it, and who leaves without saying so makes it a lost one. The caller holds Agent.mu.
func (s *session) quiet() bool { return !s.writing && s.a.out.control.len() == 0 }

// leave closes the connection the polite way, if the peer still answers.
func (s *session) leave() {
	s.a.mu.Lock()
	told := s.told
	s.a.mu.Unlock()
	if !told {
		return
	}
	timer := time.AfterFunc(leaveTimeout, func() { s.cancel(errConnEnded) })
	defer timer.Stop()
	_ = s.link.Close("", "the worker leaves")
}

// sayGone kills every step and answers the goodbye with which the orchestrator has sent this worker away for good. The
// answer says that nothing of them is left, so that they can run elsewhere at once.
func (s *session) sayGone(end ending, written <-chan struct{}) {
	if s.a.abandon(end.err.Error()) != nil {
		return
	}
	timer := time.AfterFunc(leaveTimeout, func() { s.cancel(errConnEnded) })
	defer timer.Stop()
	close(s.halt)
	<-written
	answer := responseTo(end.goodbye, messages.VerbWorkerGoodbye, &messages.GoodbyeResult{})
	if err := s.link.Write(s.ctx, answer); err != nil {
		s.a.cfg.Logger.Debug("the goodbye is not answered", messages.KeyErr, err)
		return
	}
	_ = s.link.Close("", "the worker leaves")
}

// ping asks the orchestrator whether it still owns the books. The time counts from before it is sent.
func (s *session) ping() {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	id := s.newID()
	s.promises.ask(id, a.clock())
	a.out.say(requestFrame(id, messages.VerbWorkerPing, &messages.PingParams{}))
	a.wake()
}

// responseTo is an answer without content to a verb.
func responseTo(id string, verb messages.Verb, result proto.Message) *messages.Frame {
	return responseFrame(id, messages.NewResponse(verb, result))
}
