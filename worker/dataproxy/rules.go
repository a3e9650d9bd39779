package dataproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/swampd/swampd/messages"
)

// The paths that are forwarded.
const (
	dataPrefix = "/v1/data/"
	rpcPrefix  = "/v1/rpc/"
)

// kind is what sort of request it is, which decides how it may be repeated.
type kind int

const (
	kindNone  kind = iota // it is not forwarded
	kindRead              // it changes nothing and has no body
	kindAsk               // it changes nothing and has a short body
	kindWrite             // a repeat is safe by its request id
)

// classify tells what a request is, or refuses it.
func classify(r *http.Request) (kind, *messages.Fault) {
	path := r.URL.Path
	if verb, ok := strings.CutPrefix(path, rpcPrefix); ok {
		switch messages.Verb(verb) {
		case messages.VerbDataList, messages.VerbDataVersions, messages.VerbDataQuery:
		default:
			return kindNone, notHere()
		}
		if r.Method != http.MethodPost {
			return kindNone, messages.Faultf(messages.CodeInvalid, "%s is asked for with POST", verb)
		}
		return kindAsk, nil
	}
	name, ok := strings.CutPrefix(path, dataPrefix)
	if !ok || name == "" {
		return kindNone, notHere()
	}
	// The orchestrator's names have none of these; on the way to it they would become another path.
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return kindNone, messages.Faultf(messages.CodeInvalid, "the name of an artifact has no empty part and none that is '.' or '..'")
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return kindRead, nil
	case http.MethodPut, http.MethodPost, http.MethodDelete:
		return kindWrite, nil
	default:
		return kindNone, messages.Faultf(messages.CodeInvalid, "an artifact has no method %.20q: want GET, HEAD, PUT, POST or DELETE", r.Method)
	}
}

func notHere() *messages.Fault {
	return messages.Faultf(messages.CodeNotFound, "only the data plane is here: %sNAME, and %sdata.list, data.versions and data.query", dataPrefix, rpcPrefix)
}

// requestHeaders are those of a step's request that are passed on, in their canonical form. Its credential is not among
// them, nor what would name where it came from.
func requestHeaders() []string {
	return []string{
		"Accept", "Content-Encoding", "Content-Range", "Content-Type", idempotencyKey, "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since",
		"Range", "User-Agent",
	}
}

// idempotencyKey carries the request id of a write.
const idempotencyKey = "Idempotency-Key"

// passedOn returns the headers of a step's request as the orchestrator gets them.
func passedOn(from http.Header) http.Header {
	to := http.Header{}
	for _, name := range requestHeaders() {
		if values, ok := from[name]; ok {
			to[name] = slices.Clone(values)
		}
	}
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // else the HTTP client adds its own
	}
	return to
}

// dropHeaders removes from an answer what is between the worker and the orchestrator alone.
func dropHeaders(h http.Header) {
	for _, values := range h["Connection"] {
		for name := range strings.SplitSeq(values, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Www-Authenticate",
	} {
		h.Del(name)
	}
}

// target is where a request goes.
func target(base, asked *url.URL) *url.URL {
	return &url.URL{Scheme: base.Scheme, Host: base.Host, Path: asked.Path, RawPath: asked.RawPath, RawQuery: asked.RawQuery}
}
