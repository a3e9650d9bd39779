package gateway

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// connect upgrades a request to a WebSocket. Whoever presents the server token is a client; whoever presents nothing may
// enroll as a worker, and no more.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	bearer := s.bearerOf(r)
	if bearer == bearerWrong {
		s.fail(w, unauthorized())
		return
	}
	if !offersOurs(r) {
		s.fail(w, messages.Faultf(messages.CodeProtocolMismatch, "no known subprotocol is offered: offer %s or none", messages.Subprotocol))
		return
	}
	if !s.orchestrator.Ready() {
		s.fail(w, messages.Faultf(messages.CodeNotReady, "the orchestrator starts or stops"))
		return
	}
	c := &conn{
		server: s,
		info:   actors.ConnInfo{Remote: hostOf(r.RemoteAddr), Client: bearer == bearerRight},
		log:    s.log.With(slog.String(messages.KeyAddr, r.RemoteAddr)),
		opened: s.clock(),
		others: map[string]*question{},
		shaken: make(chan struct{}),
	}
	if fault := s.admit(c); fault != nil {
		s.fail(w, fault)
		return
	}
	if !c.open(w, r) {
		s.forget(c)
	}
}

// open upgrades the request and starts the socket's goroutines. Whatever made it fail has been answered.
func (c *conn) open(w http.ResponseWriter, r *http.Request) bool {
	c.wire, _ = r.Context().Value(wireKey{}).(*wire)
	// The origin has been looked at, and compression costs megabytes per socket.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{messages.Subprotocol},
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		c.log.Debug("no upgrade to a WebSocket", slog.Any(messages.KeyErr, err))
		return false
	}
	ws.SetReadLimit(-1) // the library would cut the connection at its limit: the loop has its own and answers
	c.ws = ws
	c.wire.limit.Store(queueAnonymous)
	if c.info.Client {
		c.wire.limit.Store(queueClient)
	}
	c.wire.detach()
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		c.wire.kill(errStopping)
		_ = ws.CloseNow() // the peer sees a cut, as if it had come a moment later
		return false
	}
	s.conns[c] = struct{}{}
	s.work.Go(c.wire.write)
	s.work.Go(c.run)
	return true
}

// admit counts a socket that has shown nothing yet.
func (s *Server) admit(c *conn) *messages.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return messages.Faultf(messages.CodeNotReady, "the orchestrator stops")
	}
	if c.info.Client {
		return nil
	}
	if s.anonymous >= maxAnonymous {
		return messages.Faultf(messages.CodeOverloaded, "%d connections wait to enroll: try again later", s.anonymous)
	}
	s.anonymous++
	c.anonymous.Store(true)
	return nil
}

// known stops counting a socket as one that has shown nothing.
func (s *Server) known(c *conn) {
	if c.anonymous.CompareAndSwap(true, false) {
		s.mu.Lock()
		s.anonymous--
		s.mu.Unlock()
	}
}

// forget drops a socket that is gone.
func (s *Server) forget(c *conn) {
	s.known(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// offersOurs tells whether a peer that names subprotocols names ours. Who names none is taken at its frames.
func offersOurs(r *http.Request) bool {
	offers := r.Header.Values("Sec-WebSocket-Protocol")
	if len(offers) == 0 {
		return true
	}
	return slices.ContainsFunc(strings.Split(strings.Join(offers, ","), ","), func(offer string) bool {
		return strings.EqualFold(strings.TrimSpace(offer), messages.Subprotocol)
	})
}

// hostOf is the address without the port, as rate limits need it.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
