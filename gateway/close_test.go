package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

func TestConn_CloseWritesWhatIsQueuedAndSaysWhy(t *testing.T) {
	t.Parallel()
	p := serve(t, newFake(), nil).connect(t, false)
	p.exchange("1")
	const frames = 20
	for range frames {
		if err := p.session.conn.Send(output("1", 4<<10)); err != nil {
			t.Fatal(err)
		}
	}
	p.session.conn.Close(messages.CodeSuperseded, "a newer socket took over")
	p.session.conn.Close(messages.CodeInternal, "closing twice is harmless")
	if err := p.session.conn.Send(pong("late")); messages.CodeOf(err) != messages.CodeSuperseded {
		t.Errorf("send after close: %v", err)
	}
	for i := range frames {
		if _, _, err := p.read(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if status, reason := p.status(); status != 4018 || reason != "superseded: a newer socket took over" {
		t.Errorf("closed with %d %q", status, reason)
	}
	if code := messages.CodeOf(p.session.ended(t)); code != messages.CodeSuperseded {
		t.Errorf("the session was told %s", code)
	}
}

func TestConn_FramesAfterCloseAreDropped(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		p := f.connect(t, true)
		p.session.conn.Close(messages.CodeSuperseded, "x")
		p.send(messages.CodingJSON, ping("late"))
		if status, _ := p.status(); status != 4018 {
			t.Errorf("closed with %d", status)
		}
		<-p.session.closed
		if len(p.session.frames) > 0 {
			t.Errorf("received %v", <-p.session.frames)
		}
	})
}

func TestConn_APeerThatIgnoresCloseIsCutAfterAWhile(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		deaf, mute := f.raw(t, true), f.raw(t, true)
		cut := mute.discard() // reads, and answers nothing
		for _, p := range []*rawPeer{deaf, mute} {
			start := time.Now()
			p.session.conn.Close(messages.CodeSuperseded, "x")
			if took := time.Since(start); took > 0 {
				t.Errorf("Close waited %s", took)
			}
		}
		start := time.Now()
		<-cut
		within(t, time.Since(start), closeTimeout, closeTimeout+lingerTimeout)
		_, err := io.Copy(io.Discard, deaf.in)
		<-deaf.session.closed
		within(t, time.Since(start), closeTimeout, 2*closeTimeout+lingerTimeout)
		if err != nil {
			t.Logf("the deaf peer reads: %v", err)
		}
	})
}

func TestConn_ThePeerLeaves(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		leave func(*websocket.Conn)
		want  string
	}{
		{"with a reason", func(ws *websocket.Conn) { _ = ws.Close(websocket.StatusNormalClosure, "done") }, "the peer closed the socket with status 1000: done"},
		{"with a status", func(ws *websocket.Conn) { _ = ws.Close(4123, "") }, "the peer closed the socket with status 4123"},
		{"without a status", func(ws *websocket.Conn) { _ = ws.Close(websocket.StatusNoStatusRcvd, "") }, "the peer closed the socket"},
		{"without a word", func(ws *websocket.Conn) { _ = ws.CloseNow() }, "the peer cut the connection"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, newFake(), nil).connect(t, true)
			p.exchange("1")
			tt.leave(p.ws)
			if reason := p.session.ended(t); reason.Error() != tt.want {
				t.Errorf("reason %q, want %q", reason, tt.want)
			}
			if err := p.session.conn.Send(pong("1")); err == nil {
				t.Error("a frame was sent to nobody")
			}
			p.session.conn.Close(messages.CodeInternal, "late")
		})
	}
}

// The peer gets its own close frame back, though the library closes the connection in the same breath.
func TestConn_AClosingPeerIsAnswered(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	for range 50 {
		p := f.connect(t, true)
		if err := p.ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Fatalf("the handshake: %v", err)
		}
		_ = p.session.ended(t)
	}
}

