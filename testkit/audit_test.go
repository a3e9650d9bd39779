package testkit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// recorder is a test that only notes what would have failed it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) end() {
	for _, fn := range r.cleanups {
		fn()
	}
}

// write puts a record into the books behind everybody's back.
func write(t *testing.T, f *testkit.Fleet, kind persistence.Kind, id, state string, version uint64, body proto.Message, events ...*messages.RunEvent) {
	t.Helper()
	data, err := proto.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	c := persistence.Commit{Puts: []persistence.Put{{Kind: kind, ID: id, Expect: version, State: state, Body: data}}}
	for _, e := range events {
		data, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		c.Appends = append(c.Appends, persistence.Append{Stream: e.GetRunId(), Body: data})
	}
	if _, err := f.Journal().Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// An audit that finds nothing in broken books is worth nothing.
func TestAudit_FindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	pending := func(run string) *messages.PendingRecord {
		return &messages.PendingRecord{QueueId: run + ".0.q9", RunId: run, Step: "hello", State: "waiting", BootEpoch: 1}
	}
	tests := []struct {
		name, want string
		options    []testkit.Option
		sabotage   func(t *testing.T, f *testkit.Fleet, run *testkit.Run, w *testkit.Worker)
	}{
		{
			name: "a wait of nobody's", want: "and its step hello does not wait as it",
			sabotage: func(t *testing.T, f *testkit.Fleet, run *testkit.Run, _ *testkit.Worker) {
				write(t, f, persistence.KindPending, run.ID+".0.q9", "waiting", 0, pending(run.ID))
			},
		},
		{
			name: "a wait of nobody's, seen in the middle of everything", want: "after a commit: pending dispatch run-0001.0.q9 waits, and its step hello does not",
			options: []testkit.Option{testkit.WithEveryCommit()},
			sabotage: func(t *testing.T, f *testkit.Fleet, run *testkit.Run, _ *testkit.Worker) {
				write(t, f, persistence.KindPending, run.ID+".0.q9", "waiting", 0, pending(run.ID))
			},
		},
		{
			name: "a lease of nobody's", want: "is active, and its step hello does not run as it",
			sabotage: func(t *testing.T, f *testkit.Fleet, run *testkit.Run, w *testkit.Worker) {
				write(t, f, persistence.KindLease, run.ID+".0.9/1", "active", 0, &messages.LeaseRecord{
					DispatchId: run.ID + ".0.9", Generation: 1, RunId: run.ID, Step: "hello", Worker: w.Name(), State: "active",
				})
			},
		},
		{
			name: "a lease that the scheduler does not know", want: "and the scheduler counts",
			sabotage: func(t *testing.T, f *testkit.Fleet, run *testkit.Run, w *testkit.Worker) {
				write(t, f, persistence.KindLease, run.ID+".0.9/1", "active", 0, &messages.LeaseRecord{
					DispatchId: run.ID + ".0.9", Generation: 1, RunId: run.ID, Step: "hello", Worker: w.Name(), State: "active",
				})
			},
		},
		{
			name: "a step that waits beside a free match", want: "matches and has a free slot",
			sabotage: func(t *testing.T, f *testkit.Fleet, _ *testkit.Run, w *testkit.Worker) {
				w.NextDispatch().Accept()
				f.Submit(oneStep)
				f.Settle()
				rec, err := f.Journal().Get(persistence.KindWorker, w.Name())
				if err != nil {
					t.Fatal(err)
				}
				r := &messages.WorkerRecord{}
				if err := proto.Unmarshal(rec.Body, r); err != nil {
					t.Fatal(err)
				}
				r.Capacity = 5
				write(t, f, persistence.KindWorker, w.Name(), rec.State, rec.Version, r)
			},
		},
		{
			name: "a story that makes no sense", want: `had "step_dispatched" before`,
			sabotage: func(t *testing.T, f *testkit.Fleet, run *testkit.Run, _ *testkit.Worker) {
				job, step := "main", "hello"
				write(t, f, persistence.KindSource, "x", "kept", 0, &messages.SourceRecord{},
					&messages.RunEvent{Kind: messages.EventStepDispatched, RunId: run.ID, Job: &job, Step: &step})
			},
		},
		{
			name: "a run that nobody carries on", want: "and none of its steps waits or runs",
			sabotage: func(t *testing.T, f *testkit.Fleet, _ *testkit.Run, _ *testkit.Worker) {
				write(t, f, persistence.KindRun, "stuck", "running", 0, &messages.RunRecord{RunId: "stuck", Status: "running"})
			},
		},
		{
			name: "an actor that panics although nobody wanted it", want: "1 actors have panicked",
			options: []testkit.Option{testkit.WithHook(func() func(actors.Point) {
				var once sync.Once
				return func(p actors.Point) {
					if p.Kind == "step" {
						once.Do(func() { panic("a fault of ours") })
					}
				}
			}())},
			sabotage: func(*testing.T, *testkit.Fleet, *testkit.Run, *testkit.Worker) {},
		},
		{
			name: "a step that runs on two workers", want: "while it still ran on",
			sabotage: func(_ *testing.T, f *testkit.Fleet, _ *testkit.Run, w *testkit.Worker) {
				w.NextDispatch().Accept()
				f.Settle()
				w.HalfOpen() // a real worker would kill its step
				again := f.Worker("gpu-1", testkit.Labels{"gpu": "true"}, testkit.WithToken(w.Token()), testkit.Machine("m"))
				again.NextDispatch().Succeed()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				r := &recorder{TB: t}
				f := testkit.Start(r, tt.options...)
				w := f.Worker("gpu-1", testkit.Labels{"gpu": "true"}, testkit.Machine("m"))
				run := f.Submit(oneStep)
				f.Advance(time.Second)
				tt.sabotage(t, f, run, w)
				r.end()
				if all := strings.Join(r.errors, "\n"); !strings.Contains(all, tt.want) {
					t.Errorf("the audit says %q, want something with %q", all, tt.want)
				}
			})
		})
	}
}

func TestAudit_FindsNothingInBooksThatAreRight(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		r := &recorder{TB: t}
		f := testkit.Start(r, testkit.WithEveryCommit())
		w := f.Worker("gpu-1", testkit.Labels{"gpu": "true"})
		f.Submit(oneStep)
		f.Submit(oneStep)
		w.NextDispatch().Accept() // one runs, one waits
		f.Audit()
		r.end()
		if len(r.errors) > 0 {
			t.Errorf("the audit says %q", r.errors)
		}
	})
}
