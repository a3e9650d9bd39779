package gateway

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// dataPath begins the paths of artifacts.
const dataPath = "/v1/data/"

// How many bodies may be on their way at once. One more is refused, with overloaded: what has begun goes on.
const (
	maxUploads   = 64
	maxDownloads = 256
)

// dataFirst takes what is for the data plane before the mux, which would redirect a path with tricks in it to another one.
func (s *Server) dataFirst(next http.Handler) http.Handler {
	data := s.sameOrigin(s.data)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), dataPath) {
			data(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// data serves /v1/data/<name>: artifacts, written and read.
func (s *Server) data(w http.ResponseWriter, r *http.Request) {
	plane := s.orchestrator.Data()
	if plane == nil {
		s.fail(w, messages.Faultf(messages.CodeNotReady, "the orchestrator is starting"))
		return
	}
	writer, err := s.writer(plane, r)
	if err != nil {
		s.failData(w, err)
		return
	}
	target, err := parseTarget(r.URL)
	if err != nil {
		s.failData(w, err)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.getData(w, r, plane, target)
	case http.MethodPut, http.MethodPost:
		s.putData(w, r, plane, writer, target)
	case http.MethodDelete:
		s.deleteData(w, r, plane, writer, target)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, POST, DELETE")
		s.refuse(w, http.StatusMethodNotAllowed, messages.Faultf(messages.CodeInvalid, "artifacts take GET, HEAD, PUT, POST and DELETE, not %s", r.Method))
	}
}

// failData refuses a request whose body may be on its way: what is left of it is not waited for.
func (s *Server) failData(w http.ResponseWriter, err error) {
	if messages.CodeOf(err) == messages.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	s.fail(w, err)
}

// writer tells who asks: a client with a server token, or a dispatch by its credential.
func (s *Server) writer(plane *actors.Data, r *http.Request) (actors.Writer, error) {
	switch s.bearerOf(r) {
	case bearerRight:
		return actors.Writer{}, nil
	case bearerNone:
		return actors.Writer{}, unauthorized()
	case bearerWrong: // as a server token
	}
	token, ok := bearerToken(r)
	if !ok {
		return actors.Writer{}, unauthorized()
	}
	return plane.Authenticate(token)
}

// dataTarget is what a path and its query name.
type dataTarget struct {
	name    string
	version uint32 // 0: the latest, or all
}

// parseTarget reads the name as it was sent. No byte that a name may have needs to be escaped, so that an escaped one is a trick
// or a mistake.
func parseTarget(u *url.URL) (dataTarget, error) {
	t := dataTarget{name: strings.TrimPrefix(u.EscapedPath(), dataPath)}
	if strings.Contains(t.name, "%") {
		return t, messages.Faultf(messages.CodeInvalid, "%q is no name of an artifact: nothing in one is escaped", t.name)
	}
	if err := actors.CheckArtifactName(t.name); err != nil {
		return t, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return t, messages.Faultf(messages.CodeInvalid, "the query of the URL cannot be read: %v", err)
	}
	for key, values := range query {
		if key != "version" || len(values) != 1 {
			return t, messages.Faultf(messages.CodeInvalid, "the URL takes one version=N and nothing else, not %q", u.RawQuery)
		}
		n, err := strconv.ParseUint(values[0], 10, 32)
		if err != nil || n == 0 || values[0][0] == '+' || values[0][0] == '0' {
			return t, messages.Faultf(messages.CodeInvalid, "%q is no version: it is a number from 1 on", values[0])
		}
		t.version = uint32(n)
	}
	return t, nil
}

func (s *Server) deleteData(w http.ResponseWriter, r *http.Request, plane *actors.Data, writer actors.Writer, target dataTarget) {
	key, err := oneHeader(r.Header, "Idempotency-Key")
	if err == nil {
		err = plane.Delete(r.Context(), writer, actors.DeleteRequest{
			Name: target.name, Version: target.version, RequestID: key, IfMatch: listHeader(r.Header, "If-Match"),
			IfNoneMatch: listHeader(r.Header, "If-None-Match"),
		})
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case r.Context().Err() == nil:
		s.failData(w, err)
	}
}

// oneHeader is a header that may stand there once.
func oneHeader(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) > 1 {
		return "", messages.Faultf(messages.CodeInvalid, "%s stands there %d times", name, len(values))
	}
	if len(values) == 0 {
		return "", nil
	}
	if values[0] == "" {
		return "", messages.Faultf(messages.CodeInvalid, "%s is empty", name)
	}
	return values[0], nil
}

// listHeader joins the lines of a list.
func listHeader(h http.Header, name string) string { return strings.Join(h.Values(name), ",") }
