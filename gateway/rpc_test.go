package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// answering makes a fake that answers every verb alike, and keeps what it was asked.
func answering(result proto.Message, err error, events ...*messages.RunEvent) *fakeOrchestrator {
	fake := newFake()
	fake.do = func(_ context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
		for _, e := range events {
			if err := emit(&messages.Event{Event: &messages.Event_Run{Run: e}}); err != nil {
				return nil, err
			}
		}
		return result, err
	}
	return fake
}

func TestRPC_Answers(t *testing.T) {
	t.Parallel()
	at := timestamppb.New(time.Date(2025, 6, 1, 12, 0, 0, 250_000_000, time.UTC))
	started := &messages.RunEvent{Kind: "run_started", Seq: 1, RunId: "r", At: at, WorkflowName: proto.String("w")}
	finished := &messages.RunEvent{Kind: "run_succeeded", Seq: 2, RunId: "r", At: at}
	tests := []struct {
		name   string
		fake   *fakeOrchestrator
		verb   messages.Verb
		body   string
		status int
		kind   string
		want   string
	}{
		{
			"a list", answering(&messages.WorkerListResult{Count: 1, Items: []*messages.WorkerItem{{Name: "w", Status: "idle", Connected: true, EnrolledAt: at}}}, nil),
			messages.VerbWorkerList, `{"all":true}`, 200, "application/json",
			`{"items":[{"name":"w","status":"idle","connected":true,"intent":"","health":"","reason":null,"labels":{},"platform":null,"arch":null,` +
				`"instanceUuid":null,"machineId":null,"capacity":0,"activeDispatchIds":[],"enrolledAt":"2025-06-01T12:00:00.25Z","lastSeenAt":null,"version":null}],"count":1}` + "\n",
		},
		{
			"an empty list is a document", answering(&messages.WorkerQueueListResult{}, nil), messages.VerbWorkerQueueList, "", 200, "application/json",
			`{"items":[],"count":0}` + "\n",
		},
		{
			"an error", answering(nil, messages.Faultf(messages.CodeNotFound, "no run 'r'")), messages.VerbRunShow, `{"runId":"r"}`, 404, "application/json",
			`{"code":"not_found","text":"no run 'r'","details":[]}` + "\n",
		},
		{
			"an error with several sentences", answering(nil, &messages.Fault{Code: messages.CodeInvalid, Text: "2 mistakes", Details: []string{"a", "b"}}),
			messages.VerbWorkflowValidate, `{}`, 400, "application/json", `{"code":"invalid","text":"2 mistakes","details":["a","b"]}` + "\n",
		},
		{
			"a wrapped error", answering(nil, fmt.Errorf("ask: %w", messages.Faultf(messages.CodeNoSpace, "full"))), messages.VerbRunList, `{}`, 507, "application/json",
			`{"code":"no_space","text":"full","details":[]}` + "\n",
		},
		{
			"a fault of ours stays ours", answering(nil, errors.New("the path of the store")), messages.VerbRunList, `{}`, 500, "application/json",
			`{"code":"internal","text":"internal error: see the orchestrator's log","details":[]}` + "\n",
		},
		{
			"a stream", answering(&messages.WorkflowRunResult{RunId: "r", Status: "succeeded"}, nil, started, finished), messages.VerbWorkflowRun, `{"follow":true}`,
			200, "application/x-ndjson", lineOf(t, started) + lineOf(t, finished) + `{"runId":"r","status":"succeeded"}` + "\n",
		},
		{
			"a stream without events", answering(&messages.RunLogsResult{RunId: "r"}, nil), messages.VerbRunLogs, `{"runId":"r"}`, 200, "application/x-ndjson",
			`{"runId":"r"}` + "\n",
		},
		{
			"a stream that fails before it begins", answering(nil, messages.Faultf(messages.CodeOverloaded, "later")), messages.VerbWorkflowRun, `{}`,
			503, "application/json", `{"code":"overloaded","text":"later","details":[]}` + "\n",
		},
		{
			"a stream that fails on its way", answering(nil, messages.Faultf(messages.CodeUnavailable, "gone"), started), messages.VerbRunWatch, `{}`,
			200, "application/x-ndjson", lineOf(t, started) + `{"error":{"code":"unavailable","text":"gone","details":[]}}` + "\n",
		},
		{
			"a stream with a fault of ours", answering(nil, errors.New("the path of the store"), started), messages.VerbRunWatch, `{}`,
			200, "application/x-ndjson", lineOf(t, started) + `{"error":{"code":"internal","text":"internal error: see the orchestrator's log","details":[]}}` + "\n",
		},
		{
			"params that are none", newFake(), messages.VerbRunShow, `{"runID":1}`, 400, "application/json", "",
		},
		{"a body that is no JSON", newFake(), messages.VerbRunShow, `x`, 400, "application/json", ""},
		{"a verb of workers", newFake(), messages.VerbWorkerEnroll, `{}`, 404, "application/json", `{"code":"unknown_verb","text":"unknown verb \"worker.enroll\"","details":[]}` + "\n"},
		{"a verb to workers", newFake(), messages.VerbWorkerDispatch, `{}`, 404, "application/json", `{"code":"unknown_verb","text":"unknown verb \"worker.dispatch\"","details":[]}` + "\n"},
		{"no such verb", newFake(), "no.such", `{}`, 404, "application/json", `{"code":"unknown_verb","text":"unknown verb \"no.such\"","details":[]}` + "\n"},
		{"a verb under its field's name", newFake(), "run_list", `{}`, 404, "application/json", `{"code":"unknown_verb","text":"unknown verb \"run_list\"","details":[]}` + "\n"},
		{"the largest body", answering(&messages.WorkflowValidateResult{}, nil), messages.VerbWorkflowValidate, sourceOf(messages.MaxFrame), 200, "application/json", ""},
		{
			"a body that is too large", newFake(), messages.VerbWorkflowValidate, sourceOf(messages.MaxFrame + 1), 413, "application/json",
			`{"code":"frame_too_large","text":"body is above the limit of 4194304 bytes","details":[]}` + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := serve(t, tt.fake, nil).call(t, http.MethodPost, "/v1/rpc/"+string(tt.verb), tt.body, withToken())
			if got.status != tt.status || got.header.Get("Content-Type") != tt.kind {
				t.Errorf("status %d %s, want %d %s", got.status, got.header.Get("Content-Type"), tt.status, tt.kind)
			}
			if tt.want == "" && tt.status == http.StatusBadRequest {
				checkError(t, strings.NewReader(got.body), messages.CodeInvalid)
			}
			if diff := cmp.Diff(tt.want, got.body); tt.want != "" && diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// sourceOf is params whose JSON has the given size.
func sourceOf(size int) string {
	const head, tail = `{"source":"`, `"}`
	return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
}

func lineOf(t *testing.T, m proto.Message) string {
	t.Helper()
	data, err := messages.MarshalShape(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

func TestRPC_EveryVerbOfAClientIsServed(t *testing.T) {
	t.Parallel()
	type asked struct {
		verb   messages.Verb
		params proto.Message
	}
	calls := make(chan asked, 100)
	fake := newFake()
	fake.do = func(_ context.Context, v messages.Verb, p proto.Message, _ actors.Emit) (proto.Message, error) {
		calls <- asked{v, p}
		return &messages.VersionResult{Version: "v"}, nil
	}
	f := serve(t, fake, nil)
	for _, verb := range messages.AllVerbs() {
		if verb.From() != messages.PeerClient {
			continue
		}
		if got := f.call(t, http.MethodPost, "/v1/rpc/"+string(verb), "", withToken()); got.status != http.StatusOK {
			t.Errorf("%s: status %d", verb, got.status)
			continue
		}
		got := <-calls
		if diff := cmp.Diff(messages.NewParams(verb), got.params, protocmp.Transform()); got.verb != verb || diff != "" {
			t.Errorf("%s was asked as %s with %s", verb, got.verb, diff)
		}
	}
}

func TestRPC_WhoMayAsk(t *testing.T) {
	t.Parallel()
	f := serve(t, answering(&messages.VersionResult{}, nil), nil)
	with := func(name, value string) http.Header {
		h := withToken()
		h.Set(name, value)
		return h
	}
	tests := []struct {
		name   string
		method string
		path   string
		header http.Header
		status int
		code   messages.Code
	}{
		{"nobody", http.MethodPost, "/v1/rpc/version", nil, 401, messages.CodeUnauthorized},
		{"nobody, about a verb that is not there", http.MethodPost, "/v1/rpc/x", nil, 401, messages.CodeUnauthorized},
		{"a wrong token", http.MethodPost, "/v1/rpc/version", http.Header{"Authorization": {"Bearer x"}}, 401, messages.CodeUnauthorized},
		{"a client", http.MethodPost, "/v1/rpc/version", withToken(), 200, ""},
		{"a client's page", http.MethodPost, "/v1/rpc/version", with("Origin", f.url), 200, ""},
		{"a foreign page", http.MethodPost, "/v1/rpc/version", with("Origin", "http://evil.example"), 403, messages.CodeUnauthorized},
		{"GET", http.MethodGet, "/v1/rpc/version", withToken(), 405, messages.CodeInvalid},
		{"another path", http.MethodPost, "/v2/rpc/version", withToken(), 404, messages.CodeNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := f.call(t, tt.method, tt.path, "", tt.header)
			if got.status != tt.status {
				t.Fatalf("status %d, want %d: %s", got.status, tt.status, got.body)
			}
			if tt.code != "" {
				checkError(t, strings.NewReader(got.body), tt.code)
			}
		})
	}
}

// streamed is a stream under way.
func (f *fixture) streamed(t *testing.T, ctx context.Context) (*http.Response, *bufio.Reader) { //nolint:revive // t comes first
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/rpc/run.watch", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = withToken()
	response, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response, bufio.NewReader(response.Body)
}

// endless streams one event, then waits for its context, and tells how that ended.
func endless() (*fakeOrchestrator, chan error) {
	fake, ended := newFake(), make(chan error, 1)
	fake.do = func(ctx context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
		if err := emit(&messages.Event{Event: &messages.Event_Run{Run: &messages.RunEvent{Kind: "run_started"}}}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	return fake, ended
}

func TestRPC_ALineIsSentAtOnceAndAStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	fake, ended := endless()
	f := serve(t, fake, nil)
	ctx, cancel := context.WithCancel(t.Context())
	_, lines := f.streamed(t, ctx) //nolint:bodyclose // by the helper
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "run_started") {
		t.Fatalf("line %q, %v", line, err)
	}
	cancel()
	if err := take(t, ended, "the end of the stream"); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRPC_ShutdownEndsStreamsWithALine(t *testing.T) {
	t.Parallel()
	fake, _ := endless()
	f := serve(t, fake, nil)
	_, lines := f.streamed(t, t.Context()) //nolint:bodyclose // by the helper
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(context.Background()) }()
	rest, err := io.ReadAll(lines)
	if want := `{"error":{"code":"not_ready","text":"the orchestrator stops","details":[]}}` + "\n"; err != nil || string(rest) != want {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRPC_ShutdownWaitsForAnswers(t *testing.T) {
	t.Parallel()
	fake, asked, release := newFake(), make(chan struct{}), make(chan struct{})
	fake.do = func(context.Context, messages.Verb, proto.Message, actors.Emit) (proto.Message, error) {
		close(asked)
		<-release
		return &messages.VersionResult{Version: "v"}, nil
	}
	f := serve(t, fake, nil)
	answers := make(chan answer, 1)
	go func() { answers <- f.call(t, http.MethodPost, "/v1/rpc/version", "", withToken()) }()
	<-asked
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(context.Background()) }()
	<-f.server.streams.Done() // it has begun
	close(release)
	if got := take(t, answers, "the answer"); got.status != http.StatusOK {
		t.Errorf("answer %+v", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRPC_AClientThatDoesNotReadRunsIntoTheWriteDeadline(t *testing.T) {
	ended := make(chan error, 1)
	fake := func() *fakeOrchestrator {
		fake := newFake()
		ended = make(chan error, 1)
		fake.do = func(_ context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
			var err error
			for err == nil {
				err = emit(&messages.Event{Event: &messages.Event_Run{Run: &messages.RunEvent{Kind: "step_output", Line: proto.String(strings.Repeat("x", 64<<10))}}})
			}
			ended <- err
			return nil, err
		}
		return fake
	}
	bubble(t, fake, func(t *testing.T, f *fixture) {
		conn, err := f.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		start := time.Now()
		if _, err := conn.Write([]byte("POST /v1/rpc/run.logs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testToken + "\r\nContent-Length: 0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("a stream without a reader ended well")
		}
		within(t, time.Since(start), writeTimeout, writeTimeout+time.Second)
	})
}

// Neither the deadline of the body nor that of the first write cuts a stream that is quiet for long.
func TestRPC_AQuietStreamLives(t *testing.T) {
	bubble(t, func() *fakeOrchestrator {
		fake := newFake()
		fake.do = func(ctx context.Context, _ messages.Verb, _ proto.Message, emit actors.Emit) (proto.Message, error) {
			for range 3 {
				select {
				case <-time.After(time.Hour):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				if err := emit(&messages.Event{Event: &messages.Event_Run{Run: &messages.RunEvent{Kind: "run_started"}}}); err != nil {
					return nil, err
				}
			}
			return &messages.RunWatchResult{RunId: "r"}, nil
		}
		return fake
	}, func(t *testing.T, f *fixture) {
		_, lines := f.streamed(t, t.Context()) //nolint:bodyclose // by the helper
		all, err := io.ReadAll(lines)
		if n := strings.Count(string(all), "\n"); err != nil || n != 4 {
			t.Errorf("%d lines, %v: %s", n, err, all)
		}
	})
}

func TestRPC_APanicCutsTheConnectionAndIsLogged(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.do = func(context.Context, messages.Verb, proto.Message, actors.Emit) (proto.Message, error) {
		panic("a mistake")
	}
	f := serve(t, fake, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/rpc/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = withToken()
	if response, err := f.client.Do(r); err == nil {
		_ = response.Body.Close()
		t.Errorf("answered with %d", response.StatusCode)
	}
	if log := f.logs.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "a mistake") || !strings.Contains(log, "rpc_test.go") {
		t.Errorf("log: %s", log)
	}
}
