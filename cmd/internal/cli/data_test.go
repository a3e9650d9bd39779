package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
)

// dataPlane holds one artifact, and answers questions with what is always the same.
type dataPlane struct {
	token string // "" wants none, as the socket of a worker

	mu      sync.Mutex
	body    []byte
	lose    int // answers to writes that get lost
	cut     int // answers to reads that break off
	damaged bool
	keys    []string
	headers []http.Header
	queries []string
}

func (p *dataPlane) item() *messages.ArtifactItem {
	sum := sha256.Sum256(p.body)
	return &messages.ArtifactItem{
		Name: "reports/daily", Version: 3, Kind: "file", ContentType: "text/csv", Size: float64(len(p.body)), Digest: hex.EncodeToString(sum[:]),
		CreatedAt: messages.Time(testTime(-time.Minute)), RunId: proto.String("r1"), Job: proto.String("fit"), Step: proto.String("a"),
	}
}

func (p *dataPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refuse := func(status int, code messages.Code) {
		data, _ := messages.MarshalShape(messages.ErrorOf(messages.Faultf(code, "the text")))
		w.WriteHeader(status)
		_, _ = w.Write(data)
	}
	answer := func(m proto.Message) {
		data, err := messages.MarshalShape(m)
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(data)
	}
	if p.token != "" && r.Header.Get("Authorization") != "Bearer "+p.token {
		refuse(http.StatusUnauthorized, messages.CodeUnauthorized)
		return
	}
	open := &messages.ArtifactItem{Name: "log", Version: 1, Kind: "file", ContentType: "application/octet-stream", Size: 3 << 20, Open: true, CreatedAt: messages.Time(testTime(0))}
	switch r.URL.Path {
	case "/v1/rpc/data.list":
		body, _ := io.ReadAll(r.Body)
		if p.queries = append(p.queries, string(body)); !strings.Contains(string(body), "cursor\":\"next") {
			answer(&messages.DataListResult{Items: []*messages.ArtifactItem{open}, Count: 1, Cursor: proto.String("next")})
			return
		}
		answer(&messages.DataListResult{Items: []*messages.ArtifactItem{p.item()}, Count: 1})
	case "/v1/rpc/data.versions":
		answer(&messages.DataVersionsResult{Items: []*messages.ArtifactItem{p.item(), open}, Count: 2})
	case "/v1/rpc/data.query":
		found, err := structpb.NewStruct(map[string]any{"kind": "worker", "name": "gpu-1", "odd": "\x1b[2J"})
		if err != nil {
			panic(err)
		}
		answer(&messages.DataQueryResult{Items: []*structpb.Struct{found}, Count: 1})
	case "/v1/data/reports/daily":
		p.artifact(w, r, answer)
	default:
		refuse(http.StatusNotFound, messages.CodeNotFound)
	}
}

