package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"ws://127.0.0.1:4000":     "ws://127.0.0.1:4000",
		"wss://swamp.example/":    "wss://swamp.example",
		"http://localhost:1":      "http://localhost:1",
		"https://[::1]:65535":     "https://[::1]:65535",
		"WS://host":               "ws://host",
		"http://host.example:080": "http://host.example:080",
	}
	for text, want := range good {
		u, err := ParseURL(text)
		if err != nil || u.String() != want {
			t.Errorf("%q gives %v, %v", text, u, err)
		}
	}
	bad := map[string]string{
		"":                        "no orchestrator URL",
		"127.0.0.1:4000":          "want http",
		"localhost:4000":          "unknown scheme",
		"localhost":               "no scheme",
		"ftp://host":              "unknown scheme",
		"ws://":                   "no host",
		"ws://:4000":              "no host",
		"ws://host:":              "port",
		"ws://host:0":             "port",
		"ws://host:65536":         "port",
		"ws://host:x":             "port",
		"ws://host/v1/connect":    "path",
		"ws://host?a=b":           "query",
		"ws://host?":              "query",
		"ws://host#x":             "fragment",
		"ws://user:hunter2@host":  "user",
		"ws://ho st":              "host",
		"ws://host\n":             "want http",
		"ws://[::1":               "want http",
		"http://%zz":              "want http",
		"://host":                 "want http",
		"\x00":                    "want http",
		strings.Repeat("x", 1000): "no scheme",
	}
	for text, want := range bad {
		u, err := ParseURL(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.40q gives %v, %v; want one line with %q", text, u, err, want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"ws://127.0.0.1:4000", "https://[::1]:1/", "http://a?b#c", "ws://u:p@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseURL(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		if again, err := ParseURL(u.String()); err != nil || *again != *u {
			t.Errorf("%q gives %v, which gives %v, %v", text, u, again, err)
		}
	})
}

