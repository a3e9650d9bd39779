package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "the-server-token"

// patience bounds what must happen; no test passes by waiting for it.
const patience = 20 * time.Second

// fakeOrchestrator does what a test tells it to.
type fakeOrchestrator struct {
	notReady atomic.Bool
	interval time.Duration
	sessions chan *fakeSession
	refusal  error
	// onFrame, if set, is called in Receive.
	onFrame func(*fakeSession, *messages.Frame)
	do      func(context.Context, messages.Verb, proto.Message, actors.Emit) (proto.Message, error)
	numbers func(context.Context) (actors.Metrics, error)
}

func newFake() *fakeOrchestrator {
	return &fakeOrchestrator{interval: time.Minute, sessions: make(chan *fakeSession, 1000)}
}

func (o *fakeOrchestrator) Connect(c actors.Conn, info actors.ConnInfo) (actors.Session, error) {
	if o.refusal != nil {
		return nil, o.refusal
	}
	s := &fakeSession{o: o, conn: c, info: info, frames: make(chan *messages.Frame, 1000), closed: make(chan ending, 2)}
	o.sessions <- s
	return s, nil
}

func (o *fakeOrchestrator) Do(ctx context.Context, v messages.Verb, p proto.Message, e actors.Emit) (proto.Message, error) {
	return o.do(ctx, v, p, e)
}

func (o *fakeOrchestrator) Data() *actors.Data { return nil }

func (o *fakeOrchestrator) Ready() bool                 { return !o.notReady.Load() }
func (o *fakeOrchestrator) PingInterval() time.Duration { return o.interval }

func (o *fakeOrchestrator) Metrics(ctx context.Context) (actors.Metrics, error) {
	return o.numbers(ctx)
}

// fakeSession keeps what it receives.
type fakeSession struct {
	o      *fakeOrchestrator
	conn   actors.Conn
	info   actors.ConnInfo
	frames chan *messages.Frame
	closed chan ending
	over   atomic.Bool
	late   atomic.Bool // a frame came after the end
}

func (s *fakeSession) Receive(f *messages.Frame) {
	if s.over.Load() {
		s.late.Store(true)
	}
	if s.o.onFrame != nil {
		s.o.onFrame(s, f)
		return
	}
	s.frames <- f
}

func (s *fakeSession) Closed(reason error) {
	s.over.Store(true)
	s.closed <- ending{reason}
}

// ended returns why the session ended, which it must have been told once and after its last frame.
func (s *fakeSession) ended(t testing.TB) error {
	t.Helper()
	reason := take(t, s.closed, "the end of the session").reason
	if s.late.Load() || len(s.closed) > 0 {
		t.Errorf("a frame after the end: %t, ends: %d more", s.late.Load(), len(s.closed))
	}
	return reason
}

// ending is why a session ended.
type ending struct{ reason error }

// take returns what comes from a channel.
func take[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// fixture is a server under test.
type fixture struct {
	*fakeOrchestrator
	server *Server
	url    string
	logs   *logBuffer
	// dial reaches the server, whatever its listener.
	dial   func(context.Context, string, string) (net.Conn, error)
	client *http.Client
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// serve starts a server for the fake on a port of its own, or with what change makes of the configuration.
func serve(t testing.TB, fake *fakeOrchestrator, change func(*Config)) *fixture {
	t.Helper()
	logs := &logBuffer{}
	cfg := Config{Listen: "127.0.0.1:0", AdminToken: testToken, Orchestrator: fake, Logger: logs.logger()}
	if change != nil {
		change(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		fakeOrchestrator: fake, server: server, url: "http://" + server.Addr().String(), logs: logs,
		dial: (&net.Dialer{}).DialContext,
	}
	if m, ok := cfg.Listener.(*memListener); ok {
		f.url, f.dial = "http://memory", m.dial
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return f.dial(ctx, network, addr)
	}}
	f.client = &http.Client{Transport: transport}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

// memListener is a listener without a network, for virtual time.
type memListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (l *memListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, errors.New("closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// peer is a WebSocket to the server under test, and the session behind it.
type peer struct {
	t       testing.TB
	ws      *websocket.Conn
	session *fakeSession
}

// open dials with the given header.
func (f *fixture) open(t testing.TB, header http.Header) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, f.url+messages.Path, &websocket.DialOptions{
		HTTPClient: f.client, HTTPHeader: header, Subprotocols: []string{messages.Subprotocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// connect dials as a client, or as somebody without a server token.
func (f *fixture) connect(t testing.TB, client bool) *peer {
	t.Helper()
	var header http.Header
	if client {
		header = withToken()
	}
	ws := f.open(t, header)
	return &peer{t: t, ws: ws, session: take(t, f.sessions, "a session")}
}

func (p *peer) sendRaw(typ websocket.MessageType, data []byte) {
	p.t.Helper()
	if err := p.ws.Write(context.Background(), typ, data); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

func (p *peer) send(coding messages.Coding, f *messages.Frame) {
	p.t.Helper()
	data, err := messages.EncodeFrame(f, coding)
	if err != nil {
		p.t.Fatal(err)
	}
	p.sendRaw(typeOf(coding), data)
}

func typeOf(coding messages.Coding) websocket.MessageType {
	if coding == messages.CodingJSON {
		return websocket.MessageText
	}
	return websocket.MessageBinary
}

// read returns the next frame and its coding.
func (p *peer) read() (*messages.Frame, messages.Coding, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	typ, data, err := p.ws.Read(ctx)
	if err != nil {
		return nil, 0, err
	}
	coding := messages.CodingProtobuf
	if typ == websocket.MessageText {
		coding = messages.CodingJSON
	}
	f, err := messages.DecodeFrame(data, coding)
	return f, coding, err
}

func (p *peer) mustRead() (*messages.Frame, messages.Coding) {
	p.t.Helper()
	f, coding, err := p.read()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return f, coding
}

// status reads until the socket ends and returns how it was closed.
func (p *peer) status() (websocket.StatusCode, string) {
	p.t.Helper()
	for {
		_, _, err := p.read()
		var closed websocket.CloseError
		if errors.As(err, &closed) {
			return closed.Code, closed.Reason
		}
		if err != nil {
			return -1, err.Error()
		}
	}
}

// exchange shows that the socket works both ways.
func (p *peer) exchange(id string) {
	p.t.Helper()
	p.send(messages.CodingJSON, ping(id))
	got := take(p.t, p.session.frames, "the request "+id)
	if got.GetId() != id {
		p.t.Fatalf("received id %q, want %q", got.GetId(), id)
	}
	if err := p.session.conn.Send(pong(id)); err != nil {
		p.t.Fatal(err)
	}
	if f, _ := p.mustRead(); f.GetId() != id || f.GetResponse() == nil {
		p.t.Fatalf("answer %v", f)
	}
}

func ping(id string) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerPing, &messages.PingParams{}),
	}}
}

func pong(id string) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Response{
		Response: messages.NewResponse(messages.VerbWorkerPing, &messages.PingResult{}),
	}}
}

func enrolled(id string) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Response{
		Response: messages.NewResponse(messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "w"}),
	}}
}

// output is a frame of about the given size.
func output(id string, size int) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Event{Event: &messages.Event{
		Event: &messages.Event_Output{Output: &messages.OutputChunk{Stream: "stdout", Data: bytes.Repeat([]byte{'x'}, size)}},
	}}}
}

// answer is what HTTP answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// call makes an HTTP request.
func (f *fixture) call(t testing.TB, method, path, body string, header http.Header) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	response, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(data)}
}

func withToken() http.Header { return http.Header{"Authorization": {"Bearer " + testToken}} }
