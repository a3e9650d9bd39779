package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/swampd/swampd/messages"
)

// bearer tells what a request shows of a server token.
type bearer int

const (
	bearerNone bearer = iota
	bearerWrong
	bearerRight
)

// bearerOf looks at the Authorization header. Digests are compared, in constant time, so that neither length nor content
// of the token can be measured.
func (s *Server) bearerOf(r *http.Request) bearer {
	if len(r.Header.Values("Authorization")) == 0 {
		return bearerNone
	}
	token, ok := bearerToken(r)
	if !ok {
		return bearerWrong
	}
	digest := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(digest[:], s.tokenDigest[:]) != 1 {
		return bearerWrong
	}
	return bearerRight
}

// bearerToken is the token or credential of a request.
func bearerToken(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// unauthorized is what every request without a valid server token is told.
func unauthorized() *messages.Fault {
	return messages.Faultf(messages.CodeUnauthorized, "a valid server token is needed: send it as Authorization: Bearer TOKEN")
}

// foreign tells whether a browser sent the request for a page of another origin. Other programs send no Origin.
func foreign(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}

// sameOrigin refuses requests that a foreign page made a browser send.
func (s *Server) sameOrigin(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if foreign(r) {
			s.refuse(w, http.StatusForbidden, messages.Faultf(messages.CodeUnauthorized, "requests from pages of another origin are refused"))
			return
		}
		next(w, r)
	}
}

// authorized refuses requests without a valid server token.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.bearerOf(r) != bearerRight {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.fail(w, unauthorized())
			return
		}
		next(w, r)
	}
}

// mayCall is authorized, but lets a dispatch ask for what there is of data, with its credential.
func (s *Server) mayCall(next http.HandlerFunc) http.HandlerFunc {
	authorized := s.authorized(next)
	return func(w http.ResponseWriter, r *http.Request) {
		verb := messages.Verb(r.PathValue("verb"))
		plane := s.orchestrator.Data()
		if verb != messages.VerbDataList && verb != messages.VerbDataVersions && verb != messages.VerbDataQuery || plane == nil {
			authorized(w, r)
			return
		}
		if _, err := s.writer(plane, r); err != nil {
			s.failData(w, err)
			return
		}
		next(w, r)
	}
}
