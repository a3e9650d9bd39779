package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
)

// NoopModel is a built-in model whose every method does nothing and succeeds at once. Benchmarks measure with it what
// everything around a step costs.
const NoopModel = "swamp/noop"

// A Model is Go code that an embedding program registers under a name and that steps call. It runs in the worker's
// process, without a keeper: nothing can end it but itself.
type Model interface {
	// Run does one task and returns its outputs, under the limits of $SWAMP_OUTPUT. ctx is cancelled when the step is
	// cancelled, killed or out of time; Run should then return soon, since its slot is taken until it does. An error
	// fails the step; a success counts even if it comes after a cancel. out may be used by several goroutines until Run
	// returns, and fails afterwards.
	Run(ctx context.Context, t Task, out Output) (map[string]string, error)
}

type noopModel struct{}

func (noopModel) Run(context.Context, Task, Output) (map[string]string, error) { return nil, nil }

// errTimedOut is the cause of a context whose step is out of time.
var errTimedOut = errors.New("timed out")

// errOutputClosed is what a model gets that writes after it returned.
var errOutputClosed = errors.New("the step has ended")

func (e *StepExecutor) runModel(ctx context.Context, m Model, t Task, started func(), out Output) Outcome {
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.Timeout, errTimedOut)
		defer cancel()
	}
	if t.Kill != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		over := make(chan struct{})
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			select {
			case <-t.Kill:
				cancel(ErrKilled)
			case <-over:
			}
		}()
		defer func() {
			close(over)
			<-watched
			cancel(nil)
		}()
	}
	guarded := &guardedOutput{out: out}
	o := Outcome{StartedAt: time.Now()}
	started()
	outputs, err := e.callModel(ctx, m, t, guarded)
	guarded.close()
	switch {
	case err == nil:
		err = checkOutputs(outputs)
		if err == nil {
			o.Status, o.Outputs = OutcomeSucceeded, outputs
			return o
		}
		o.Status, o.Code, o.Error = OutcomeFailed, outputsCode(err), err.Error()
	case ctx.Err() == nil:
		o.Status, o.Code, o.Error = OutcomeFailed, CodeInternal, strings.ToValidUTF8(err.Error(), "\uFFFD")
	case errors.Is(context.Cause(ctx), errTimedOut):
		o.Status, o.Code, o.Error = OutcomeTimeout, CodeTimeout, timedOut(t.Timeout)
	case errors.Is(context.Cause(ctx), ErrKilled):
		o.Status, o.Code, o.Error = OutcomeCancelled, CodeCancelled, ErrKilled.Error()
	default:
		o.Status, o.Code, o.Error = OutcomeCancelled, CodeCancelled, ErrCancelled.Error()
	}
	return o
}

// callModel turns a panic into an error: a model that is broken for one step must not end the steps beside it.
func (e *StepExecutor) callModel(ctx context.Context, m Model, t Task, out Output) (outputs map[string]string, err error) {
	defer func() {
		if p := recover(); p != nil {
			outputs, err = nil, fmt.Errorf("model '%s' panicked: %v", t.Model, p)
			e.cfg.Logger.Error("model panicked", messages.KeyDispatch, t.DispatchID, messages.KeyErr, err, messages.KeyStack, string(debug.Stack()))
		}
	}()
	return m.Run(ctx, t, out)
}

// guardedOutput keeps the promises that Output makes to its writer's other end, whatever a model does.
type guardedOutput struct {
	mu     sync.Mutex
	out    Output
	closed bool
}

func (g *guardedOutput) Write(stream Stream, p []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errOutputClosed
	}
	return g.out.Write(stream, p)
}

func (g *guardedOutput) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
