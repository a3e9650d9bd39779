package dataproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestForwarder_WhatAStepWritesIsThere(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, memoryBytes - 1, memoryBytes, memoryBytes + 1, 3 << 20} {
		p := newPlane(t)
		s := newStep(t, p)
		body := bytesOf(size)
		// Of no known length, as a pipe is.
		if a := s.do(t, http.MethodPut, "/v1/data/a/b", struct{ io.Reader }{bytes.NewReader(body)}); a.status != http.StatusCreated {
			t.Fatalf("%d bytes: %d %s", size, a.status, a.body)
		}
		if a := s.do(t, http.MethodGet, "/v1/data/a/b", nil); a.err != nil || !bytes.Equal(a.body, body) {
			t.Errorf("%d bytes: %d came, %v", size, len(a.body), a.err)
		}
		if left, err := os.ReadDir(s.spools); err == nil && len(left) > 0 {
			t.Errorf("%d bytes: %v is left", size, left)
		}
	}
}

func TestForwarder_WhatGoesOnAndWhatDoesNot(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newStep(t, p)
	a := s.do(t, http.MethodPut, "/v1/data/x?a=b", strings.NewReader("1"),
		"Authorization", "Bearer stolen", "Cookie", "c=d", "X-Forwarded-For", "1.2.3.4", "Content-Type", "text/plain", "If-None-Match", "*", "User-Agent", "curl/8")
	if a.status != http.StatusCreated || a.header.Get("Set-Cookie") != "" {
		t.Errorf("answer %d with %v", a.status, a.header)
	}
	got := p.seen()[0]
	for name, want := range map[string]string{
		"Authorization": "Bearer first", "Cookie": "", "X-Forwarded-For": "", "Content-Type": "text/plain", "If-None-Match": "*",
		"User-Agent": "curl/8", "Accept-Encoding": "",
	} {
		if diff := cmp.Diff(want, strings.Join(got.Header.Values(name), ",")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got.URL.RequestURI() != "/v1/data/x?a=b" || len(got.Header.Get(idempotencyKey)) != 32 {
		t.Errorf("%s with request id %q", got.URL.RequestURI(), got.Header.Get(idempotencyKey))
	}
}

func TestForwarder_OnlyData(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newStep(t, p)
	tests := []struct {
		method, path string
		status       int
		code         string
	}{
		{http.MethodGet, "/", http.StatusNotFound, "not_found"},
		{http.MethodGet, "/v1/connect", http.StatusNotFound, "not_found"},
		{http.MethodGet, "/metrics", http.StatusNotFound, "not_found"},
		{http.MethodGet, "/v1/data", http.StatusNotFound, "not_found"},
		{http.MethodGet, "/v1/data/", http.StatusNotFound, "not_found"},
		{http.MethodPost, "/v1/rpc/worker.token.create", http.StatusNotFound, "not_found"},
		{http.MethodPost, "/v1/rpc/data.list/x", http.StatusNotFound, "not_found"},
		{http.MethodPost, "/v1/rpc/", http.StatusNotFound, "not_found"},
		{http.MethodGet, "/v1/rpc/data.list", http.StatusBadRequest, "invalid"},
		{http.MethodPatch, "/v1/data/x", http.StatusBadRequest, "invalid"},
		{http.MethodPost, "/v1/data/%2e%2e/rpc/run.cancel", http.StatusBadRequest, "invalid"},
		{http.MethodPost, "/v1/data/..%2frpc%2frun.cancel", http.StatusBadRequest, "invalid"},
		{http.MethodGet, "/v1/data//x", http.StatusBadRequest, "invalid"},
		{http.MethodGet, "/v1/data/x/", http.StatusBadRequest, "invalid"},
	}
	for _, tt := range tests {
		a := s.do(t, tt.method, tt.path, nil)
		if a.status != tt.status || a.code() != tt.code {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.status, a.body)
		}
	}
	if n := p.count(); n != 0 {
		t.Errorf("%d requests reached the orchestrator", n)
	}
	for _, verb := range []string{"data.list", "data.versions", "data.query"} {
		if a := s.do(t, http.MethodPost, "/v1/rpc/"+verb, strings.NewReader(`{"a":1}`)); a.status != http.StatusOK || string(a.body) != `{"a":1}` {
			t.Errorf("%s: %d %s", verb, a.status, a.body)
		}
	}
	if a := s.do(t, http.MethodPost, "/v1/rpc/data.list", bytes.NewReader(make([]byte, askBytes+1))); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a question without an end: %d", a.status)
	}
}

