package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// rpc is POST /v1/rpc/<verb>: the same verbs as on a socket, with JSON in and out.
func (s *Server) rpc(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, http.StatusMethodNotAllowed, messages.Faultf(messages.CodeInvalid, "use POST, not %s", r.Method))
		return
	}
	verb := messages.Verb(r.PathValue("verb"))
	if verb.From() != messages.PeerClient {
		s.fail(w, messages.Faultf(messages.CodeUnknownVerb, "unknown verb %q", string(verb)))
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	params, err := messages.DecodeParams(verb, body)
	if err != nil {
		s.fail(w, err)
		return
	}
	if verb.Streams() {
		s.stream(w, r, verb, params)
		return
	}
	result, err := s.orchestrator.Do(r.Context(), verb, params, nil)
	if err == nil {
		body, err = messages.MarshalShape(result)
	}
	switch {
	case err == nil:
		s.reply(w, http.StatusOK, body)
	case r.Context().Err() == nil: // else nobody is there to be told
		s.fail(w, err)
	}
}

// readBody reads the params of a verb.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, messages.MaxFrame))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, messages.Faultf(messages.CodeFrameTooLarge, "body is above the limit of %d bytes", messages.MaxFrame)
	}
	if err != nil {
		return nil, messages.Faultf(messages.CodeInvalid, "read the body: %v", err)
	}
	// The server goes on reading to see the client leave: without this the deadline would end a long answer.
	return body, control.SetReadDeadline(time.Time{})
}

// stream answers with one line for each event, and the result as the last. An error before the first line is an answer of
// its own, one after it is a line.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, verb messages.Verb, params proto.Message) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.streams, func() { cancel(context.Cause(s.streams)) })()
	out := &lines{w: w, control: http.NewResponseController(w)}
	result, err := s.orchestrator.Do(ctx, verb, params, func(e *messages.Event) error {
		switch {
		case e.GetRun() != nil:
			return out.write(e.GetRun())
		case e.GetBackup() != nil:
			return out.write(e.GetBackup())
		default:
			return errors.New("an event that is not a client's")
		}
	})
	if err == nil {
		err = out.write(result)
	}
	switch {
	case err == nil, r.Context().Err() != nil, out.broken:
		return
	case errors.Is(context.Cause(ctx), errStopping):
		err = messages.Faultf(messages.CodeNotReady, "%v", errStopping)
	}
	if !out.begun {
		s.fail(w, err)
		return
	}
	s.logInternal(err)
	out.fail(err)
}

// lines writes messages as lines of JSON, each of them sent at once.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	broken  bool
}

func (l *lines) write(m proto.Message) error {
	data, err := messages.MarshalShape(m)
	if err != nil {
		return err
	}
	return l.line(data)
}

func (l *lines) fail(err error) {
	data, encodeErr := messages.MarshalShape(messages.ErrorOf(err))
	if encodeErr != nil { // an error holds strings only
		return
	}
	_ = l.line(append(append([]byte(`{"error":`), data...), '}')) // the client left: nobody is there to be told
}

func (l *lines) line(data []byte) error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
	}
	err := l.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = l.w.Write(append(data, '\n'))
	}
	if err == nil {
		err = l.control.Flush()
	}
	l.broken = l.broken || err != nil
	return err
}
