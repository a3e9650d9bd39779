package dataproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/swampd/swampd/messages"
)

// errorBytes bounds what is read of an answer that says that something is wrong.
const errorBytes = 64 << 10

// statusOf is the HTTP status of the faults that are answered here.
func statusOf(code messages.Code) int {
	switch code {
	case messages.CodeInvalid, messages.CodeDigestMismatch:
		return http.StatusBadRequest
	case messages.CodeNotFound:
		return http.StatusNotFound
	case messages.CodeFrameTooLarge:
		return http.StatusRequestEntityTooLarge
	case messages.CodeNoSpace:
		return http.StatusInsufficientStorage
	case messages.CodeUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// faultAnswer is an answer of the worker's own, in the form of the orchestrator's.
func faultAnswer(req *http.Request, f *messages.Fault) *http.Response {
	body, err := messages.MarshalShape(messages.ErrorOf(f))
	if err != nil { // it holds strings only
		body = []byte(`{"code":"internal"}`)
	}
	status := statusOf(f.Code)
	return wholeAnswer(req, status, http.Header{"Content-Type": {"application/json"}}, append(body, '\n'))
}

// wholeAnswer is an answer whose body is here.
func wholeAnswer(req *http.Request, status int, header http.Header, body []byte) *http.Response {
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}

// bad is an answer that says that something is wrong, read as a whole.
type bad struct {
	status int
	header http.Header
	body   []byte
	code   messages.Code // empty: it is not in the form of ours
}

// readBad reads an answer whose status is not of success. An answer that broke off is an error.
func readBad(resp *http.Response) (*bad, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, errorBytes))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var said struct {
		Code messages.Code `json:"code"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Code = ""
	}
	return &bad{status: resp.StatusCode, header: resp.Header, body: body, code: said.Code}, nil
}

func (b *bad) answer(req *http.Request) *http.Response {
	header := b.header.Clone()
	dropHeaders(header)
	return wholeAnswer(req, b.status, header, b.body)
}

// refused tells whether it is the credential that is not accepted.
func (b *bad) refused() bool { return b.status == http.StatusUnauthorized }

// passing tells whether asking again may help.
func (b *bad) passing() bool {
	switch b.code {
	case messages.CodeNoSpace: // a person should hear of it now
		return false
	case messages.CodeUnauthorized, messages.CodeNotReady, messages.CodeNotLeader, messages.CodeUnavailable, messages.CodeOverloaded,
		messages.CodeRateLimited, messages.CodeTooManyRequests:
		return true
	default:
	}
	switch b.status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}