func (p *dataPlane) artifact(w http.ResponseWriter, r *http.Request, answer func(proto.Message)) {
	switch r.Method {
	case http.MethodPut, http.MethodPost:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		key := r.Header.Get("Idempotency-Key")
		p.headers = append(p.headers, r.Header.Clone())
		sum := sha256.Sum256(body)
		if got := r.Header.Get("Content-Digest") + r.Trailer.Get("Content-Digest"); got != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"code":"digest_mismatch","text":"%s"}`, got)
			return
		}
		if len(p.keys) == 0 || p.keys[len(p.keys)-1] != key {
			if r.Method == http.MethodPut {
				p.body = nil
			}
			p.body = append(p.body, body...)
		}
		p.keys = append(p.keys, key)
		if p.lose > 0 {
			p.lose--
			panic(http.ErrAbortHandler)
		}
		if p.damaged {
			p.body = append(p.body, '!')
		}
		w.WriteHeader(http.StatusCreated)
		answer(p.item())
	case http.MethodDelete:
		p.queries = append(p.queries, r.URL.RawQuery)
		w.WriteHeader(http.StatusNoContent)
	default:
		sum := sha256.Sum256(p.body)
		if p.damaged {
			sum[0]++
		}
		w.Header().Set("ETag", fmt.Sprintf(`"3-%x"`, sum))
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
		w.Header().Set("Swamp-Version", "3")
		if p.cut > 0 {
			p.cut--
			w.Header().Set("Content-Length", fmt.Sprint(len(p.body)))
			_, _ = w.Write(p.body[:len(p.body)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.body))
	}
}

// dataWays are the two ways to it.
func dataWays(t *testing.T, each func(t *testing.T, p *dataPlane, inStep bool, run func(stdin string, args ...string) (int, *testHost))) {
	t.Helper()
	for _, inStep := range []bool{false, true} {
		t.Run(map[bool]string{false: "outside", true: "in a step"}[inStep], func(t *testing.T) {
			t.Parallel()
			p := &dataPlane{token: testToken}
			env := map[string]string{}
			server := httptest.NewUnstartedServer(p)
			if inStep {
				dir, err := os.MkdirTemp("", "d") //nolint:usetesting // that of the test may be too long for a socket
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				_ = server.Listener.Close()
				if server.Listener, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
					t.Fatal(err)
				}
				p.token, env["SWAMP_DATA_URL"], env["SWAMP_SERVER"] = "", "unix://"+filepath.Join(dir, "s"), "http://127.0.0.1:1"
			}
			server.Start()
			t.Cleanup(server.Close)
			if !inStep {
				env["SWAMP_SERVER"], env["SWAMP_SERVER_TOKEN"] = server.URL, testToken
			}
			each(t, p, inStep, func(stdin string, args ...string) (int, *testHost) {
				h := newTestHost(t, append([]string{"data"}, args...)...)
				for k, v := range env {
					h.env[k] = v
				}
				h.Stdin = strings.NewReader(stdin)
				return h.run(t, Swamp), h
			})
		})
	}
}

func TestData_WhatTheCommandsPrint(t *testing.T) {
	t.Parallel()
	dataWays(t, func(t *testing.T, p *dataPlane, inStep bool, run func(string, ...string) (int, *testHost)) {
		var all strings.Builder
		for _, args := range []string{
			"put reports/daily", "put reports/daily --output json", "append reports/daily -", "list", "list --output json",
			"versions reports/daily", "versions reports/daily --output json", "query true", "query true --output json", "get reports/daily",
			"delete reports/daily", "delete reports/daily --version 2", "delete reports/daily --version 2 --output json",
			"get missing", "put", "list a b", "get reports/daily --version x", "put reports/daily /no/such/file",
		} {
			code, h := run("a,b\n", strings.Fields(args)...)
			out := h.out.String()
			if strings.Contains(args, "json") { // its spaces are not the same in every build
				var line bytes.Buffer
				if err := json.Compact(&line, []byte(out)); err != nil {
					t.Fatal(err)
				}
				out = line.String() + "\n"
			}
			fmt.Fprintf(&all, "$ swamp data %s\n%s%sexit %d\n\n", args, out, h.err.String(), code)
		}
		golden(t, "data.txt", all.String())
		if want := `"cursor":"next"`; len(p.queries) < 2 || !strings.Contains(strings.ReplaceAll(p.queries[1], " ", ""), want) {
			t.Errorf("asked %q", p.queries)
		}
	})
}

func TestData_AWriteThatLosesItsAnswersCountsOnce(t *testing.T) {
	t.Parallel()
	p := &dataPlane{token: testToken, lose: 2}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"-", file} {
		p.body, p.keys, p.lose = nil, nil, 2
		h := newTestHost(t, "data", "append", "reports/daily", from, "--content-type", "text/plain")
		h.env["SWAMP_SERVER"], h.env["SWAMP_SERVER_TOKEN"] = server.URL, testToken
		h.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
		if code := h.run(t, Swamp); code != ExitOK {
			t.Fatalf("exit %d: %s", code, h.err.String())
		}
		if len(p.body) != 1<<20 || len(p.keys) != 3 || p.headers[0].Get("Content-Type") != "text/plain" {
			t.Errorf("%d bytes after %d tries", len(p.body), len(p.keys))
		}
	}
}

func TestData_GetToAFile(t *testing.T) {
	t.Parallel()
	dataWays(t, func(t *testing.T, p *dataPlane, inStep bool, run func(string, ...string) (int, *testHost)) {
		dir := t.TempDir()
		file := filepath.Join(dir, "report")
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.body = bytes.Repeat([]byte("0123456789"), 1<<17)
		if !inStep { // in a step its worker goes on
			p.cut = 1
		}
		code, h := run("", "get", "reports/daily", "-o", file)
		if got, err := os.ReadFile(file); code != ExitOK || err != nil || !bytes.Equal(got, p.body) {
			t.Errorf("exit %d, %d bytes, %v: %s", code, len(got), err, h.err.String())
		}
		if want := "reports/daily version 3, 1.2 MiB, in " + file + "\n"; h.out.String() != want {
			t.Errorf("it says %q", h.out.String())
		}
		p.damaged = true
		code, h = run("", "get", "reports/daily", "-o", file)
		if code != ExitFailed || !strings.Contains(h.err.String(), "damaged") {
			t.Errorf("exit %d: %s", code, h.err.String())
		}
		if code, _ = run("", "get", "missing", "--to", file); code != ExitFailed {
			t.Errorf("exit %d", code)
		}
		got, err := os.ReadFile(file)
		if left, _ := os.ReadDir(dir); err != nil || !bytes.Equal(got, p.body) || len(left) != 1 {
			t.Errorf("%d bytes, %v, in %v", len(got), err, left)
		}
	})
}

func TestData_WhatWasWrittenIsComparedWithWhatWasSent(t *testing.T) {
	t.Parallel()
	dataWays(t, func(t *testing.T, p *dataPlane, _ bool, run func(string, ...string) (int, *testHost)) {
		p.damaged = true
		if code, h := run("abc", "put", "reports/daily"); code != ExitFailed || !strings.Contains(h.err.String(), "not what was sent") {
			t.Errorf("exit %d: %s", code, h.err.String())
		}
	})
}

func TestData_NobodyThere(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  map[string]string
		want int
		says string
	}{
		{"no orchestrator", map[string]string{"SWAMP_SERVER": "http://127.0.0.1:1"}, ExitUnreachable, "the orchestrator at http://127.0.0.1:1 cannot be reached"},
		{"the step has ended", map[string]string{"SWAMP_DATA_URL": "unix:///no/such/socket"}, ExitFailed, "the worker's data socket"},
		{"no URL", map[string]string{"SWAMP_DATA_URL": "http://x"}, ExitUsage, "SWAMP_DATA_URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, args := range []string{"data list", "data put a", "data get a"} {
				h := newTestHost(t, strings.Fields(args)...)
				h.env = tt.env
				if code := h.run(t, Swamp); code != tt.want || !strings.Contains(h.err.String(), tt.says) || strings.Count(h.err.String(), "\n") != 1 {
					t.Errorf("%s: exit %d: %s", args, code, h.err.String())
				}
			}
		})
	}
}

func TestMain_CalledAsSwamp(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{"swamp": true, "/cache/bin/swamp": true, "swamp.exe": true, "swamp-worker": false, "/opt/swampd": false} {
		if got := calledAs([]string{args}) == string(Swamp); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
	h := newTestHost(t, "serve")
	h.Engine = nil
	if code := h.run(t, Swamp); code != ExitUsage {
		t.Errorf("a worker's program serves: exit %d", code)
	}
}