func TestForwarder_WhatLostItsAnswerIsRepeatedAndCountsOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{5, 2 << 20} {
		for _, key := range []string{"", "mine"} {
			p := newPlane(t, func(p *plane) {
				p.after = func(n int, w http.ResponseWriter) bool {
					switch n {
					case 1:
						hangUp()
					case 2: // in the middle of the answer
						w.Header().Set("Content-Length", "100")
						w.WriteHeader(http.StatusCreated)
						_, _ = w.Write([]byte("{"))
						_ = http.NewResponseController(w).Flush()
						hangUp()
					}
					return false
				}
			})
			s := newStep(t, p)
			var header []string
			if key != "" {
				header = []string{idempotencyKey, key}
			}
			body := bytesOf(size)
			if a := s.do(t, http.MethodPost, "/v1/data/log", bytes.NewReader(body), header...); a.status != http.StatusCreated || a.err != nil {
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			}
			if n := p.count(); n != 3 {
				t.Errorf("it took %d tries", n)
			}
			if got := p.latest("log"); !bytes.Equal(got, body) {
				t.Errorf("%d bytes are there of %d", len(got), size)
			}
			if got := p.seen()[2].Header.Get(idempotencyKey); got != p.seen()[0].Header.Get(idempotencyKey) || got == "" || key != "" && got != key {
				t.Errorf("request id %q", got)
			}
		}
	}
}

func TestForwarder_WhatPassesIsWaitedForAndWhatDoesNotIsTold(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		code   string
		again  bool
	}{
		{"not ready", 503, "not_ready", true},
		{"not the leader", 503, "not_leader", true},
		{"a proxy without a server", 502, "", true},
		{"a proxy whose server is slow", 504, "", true},
		{"too much", 429, "rate_limited", true},
		{"no space", 507, "no_space", false},
		{"no space as some say it", 503, "no_space", false},
		{"the lease is over", 409, "ended", false},
		{"invalid", 400, "invalid", false},
		{"a fault", 500, "internal", false},
		{"another version", 412, "precondition_failed", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
				p := newPlane(t, func(p *plane) {
					p.artifacts["x"] = [][]byte{[]byte("there")}
					p.before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
						if n <= 2 {
							say(w, tt.status, tt.code)
						}
						return n <= 2
					}
				})
				s := newStep(t, p)
				var body io.Reader
				if method == http.MethodPut {
					body = strings.NewReader("new")
				}
				a := s.do(t, method, "/v1/data/x", body)
				if again := a.status < 300; again != tt.again || !again && (a.status != tt.status || a.code() != tt.code) {
					t.Errorf("%s: %d %s", method, a.status, a.body)
				}
			}
		})
	}
}

func TestForwarder_AnAdoptionBringsAnotherCredential(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{}, 100)
	p := newPlane(t, func(p *plane) {
		p.credential = "second"
		p.before = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") == "Bearer first" {
				refused <- struct{}{}
			}
			return false
		}
	})
	s := newStep(t, p)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if a := s.do(t, http.MethodPost, "/v1/data/log", strings.NewReader("line\n")); a.status != http.StatusCreated {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	for range 3 {
		<-refused
	}
	s.board.set("second")
	all.Wait()
	if got := string(p.latest("log")); got != "line\nline\nline\n" {
		t.Errorf("there is %q", got)
	}
}

