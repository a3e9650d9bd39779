package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

const dataToken = "the-server-token-of-data"

const oneStep = "name: one\nlabels: {gpu: \"true\"}\njobs:\n  - name: main\n    steps:\n      - {name: only, run: work}\n"

// dataFixture is a listener over real actors, and a step that runs and may write.
type dataFixture struct {
	t      *testing.T
	fleet  *testkit.Fleet
	worker *testkit.Worker
	run    *testkit.Run
	step   *testkit.Dispatch
	url    string
	addr   string
	client *http.Client
}

func newData(t *testing.T, options ...testkit.Option) *dataFixture {
	t.Helper()
	f := testkit.Start(t, options...)
	server, err := gateway.New(gateway.Config{
		Listen: "127.0.0.1:0", AdminToken: dataToken, Orchestrator: f.System(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	d := &dataFixture{t: t, fleet: f, addr: server.Addr().String(), client: &http.Client{Transport: transport}}
	d.url = "http://" + d.addr
	d.worker = f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
	d.run = f.Submit(oneStep)
	d.step = d.worker.NextDispatch().Accept()
	return d
}

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// code is that of the error in the body.
func (r reply) code() string {
	var e struct{ Code, Text string }
	if json.Unmarshal([]byte(r.body), &e) != nil || e.Text == "" {
		return ""
	}
	return e.Code
}

func (r reply) item(t *testing.T) map[string]any {
	t.Helper()
	var item map[string]any
	if err := json.Unmarshal([]byte(r.body), &item); err != nil {
		t.Fatalf("status %d with %q: %v", r.status, r.body, err)
	}
	return item
}

// do sends a request with the server token, or with another one that is named in the header. Headers come in pairs.
func (d *dataFixture) do(method, path string, body io.Reader, header ...string) reply {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+dataToken)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return d.send(req)
}

func (d *dataFixture) send(req *http.Request) reply {
	d.t.Helper()
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}
}

func text(s string) io.Reader { return strings.NewReader(s) }

func field(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// wantNothing wants no version and no body to be kept.
func (d *dataFixture) wantNothing() {
	d.t.Helper()
	found := 0
	for _, kind := range []persistence.Kind{persistence.KindArtifact, persistence.KindArtifactVersion, persistence.KindDataRequest} {
		if err := d.fleet.Journal().Scan(kind, false, "", "", func(persistence.Record) bool { found++; return true }); err != nil {
			d.t.Error(err)
		}
	}
	blobs, err := d.fleet.Journal().Blobs()
	if err != nil || found+len(blobs) > 0 {
		d.t.Errorf("%d records and %d bodies stay (%v)", found, len(blobs), err)
	}
}

func TestData_WhatIsPutIsGot(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing": "", "a little": "hello", "as much as a record holds": strings.Repeat("x", 64<<10), "one byte more": strings.Repeat("x", 64<<10+1),
		"much": strings.Repeat("0123456789abcdef", 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newData(t)
			put := d.do("PUT", "/v1/data/reports/a.txt", text(body), "Content-Type", "text/plain; charset=utf-8", "Content-Digest", field(body))
			item := put.item(t)
			if put.status != 201 || item["version"] != 1.0 || item["size"] != float64(len(body)) || item["kind"] != "file" || item["open"] != false {
				t.Fatalf("PUT: %d %s", put.status, put.body)
			}
			got := d.do("GET", "/v1/data/reports/a.txt", nil)
			if got.status != 200 || got.body != body || got.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
				got.header.Get("Repr-Digest") != field(body) || got.header.Get("Etag") != put.header.Get("Etag") {
				t.Errorf("GET: %d, %d bytes, %v", got.status, len(got.body), got.header)
			}
			if same := d.do("GET", "/v1/data/reports/a.txt", nil, "If-None-Match", put.header.Get("Etag")); same.status != 304 || same.body != "" {
				t.Errorf("GET of what is known: %d", same.status)
			}
			head := d.do("HEAD", "/v1/data/reports/a.txt?version=1", nil)
			if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != fmt.Sprint(len(body)) {
				t.Errorf("HEAD: %d %v", head.status, head.header)
			}
			if len(body) < 5 {
				return
			}
			if part := d.do("GET", "/v1/data/reports/a.txt", nil, "Range", "bytes=1-3", "If-Range", put.header.Get("Etag")); part.status != 206 || part.body != body[1:4] {
				t.Errorf("a range: %d %q", part.status, part.body)
			}
			if beyond := d.do("GET", "/v1/data/reports/a.txt", nil, "Range", fmt.Sprintf("bytes=%d-", len(body))); beyond.status != 416 {
				t.Errorf("a range beyond the end: %d", beyond.status)
			}
		})
	}
}

