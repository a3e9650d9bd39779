package testkit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/messages"
)

// Socket is a bare connection, for a peer that does what the test wants.
type Socket struct {
	f    *Fleet
	name string // whose it is, for the trace
	end  *gateway.PipeEnd
	half atomic.Bool // nothing gets through any more, and neither end knows
	// What is on its way in each direction, while frames take time.
	up, down lane
}

// Socket opens a connection on which nothing has been said yet. It is closed with the test.
func (f *Fleet) Socket(options ...WorkerOption) *Socket {
	f.t.Helper()
	is := description{remote: "192.0.2.250:7"}
	for _, o := range options {
		o.describe(&is)
	}
	ctx, cancel := f.patience()
	defer cancel()
	s, err := f.Dial(ctx, actors.ConnInfo{Remote: is.remote, Loopback: is.loopback})
	if err != nil {
		f.t.Fatalf("testkit: socket: %v", err)
	}
	f.t.Cleanup(s.Close)
	return s
}

// Dial opens a connection once the orchestrator is up. It has to be closed. Errors are *messages.Fault.
func (f *Fleet) Dial(ctx context.Context, info actors.ConnInfo) (*Socket, error) {
	system, err := f.up(ctx)
	if err != nil {
		return nil, err
	}
	s := &Socket{f: f}
	if s.end, err = gateway.Pipe(weather{system, s}, info); err != nil {
		return nil, err
	}
	return s, nil
}

// Send sends a frame; on a socket that is closed or half open it is lost.
func (s *Socket) Send(frame *messages.Frame) { _ = s.write(context.WithoutCancel(s.f.ctx), frame) }

// write is Send with a context, for who wants to know.
func (s *Socket) write(ctx context.Context, frame *messages.Frame) error {
	if s.half.Load() {
		return nil
	}
	s.f.trace.frame(s.name, "->", frame)
	return s.up.send(s.f, frame, func(f *messages.Frame) error {
		if s.half.Load() {
			return nil
		}
		return s.end.Write(ctx, f)
	})
}

// Delay has each frame that is sent from now on take that long, in either direction. 0 ends it.
func (s *Socket) Delay(d time.Duration) {
	s.up.take(d)
	s.down.take(d)
}

// Receive waits for the next frame; the error is why the socket was closed.
func (s *Socket) Receive() (*messages.Frame, error) {
	s.f.t.Helper()
	ctx, cancel := s.f.patience()
	defer cancel()
	return s.end.Read(ctx)
}

// Read is Receive with a context.
func (s *Socket) Read(ctx context.Context) (*messages.Frame, error) { return s.end.Read(ctx) }

// HalfOpen lets nothing through any more, in either direction, without telling either end.
func (s *Socket) HalfOpen() { s.half.Store(true) }

// Close closes the socket. Closing twice is harmless.
func (s *Socket) Close() { _ = s.end.Close(messages.CodeUnavailable, "closed by the test") }

// weather is the orchestrator as it is reached through the network.
type weather struct {
	*actors.System
	socket *Socket
}

// Connect implements [actors.Orchestrator].
func (w weather) Connect(conn actors.Conn, info actors.ConnInfo) (actors.Session, error) {
	return w.System.Connect(weatherConn{conn, w.socket}, info)
}

// weatherConn is the orchestrator's end of a link that may be half open.
type weatherConn struct {
	actors.Conn
	socket *Socket
}

// Send implements [actors.Conn].
func (c weatherConn) Send(f *messages.Frame) error {
	s := c.socket
	if s.half.Load() {
		return nil
	}
	s.f.trace.frame(s.name, "<-", f)
	return s.down.send(s.f, f, func(f *messages.Frame) error {
		if s.half.Load() {
			return nil
		}
		return c.Conn.Send(f)
	})
}

// Ping implements [actors.Conn].
func (c weatherConn) Ping(ctx context.Context) error {
	if c.socket.half.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	c.socket.up.pass(ctx)
	c.socket.down.pass(ctx)
	return c.Conn.Ping(ctx)
}
