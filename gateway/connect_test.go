package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

func TestConnect_WhoMayUpgrade(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		header   http.Header
		notReady bool
		full     bool
		status   int
		code     messages.Code
		client   bool
	}{
		{name: "a worker shows nothing", status: 101},
		{name: "a client shows the server token", header: http.Header{"Authorization": {"Bearer " + testToken}}, status: 101, client: true},
		{name: "the scheme is not case sensitive", header: http.Header{"Authorization": {"bearer " + testToken}}, status: 101, client: true},
		{name: "a wrong token", header: http.Header{"Authorization": {"Bearer " + testToken + "x"}}, status: 401, code: messages.CodeUnauthorized},
		{name: "an empty token", header: http.Header{"Authorization": {"Bearer "}}, status: 401, code: messages.CodeUnauthorized},
		{name: "an empty header", header: http.Header{"Authorization": {""}}, status: 401, code: messages.CodeUnauthorized},
		{name: "another scheme", header: http.Header{"Authorization": {"Basic " + testToken}}, status: 401, code: messages.CodeUnauthorized},
		{name: "two headers", header: http.Header{"Authorization": {"Bearer " + testToken, "Bearer x"}}, status: 401, code: messages.CodeUnauthorized},
		{name: "a page of another origin", header: http.Header{"Origin": {"https://evil.example"}}, status: 403, code: messages.CodeUnauthorized},
		{name: "a page without an origin", header: http.Header{"Origin": {"null"}}, status: 403, code: messages.CodeUnauthorized},
		{name: "our subprotocol among others", header: http.Header{"Sec-Websocket-Protocol": {"other, swamp.v1"}}, status: 101},
		{name: "our subprotocol in a second header", header: http.Header{"Sec-Websocket-Protocol": {"other", "swamp.v1"}}, status: 101},
		{name: "other subprotocols only", header: http.Header{"Sec-Websocket-Protocol": {"swamp.v2"}}, status: 400, code: messages.CodeProtocolMismatch},
		{name: "before the orchestrator is ready", notReady: true, status: 503, code: messages.CodeNotReady},
		{name: "too many that show nothing", full: true, status: 503, code: messages.CodeOverloaded},
		{name: "a client while too many show nothing", full: true, header: withToken(), status: 101, client: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, newFake(), nil)
			f.notReady.Store(tt.notReady)
			if tt.full {
				f.server.anonymous = maxAnonymous
			}
			header := http.Header{
				"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
				"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
			}
			for k, v := range tt.header {
				header[k] = v
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+messages.Path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header = header
			response, err := f.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != tt.status {
				t.Fatalf("status %d, want %d", response.StatusCode, tt.status)
			}
			if tt.status != http.StatusSwitchingProtocols {
				checkError(t, response.Body, tt.code)
				return
			}
			s := take(t, f.sessions, "a session")
			if s.info.Client != tt.client || s.info.Loopback || s.info.Remote != "127.0.0.1" {
				t.Errorf("info %+v, want client %t from 127.0.0.1", s.info, tt.client)
			}
		})
	}
}

// checkError wants a body that is the shape of an error with the code.
func checkError(t *testing.T, body io.Reader, want messages.Code) {
	t.Helper()
	var got struct {
		Code    messages.Code `json:"code"`
		Text    string        `json:"text"`
		Details []string      `json:"details"`
	}
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("no JSON error: %v", err)
	}
	if got.Code != want || got.Text == "" {
		t.Errorf("error %+v, want code %s and a sentence", got, want)
	}
}

func TestConnect_OwnOriginIsWelcome(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	f.open(t, http.Header{"Origin": {f.url}})
	take(t, f.sessions, "a session")
}

func TestConnect_ARefusedSessionTellsWhy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		status websocket.StatusCode
		reason string
	}{
		{"by its fault", messages.Faultf(messages.CodeNotReady, "stops"), 4020, "not_ready: stops"},
		{"and nothing of what is inside", errors.New("the secret of the store"), 4025, "internal: internal error: see the orchestrator's log"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			fake.refusal = tt.err
			f := serve(t, fake, nil)
			p := &peer{t: t, ws: f.open(t, nil)}
			if status, reason := p.status(); status != tt.status || reason != tt.reason {
				t.Errorf("closed with %d %q, want %d %q", status, reason, tt.status, tt.reason)
			}
		})
	}
}

