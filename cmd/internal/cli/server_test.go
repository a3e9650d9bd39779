package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// testToken is the server token of a scripted orchestrator.
const testToken = "f00d"

// script is an orchestrator that answers as a test says.
type script struct {
	url string
	// answer answers a request; emit sends an event under it. An error that is no fault cuts the connection.
	answer func(ctx context.Context, verb messages.Verb, params proto.Message, emit func(*messages.RunEvent)) (proto.Message, error)
	// stream is answer for events of any kind. It replaces answer.
	stream func(ctx context.Context, send func(*messages.Event)) (proto.Message, error)

	mu   sync.Mutex
	seen []messages.Verb
	news chan struct{}
}

// newScript starts it.
func newScript(t *testing.T, answer func(context.Context, messages.Verb, proto.Message, func(*messages.RunEvent)) (proto.Message, error)) *script {
	t.Helper()
	s := &script{answer: answer, news: make(chan struct{}, 64)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// use makes a command talk to it.
func (s *script) use(h *testHost) {
	h.env["SWAMP_SERVER"] = s.url
	h.env["SWAMP_SERVER_TOKEN"] = testToken
}

// verbs is what has been asked for so far.
func (s *script) verbs() []messages.Verb {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]messages.Verb(nil), s.seen...)
}

// settle orders what an answer wrote down before what comes later: a connection alone does not.
func (s *script) settle() {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // an empty critical section is the point
}

// waitFor waits until the verb has been asked for.
func (s *script) waitFor(t *testing.T, verb messages.Verb) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !slices.Contains(s.verbs(), verb) {
		select {
		case <-s.news:
		case <-limit:
			t.Fatalf("%s was never asked for, only %v", verb, s.verbs())
		}
	}
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+testToken || r.URL.Path != messages.Path {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{messages.Subprotocol}})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	_, data, err := ws.Read(r.Context())
	if err != nil {
		return
	}
	frame, err := messages.DecodeFrame(data, messages.CodingProtobuf)
	if err != nil {
		return
	}
	ctx := ws.CloseRead(r.Context())
	verb := messages.Verb(frame.GetRequest().GetVerb())
	s.mu.Lock()
	s.seen = append(s.seen, verb)
	s.mu.Unlock()
	s.news <- struct{}{}
	send := func(f *messages.Frame) {
		f.Id = frame.GetId()
		if data, err := messages.EncodeFrame(f, messages.CodingProtobuf); err == nil {
			_ = ws.Write(ctx, websocket.MessageBinary, data)
		}
	}
	emit := func(e *messages.Event) { send(&messages.Frame{Body: &messages.Frame_Event{Event: e}}) }
	var result proto.Message
	if s.stream != nil {
		result, err = s.stream(ctx, emit)
	} else {
		result, err = s.answer(ctx, verb, messages.ParamsOf(frame.GetRequest()), func(e *messages.RunEvent) {
			emit(&messages.Event{Event: &messages.Event_Run{Run: e}})
		})
	}
	s.settle()
	switch {
	case err == nil:
		send(&messages.Frame{Body: &messages.Frame_Response{Response: messages.NewResponse(verb, result)}})
		<-ctx.Done()
	case isType[*messages.Fault](err):
		send(&messages.Frame{Body: &messages.Frame_Error{Error: messages.ErrorOf(err)}})
		<-ctx.Done()
	}
}

// always answers every request with the same.
func always(result proto.Message, err error) func(context.Context, messages.Verb, proto.Message, func(*messages.RunEvent)) (proto.Message, error) {
	return func(context.Context, messages.Verb, proto.Message, func(*messages.RunEvent)) (proto.Message, error) {
		return result, err
	}
}
