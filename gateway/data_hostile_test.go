package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

func TestData_BadNamesAreRefusedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	d := newData(t)
	names := []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "%2e%2e/a", "a%2Fb", "a%2fb", "%00", "a%00b", "a%20b", "%61",
		"%ff%fe", "a%5cb", `a\b`, "a*b", "a~b", "a:b", "ä", "\xff", strings.Repeat("a", 256), strings.Repeat("a/", 150) + "a", "a;b", "a,b", "a@b",
	}
	for _, name := range names {
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "HEAD"} {
			body := ""
			if method == "PUT" || method == "POST" {
				body = "hello"
			}
			answer := d.raw(fmt.Sprintf("%s /v1/data/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
				method, name, dataToken, len(body), body))
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
				t.Errorf("%s of %q: %.60q", method, name, answer)
			}
		}
	}
	d.wantNothing()
	for _, name := range []string{"a", "a.b", "..a", "a..", "...", "A-_.9", "a/b/c", strings.Repeat("a", 255)} {
		if got := d.do("PUT", "/v1/data/"+name, text("x")); got.status != 201 {
			t.Errorf("a good name %q: %d %s", name, got.status, got.body)
		}
	}
}

func TestData_BadRequestsAreRefusedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	d := newData(t)
	big := strings.Repeat("x", 300_000)
	tests := []struct {
		what, method, path, body string
		header                   []string
		status                   int
		code                     string
	}{
		{"version 0", "GET", "a?version=0", "", nil, 400, "invalid"},
		{"a negative version", "GET", "a?version=-1", "", nil, 400, "invalid"},
		{"a version with a sign", "GET", "a?version=%2B1", "", nil, 400, "invalid"},
		{"a version with zeros", "GET", "a?version=01", "", nil, 400, "invalid"},
		{"a version that is no number", "GET", "a?version=latest", "", nil, 400, "invalid"},
		{"a version that is too large", "GET", "a?version=4294967296", "", nil, 400, "invalid"},
		{"an empty version", "GET", "a?version=", "", nil, 400, "invalid"},
		{"two versions", "GET", "a?version=1&version=2", "", nil, 400, "invalid"},
		{"something else in the query", "GET", "a?ver=1", "", nil, 400, "invalid"},
		{"a query that is none", "GET", "a?%zz", "", nil, 400, "invalid"},
		{"a version that is not there", "GET", "a?version=7", "", nil, 404, "not_found"},
		{"a put of a version", "PUT", "a?version=1", "x", nil, 400, "invalid"},
		{"another method", "PATCH", "a", "x", nil, 405, "invalid"},
		{"a coded body", "PUT", "a", "x", []string{"Content-Encoding", "gzip"}, 400, "invalid"},
		{"a part of a body", "PUT", "a", "x", []string{"Content-Range", "bytes 0-0/1"}, 400, "invalid"},
		{"a type that is none", "PUT", "a", "x", []string{"Content-Type", "text/plain; ="}, 400, "invalid"},
		{"a type that is too long", "PUT", "a", "x", []string{"Content-Type", "text/" + strings.Repeat("x", 300)}, 400, "invalid"},
		{"a long request id", "PUT", "a", "x", []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "invalid"},
		{"a request id that is not printable", "PUT", "a", "x", []string{"Idempotency-Key", "a\tb"}, 400, "invalid"},
		{"JSON that is none", "PUT", "a", `{"a":`, []string{"Content-Type", "application/json"}, 400, "invalid"},
		{"JSON that is none, after much", "PUT", "a", `["` + big + `",]`, []string{"Content-Type", "application/json"}, 400, "invalid"},
		{"no JSON at all", "PUT", "a", "", []string{"Content-Type", "application/problem+json"}, 400, "invalid"},
		{"JSON that is appended", "POST", "a", `{}`, []string{"Content-Type", "application/json; charset=utf-8"}, 400, "invalid"},
		{"no token", "PUT", "a", "x", []string{"Authorization", ""}, 401, "unauthorized"},
		{"a wrong token", "PUT", "a", big, []string{"Authorization", "Bearer nonsense"}, 401, "unauthorized"},
		{"a wrong token, to read", "GET", "a", "", []string{"Authorization", "Bearer nonsense"}, 401, "unauthorized"},
		{"another scheme", "GET", "a", "", []string{"Authorization", "Basic " + dataToken}, 401, "unauthorized"},
		{"a page of another origin", "PUT", "a", "x", []string{"Origin", "https://example.com"}, 403, "unauthorized"},
	}
	for _, tt := range tests {
		got := d.do(tt.method, "/v1/data/"+tt.path, text(tt.body), tt.header...)
		if got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s, want %d %s", tt.what, got.status, got.body, tt.status, tt.code)
		}
	}
	d.wantNothing()
}

