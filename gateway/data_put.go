package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// stopTimeout is what a body that is on its way gets once the orchestrator stops.
const stopTimeout = 3 * time.Second

// putData takes a new version (PUT), or what is to be appended to one (POST).
func (s *Server) putData(w http.ResponseWriter, r *http.Request, plane *actors.Data, writer actors.Writer, target dataTarget) {
	req, err := s.writeRequest(r, target)
	if err != nil {
		s.failData(w, err)
		return
	}
	if !s.uploads.enter() {
		s.failData(w, messages.Faultf(messages.CodeOverloaded, "%d bodies are on their way already: write again a little later", maxUploads))
		return
	}
	defer s.uploads.leave()
	control := http.NewResponseController(w)
	// The answer has its own time, behind the body's.
	if err := control.SetWriteDeadline(time.Time{}); err != nil {
		s.failData(w, err)
		return
	}
	body := &upload{body: r.Body, deadline: control.SetReadDeadline}
	defer context.AfterFunc(s.streams, body.stop)()
	req.Body = body
	write := plane.Put
	if r.Method == http.MethodPost {
		write = plane.Append
	}
	done, err := write(r.Context(), writer, req)
	if err == nil {
		err = control.SetReadDeadline(time.Time{})
	}
	var answer []byte
	if err == nil {
		answer, err = messages.MarshalShape(done.Item)
	}
	switch {
	case err == nil:
	case body.err != nil:
		s.refuseBody(w, body)
		return
	case r.Context().Err() != nil: // nobody is there to be told
		return
	default:
		s.failData(w, err)
		return
	}
	status := http.StatusOK
	if done.Created {
		status = http.StatusCreated
	}
	w.Header().Set("ETag", actors.ArtifactTag(done.Item))
	s.reply(w, status, answer)
}

// refuseBody answers a request whose body did not come as it should.
func (s *Server) refuseBody(w http.ResponseWriter, body *upload) {
	w.Header().Set("Connection", "close") // what follows cannot be told from the rest of the body
	switch {
	case body.stopped.Load():
		s.fail(w, messages.Faultf(messages.CodeNotReady, "%v", errStopping))
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		s.refuse(w, http.StatusRequestTimeout, messages.Faultf(messages.CodeUnavailable, "no byte of the body came in %s", bodyTimeout))
	default:
		s.fail(w, messages.Faultf(messages.CodeInvalid, "the body ends before its end: %v", body.err))
	}
}

// writeRequest reads what stands in the headers of a write.
func (s *Server) writeRequest(r *http.Request, target dataTarget) (actors.WriteRequest, error) {
	none := actors.WriteRequest{}
	if target.version != 0 {
		return none, messages.Faultf(messages.CodeInvalid, "a version cannot be written again: leave version=%d out", target.version)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return none, messages.Faultf(messages.CodeInvalid, "a body is kept as it is: send it without a Content-Encoding, not as %q", coding)
	}
	if r.Header.Get("Content-Range") != "" {
		return none, messages.Faultf(messages.CodeInvalid, "a body is written whole: send it without a Content-Range")
	}
	key, err := oneHeader(r.Header, "Idempotency-Key")
	if err != nil {
		return none, err
	}
	contentType, err := oneHeader(r.Header, "Content-Type")
	if err != nil {
		return none, err
	}
	announced, err := contentDigest(r.Header)
	if err != nil {
		return none, err
	}
	return actors.WriteRequest{
		Name: target.name, ContentType: contentType, RequestID: key, IfMatch: listHeader(r.Header, "If-Match"),
		IfNoneMatch: listHeader(r.Header, "If-None-Match"),
		Verify: func(sum [sha256.Size]byte) error {
			trailing, err := contentDigest(r.Trailer) // which has come with the end of the body
			if err != nil {
				return err
			}
			for _, want := range []*[sha256.Size]byte{announced, trailing} {
				if want != nil && *want != sum {
					return messages.Faultf(messages.CodeDigestMismatch, "the body's SHA-256 is %x, and %x was announced", sum, *want)
				}
			}
			return nil
		},
	}, nil
}

// upload is a body that has time for each piece, not for all of it. The first error stays.
type upload struct {
	body     io.Reader
	deadline func(time.Time) error
	stopped  atomic.Bool
	err      error
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	if !u.stopped.Load() {
		if err := u.deadline(time.Now().Add(bodyTimeout)); err != nil {
			return 0, u.fail(err)
		}
		if u.stopped.Load() { // it was stopped in between, and its deadline was put off
			u.stop()
		}
	}
	n, err := u.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, u.fail(err)
	}
	return n, err
}

func (u *upload) fail(err error) error {
	u.err = err
	return fmt.Errorf("read the body: %w", err)
}

// stop leaves the body a little time to end.
func (u *upload) stop() {
	u.stopped.Store(true)
	_ = u.deadline(time.Now().Add(stopTimeout)) // the read tells
}

// slots are a bounded number of places.
type slots struct{ places chan struct{} }

func newSlots(n int) slots { return slots{make(chan struct{}, n)} }

func (s slots) enter() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) leave() { <-s.places }
