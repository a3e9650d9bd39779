package dataproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// MaxPath is what the path of a socket may take on every system.
	MaxPath = 103
	// atOnce bounds the requests of one step that are under way; others wait for their turn.
	atOnce        = 32
	headerTimeout = 30 * time.Second
	maxHeader     = 64 << 10
	copyBytes     = 64 << 10
)

var errClosed = errors.New("the step has ended")

// Socket serves a step's requests on a Unix socket.
type Socket struct {
	path   string
	server *http.Server
	end    context.CancelCauseFunc
	work   sync.WaitGroup // grows under mu, and not once closed
	turns  chan struct{}

	mu     sync.Mutex
	closed bool
}

// Listen serves what rt answers at path, in a folder that only this user may enter. Whoever calls it has to call Close.
func Listen(rt http.RoundTripper, path string) (*Socket, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("data socket %s: its path is longer than %d bytes", path, MaxPath)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("data socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("data socket: %w", err), listener.Close())
	}
	ctx, end := context.WithCancelCause(context.Background())
	s := &Socket{path: path, end: end, turns: make(chan struct{}, atOnce)}
	s.server = &http.Server{
		Handler:           s.handler(rt),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), //nolint:forbidigo // the HTTP server takes no other
	}
	s.work.Go(func() { _ = s.server.Serve(listener) }) // it ends with Close, and has nothing else to say
	return s, nil
}

// URL is what a step finds it by: unix:// and an absolute path.
func (s *Socket) URL() string { return "unix://" + filepath.ToSlash(s.path) }

// Close cuts what is under way, and returns when nothing of it is left.
func (s *Socket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	err := s.server.Close() // which also removes the socket
	s.work.Wait()
	return err
}

// enter counts a request in.
func (s *Socket) enter(ctx context.Context) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.work.Add(1)
	s.mu.Unlock()
	select {
	case s.turns <- struct{}{}:
		return true
	case <-ctx.Done():
		s.work.Done()
		return false
	}
}

func (s *Socket) leave() {
	<-s.turns
	s.work.Done()
}

func (s *Socket) handler(rt http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter(r.Context()) {
			panic(http.ErrAbortHandler) // nobody waits for an answer
		}
		defer s.leave()
		resp, err := rt.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler) // its context has ended: so has the connection, or the step
		}
		defer resp.Body.Close()
		header := w.Header()
		for name, values := range resp.Header {
			header[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		if r.Method == http.MethodHead {
			return
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, make([]byte, copyBytes)); err != nil {
			panic(http.ErrAbortHandler) // so that half an answer does not look like a whole one
		}
	})
}
