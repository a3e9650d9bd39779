package cli

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
)

// served is an orchestrator that runs in this process as a person would run it.
type served struct {
	*testHost
	t    *testing.T
	dir  string
	url  string
	code <-chan int
}

// serve starts swampd on a free port and waits until it listens.
func serve(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	s := &served{testHost: newTestHost(t, append([]string{"--listen", "127.0.0.1:0", "--data-dir", dir}, args...)...), t: t, dir: dir}
	ctx, cancel := context.WithCancel(context.Background())
	s.code = s.start(ctx, Swampd)
	t.Cleanup(func() {
		cancel()
		if s.code != nil {
			s.wait(t, s.code)
		}
	})
	s.err.waitFor(t, "msg=listening")
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(s.err.String())
	if addr == nil {
		t.Fatalf("no address in %s", s.err.String())
	}
	s.url = "http://" + addr[1]
	return s
}

// end sends a signal and returns the exit code.
func (s *served) end(sig os.Signal) int {
	s.t.Helper()
	s.signals <- sig
	code := s.wait(s.t, s.code)
	s.code = nil
	return code
}

// client is a host for a command that talks to it.
func (s *served) client(args ...string) *testHost {
	s.t.Helper()
	h := newTestHost(s.t, args...)
	token, err := os.ReadFile(filepath.Join(s.dir, daemon.AdminTokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	h.env["SWAMP_SERVER"], h.env["SWAMP_SERVER_TOKEN"] = s.url, strings.TrimSpace(string(token))
	return h
}

// swamp runs a command and returns what it prints.
func (s *served) swamp(args ...string) string {
	s.t.Helper()
	h := s.client(args...)
	if code := h.run(s.t, Swamp); code != ExitOK {
		s.t.Fatalf("swamp %v exits %d: %s", args, code, h.err.String())
	}
	return strings.TrimSpace(h.out.String())
}

func TestServe_ASignalEndsItWell(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	var tokens []string
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		s := serve(t, dir)
		if got := s.swamp("run", "list", "--output", "json"); !strings.HasPrefix(got, `{"items":[]`) {
			t.Errorf("run list prints %s", got)
		}
		token, err := os.ReadFile(filepath.Join(dir, daemon.AdminTokenFile))
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, string(token))
		if code := s.end(sig); code != ExitOK {
			t.Errorf("%s: exit %d: %s", sig, code, s.err.String())
		}
	}
	if tokens[0] != tokens[1] {
		t.Error("the second start made another admin token")
	}
}

func TestServe_ASecondOneOnTheSameDirectory(t *testing.T) {
	t.Parallel()
	s := serve(t, filepath.Join(t.TempDir(), "data"))
	h := newTestHost(t, "--listen", "127.0.0.1:0", "--data-dir", s.dir)
	code := h.run(t, Swampd)
	line := lastLine(h.err.String())
	if code != ExitFailed || !strings.Contains(line, s.dir) || !strings.Contains(line, "in use by process") {
		t.Errorf("exit %d: %s", code, line)
	}
	if got := s.swamp("run", "list", "--output", "json"); !strings.HasPrefix(got, `{"items":[]`) {
		t.Errorf("the first one is disturbed: %s", got)
	}
}

func TestServe_WhatCannotStartSaysWhyAndChangesNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(root, "unreadable")
	if err := os.MkdirAll(filepath.Join(secret, daemon.AdminTokenFile), 0o700); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(root, "fresh")
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"a port in use", []string{"--listen", taken.Addr().String(), "--data-dir", fresh}, []string{taken.Addr().String(), "in use", "--listen"}},
		{"a file for a directory", []string{"--data-dir", file}, []string{file, "not a directory", "--data-dir"}},
		{"an admin token that cannot be read", []string{"--data-dir", secret}, []string{secret, "server token"}},
		{"a certificate that is not there", []string{"--data-dir", fresh, "--tls-cert", "/no/cert", "--tls-key", "/no/key"}, []string{"/no/cert"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, append([]string{"--listen", "127.0.0.1:0"}, tt.args...)...)
			code := h.run(t, Swampd)
			if code != ExitFailed || strings.Count(h.err.String(), "\n") != 1 {
				t.Errorf("exit %d: %q", code, h.err.String())
			}
			for _, want := range tt.want {
				if !strings.Contains(h.err.String(), want) {
					t.Errorf("no %s in %q", want, h.err.String())
				}
			}
			if _, err := os.Stat(fresh); !os.IsNotExist(err) {
				t.Errorf("the data directory was made: %v", err)
			}
		})
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

