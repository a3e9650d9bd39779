package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swampd/swampd/cmd/internal/engine"
	"github.com/swampd/swampd/worker"
)

// envProgram makes the test binary be one of the programs, so that a command can start itself.
const envProgram = "CLI_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if p, ok := os.LookupEnv(envProgram); ok || (len(os.Args) > 1 && os.Args[1] == worker.KeeperArg) {
		os.Exit(Main(Program(p), engine.Engine{}))
	}
	goleak.VerifyTestMain(m)
}

// buffer is a bytes.Buffer for several goroutines, which tells when it has grown.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	grew chan struct{}
}

func newBuffer() *buffer { return &buffer{grew: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.grew <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits until the text is in the buffer.
func (b *buffer) waitFor(t *testing.T, text string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.grew:
		case <-limit:
			t.Fatalf("%q was never written, only %q", text, b.String())
		}
	}
}

// testHost is a machine of its own for one command.
type testHost struct {
	*Host
	out, err *buffer
	env      map[string]string
	signals  chan os.Signal
	restart  *Restart // what Reexec was asked for
}

func newTestHost(t *testing.T, args ...string) *testHost {
	t.Helper()
	h := &testHost{
		out: newBuffer(), err: newBuffer(),
		env:     map[string]string{"HOME": t.TempDir(), "USER": "kim"},
		signals: make(chan os.Signal, 3),
	}
	h.Host = &Host{
		Args:   args,
		Stdin:  strings.NewReader(""),
		Stdout: h.out,
		Stderr: h.err,
		LookupEnv: func(name string) (string, bool) {
			v, ok := h.env[name]
			return v, ok
		},
		Environ: func() []string {
			var env []string
			for k, v := range h.env {
				env = append(env, k+"="+v)
			}
			return env
		},
		Notify:         func(...os.Signal) (<-chan os.Signal, func()) { return h.signals, func() {} },
		Terminal:       func() (int, int, bool) { return 0, 0, false },
		StderrTerminal: func() bool { return false },
		Reexec: func(r Restart) error {
			h.restart = &r
			return errNoReexec
		},
		Now:    func() time.Time { return testTime(0) },
		Engine: engine.Engine{},
	}
	return h
}

// testTime is a moment of the time that the tests live in.
func testTime(d time.Duration) time.Time {
	return time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC).Add(d)
}

// run runs a program to its end.
func (h *testHost) run(t *testing.T, p Program) int {
	t.Helper()
	return Run(t.Context(), p, h.Host)
}

// start runs a program beside the test; the channel gives its exit code.
func (h *testHost) start(ctx context.Context, p Program) <-chan int {
	code := make(chan int, 1)
	go func() { code <- Run(ctx, p, h.Host) }()
	return code
}

// wait waits for the exit code.
func (h *testHost) wait(t *testing.T, code <-chan int) int {
	t.Helper()
	select {
	case c := <-code:
		return c
	case <-time.After(30 * time.Second):
		t.Fatalf("the command does not end; it wrote %q and %q", h.out.String(), h.err.String())
		return -1
	}
}

// golden compares text with a file of testdata. REWRITE=1 writes the file instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("REWRITE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the golden file (REWRITE=1 writes it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; REWRITE=1 writes it):\n%s", file, diff)
	}
}
