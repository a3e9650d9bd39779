package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain plays the other processes of the package's tests too: the test binary is started again as a keeper by
// every executor, and as a worker by the tests that kill one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == KeeperArg {
		os.Exit(RunKeeper())
	}
	if os.Getenv(roleVariable) == "worker" {
		os.Exit(playWorker())
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what a test waits for. It is far more than any of them needs.
const patience = 60 * time.Second

// eventually waits until a condition of the outer world holds that nothing tells of, such as a process that is gone.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// receive waits for a channel.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("never happened: %s", what)
		panic("unreachable")
	}
}

// testExecutor is an executor with a cache directory of its own.
type testExecutor struct {
	*StepExecutor
	cacheDir string
	log      *syncBuffer
	fence    *fenceBoard // of every task that has none
}

func newTestExecutor(t testing.TB, change ...func(*ExecutorConfig)) *testExecutor {
	t.Helper()
	log := &syncBuffer{}
	cfg := ExecutorConfig{
		CacheDir: t.TempDir(),
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	e, err := NewExecutor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &testExecutor{StepExecutor: e, cacheDir: cfg.CacheDir, log: log, fence: newFenceBoard()}
}

// shellTask is a task with ids that nothing else on the machine has.
func shellTask(script string) Task {
	return Task{
		DispatchID: "d-" + rand.Text(),
		RunID:      "run-1",
		Workflow:   "flow",
		Job:        "job",
		Step:       "step",
		Worker:     "w1",
		StepKey:    "key-1",
		Attempt:    1,
		Model:      ShellModel,
		Method:     ShellMethod,
		Args:       map[string]string{"run": script},
	}
}

// running is a task in flight.
type running struct {
	task    Task
	out     *recorder
	started chan struct{}
	outcome chan Outcome
	stop    context.CancelCauseFunc
}

func (e *testExecutor) start(t testing.TB, task Task) *running {
	t.Helper()
	return e.startWith(t, task, nil)
}

func (e *testExecutor) startWith(t testing.TB, task Task, out Output) *running {
	t.Helper()
	if task.Fence == nil {
		task.Fence = e.fence.get
	}
	ctx, stop := context.WithCancelCause(t.Context())
	r := &running{
		task:    task,
		out:     newRecorder(),
		started: make(chan struct{}),
		outcome: make(chan Outcome, 1),
		stop:    stop,
	}
	if out == nil {
		out = r.out
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.outcome <- e.Run(ctx, task, func() { close(r.started) }, out)
	}()
	t.Cleanup(func() {
		stop(ErrKilled)
		<-over
	})
	return r
}

func (r *running) end(t testing.TB) Outcome {
	t.Helper()
	return receive(t, "the end of the step", r.outcome)
}

func (e *testExecutor) run(t testing.TB, task Task) (Outcome, *recorder) {
	t.Helper()
	r := e.start(t, task)
	return r.end(t), r.out
}

// recorder is an Output that keeps everything.
type recorder struct {
	mu      sync.Mutex
	all     bytes.Buffer
	streams map[Stream]*bytes.Buffer
	changed chan struct{}
}

func newRecorder() *recorder {
	return &recorder{
		streams: map[Stream]*bytes.Buffer{Stdout: {}, Stderr: {}},
		changed: make(chan struct{}),
	}
}

func (r *recorder) Write(stream Stream, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Write(p)
	r.streams[stream].Write(p)
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

func (r *recorder) of(stream Stream) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.streams[stream].Bytes())
}

// waitFor waits until the output holds text, and returns all of it.
func (r *recorder) waitFor(t testing.TB, text string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		all, changed := r.all.String(), r.changed
		r.mu.Unlock()
		if strings.Contains(all, text) {
			return all
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("output never held %q, but is %q", text, all)
		}
	}
}

// dam is an Output that blocks until it is opened.
type dam struct {
	*recorder
	entered chan struct{} // closed by the first write
	open    chan struct{}
	once    sync.Once
}

func newDam() *dam {
	return &dam{recorder: newRecorder(), entered: make(chan struct{}), open: make(chan struct{})}
}

func (d *dam) Write(stream Stream, p []byte) error {
	d.once.Do(func() { close(d.entered) })
	<-d.open
	return d.recorder.Write(stream, p)
}

// syncBuffer is a buffer for logs.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var errSinkFull = errors.New("sink is full")
