package gateway

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/swampd/swampd/messages"
)

// fail answers a request with an error, by its code.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status, _ := statusOf(messages.CodeOf(err))
	s.refuse(w, status, err)
}

// refuse answers a request with an error and the given status.
func (s *Server) refuse(w http.ResponseWriter, status int, err error) {
	s.logInternal(err)
	body, encodeErr := messages.MarshalShape(messages.ErrorOf(err))
	if encodeErr != nil { // an error holds strings only
		body = []byte(`{"code":"internal"}`)
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	s.reply(w, status, body)
}

// reply answers a request with JSON.
func (s *Server) reply(w http.ResponseWriter, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // the write tells
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log.Debug("a client left before its answer", slog.Any(messages.KeyErr, err))
	}
}

// logInternal logs what the peer is not told.
func (s *Server) logInternal(err error) {
	if _, ok := errors.AsType[*messages.Fault](err); !ok {
		s.log.Error("a request failed by a fault of ours", slog.Any(messages.KeyErr, err))
	}
}

// recovered logs a handler's panic with its stack, which the HTTP server would not, and cuts the connection.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				s.log.Error("a request panicked", slog.Any(messages.KeyErr, cause), slog.String(messages.KeyStack, string(debug.Stack())))
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}