// wsServer is a WebSocket server whose every connection serve handles.
func wsServer(t testing.TB, protocol string, serve func(ctx context.Context, c *websocket.Conn)) *url.URL {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc(messages.Path, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(messages.MaxFrame)
		serve(t.Context(), c)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	u, err := ParseURL(strings.Replace(s.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// echo sends back what it gets.
func echo(ctx context.Context, c *websocket.Conn) {
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			return
		}
		if c.Write(ctx, kind, data) != nil {
			return
		}
	}
}

func TestDial_FramesGoThroughInOrder(t *testing.T) {
	t.Parallel()
	l, err := dialer(wsServer(t, messages.Subprotocol, echo), "v1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent []*messages.Frame
	for i := range 500 {
		sent = append(sent, outputFrame(fmt.Sprint(i), chunk{offset: uint32(i), stream: Stdout, data: make([]byte, i*97%chunkBytes)}))
	}
	wrote := make(chan error, 1)
	go func() {
		err := l.Write(ctx, sent[0])
		for rest := sent[1:]; err == nil && len(rest) > 0; {
			n := min(7, len(rest))
			err = l.(batchLink).WriteBatch(ctx, rest[:n])
			rest = rest[n:]
		}
		wrote <- err
	}()
	for _, want := range sent {
		got, err := l.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("frame %s came back as %.200v", want.GetId(), got)
		}
	}
	if err := receive(t, "the end of writing", wrote); err != nil {
		t.Fatal(err)
	}
	// A polite close needs a reader for the answer.
	go func() { _, _ = l.Read(ctx) }()
	if err := l.Close("", "bye"); err != nil {
		t.Error(err)
	}
	_ = l.Close("", "again")
}

func TestDial_ReadsTextFramesToo(t *testing.T) {
	t.Parallel()
	u := wsServer(t, messages.Subprotocol, func(ctx context.Context, c *websocket.Conn) {
		_ = c.Write(ctx, websocket.MessageText, []byte(`{"id":"7","ack":{"offset":3,"done":true}}`))
		_ = c.Write(ctx, websocket.MessageText, []byte(`nonsense`))
		_, _, _ = c.Read(ctx)
	})
	l, err := dialer(u, "v1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f, err := l.Read(ctx)
	if err != nil || f.GetId() != "7" || f.GetAck().GetOffset() != 3 || !f.GetAck().GetDone() {
		t.Errorf("frame %v, %v", f, err)
	}
	if _, err := l.Read(ctx); messages.CodeOf(err) != messages.CodeMalformed {
		t.Errorf("error %v", err)
	}
	cancel()
	_ = l.Close("", "")
}

func TestDial_ClosingTellsWhy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status websocket.StatusCode
		reason string
		code   messages.Code // empty: no fault
		text   string
	}{
		{"a code", 4014, "token_revoked: it was revoked", messages.CodeTokenRevoked, "it was revoked"},
		{"a code without text", 4018, "superseded: ", messages.CodeSuperseded, ""},
		{"a normal end", websocket.StatusNormalClosure, "not_ready: bye", "", "bye"},
		{"no words", websocket.StatusGoingAway, "", "", "1001"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := wsServer(t, messages.Subprotocol, func(_ context.Context, c *websocket.Conn) { _ = c.Close(tt.status, tt.reason) })
			l, err := dialer(u, "v1")(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Read(t.Context())
			var fault *messages.Fault
			if errors.As(err, &fault) != (tt.code != "") || tt.code != "" && fault.Code != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			_ = l.Close("", "")
		})
	}
}

func TestDial_TellsThePeerWhy(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	u := wsServer(t, messages.Subprotocol, func(ctx context.Context, c *websocket.Conn) {
		_, _, err := c.Read(ctx)
		closed <- err
	})
	l, err := dialer(u, "v1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = l.Read(t.Context()) }()
	if err := l.Close(messages.CodeInternal, strings.Repeat("ä", 200)); err != nil {
		t.Error(err)
	}
	var got websocket.CloseError
	if err := receive(t, "the end", closed); !errors.As(err, &got) || got.Code != closeCode || !strings.HasPrefix(got.Reason, "internal: ää") {
		t.Errorf("error %v", err)
	}
}

// TestDial_TheEndOfTheContextEndsEverything: a peer that neither reads nor writes holds nobody.
func TestDial_TheEndOfTheContextEndsEverything(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := wsServer(t, messages.Subprotocol, func(context.Context, *websocket.Conn) { <-release })
	defer close(release)
	l, err := dialer(u, "v1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	go func() {
		_, err := l.Read(ctx)
		ended <- err
	}()
	writing := make(chan struct{})
	go func() {
		batch := []*messages.Frame{outputFrame("a", chunk{data: make([]byte, 1<<20)}), outputFrame("b", chunk{data: make([]byte, 1<<20)})}
		close(writing)
		for {
			if err := l.(batchLink).WriteBatch(ctx, batch); err != nil {
				ended <- err
				return
			}
		}
	}()
	<-writing
	go func() { ended <- l.Close("", "") }()
	cancel()
	failed := 0
	for range 3 {
		if err := receive(t, "the end of a call", ended); err != nil {
			failed++
		}
	}
	if failed < 2 { // a close may succeed, reading and writing may not
		t.Errorf("%d calls failed", failed)
	}
	_ = l.Close("", "")
}

func TestDial_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	t.Cleanup(refusing.Close)
	tests := []struct {
		name string
		url  string
		want string
	}{
		{"nobody listens", "ws://" + nobody, "connection refused"},
		{"another server", refusing.URL, "503 Service Unavailable"},
		{"TLS to a plain server", strings.Replace(refusing.URL, "http", "https", 1), "HTTP response to HTTPS client"},
		{"another protocol", wsServer(t, "chat", echo).String(), "does not speak swamp.v1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, err := ParseURL(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			_, err = dialer(u, "v1")(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), u.Host) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestDial_GivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	u, err := ParseURL("ws://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := dialer(u, "v1")(ctx); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("error %v", err)
	}
}

// TestAgent_OverAWebSocket drains an agent over a real socket.
func TestAgent_OverAWebSocket(t *testing.T) {
	t.Parallel()
	said := make(chan string, 100)
	u := wsServer(t, messages.Subprotocol, func(ctx context.Context, c *websocket.Conn) {
		defer close(said)
		for {
			_, data, err := c.Read(ctx)
			if err != nil {
				said <- fmt.Sprint(websocket.CloseStatus(err))
				return
			}
			f, err := messages.DecodeFrame(data, messages.CodingProtobuf)
			if err != nil {
				t.Error(err)
				return
			}
			said <- describe(f)
			var answer *messages.Frame
			switch {
			case f.GetRequest().GetWorkerEnroll() != nil:
				answer = responseTo(f.GetId(), messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "gpu-1"})
			case f.GetRequest().GetWorkerStatus() != nil:
				answer = responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{})
			default:
				continue
			}
			if data, err = messages.EncodeFrame(answer, messages.CodingProtobuf); err != nil {
				t.Error(err)
			}
			_ = c.Write(ctx, websocket.MessageBinary, data)
		}
	})
	enrolled := make(chan struct{})
	a, err := New(Config{
		URL: u.String(), Token: "gpu-1.0123456789abcdef", MachineID: "m", Executor: execFunc(succeed), Version: "v1",
		OnEvent: func(e Event) {
			if e.Kind == EventEnrolled {
				close(enrolled)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-enrolled
		a.Drain("signal")
	}()
	reason, err := a.Run(t.Context())
	if reason != StopSignal || err != nil {
		t.Errorf("%s, %v", reason, err)
	}
	for _, want := range []string{"request worker.enroll", "status draining signal", "StatusNormalClosure"} {
		if got := receive(t, want, said); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}