func TestCloseReason_FitsACloseFrame(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("x", 200), strings.Repeat("ü", 100), strings.Repeat("€", 100), strings.Repeat("🙂", 100)} {
		reason := closeReason(&messages.Fault{Code: messages.CodeInvalid, Text: text})
		if len(reason) > maxReason || !utf8.ValidString(reason) || !strings.HasPrefix("invalid: "+text, reason) {
			t.Errorf("%q became %q", text, reason)
		}
		if len("invalid: "+text) > maxReason && len(reason) < maxReason-3 {
			t.Errorf("%q was cut to %d bytes", text, len(reason))
		}
	}
}

func TestStatusOf_EveryCodeHasItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[websocket.StatusCode]messages.Code{}
	for _, code := range messages.AllRequestCodes() {
		http, ws := statusOf(code)
		if http < 400 || http > 599 || ws <= 4000 || ws > 4999 {
			t.Errorf("%s is %d and %d", code, http, ws)
		}
		if other, twice := seen[ws]; twice {
			t.Errorf("%s and %s are both %d", code, other, ws)
		}
		seen[ws] = code
		// What may be tried again is never blamed on the request as such.
		if !code.Permanent() && http < 500 && http != 409 && http != 429 {
			t.Errorf("%s is transient and HTTP says %d", code, http)
		}
	}
	if http, ws := statusOf("of_the_future"); http != 500 || ws != 4000 {
		t.Errorf("an unknown code is %d and %d", http, ws)
	}
}

func TestShutdown_SaysGoodbye(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	worker, client, nobody := f.connect(t, false), f.connect(t, true), f.connect(t, false)
	worker.exchange("1") // in JSON
	if err := worker.session.conn.Send(enrolled("2")); err != nil {
		t.Fatal(err)
	}
	worker.mustRead()
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(context.Background()) }()
	got, coding := worker.mustRead()
	want := &messages.GoodbyeParams{Reason: "restart", Code: "not_ready", Text: "the orchestrator stops"}
	if bye := got.GetRequest().GetWorkerGoodbye(); bye.String() != want.String() || coding != messages.CodingJSON {
		t.Errorf("goodbye %v in coding %d", got, coding)
	}
	for name, p := range map[string]*peer{"worker": worker, "client": client, "nobody": nobody} {
		if status, reason := p.status(); status != 4020 || reason != "not_ready: the orchestrator stops" {
			t.Errorf("%s: closed with %d %q", name, status, reason)
		}
		if code := messages.CodeOf(p.session.ended(t)); code != messages.CodeNotReady {
			t.Errorf("%s: the session was told %s", name, code)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := f.dial(t.Context(), "tcp", f.server.Addr().String()); err == nil {
		t.Error("it still accepts connections")
	}
}

func TestShutdown_EndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	fake := func() *fakeOrchestrator {
		fake := newFake()
		release = make(chan struct{})
		fake.onFrame = func(*fakeSession, *messages.Frame) { <-release }
		return fake
	}
	bubble(t, fake, func(t *testing.T, f *fixture) {
		p := f.connect(t, true)
		p.send(messages.CodingJSON, ping("stuck"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := f.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		within(t, time.Since(start), time.Minute, time.Minute)
		close(release)
		<-p.session.closed
	})
}

// A socket whose upgrade crosses Shutdown gets no session and no goroutine, and is cut.
func TestShutdown_CutsAnUpgradeThatComesTooLate(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	w := newWire(theirs, func() time.Duration { return 0 }, &sync.Pool{})
	c := &conn{server: &Server{stopping: true, conns: map[*conn]struct{}{}}, log: slog.New(slog.DiscardHandler)}
	request := upgrade(t)
	request = request.WithContext(context.WithValue(request.Context(), wireKey{}, w))
	if c.open(&hijacked{httptest.NewRecorder(), w}, request) {
		t.Error("it was opened")
	}
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the peer reads: %v", err)
	}
	if len(c.server.conns) > 0 {
		t.Error("it is still known")
	}
}

func TestShutdown_BeforeServe(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Listen: "127.0.0.1:0", AdminToken: testToken, Orchestrator: newFake(), Logger: (&logBuffer{}).logger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Serve(); err != nil {
		t.Error(err)
	}
}