func TestConnect_AnonymousSocketsAreCountedUntilTheyEnrollOrLeave(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	count := func() int {
		f.server.mu.Lock()
		defer f.server.mu.Unlock()
		return f.server.anonymous
	}
	worker, other := f.connect(t, false), f.connect(t, false)
	client := f.connect(t, true)
	if got := count(); got != 2 {
		t.Fatalf("%d anonymous, want 2", got)
	}
	if err := worker.session.conn.Send(enrolled("1")); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 1 {
		t.Errorf("%d anonymous after an enrollment, want 1", got)
	}
	_ = other.ws.CloseNow()
	_ = other.session.ended(t)
	_ = worker.ws.CloseNow()
	_ = worker.session.ended(t)
	_ = client.ws.CloseNow()
	if err := f.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 0 {
		t.Errorf("%d anonymous after all have left, want 0", got)
	}
}

func TestConnect_NoUpgradeIsNoSession(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	if got := f.call(t, http.MethodGet, messages.Path, "", nil); got.status != http.StatusUpgradeRequired {
		t.Errorf("status %d, want 426", got.status)
	}
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	if f.server.anonymous != 0 || len(f.server.conns) != 0 {
		t.Errorf("%d anonymous, %d sockets", f.server.anonymous, len(f.server.conns))
	}
}

// A listener's host decides what is public, whatever the port.
func TestServer_PublicListener(t *testing.T) {
	t.Parallel()
	tests := []struct {
		listen string
		public bool
	}{
		{"127.0.0.1:0", false}, {"localhost:0", false}, {"0.0.0.0:0", true}, {":0", true},
	}
	for _, tt := range tests {
		t.Run(tt.listen, func(t *testing.T) {
			t.Parallel()
			f := serve(t, newFake(), func(c *Config) { c.Listen = tt.listen })
			if got := f.server.PublicListener(); got != tt.public {
				t.Errorf("public: %t", got)
			}
			if got := strings.Contains(f.logs.String(), "listening without TLS on a public address"); got != tt.public {
				t.Errorf("warned: %t, log: %s", got, f.logs)
			}
		})
	}
}

func TestServer_PortInUseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = New(Config{Listen: taken.Addr().String(), AdminToken: testToken, Orchestrator: newFake(), Logger: (&logBuffer{}).logger()})
	if err == nil {
		t.Fatal("bound twice")
	}
	want := "listen on " + taken.Addr().String() + ": bind: address already in use: stop what listens there, or choose another address with --listen"
	if err.Error() != want {
		t.Errorf("error %q\nwant  %q", err, want)
	}
}

func TestServer_ConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := Config{Listen: "127.0.0.1:0", AdminToken: testToken, Orchestrator: newFake(), Logger: (&logBuffer{}).logger()}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no address", func(c *Config) { c.Listen = "" }, "no address"},
		{"a certificate without a key", func(c *Config) { c.TLSCert = "x" }, "both or none"},
		{"a key without a certificate", func(c *Config) { c.TLSKey = "x" }, "both or none"},
		{"a certificate that is not there", func(c *Config) { c.TLSCert, c.TLSKey = "nowhere.pem", "nowhere.key" }, "nowhere.pem"},
		{"no token, which an empty header would match", func(c *Config) { c.AdminToken = "" }, "no server token"},
		{"no orchestrator", func(c *Config) { c.Orchestrator = nil }, "no orchestrator"},
		{"no logger", func(c *Config) { c.Logger = nil }, "no logger"},
		{"an address that is none", func(c *Config) { c.Listen = "127.0.0.1:notaport" }, "--listen"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			tt.change(&cfg)
			s, err := New(cfg)
			if err == nil {
				_ = s.listener.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tt.want)
			}
		})
	}
}

// flakyListener fails once as a process without file descriptors does.
type flakyListener struct {
	net.Listener
	failed bool
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestServer_AcceptGoesOnAndWarns(t *testing.T) {
	t.Parallel()
	base, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := serve(t, newFake(), func(c *Config) { c.Listener = &flakyListener{Listener: base} })
	if got := f.call(t, http.MethodGet, "/healthz", "", nil); got.status != http.StatusOK {
		t.Errorf("status %d", got.status)
	}
	if log := f.logs.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "too many open files") {
		t.Errorf("log: %s", log)
	}
}