func TestData_VersionsArePinnedListedAndRemoved(t *testing.T) {
	t.Parallel()
	d := newData(t)
	for i := range 25 {
		d.do("PUT", "/v1/data/a", text(fmt.Sprint("body ", i+1)))
	}
	for path, want := range map[string]string{"/v1/data/a": "body 25", "/v1/data/a?version=25": "body 25", "/v1/data/a?version=6": "body 6"} {
		if got := d.do("GET", path, nil); got.body != want {
			t.Errorf("%s is %q, want %q", path, got.body, want)
		}
	}
	for _, gone := range []string{"/v1/data/a?version=5", "/v1/data/a?version=26", "/v1/data/b"} {
		if got := d.do("GET", gone, nil); got.status != 404 || got.code() != "not_found" {
			t.Errorf("%s: %d %s", gone, got.status, got.body)
		}
	}
	versions := d.do("POST", "/v1/rpc/data.versions", text(`{"name":"a","limit":3,"cursor":"25"}`)).item(t)
	if got := fmt.Sprint(versions["count"], " ", versions["cursor"]); got != "3 22" {
		t.Errorf("a page of versions has count and cursor %s", got)
	}
	if got := d.do("DELETE", "/v1/data/a?version=25", nil); got.status != 204 {
		t.Errorf("delete of a version: %d %s", got.status, got.body)
	}
	if got := d.do("GET", "/v1/data/a", nil); got.body != "body 24" {
		t.Errorf("the latest is now %q", got.body)
	}
	if got := d.do("DELETE", "/v1/data/a", nil); got.status != 204 {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	if got := d.do("DELETE", "/v1/data/a", nil); got.status != 404 {
		t.Errorf("a second delete: %d %s", got.status, got.body)
	}
	if got := d.do("PUT", "/v1/data/a", text("new")); got.item(t)["version"] != 26.0 {
		t.Errorf("numbers are used again: %s", got.body)
	}
	d.do("PUT", "/v1/data/dir/b", text(`{"n": 1}`), "Content-Type", "application/json")
	list := d.do("POST", "/v1/rpc/data.list", text(`{}`)).item(t)
	var names []string
	for _, i := range list["items"].([]any) {
		names = append(names, i.(map[string]any)["name"].(string)+" "+i.(map[string]any)["kind"].(string))
	}
	if diff := cmp.Diff([]string{"a file", "dir/b json"}, names); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
}

func TestData_AnAppendGoesOnUntilSomethingElseIsWritten(t *testing.T) {
	t.Parallel()
	d := newData(t)
	step := "Bearer " + d.step.Credential()
	big := strings.Repeat("line\n", 20_000)
	var want string
	for i, part := range []string{"one\n", "two\n", "", big, "three\n", big} {
		want += part
		got := d.do("POST", "/v1/data/log", text(part), "Authorization", step, "Content-Type", "text/plain")
		if item := got.item(t); item["version"] != 1.0 || item["size"] != float64(len(want)) || item["open"] != true || (got.status == 201) != (i == 0) {
			t.Errorf("append %d: %d %s", i, got.status, got.body)
		}
		read := d.do("GET", "/v1/data/log?version=1", nil, "Authorization", step)
		if read.body != want || read.header.Get("Repr-Digest") != field(want) || strings.Contains(read.header.Get("Cache-Control"), "immutable") {
			t.Errorf("after append %d there are %d bytes, want %d; %v", i, len(read.body), len(want), read.header)
		}
	}
	if got := d.do("POST", "/v1/data/log", text("of a client")); got.item(t)["version"] != 2.0 {
		t.Errorf("somebody else's append: %s", got.body)
	}
	if got := d.do("POST", "/v1/data/log", text("four"), "Authorization", step); got.item(t)["version"] != 3.0 {
		t.Errorf("a version that is not the latest any more is appended to: %s", got.body)
	}
	if got := d.do("PUT", "/v1/data/log", text("whole"), "Authorization", step); got.item(t)["version"] != 4.0 {
		t.Errorf("put: %s", got.body)
	}
	d.do("DELETE", "/v1/data/log?version=4", nil)
	if got := d.do("POST", "/v1/data/log", text("five"), "Authorization", step); got.item(t)["version"] != 5.0 {
		t.Errorf("a version was opened again by a delete: %s", got.body)
	}
	if got := d.do("GET", "/v1/data/log?version=1", nil); got.body != want {
		t.Error("version 1 has changed")
	}
	d.step.Succeed()
	d.run.WaitStatus(messages.RunSucceeded)
	if got := d.do("GET", "/v1/data/log?version=5", nil); !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
		t.Errorf("after the end of its dispatch the version is still open: %v", got.header)
	}
	if got := d.do("POST", "/v1/data/log", text("late"), "Authorization", step); got.status != 409 || got.code() != "ended" {
		t.Errorf("a write after the end: %d %s", got.status, got.body)
	}
}

