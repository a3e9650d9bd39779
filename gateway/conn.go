package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

var _ actors.Conn = (*conn)(nil)

// conn is a WebSocket as its session sees it.
type conn struct {
	server  *Server
	ws      *websocket.Conn
	wire    *wire
	info    actors.ConnInfo
	session actors.Session
	log     *slog.Logger
	opened  time.Duration // on the server's clock

	coding    atomic.Int32 // of the first frame: 1 and the messages.Coding, 0 before it
	anonymous atomic.Bool  // has shown neither a server token nor an enrollment
	busy      atomic.Bool  // in Session.Receive: it is we who do not read
	pinging   atomic.Bool
	closing   atomic.Bool // reason is set

	mu     sync.Mutex
	reason error // why the socket ends
	ended  bool  // no goroutine is started any more
	shakes bool  // shake runs or has run
	others map[string]*question
	shaken chan struct{} // closed at the end of shake
}

// question is a request under way in the coding that is not the socket's own.
type question struct {
	coding messages.Coding
	count  int // a peer may use an id twice, and is owed two answers
}

// Send implements actors.Conn. The frame is encoded before Send returns, so it remains the caller's. A response that is
// too large becomes an error on the same id; any other frame that is too large is an error of code frame_too_large, and
// the connection goes on.
func (c *conn) Send(f *messages.Frame) error {
	m, err := c.encode(f)
	if err != nil {
		return err
	}
	if waiting := c.wire.queued(); waiting > 0 && int64(waiting+len(m.data)) > c.wire.limit.Load() {
		fault := messages.Faultf(messages.CodeStreamOverflow, "%d bytes wait to be read", waiting)
		c.log.Warn("a peer reads too slowly and is disconnected", slog.Int(messages.KeyCount, waiting))
		c.shut(fault)
		return fault
	}
	return c.put(m)
}

// SendWait implements actors.Conn. It leaves three quarters of the queue to frames that nobody waits with.
func (c *conn) SendWait(ctx context.Context, f *messages.Frame) error {
	m, err := c.encode(f)
	if err != nil {
		return err
	}
	if err := c.wire.await(ctx, int(c.wire.limit.Load()/4)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.closedError()
	}
	return c.put(m)
}

// message is a frame as it is sent.
type message struct {
	data    []byte
	coding  messages.Coding
	enrolls bool
}

func (c *conn) encode(f *messages.Frame) (message, error) {
	if c.closing.Load() {
		return message{}, c.closedError()
	}
	m := message{coding: c.codingFor(f), enrolls: f.GetResponse().GetWorkerEnroll() != nil}
	var err error
	m.data, err = messages.EncodeFrame(f, m.coding)
	if errors.Is(err, &messages.Fault{Code: messages.CodeFrameTooLarge}) && f.GetResponse() != nil {
		c.log.Warn("an answer is too large to send", slog.Any(messages.KeyErr, err))
		m.data, err = messages.EncodeFrame(errorFrame(f.GetId(), err), m.coding)
	}
	return m, err
}

// put queues a message. Nothing blocks here, so it needs no context: one that can end would close the connection when
// it does.
func (c *conn) put(m message) error {
	typ := websocket.MessageBinary
	if m.coding == messages.CodingJSON {
		typ = websocket.MessageText
	}
	if err := c.ws.Write(context.Background(), typ, m.data); err != nil {
		return c.closedError()
	}
	if m.enrolls {
		c.wire.limit.Store(queueWorker)
		c.server.known(c)
	}
	return nil
}

// closedError says why nothing can be sent any more.
func (c *conn) closedError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return c.reason
	}
	return net.ErrClosed
}

// codingFor is the coding of the question that f answers, or else that of the socket's first frame.
func (c *conn) codingFor(f *messages.Frame) messages.Coding {
	own := c.ownCoding()
	terminal := false
	switch f.GetBody().(type) {
	case *messages.Frame_Response, *messages.Frame_Error:
		terminal = true
	case *messages.Frame_Event:
	default:
		return own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.others[f.GetId()]
	if q == nil {
		return own
	}
	if terminal {
		if q.count--; q.count == 0 {
			delete(c.others, f.GetId())
		}
	}
	return q.coding
}

func (c *conn) ownCoding() messages.Coding {
	if known := c.coding.Load(); known > 0 {
		return messages.Coding(known - 1)
	}
	return messages.CodingProtobuf
}

// asked takes note of the coding of a request. It is false where too many are under way in another coding than the
// socket's own.
func (c *conn) asked(f *messages.Frame, coding messages.Coding) bool {
	if c.coding.CompareAndSwap(0, int32(coding)+1) || c.ownCoding() == coding || f.GetRequest() == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.others[f.GetId()]
	if q == nil {
		if len(c.others) >= maxOthers {
			return false
		}
		q = &question{coding: coding}
		c.others[f.GetId()] = q
	}
	q.count++
	return true
}

// Close implements actors.Conn.
func (c *conn) Close(code messages.Code, text string) {
	c.shut(messages.Faultf(code, "%s", text))
}

// shut begins to close the socket with a handshake that tells the peer why, unless it is closing already.
func (c *conn) shut(why *messages.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return
	}
	c.end(why)
	c.shakes = true
	c.server.work.Go(func() { c.shake(why) })
}

// die closes the socket at once.
func (c *conn) die(why error) {
	c.mu.Lock()
	if c.reason == nil {
		c.end(why)
	}
	c.mu.Unlock()
	c.wire.kill(why)
}

// end sets why the socket ends: mu is held, and it is the first reason.
func (c *conn) end(why error) {
	c.reason = why
	c.closing.Store(true)
}

// shake writes what is queued, then does the closing handshake. A peer that does not take part delays it by twice
// closeTimeout.
func (c *conn) shake(why *messages.Fault) {
	defer close(c.shaken)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.wire.await(ctx, 0) // what is not written by then has had its time
	_, status := statusOf(why.Code)
	if err := c.ws.Close(status, closeReason(why)); err != nil {
		c.log.Debug("a peer did not take part in closing", slog.Any(messages.KeyErr, err))
	}
}

// Ping implements actors.Conn. Any byte is a sign of life.
func (c *conn) Ping(ctx context.Context) error {
	heard := c.wire.nextByte()
	if !c.probe() {
		return c.closedError()
	}
	select {
	case <-heard:
		return nil
	case <-c.wire.done:
		return c.closedError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe makes the peer say something, unless it has just been asked to. It is false when the socket has ended.
func (c *conn) probe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	if c.pinging.CompareAndSwap(false, true) {
		c.server.work.Go(func() {
			defer c.pinging.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			// The answer is a byte like others: the wire hears it.
			if err := c.ws.Ping(ctx); err != nil {
				c.log.Debug("a ping was not answered", slog.Any(messages.KeyErr, err))
			}
		})
	}
	return true
}

// goodbye tells a peer that the orchestrator stops, and closes.
func (c *conn) goodbye() {
	const text = "the orchestrator stops"
	if !c.info.Client && !c.anonymous.Load() {
		_ = c.Send(&messages.Frame{Id: "gateway/goodbye", Body: &messages.Frame_Request{
			Request: messages.NewRequest(messages.VerbWorkerGoodbye, &messages.GoodbyeParams{
				Reason: "restart", Code: string(messages.CodeNotReady), Text: text,
			}),
		}}) // where it cannot be sent the socket is closing anyway
	}
	c.Close(messages.CodeNotReady, text)
}

// errorFrame makes an error a frame.
func errorFrame(id string, err error) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Error{Error: messages.ErrorOf(err)}}
}
