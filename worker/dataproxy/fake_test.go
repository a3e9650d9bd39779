package dataproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane is a data plane as the contract has it, in memory.
type plane struct {
	*httptest.Server

	// before may answer a request itself, by its number from 1 on. true: it did.
	before func(n int, w http.ResponseWriter, r *http.Request) bool
	// after is called when a write has been done, instead of its answer. false: answer it.
	after func(n int, w http.ResponseWriter) bool
	// cut breaks an answer to a GET off after so many bytes; 0: does not.
	cut func(n int) int

	mu         sync.Mutex
	credential string
	requests   []*http.Request
	artifacts  map[string][][]byte
	answers    map[string]string // by request id
}

func newPlane(t *testing.T, change ...func(*plane)) *plane {
	t.Helper()
	p := &plane{credential: "first", artifacts: map[string][][]byte{}, answers: map[string]string{}}
	for _, c := range change {
		c(p)
	}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *plane) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

func (p *plane) seen() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*http.Request(nil), p.requests...)
}

func (p *plane) latest(name string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	versions := p.artifacts[name]
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

func (p *plane) versions(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.artifacts[name])
}

func say(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"text":"said so"}`, code)
}

// hangUp ends the connection without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, r.Clone(context.Background()))
	n := len(p.requests)
	credential := p.credential
	p.mu.Unlock()
	if p.before != nil && p.before(n, w, r) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+credential {
		say(w, http.StatusUnauthorized, "unauthorized")
		return
	}
	if strings.HasPrefix(r.URL.Path, rpcPrefix) {
		_, _ = io.Copy(w, r.Body)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, dataPrefix)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		p.read(n, name, w, r)
	default:
		p.write(n, name, w, r)
	}
}

func (p *plane) write(n int, name string, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		say(w, http.StatusBadRequest, "invalid")
		return
	}
	sum := sha256.Sum256(body)
	if want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"; r.Method != http.MethodDelete && r.Header.Get(contentDigest) != want {
		say(w, http.StatusBadRequest, "digest_mismatch")
		return
	}
	key := r.Header.Get(idempotencyKey)
	p.mu.Lock()
	said, known := p.answers[key]
	if !known || key == "" {
		versions := p.artifacts[name]
		switch {
		case r.Method == http.MethodDelete:
			versions = nil
		case r.Method == http.MethodPost && len(versions) > 0:
			versions[len(versions)-1] = append(bytes.Clone(versions[len(versions)-1]), body...)
		default:
			versions = append(versions, body)
		}
		p.artifacts[name] = versions
		said = fmt.Sprintf(`{"name":%q,"version":%d,"size":%d}`, name, len(versions), len(body))
		p.answers[key] = said
	}
	p.mu.Unlock()
	if p.after != nil && p.after(n, w) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "a=b")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, said)
}

func (p *plane) read(n int, name string, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	versions := p.artifacts[name]
	at := len(versions)
	if v := r.URL.Query().Get("version"); v != "" {
		at, _ = strconv.Atoi(v)
	}
	var body []byte
	if at > 0 && at <= len(versions) {
		body = versions[at-1]
	}
	p.mu.Unlock()
	if body == nil {
		say(w, http.StatusNotFound, "not_found")
		return
	}
	sum := sha256.Sum256(body)
	w.Header().Set("Etag", fmt.Sprintf(`"%d-%s"`, at, hex.EncodeToString(sum[:])))
	w.Header().Set("Content-Type", "application/octet-stream")
	if p.cut != nil {
		if limit := p.cut(n); limit > 0 {
			w = &cutWriter{ResponseWriter: w, left: limit}
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// cutWriter hangs up after some bytes of a body.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		hangUp()
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

// board is a credential that a test replaces.
type board struct {
	mu      sync.Mutex
	value   string
	changed chan struct{}
}

func newBoard(value string) *board { return &board{value: value, changed: make(chan struct{})} }

func (b *board) get() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.changed
}

func (b *board) set(value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.value = value
	close(b.changed)
	b.changed = make(chan struct{})
}

// step is what a step has.
type step struct {
	*http.Client
	socket *Socket
	board  *board
	spools string
}

func newStep(t *testing.T, p *plane, change ...func(*Config)) *step {
	t.Helper()
	base, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	s := &step{board: newBoard("first"), spools: filepath.Join(t.TempDir(), "spool")}
	cfg := Config{
		Base: base, Transport: transport, Credential: s.board.get, SpoolDir: s.spools,
		Patience: func() time.Duration { return time.Minute },
	}
	for _, c := range change {
		c(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // that of the test may be too long
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "data.sock")
	if s.socket, err = Listen(f, path); err != nil {
		t.Fatal(err)
	}
	client := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}
	s.Client = &http.Client{Transport: client}
	t.Cleanup(func() {
		if err := s.socket.Close(); err != nil {
			t.Error(err)
		}
		client.CloseIdleConnections()
		transport.CloseIdleConnections()
		_ = os.RemoveAll(dir)
	})
	return s
}

// answer is what a step gets.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of reading the body
}

func (a answer) code() string {
	var said struct{ Code string }
	_ = json.Unmarshal(a.body, &said)
	return said.Code
}

func (s *step) do(t *testing.T, method, path string, body io.Reader, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://data"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, data, err}
}

// bytesOf is a body that no part of is like another.
func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i)
	}
	return b
}