func TestData_ARepeatGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	d := newData(t)
	step := "Bearer " + d.step.Credential()
	big := strings.Repeat("x", 100_000)
	first := d.do("PUT", "/v1/data/a", text(big), "Idempotency-Key", "k1")
	d.do("PUT", "/v1/data/a", text("next"))
	if again := d.do("PUT", "/v1/data/a", text(big), "Idempotency-Key", "k1"); again.status != 201 || again.body != first.body || again.header.Get("Etag") != first.header.Get("Etag") {
		t.Errorf("the repeat gets %d %s, the first got %s", again.status, again.body, first.body)
	}
	for what, got := range map[string]reply{
		"another body":   d.do("PUT", "/v1/data/a", text("other"), "Idempotency-Key", "k1"),
		"another method": d.do("POST", "/v1/data/a", text(big), "Idempotency-Key", "k1"),
		"another name":   d.do("PUT", "/v1/data/b", text(big), "Idempotency-Key", "k1"),
	} {
		if got.status != 409 || got.code() != "conflict" {
			t.Errorf("%s under the same key: %d %s", what, got.status, got.body)
		}
	}
	if got := d.do("PUT", "/v1/data/s", text("the step's"), "Idempotency-Key", "k1", "Authorization", step); got.status != 201 {
		t.Errorf("a step has the same key as a client: %d %s", got.status, got.body)
	}
	d.do("POST", "/v1/data/log", text("once"), "Idempotency-Key", "k2", "Authorization", step)
	d.do("POST", "/v1/data/log", text(" twice"), "Idempotency-Key", "k3", "Authorization", step)
	if again := d.do("POST", "/v1/data/log", text("once"), "Idempotency-Key", "k2", "Authorization", step); again.item(t)["size"] != 4.0 {
		t.Errorf("a repeated append: %s", again.body)
	}
	if got := d.do("GET", "/v1/data/log", nil); got.body != "once twice" {
		t.Errorf("the log is %q", got.body)
	}
	d.do("DELETE", "/v1/data/log", nil, "Idempotency-Key", "k4")
	d.do("PUT", "/v1/data/log", text("anew"))
	if again := d.do("DELETE", "/v1/data/log", nil, "Idempotency-Key", "k4"); again.status != 204 {
		t.Errorf("a repeated delete: %d %s", again.status, again.body)
	}
	if got := d.do("GET", "/v1/data/log", nil); got.body != "anew" {
		t.Errorf("a repeated delete has removed what came after the first: %q", got.body)
	}
}

