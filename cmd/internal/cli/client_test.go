package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

var errCut = errors.New("cut")

func TestExit_ByWhatTheOrchestratorSays(t *testing.T) {
	t.Parallel()
	fault := func(code messages.Code) error { return &messages.Fault{Code: code, Text: "the text"} }
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing wrong", nil, ExitOK},
		{"not found", fault(messages.CodeNotFound), ExitFailed},
		{"a fault of the orchestrator", fault(messages.CodeInternal), ExitFailed},
		{"no space", fault(messages.CodeNoSpace), ExitFailed},
		{"invalid params", fault(messages.CodeInvalid), ExitUsage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t, always(&messages.RunItem{RunId: "r"}, tt.err))
			h := newTestHost(t, "run", "show", "r")
			s.use(h)
			if code := h.run(t, Swamp); code != tt.want {
				t.Errorf("exit %d: %s", code, h.err.String())
			}
			if tt.err != nil && h.err.String() != "swamp: the text\n" {
				t.Errorf("told %q", h.err.String())
			}
		})
	}
}

func TestExitCode_EveryKindOfError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		want int
	}{
		{errFailed, ExitFailed},
		{errors.New("anything"), ExitFailed},
		{errInterrupted, ExitInterrupted},
		{errors.Join(errInterrupted, errors.New("and more")), ExitInterrupted},
		{usagef("x"), ExitUsage},
		{&inputError{}, ExitUsage},
		{&unreachableError{err: errCut}, ExitUnreachable},
		{errors.Join(errors.New("x"), worker.ErrUnreachable), ExitUnreachable},
		{messages.Faultf(messages.CodeNotReady, "x"), ExitUnreachable},
		{messages.Faultf(messages.CodeUnauthorized, "x"), ExitFailed},
	}
	for _, tt := range tests {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%v is %d, not %d", tt.err, got, tt.want)
		}
	}
}

func TestUnreachable_Exits3InOneLine(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, url := range map[string]string{"nobody listens": free, "something else listens": other.URL, "a certificate that nobody trusts": secure.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, args := range []string{"worker list", "workflow run testdata/one.yaml --server-timeout 300ms", "workflow run testdata/one.yaml --detach"} {
				h := newTestHost(t, strings.Fields(args)...)
				h.env["SWAMP_SERVER"] = url
				code := h.run(t, Swamp)
				lines := strings.Split(strings.TrimSpace(h.err.String()), "\n")
				if last := lines[len(lines)-1]; code != ExitUnreachable || !strings.Contains(last, url) || !strings.HasPrefix(last, "swamp: ") {
					t.Errorf("%s exits %d and says %q", args, code, lines)
				}
			}
		})
	}
}

func TestUnauthorized_SaysWhichToken(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(&messages.WorkerListResult{}, nil))
	tests := []struct {
		name string
		args string
		env  map[string]string
		want string
	}{
		{"none", "", nil, "SWAMP_SERVER_TOKEN"},
		{"a wrong variable", "", map[string]string{"SWAMP_SERVER_TOKEN": "wrong"}, "SWAMP_SERVER_TOKEN"},
		{"a wrong flag", "--server-token wrong", nil, "--server-token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, strings.Fields("worker list "+tt.args)...)
			h.env["SWAMP_SERVER"] = s.url
			for k, v := range tt.env {
				h.env[k] = v
			}
			code := h.run(t, Swamp)
			if code != ExitFailed || !strings.Contains(h.err.String(), tt.want) || strings.Contains(h.err.String(), "wrong") {
				t.Errorf("exit %d: %q", code, h.err.String())
			}
		})
	}
}

func TestCall_IsRepeatedOnlyWhereTwiceIsAsGoodAsOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args string
		want int // requests
		code int
	}{
		{"worker list", 2, ExitOK},
		{"run cancel r", 2, ExitOK},
		{"worker token create t", 1, ExitUnreachable},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			var s *script
			s = newScript(t, func(_ context.Context, verb messages.Verb, _ proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
				if len(s.verbs()) == 1 {
					return nil, errCut
				}
				return map[messages.Verb]proto.Message{
					messages.VerbWorkerList: &messages.WorkerListResult{}, messages.VerbRunCancel: &messages.RunCancelResult{RunId: "r", Status: "running"},
					messages.VerbWorkerTokenCreate: &messages.WorkerTokenCreateResult{},
				}[verb], nil
			})
			h := newTestHost(t, strings.Fields(tt.args)...)
			s.use(h)
			if code := h.run(t, Swamp); code != tt.code || len(s.verbs()) != tt.want {
				t.Errorf("exit %d after %d requests: %s", code, len(s.verbs()), h.err.String())
			}
		})
	}
}

func TestNotReady_IsWaitedFor(t *testing.T) {
	t.Parallel()
	var s *script
	s = newScript(t, func(context.Context, messages.Verb, proto.Message, func(*messages.RunEvent)) (proto.Message, error) {
		if len(s.verbs()) < 3 {
			return nil, messages.Faultf(messages.CodeNotReady, "the orchestrator is starting")
		}
		return &messages.WorkerListResult{}, nil
	})
	h := newTestHost(t, "worker", "list")
	s.use(h)
	if code := h.run(t, Swamp); code != ExitOK {
		t.Errorf("exit %d: %s", code, h.err.String())
	}
}

func TestRunList_ReadsAllPages(t *testing.T) {
	t.Parallel()
	var params []*messages.RunListParams
	s := newScript(t, func(_ context.Context, _ messages.Verb, p proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
		list, _ := p.(*messages.RunListParams)
		params = append(params, list)
		page := &messages.RunListResult{Items: []*messages.RunSummary{{RunId: "r" + list.GetCursor()}}}
		if len(params) < 3 {
			page.Cursor = proto.String(list.GetCursor() + "+")
		}
		return page, nil
	})
	h := newTestHost(t, "run", "list", "--limit", "0", "--output", "json")
	s.use(h)
	if code := h.run(t, Swamp); code != ExitOK {
		t.Fatalf("exit %d: %s", code, h.err.String())
	}
	var ids []string
	for part := range strings.SplitSeq(h.out.String(), `"runId":"`) {
		if id, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(id, "r") {
			ids = append(ids, id)
		}
	}
	if diff := cmp.Diff([]string{"r", "r+", "r++"}, ids); diff != "" || !strings.Contains(h.out.String(), `"count":3`) {
		t.Errorf("%s\n%s", diff, h.out.String())
	}
}