const (
	placed = "name: placed\njobs:\n  - name: main\n    steps:\n      - name: only\n        labels: {tier: x}\n        run: |\n          echo \"hello from $SWAMP_WORKER\"\n"
	slow   = "name: slow\njobs:\n  - name: main\n    steps:\n      - name: only\n        labels: {tier: x}\n        run: echo up; sleep 600\n"
)

// workflowFile writes a workflow and returns its name.
func workflowFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "flow.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestGoldenPath runs a placed step in an empty pool, and a worker that comes later.
func TestGoldenPath(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its step is a Unix script")
	}
	s := serve(t, filepath.Join(t.TempDir(), "data"))
	run := s.client("workflow", "run", workflowFile(t, placed))
	runCode := run.start(t.Context(), Swamp)
	run.out.waitFor(t, "waiting for a worker matching labels tier=x")
	if queue := s.swamp("worker", "queue"); !strings.Contains(queue, "main/only") || !strings.Contains(queue, "tier=x") {
		t.Errorf("worker queue prints\n%s", queue)
	}

	w := newTestHost(t, s.url, "--cache-dir", t.TempDir(), "--label", "tier=x", "--output", "json")
	w.env[envWorkerToken] = s.swamp("worker", "token", "create", "box")
	workerCode := w.start(t.Context(), SwampWorker)
	if code := run.wait(t, runCode); code != ExitOK {
		t.Fatalf("the run exits %d: %s %s", code, run.out.String(), run.err.String())
	}
	for _, want := range []string{"main/only: running on box\n", "main/only | hello from box\n", "run succeeded in "} {
		if !strings.Contains(run.out.String(), want) {
			t.Errorf("no %q in\n%s", want, run.out.String())
		}
	}
	var list struct{ Items []struct{ RunID string } }
	if err := json.Unmarshal([]byte(s.swamp("run", "list", "--output", "json")), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("run list: %v, %v", list, err)
	}
	id := list.Items[0].RunID
	if got := s.swamp("run", "logs", id); got != "hello from box" {
		t.Errorf("run logs prints %q", got)
	}
	if got := s.swamp("run", "watch", id); !strings.HasSuffix(got, lastLine(run.out.String())) {
		t.Errorf("run watch prints\n%s", got)
	}

	w.signals <- syscall.SIGTERM
	if code := w.wait(t, workerCode); code != ExitOK {
		t.Errorf("a drained worker exits %d: %s", code, w.err.String())
	}
	var kinds []string
	for line := range strings.Lines(w.out.String()) {
		var e struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%q is no object: %v", line, err)
		}
		kinds = append(kinds, e.Kind)
	}
	if got, want := strings.Join(kinds, " "), "connecting enrolled dispatch_started dispatch_finished draining stopped"; got != want {
		t.Errorf("the worker's life was %s, not %s", got, want)
	}
}