func TestData_AWriteMayExpectAVersion(t *testing.T) {
	t.Parallel()
	d := newData(t)
	first := d.do("PUT", "/v1/data/a", text("1"), "If-None-Match", "*")
	tests := []struct {
		what, method, header, value string
		want                        int
	}{
		{"there is one already", "PUT", "If-None-Match", "*", 412},
		{"another one is the latest", "PUT", "If-Match", `"1-00"`, 412},
		{"a weak tag is never equal", "PUT", "If-Match", "W/" + first.header.Get("Etag"), 412},
		{"it is the latest", "PUT", "If-Match", `"x", ` + first.header.Get("Etag"), 201},
		{"it is not any more", "POST", "If-Match", first.header.Get("Etag"), 412},
		{"nor for a delete", "DELETE", "If-Match", first.header.Get("Etag"), 412},
		{"any will do", "DELETE", "If-Match", "*", 204},
		{"there is none", "PUT", "If-Match", "*", 412},
	}
	for _, tt := range tests {
		got := d.do(tt.method, "/v1/data/a", text("2"), tt.header, tt.value)
		if got.status != tt.want || tt.want == 412 && got.code() != "precondition_failed" {
			t.Errorf("%s: %d %s, want %d", tt.what, got.status, got.body, tt.want)
		}
	}
}

func TestData_ADigestIsHeldTo(t *testing.T) {
	t.Parallel()
	d := newData(t)
	big := strings.Repeat("x", 200_000)
	trailing := func(body, digest string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, d.url+"/v1/data/t", io.MultiReader(text(body))) // of no known length
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+dataToken)
		req.Trailer = http.Header{"Content-Digest": {digest}}
		return d.send(req)
	}
	for what, got := range map[string]reply{
		"before a small body":       d.do("PUT", "/v1/data/a", text("hello"), "Content-Digest", field("hallo")),
		"before a large body":       d.do("PUT", "/v1/data/a", text(big), "Content-Digest", field("hallo")),
		"behind a small body":       trailing("hello", field("hallo")),
		"behind a large body":       trailing(big, field("hallo")),
		"before an appended body":   d.do("POST", "/v1/data/a", text(big), "Content-Digest", field("hallo")),
		"beside another, with case": d.do("PUT", "/v1/data/a", text("hello"), "Content-Digest", "md5=:AAAA:, "+field("hallo")),
	} {
		if got.status != 400 || got.code() != "digest_mismatch" {
			t.Errorf("a wrong digest %s: %d %s", what, got.status, got.body)
		}
	}
	for _, bad := range []string{"sha-256=", "sha-256=:AAAA:", "sha-256=:%%%:", "sha-256=" + field("x")[9:] + ",x, sha-256", field("x") + "," + field("x")} {
		if got := d.do("PUT", "/v1/data/a", text("x"), "Content-Digest", bad); got.status != 400 || got.code() != "invalid" {
			t.Errorf("Content-Digest %q: %d %s", bad, got.status, got.body)
		}
	}
	d.wantNothing()
	if got := trailing(big, field(big)); got.status != 201 {
		t.Errorf("a right digest behind the body: %d %s", got.status, got.body)
	}
	if got := d.do("PUT", "/v1/data/a", text("x"), "Content-Digest", "sha-512=:AAAA:"); got.status != 201 {
		t.Errorf("a digest of another kind: %d %s", got.status, got.body)
	}
}

// raw sends bytes as they are, and reads the answer to the end of the connection.
func (d *dataFixture) raw(request string) string {
	d.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(d.t.Context(), "tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		d.t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		d.t.Fatal(err)
	}
	var answer bytes.Buffer
	_, _ = io.Copy(&answer, conn) // it may be cut
	return answer.String()
}
