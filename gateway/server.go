package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// errStopping is the cause of what Shutdown ends.
var errStopping = errors.New("the orchestrator stops")

// Server is the one listener of an orchestrator.
type Server struct {
	orchestrator actors.Orchestrator
	log          *slog.Logger
	tokenDigest  [sha256.Size]byte
	listener     net.Listener
	local        *localListener
	http         *http.Server
	runtime      *prometheus.Registry
	clock        func() time.Duration
	buffers      sync.Pool
	uploads      slots
	downloads    slots

	// streams ends when Shutdown begins: requests that answer as long as a run lasts end with it.
	streams context.Context //nolint:containedctx // it ends with the server's life, not with a caller's
	stop    context.CancelCauseFunc

	// work counts every goroutine of ours. It grows only under mu, or from a goroutine that it counts.
	work sync.WaitGroup

	mu        sync.Mutex
	stopping  bool
	conns     map[*conn]struct{}
	anonymous int
}

// New binds the listener, so that everything that can be wrong about it is known before anything else starts. It accepts
// nothing before Serve.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	tlsConfig, err := loadTLS(cfg)
	if err != nil {
		return nil, err
	}
	base := cfg.Listener
	if base == nil {
		if base, err = listen(cfg.Listen); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	s := &Server{
		orchestrator: cfg.Orchestrator,
		log:          cfg.Logger,
		tokenDigest:  sha256.Sum256([]byte(cfg.AdminToken.Reveal())),
		runtime:      newRuntimeRegistry(),
		local:        newLocalListener(),
		clock:        func() time.Duration { return time.Since(start) },
		conns:        map[*conn]struct{}{},
		uploads:      newSlots(maxUploads),
		downloads:    newSlots(maxDownloads),
	}
	s.streams, s.stop = context.WithCancelCause(context.Background())
	s.listener = &wireListener{Listener: base, clock: s.clock, buffers: &s.buffers}
	if tlsConfig != nil {
		s.listener = tls.NewListener(s.listener, tlsConfig)
	} else if s.PublicListener() {
		s.log.Warn("listening without TLS on a public address", slog.String(messages.KeyAddr, base.Addr().String()))
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &protocols,
		ErrorLog:          log.New(httpLog{cfg.Logger}, "", 0), //nolint:forbidigo // the HTTP server takes no other
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, wireKey{}, wireOf(c))
		},
	}
	return s, nil
}

// wireKey finds the wire of a request in its context.
type wireKey struct{}

func loadTLS(cfg Config) (*tls.Config, error) {
	if cfg.TLSCert == "" {
		return nil, nil //nolint:nilnil // no certificate is no error, and no configuration
	}
	cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("load the TLS certificate %s with its key %s: %w", cfg.TLSCert, cfg.TLSKey, err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"}, // a WebSocket is an upgrade of HTTP/1.1
	}, nil
}

func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the address is named already
	}
	next := "choose another address with --listen"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		next = "stop what listens there, or choose another address with --listen"
	case errors.Is(err, syscall.EACCES):
		next = "choose a port from 1024 on with --listen, or allow this program to bind that one"
	}
	return nil, &listenError{addr: addr, next: next, err: err}
}

// Addr is the address that is listened on, with the port that was taken.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// PublicListener tells whether the listener can be reached from beyond this machine.
func (s *Server) PublicListener() bool {
	tcp, ok := s.listener.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// Serve accepts until Shutdown, then returns nil. It is called once.
func (s *Server) Serve() error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return nil
	}
	s.work.Go(s.watchSilence)
	s.work.Go(func() { // it ends with Shutdown, and has nothing else to say
		_ = s.http.Serve(&wireListener{Listener: s.local, clock: s.clock, buffers: &s.buffers})
	})
	s.mu.Unlock()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("accept connections on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting, ends streams, says goodbye to every socket and waits until all are closed and all requests
// answered. When ctx ends before that, it cuts what is left and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	conns := s.connsLocked()
	s.mu.Unlock()
	s.stop(errStopping)
	for _, c := range conns {
		c.goodbye()
	}
	err := s.http.Shutdown(ctx)
	_ = s.listener.Close() // Serve may never have been called; closing twice is harmless
	_ = s.local.Close()
	done := make(chan struct{})
	go func() { // ends with the last of the goroutines it waits for
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		for _, c := range conns {
			c.die(errStopping)
		}
	}
	if err != nil {
		_ = s.http.Close() // what did not end in time is cut
		return fmt.Errorf("wait for sockets and requests to end: %w", err)
	}
	return nil
}

func (s *Server) connsLocked() []*conn {
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// allConns is a snapshot of the sockets.
func (s *Server) allConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connsLocked()
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+messages.Path, s.sameOrigin(s.connect))
	mux.HandleFunc("/v1/rpc/{verb}", s.sameOrigin(s.mayCall(s.rpc)))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	metrics := s.metrics
	if s.PublicListener() {
		metrics = s.authorized(metrics)
	}
	mux.HandleFunc("GET /metrics", metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, messages.Faultf(messages.CodeNotFound, "nothing is served as %s %s", r.Method, r.URL.Path))
	})
	return s.recovered(s.dataFirst(mux))
}
