package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestActorTrace_InEveryForm(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(traceShown(testTime), nil))
	for args, file := range map[string]string{
		"":                 "actor_trace.txt",
		"--format json":    "actor_trace.json",
		"--output json":    "actor_trace.json",
		"--format mermaid": "actor_trace.mermaid",
	} {
		h := newTestHost(t, append([]string{"actor", "trace", "r", "j/s"}, strings.Fields(args)...)...)
		s.use(h)
		if code := h.run(t, Swamp); code != ExitOK || h.err.String() != "" {
			t.Errorf("%s: exit %d: %s", args, code, h.err.String())
		}
		golden(t, "lists/"+file, h.out.String())
	}
}

func TestActorTrace_SendsTheSameSpansToACollector(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(traceShown(testTime), nil))
	tests := []struct {
		name, path, answer, want string
		status, code             int
	}{
		{"it takes them", "", "{}", "sent 3 spans of trace", 200, ExitOK},
		{"at a path of its own", "/otlp/v1/traces", "", "2 go on", 200, ExitOK},
		{"it is not there", "", "who are you\x1b[2J", "it answers 401 Unauthorized: who are you", 401, ExitFailed},
		{"it takes some", "", `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}`, "it rejects 2 spans: too old", 200, ExitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got, path, auth string
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got, path, auth = string(body), r.URL.Path, r.Header.Get("Authorization")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.answer)
			}))
			defer collector.Close()
			h := newTestHost(t, "actor", "trace", "r", "--otlp-endpoint", collector.URL+tt.path)
			s.use(h)
			h.env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Basic%20xyz,x=y"
			if code := h.run(t, Swamp); code != tt.code || !strings.Contains(h.err.String(), tt.want) || strings.Contains(h.err.String(), "\x1b") {
				t.Errorf("exit %d: %q", code, h.err.String())
			}
			want := tt.path
			if want == "" {
				want = "/v1/traces"
			}
			if path != want || auth != "Basic xyz" {
				t.Errorf("it was sent to %s with %q", path, auth)
			}
			var indented any
			if err := json.Unmarshal([]byte(got), &indented); err != nil {
				t.Fatal(err)
			}
			data, err := json.MarshalIndent(indented, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "lists/otlp.json", string(data)+"\n")
		})
	}
	for _, bad := range []string{"localhost:4318", "ftp://x", "http://"} {
		h := newTestHost(t, "actor", "trace", "r", "--otlp-endpoint", bad)
		s.use(h)
		if code := h.run(t, Swamp); code != ExitUsage || !strings.Contains(h.err.String(), "--otlp-endpoint") {
			t.Errorf("%s: exit %d: %s", bad, code, h.err.String())
		}
	}
}
