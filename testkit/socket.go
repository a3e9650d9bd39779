package testkit

import (
	"context"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/messages"
)

// Socket is a bare connection, for a peer that does not behave. It is closed with the test.
type Socket struct {
	f   *Fleet
	end *gateway.PipeEnd
}

// Socket opens a connection on which nothing has been said yet.
func (f *Fleet) Socket(options ...WorkerOption) *Socket {
	f.t.Helper()
	is := description{remote: "192.0.2.250:7"}
	for _, o := range options {
		o.describe(&is)
	}
	ctx, cancel := f.patience()
	defer cancel()
	system, err := f.up(ctx)
	if err != nil {
		f.t.Fatalf("testkit: socket: %v", err)
	}
	end, err := gateway.Pipe(system, actors.ConnInfo{Remote: is.remote, Loopback: is.loopback})
	if err != nil {
		f.t.Fatalf("testkit: socket: %v", err)
	}
	s := &Socket{f: f, end: end}
	f.t.Cleanup(s.Close)
	return s
}

// Send sends a frame; on a socket that is closed it is lost.
func (s *Socket) Send(frame *messages.Frame) {
	_ = s.end.Write(context.WithoutCancel(s.f.ctx), frame)
}

// Receive waits for the next frame; the error is why the socket was closed.
func (s *Socket) Receive() (*messages.Frame, error) {
	s.f.t.Helper()
	ctx, cancel := s.f.patience()
	defer cancel()
	return s.end.Read(ctx)
}

// Close closes the socket. Closing twice is harmless.
func (s *Socket) Close() { _ = s.end.Close(messages.CodeUnavailable, "closed by the test") }
