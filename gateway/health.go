package gateway

import (
	"log/slog"
	"net/http"

	"github.com/swampd/swampd/messages"
)

// healthz says that the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.say(w, http.StatusOK, "ok\n")
}

// readyz says whether connections are accepted.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.orchestrator.Ready() {
		s.say(w, http.StatusServiceUnavailable, "not ready\n")
		return
	}
	s.say(w, http.StatusOK, "ready\n")
}

func (s *Server) say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write([]byte(text)); err != nil {
		s.log.Debug("a client left before its answer", slog.Any(messages.KeyErr, err))
	}
}
