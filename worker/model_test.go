package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// modelFunc is a Model from a function.
type modelFunc func(ctx context.Context, t Task, out Output) (map[string]string, error)

func (f modelFunc) Run(ctx context.Context, t Task, out Output) (map[string]string, error) {
	return f(ctx, t, out)
}

func waitForEnd(ctx context.Context, _ Task, _ Output) (map[string]string, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestModel_Outcomes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		model   modelFunc
		timeout time.Duration
		cancel  error // a second after the start
		kill    bool  // two seconds after the start
		want    Outcome
	}{
		{
			name: "a success with outputs",
			model: func(_ context.Context, t Task, out Output) (map[string]string, error) {
				return map[string]string{"method": t.Method}, out.Write(Stdout, []byte("hello"))
			},
			want: Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"method": "fly"}},
		},
		{
			name: "an error",
			model: func(context.Context, Task, Output) (map[string]string, error) {
				return nil, errors.New("no fuel\xff")
			},
			want: Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "no fuel\uFFFD"},
		},
		{
			name:  "a panic fails the step alone",
			model: func(context.Context, Task, Output) (map[string]string, error) { panic("boom") },
			want:  Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "model 'acme/rocket' panicked: boom"},
		},
		{
			name: "outputs that are too large",
			model: func(context.Context, Task, Output) (map[string]string, error) {
				return map[string]string{"a": strings.Repeat("x", MaxOutputValueBytes+1)}, nil
			},
			want: Outcome{
				Status: OutcomeFailed, Code: CodeOutputTooLarge, Error: "the value of output 'a' holds more than 65536 bytes",
			},
		},
		{
			name: "too many outputs",
			model: func(context.Context, Task, Output) (map[string]string, error) {
				outputs := make(map[string]string)
				for i := range MaxOutputBytes/MaxOutputValueBytes + 1 {
					outputs[fmt.Sprintf("a%d", i)] = strings.Repeat("x", MaxOutputValueBytes)
				}
				return outputs, nil
			},
			want: Outcome{Status: OutcomeFailed, Code: CodeOutputTooLarge, Error: "the outputs hold more than 1048576 bytes"},
		},
		{
			name: "a timeout", model: waitForEnd, timeout: 1500 * time.Millisecond,
			want: Outcome{Status: OutcomeTimeout, Code: CodeTimeout, Error: "timed out after 1.5s"},
		},
		{
			name: "a cancel", model: waitForEnd, cancel: ErrCancelled,
			want: Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled"},
		},
		{
			name: "a kill", model: waitForEnd, cancel: ErrKilled,
			want: Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "killed"},
		},
		{
			name: "a kill by the task's own channel", model: waitForEnd, kill: true,
			want: Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "killed"},
		},
		{
			name: "a success after a cancel counts", cancel: ErrCancelled,
			model: func(ctx context.Context, _ Task, _ Output) (map[string]string, error) {
				<-ctx.Done()
				return nil, nil
			},
			want: Outcome{Status: OutcomeSucceeded},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t, func(c *ExecutorConfig) { c.Models = map[string]Model{"acme/rocket": tt.model} })
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				task := Task{Model: "acme/rocket", Method: "fly", Timeout: tt.timeout}
				if tt.cancel != nil {
					time.AfterFunc(time.Second, func() { cancel(tt.cancel) })
				}
				if tt.kill {
					kill := make(chan struct{})
					task.Kill = kill
					time.AfterFunc(2*time.Second, func() { close(kill) })
				}
				started := 0
				got := e.Run(ctx, task, func() { started++ }, newRecorder())
				if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(Outcome{}, "StartedAt")); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
				if started != 1 || got.StartedAt.IsZero() {
					t.Errorf("started %d times, at %v", started, got.StartedAt)
				}
			})
		})
	}
}

func TestModel_OutputOfManyGoroutinesIsOneAfterTheOther_AndEndsWithTheModel(t *testing.T) {
	t.Parallel()
	late := make(chan error, 1)
	end := make(chan struct{})
	var background sync.WaitGroup
	model := modelFunc(func(_ context.Context, _ Task, out Output) (map[string]string, error) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 100 {
					_ = out.Write(Stderr, []byte("x"))
				}
			})
		}
		all.Wait()
		background.Go(func() {
			<-end
			late <- out.Write(Stderr, []byte("late"))
		})
		return nil, nil
	})
	e := newTestExecutor(t, func(c *ExecutorConfig) { c.Models = map[string]Model{"m": model} })
	out := &exclusiveOutput{}
	if o := e.Run(t.Context(), Task{Model: "m"}, func() {}, out); o.Status != OutcomeSucceeded {
		t.Fatalf("outcome %+v", o)
	}
	close(end)
	if err := receive(t, "the late write", late); err == nil {
		t.Error("a write after the end was taken")
	}
	background.Wait()
	if out.bytes != 800 {
		t.Errorf("%d bytes", out.bytes)
	}
}

// exclusiveOutput has no lock of its own: the race detector tells if it needs one.
type exclusiveOutput struct{ bytes int }

func (o *exclusiveOutput) Write(_ Stream, p []byte) error {
	o.bytes += len(p)
	return nil
}

func TestModel_ARegisteredNameTakesPrecedence(t *testing.T) {
	t.Parallel()
	ran := false
	e := newTestExecutor(t, func(c *ExecutorConfig) {
		c.Models = map[string]Model{ShellModel: modelFunc(func(context.Context, Task, Output) (map[string]string, error) {
			ran = true
			return nil, nil
		})}
	})
	if o := e.Run(t.Context(), shellTask("exit 1"), func() {}, newRecorder()); o.Status != OutcomeSucceeded || !ran {
		t.Errorf("outcome %+v, ran %v", o, ran)
	}
}

func TestModel_Noop(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	if o := e.Run(t.Context(), Task{Model: NoopModel, Method: "any"}, func() {}, newRecorder()); o.Status != OutcomeSucceeded {
		t.Errorf("outcome %+v", o)
	}
}

func TestNewExecutor_RefusesWhatItCannotWorkWith(t *testing.T) {
	t.Parallel()
	_, err := NewExecutor(ExecutorConfig{Models: map[string]Model{"m": nil}})
	want := "executor: no cache directory\nno logger\nmodel \"m\" is nil"
	if err == nil || err.Error() != want {
		t.Errorf("error %q", err)
	}
}