func TestWorker_ExitCodes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its step is a Unix script")
	}
	s := serve(t, filepath.Join(t.TempDir(), "data"))
	start := func(t *testing.T, token string, args ...string) (*testHost, <-chan int) {
		t.Helper()
		w := newTestHost(t, append([]string{s.url, "--cache-dir", t.TempDir()}, args...)...)
		w.env[envWorkerToken] = token
		return w, w.start(t.Context(), SwampWorker)
	}
	t.Run("an unknown token is refused for good", func(t *testing.T) {
		t.Parallel()
		w, code := start(t, "nobody.00ff")
		if got := w.wait(t, code); got != ExitFailed || !strings.Contains(w.out.String()+w.err.String(), string(messages.CodeInvalidToken)) {
			t.Errorf("exit %d: %s %s", got, w.out.String(), w.err.String())
		}
	})
	t.Run("an orchestrator that is not there, tried once", func(t *testing.T) {
		t.Parallel()
		w := newTestHost(t, "http://127.0.0.1:1", "--no-reconnect", "--cache-dir", t.TempDir())
		w.env[envWorkerToken] = "a.b"
		if got := w.run(t, SwampWorker); got != ExitUnreachable {
			t.Errorf("exit %d: %s", got, w.err.String())
		}
	})
	t.Run("a second signal kills", func(t *testing.T) {
		t.Parallel()
		w, code := start(t, s.swamp("worker", "token", "create", "killed"), "--label", "tier=x")
		run := s.client("workflow", "run", workflowFile(t, slow))
		runCode := run.start(t.Context(), Swamp)
		run.out.waitFor(t, "main/only | up")
		w.signals <- syscall.SIGTERM
		w.err.waitFor(t, "a second signal kills it")
		w.signals <- syscall.SIGTERM
		if got := w.wait(t, code); got != ExitFailed {
			t.Errorf("exit %d: %s", got, w.err.String())
		}
		run.signals <- os.Interrupt
		if got := run.wait(t, runCode); got != ExitInterrupted {
			t.Errorf("the run exits %d: %s", got, run.err.String())
		}
	})
}

func TestServe_WithoutLoopbackUnplacedStepsWait(t *testing.T) {
	t.Parallel()
	s := serve(t, filepath.Join(t.TempDir(), "data"), "--loopback", "off")
	run := s.client("workflow", "run", "testdata/one.yaml")
	code := run.start(t.Context(), Swamp)
	run.out.waitFor(t, "waiting for a worker matching any worker")
	run.signals <- os.Interrupt
	if got := run.wait(t, code); got != ExitInterrupted || !strings.Contains(run.out.String(), "run cancelled") {
		t.Errorf("exit %d: %s", got, run.out.String())
	}
}

// TestReattach_ThroughARestartOfTheOrchestrator follows one run over two lives of an orchestrator.
func TestReattach_ThroughARestartOfTheOrchestrator(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its step is a Unix script")
	}
	dir := filepath.Join(t.TempDir(), "data")
	first := serve(t, dir)
	run := first.client("workflow", "run", workflowFile(t, placed))
	runCode := run.start(t.Context(), Swamp)
	run.out.waitFor(t, "waiting for a worker")
	if code := first.end(syscall.SIGTERM); code != ExitOK {
		t.Fatalf("exit %d: %s", code, first.err.String())
	}
	run.err.waitFor(t, "no connection to "+first.url)
	second := serve(t, dir, "--listen", strings.TrimPrefix(first.url, "http://"))
	run.err.waitFor(t, "connected to "+first.url+" again")
	w := newTestHost(t, second.url, "--cache-dir", t.TempDir(), "--label", "tier=x")
	w.env[envWorkerToken] = second.swamp("worker", "token", "create", "box")
	workerCode := w.start(t.Context(), SwampWorker)
	if code := run.wait(t, runCode); code != ExitOK || strings.Count(run.out.String(), "run succeeded") != 1 || strings.Count(run.out.String(), " started\n") != 1 {
		t.Errorf("exit %d: %s%s", code, run.out.String(), run.err.String())
	}
	w.signals <- os.Interrupt
	if code := w.wait(t, workerCode); code != ExitOK {
		t.Errorf("the worker exits %d: %s", code, w.err.String())
	}
}
