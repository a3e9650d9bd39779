package gateway

import (
	"context"
	"net"
	"sync"
)

// localListener takes connections from this process, over memory. They are as those of the network, but for TLS.
type localListener struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newLocalListener() *localListener {
	return &localListener{conns: make(chan net.Conn), ended: make(chan struct{})}
}

// DialLocal connects code of this process, such as the orchestrator's own worker: no address, no certificate and no limit
// of the network is between. It waits for Serve.
func (s *Server) DialLocal(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case s.local.conns <- far:
		return near, nil
	case <-s.local.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *localListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *localListener) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

// Addr implements net.Listener.
func (*localListener) Addr() net.Addr { return localAddr{} }

type localAddr struct{}

func (localAddr) Network() string { return "local" }
func (localAddr) String() string  { return "local" }