func TestForwarder_PatienceEnds(t *testing.T) {
	t.Parallel()
	short := func(c *Config) { c.Patience = func() time.Duration { return 30 * time.Millisecond } }
	p := newPlane(t, func(p *plane) { p.credential = "another" })
	s := newStep(t, p, short)
	if a := s.do(t, http.MethodPut, "/v1/data/x", strings.NewReader("1")); a.status != http.StatusUnauthorized || a.code() != "unauthorized" {
		t.Errorf("a credential that stays wrong: %d %s", a.status, a.body)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	s = newStep(t, p, short, func(c *Config) { c.Base = &url.URL{Scheme: "http", Host: free.Addr().String()} })
	a := s.do(t, http.MethodGet, "/v1/data/x", nil)
	if a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || strings.Contains(string(a.body), "first") {
		t.Errorf("nobody listens: %d %s", a.status, a.body)
	}
}

func TestForwarder_ATryThatMovesNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	var stuck sync.WaitGroup
	p := newPlane(t, func(p *plane) {
		p.before = func(n int, _ http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				stuck.Add(1)
				defer stuck.Done()
				_, _ = io.Copy(io.Discard, r.Body) // so that the end of the connection is seen
				<-r.Context().Done()
			}
			return n == 1
		}
	})
	s := newStep(t, p, func(c *Config) { c.Stall = 50 * time.Millisecond })
	if a := s.do(t, http.MethodPut, "/v1/data/x", strings.NewReader("1")); a.status != http.StatusCreated || p.versions("x") != 1 {
		t.Errorf("%d %s, %d versions", a.status, a.body, p.versions("x"))
	}
	stuck.Wait()
}

func TestForwarder_RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	thief := newPlane(t)
	p := newPlane(t, func(p *plane) {
		p.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
	})
	s := newStep(t, p)
	a := s.do(t, http.MethodPut, "/v1/data/x", strings.NewReader("1"))
	if a.status != http.StatusServiceUnavailable || thief.count() != 0 || p.count() != 1 {
		t.Errorf("%d %s; %d and %d requests", a.status, a.body, p.count(), thief.count())
	}
}

func TestForwarder_WhatDidNotComeWholeIsNotSent(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newStep(t, p)
	broken := errors.New("broken")
	for _, size := range []int{10, 2 * memoryBytes} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://data/v1/data/x",
			io.MultiReader(bytes.NewReader(bytesOf(size)), failing{broken}))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := s.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("a body that broke off is answered %d", resp.StatusCode)
		}
	}
	for _, digest := range []string{"sha-256=:AAAA:", "md5=:AAAA:, sha-256=:AAAA:"} {
		if a := s.do(t, http.MethodPut, "/v1/data/x", strings.NewReader("1"), contentDigest, digest); a.status != http.StatusBadRequest || a.code() != "digest_mismatch" {
			t.Errorf("%s: %d %s", digest, a.status, a.body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://data/v1/data/x", struct{ io.Reader }{strings.NewReader("1")})
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{contentDigest: {"sha-256=:AAAA:"}}
	resp, err := s.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest || p.count() != 0 {
		t.Errorf("a wrong trailer is answered %d; %d requests reached the orchestrator", resp.StatusCode, p.count())
	}
	if left, err := os.ReadDir(s.spools); err == nil && len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestForwarder_IsATransportForCodeInThisProcess(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	base, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f, err := New(Config{Base: base, Transport: transport, Credential: newBoard("first").get, SpoolDir: t.TempDir(), Patience: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: f}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://orchestrator/v1/data/x", strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || string(p.latest("x")) != "1" {
		t.Errorf("%d, there is %q", resp.StatusCode, p.latest("x"))
	}
}

func TestSocket_CloseCutsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{}, 2)
	p := newPlane(t, func(p *plane) {
		p.before = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			waiting <- struct{}{}
			<-r.Context().Done()
			return true
		}
	})
	s := newStep(t, p)
	ended := make(chan error, 2)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		go func() {
			req, err := http.NewRequestWithContext(context.Background(), method, "http://data/v1/data/x", nil)
			if err == nil {
				var resp *http.Response
				if resp, err = s.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			ended <- err
		}()
	}
	<-waiting
	<-waiting
	if err := s.socket.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a request under way was answered")
		}
	}
	if _, err := os.Stat(s.socket.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestListen_RefusesAPathThatIsTooLong(t *testing.T) {
	t.Parallel()
	if s, err := Listen(http.DefaultTransport, "/"+strings.Repeat("x", MaxPath)); err == nil {
		_ = s.Close()
		t.Error("it listens")
	}
}