func TestData_ABodyThatBreaksOffLeavesNothing(t *testing.T) {
	t.Parallel()
	d := newData(t)
	big := strings.Repeat("x", 300_000)
	head := "%s /v1/data/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n"
	for _, method := range []string{"PUT", "POST"} {
		for what, request := range map[string]string{
			"a short body":                     fmt.Sprintf(head, method, dataToken, "Content-Length: 10") + "hello",
			"a short large body":               fmt.Sprintf(head, method, dataToken, "Content-Length: 400000") + big,
			"pieces without an end":            fmt.Sprintf(head, method, dataToken, "Transfer-Encoding: chunked") + "5\r\nhello\r\n",
			"large pieces without an end":      fmt.Sprintf(head, method, dataToken, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(big), big),
			"pieces with nonsense in between":  fmt.Sprintf(head, method, dataToken, "Transfer-Encoding: chunked") + "5\r\nhello\r\nxyz\r\n",
			"a piece that is said to be large": fmt.Sprintf(head, method, dataToken, "Transfer-Encoding: chunked") + "ffffffffffffffff\r\nhello\r\n",
		} {
			answer := d.raw(request)
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, `"code":"invalid"`) {
				t.Errorf("%s with %s: %.300q", method, what, answer)
			}
		}
	}
	d.wantNothing()
}

func TestData_ACredentialIsOfOneDispatchWhileItLasts(t *testing.T) {
	t.Parallel()
	d := newData(t)
	good := d.step.Credential()
	parts := strings.Split(good, ".")
	mac := parts[len(parts)-1]
	flipped := "0"
	if mac[0] == '0' {
		flipped = "1"
	}
	for what, bad := range map[string]string{
		"of another generation": strings.Replace(good, "."+parts[len(parts)-2]+"."+mac, ".2."+mac, 1),
		"of another dispatch":   strings.Replace(good, d.step.ID(), d.step.ID()+"0", 1),
		"with another MAC":      strings.Replace(good, mac, flipped+mac[1:], 1),
		"in capitals":           strings.Replace(good, mac, strings.ToUpper(mac), 1),
		"with zeros":            strings.Replace(good, "."+parts[len(parts)-2]+"."+mac, ".0"+parts[len(parts)-2]+"."+mac, 1),
		"that is cut":           good[:len(good)-2],
		"without a MAC":         strings.TrimSuffix(good, mac),
		"of nothing":            "d.",
		"of dots":               "d...",
	} {
		if got := d.do("PUT", "/v1/data/a", text("x"), "Authorization", "Bearer "+bad); bad != good && (got.status != 401 || got.code() != "unauthorized") {
			t.Errorf("a credential %s: %d %s", what, got.status, got.body)
		}
	}
	d.wantNothing()
	for path, want := range map[string]int{"/v1/rpc/data.list": 200, "/v1/rpc/data.query": 400, "/v1/rpc/worker.list": 401, "/v1/rpc/run.cancel": 401} {
		if got := d.do("POST", path, text("{}"), "Authorization", "Bearer "+good); got.status != want {
			t.Errorf("%s with the credential of a dispatch: %d %s", path, got.status, got.body)
		}
	}
	got := d.do("PUT", "/v1/data/a", text("x"), "Authorization", "Bearer "+good)
	if item := got.item(t); item["step"] != "only" || item["job"] != "main" || item["worker"] != "gpu-1" || item["dispatchId"] != d.step.ID() {
		t.Errorf("who wrote it: %s", got.body)
	}
	d.run.Kill()
	d.run.WaitStatus(messages.RunCancelled)
	for _, method := range []string{"PUT", "GET", "DELETE"} {
		if got := d.do(method, "/v1/data/a", nil, "Authorization", "Bearer "+good); got.status != 409 || got.code() != "ended" {
			t.Errorf("%s of a dispatch that is fenced: %d %s", method, got.status, got.body)
		}
	}
	d.step.Succeed()
}

func TestData_TooManyBodiesAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	d := newData(t)
	var ends []*io.PipeWriter
	done := make(chan reply, 100)
	begun := make(chan struct{}, 100)
	for i := range 64 {
		r, w := io.Pipe()
		ends = append(ends, w)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/v1/data/n%d", d.url, i), r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+dataToken)
		req.Header.Set("Expect", "100-continue") // the first byte is asked for once the body is wanted
		go func() { done <- d.send(req) }()
		go func() { _, _ = w.Write([]byte("x")); begun <- struct{}{} }()
	}
	for range ends {
		<-begun
	}
	d.fleet.Eventually("one more is refused", func() bool {
		got := d.do("PUT", "/v1/data/more", text("x"))
		return got.status == 503 && got.code() == "overloaded" && got.header.Get("Retry-After") != ""
	})
	for _, w := range ends {
		_ = w.Close()
	}
	for range ends {
		if got := <-done; got.status != 201 {
			t.Errorf("one that had begun: %d %s", got.status, got.body)
		}
	}
	if got := d.do("PUT", "/v1/data/more", text("x")); got.status != 201 {
		t.Errorf("one after it: %d %s", got.status, got.body)
	}
}

func TestData_NoSpaceIsSaidAndPasses(t *testing.T) {
	t.Parallel()
	d := newData(t)
	step := "Bearer " + d.step.Credential()
	d.fleet.Journal().SetSpace(persistence.Space{Free: 30, NewWork: 100, Data: 50, Hard: 20})
	for _, body := range []string{"small", strings.Repeat("x", 300_000)} {
		if got := d.do("PUT", "/v1/data/a", text(body), "Authorization", step); got.status != 507 || got.code() != "no_space" {
			t.Errorf("%d bytes: %d %s", len(body), got.status, got.body)
		}
	}
	d.fleet.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50, Hard: 20})
	d.wantNothing()
	if got := d.do("PUT", "/v1/data/a", text("x"), "Authorization", step); got.status != 201 {
		t.Errorf("after that: %d %s", got.status, got.body)
	}
}
