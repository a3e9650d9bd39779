package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
)

// The causes with which a caller cancels the context of a run. Any other cause counts as ErrCancelled.
var (
	// ErrCancelled stops a step the polite way: TERM, the task's grace, KILL.
	ErrCancelled = errors.New("cancelled")
	// ErrKilled stops a step at once.
	ErrKilled = errors.New("killed")
)

// The values of Outcome.Status.
const (
	OutcomeSucceeded         = "succeeded"
	OutcomeFailed            = "failed"
	OutcomeCancelled         = "cancelled"
	OutcomeTimeout           = "timeout"
	OutcomeCannotStart       = "cannot_start"        // for reasons of the step; it fails, once
	OutcomeWorkerCannotStart = "worker_cannot_start" // for reasons of this worker; the step is offered elsewhere
)

// The values of Outcome.Code.
const (
	CodeExitNonzero       = "exit_nonzero"
	CodeTimeout           = "timeout"
	CodeCancelled         = "cancelled"
	CodeCannotStart       = "cannot_start"
	CodeWorkerCannotStart = "worker_cannot_start"
	CodeOutputTooLarge    = "output_too_large"
	CodeWorkerLost        = "worker_lost"
	CodeInternal          = "internal"
)

// ShellModel is the built-in model behind a step's "run:"; its one method is ShellMethod and its argument "run" is
// the script.
const (
	ShellModel  = "command/shell"
	ShellMethod = "run"
)

// outOfReach is how a step ended that its fence has killed.
const outOfReach = "killed because the worker was out of reach for too long"

// DefaultKillGrace is the time from TERM to KILL of a task that names none.
const DefaultKillGrace = 10 * time.Second

// A Task is one dispatch as an executor sees it.
type Task struct {
	DispatchID, RunID, Workflow, Job, Step, Worker, StepKey string

	Attempt       int
	Model, Method string
	// Args are the arguments of the method. That of command/shell is "run", the script.
	Args map[string]string
	// Env holds KEY=VALUE, already layered: what was shipped, then env of workflow, job and step. A later entry wins.
	// Entries that begin with SWAMP are dropped: those names are the product's own.
	Env []string
	// Timeout bounds one run, counted from its start on a clock that stands still while the machine sleeps. 0 is none.
	Timeout time.Duration
	// KillGrace is the time from TERM to KILL. 0 is DefaultKillGrace, a negative one means at once.
	KillGrace time.Duration
	// Kill, if not nil, is closed to end the grace of a stop that is under way: it has the effect of ErrKilled, also
	// after the context was cancelled with ErrCancelled.
	Kill <-chan struct{}
	// Fence, if not nil, is the dead-man clock of the run: it returns the present reading and a channel that is closed
	// when there is another. Whoever runs the task in a process of its own ends it there when the clock says so, also if
	// this process is stopped: TERM at Fence.TermAt, KILL at Fence.KillAt. For what runs in this process, the context is
	// cancelled and Kill is closed by it.
	Fence func() (f Fence, moved <-chan struct{})
	// Data, if not nil, is the way to the data plane: a client with it as its transport reaches /v1/data/NAME, whatever host
	// the URL names, with the step's own rights. What is run in a process of its own gets it as the socket of SWAMP_DATA_URL.
	Data http.RoundTripper
}

// Stream is one of a step's two output streams.
type Stream string

// The streams of a step.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// An Output takes a step's output, in the order in which it came as far as two pipes can tell. Write is never called
// concurrently and may block, which in the end blocks the step; it must not keep p. After an error the rest of the
// output is read and thrown away, and the step goes on.
type Output interface {
	Write(stream Stream, p []byte) error
}

// An Outcome is how a task ended.
type Outcome struct {
	// Status is one of the Outcome constants.
	Status string
	// ExitCode is what the process exited with, 128 and the signal's number if a signal ended it. It is set where a
	// process was started, whatever the status.
	ExitCode int
	// Signal names the signal that ended the process, such as KILL, or is empty.
	Signal string
	// Code is one of the Code constants, empty on success.
	Code string
	// Error is for people: "exit status 7", "timed out after 2s", "killed by signal KILL". Empty on success.
	Error string
	// Outputs is what the step wrote to $SWAMP_OUTPUT, on success only.
	Outputs map[string]string
	// StartedAt is zero if nothing was started.
	StartedAt time.Time
}

// An Executor runs tasks.
type Executor interface {
	// Run runs one task to its end and says how it ended. started is called once, from the same goroutine, when the
	// step has begun. Run returns when nothing of the step is left and out has taken everything that the step wrote.
	// Cancelling ctx stops the step; the cause, ErrCancelled or ErrKilled, says how.
	Run(ctx context.Context, t Task, started func(), out Output) Outcome
}

// ExecutorConfig is what a StepExecutor needs.
type ExecutorConfig struct {
	// CacheDir is the worker's cache directory. Scratch folders and the lock of the keepers live there. Required.
	CacheDir string
	// Logger hears of what no outcome can tell, such as a scratch folder that cannot be removed. Required.
	Logger *slog.Logger
	// Models are the Go models by name. They take precedence over the built-in ones.
	Models map[string]Model
	// BaseEnv is the environment from which a step's first variables are taken. nil means os.Environ().
	BaseEnv []string
	// Tools are programs that steps find under a name, before all others: absolute paths by name.
	Tools map[string]string
	// KeeperCommand starts a keeper: a program that calls RunKeeper. Empty means this program with KeeperArg.
	KeeperCommand []string
}

func (c ExecutorConfig) withDefaults() (ExecutorConfig, error) {
	if c.BaseEnv == nil {
		c.BaseEnv = os.Environ()
	}
	models := map[string]Model{NoopModel: noopModel{}}
	maps.Copy(models, c.Models)
	c.Models = models
	if len(c.KeeperCommand) == 0 {
		self, err := ownProgram()
		if err != nil {
			return c, fmt.Errorf("find own program: %w", err)
		}
		c.KeeperCommand = []string{self, KeeperArg}
	}
	return c, nil
}

func (c ExecutorConfig) validate() error {
	var errs []error
	if c.CacheDir == "" {
		errs = append(errs, errors.New("no cache directory"))
	}
	if c.Logger == nil {
		errs = append(errs, errors.New("no logger"))
	}
	if err := validateTools(c.Tools); err != nil {
		errs = append(errs, err)
	}
	for name, m := range c.Models {
		if m == nil {
			errs = append(errs, fmt.Errorf("model %q is nil", name))
		}
	}
	return errors.Join(errs...)
}

// StepExecutor is the Executor of real workers: shell steps run under a keeper each, Go models in this process. It may
// run any number of tasks at once.
type StepExecutor struct{ cfg ExecutorConfig }

var _ Executor = (*StepExecutor)(nil)

// NewExecutor returns an executor. It touches no file before the first task.
func NewExecutor(cfg ExecutorConfig) (*StepExecutor, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	// A step's working directory lies below it, and the keeper's own is another one.
	if cfg.CacheDir, err = filepath.Abs(cfg.CacheDir); err != nil {
		return nil, fmt.Errorf("executor: cache directory: %w", err)
	}
	if err := checkToolsDir(cfg.CacheDir); err != nil && len(cfg.Tools) > 0 {
		cfg.Logger.Warn("steps find no tools", messages.KeyErr, err)
		cfg.Tools = nil
	}
	return &StepExecutor{cfg: cfg}, nil
}

// Run implements Executor.
func (e *StepExecutor) Run(ctx context.Context, t Task, started func(), out Output) Outcome {
	if ctx.Err() != nil {
		return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled before it was started"}
	}
	switch {
	case t.KillGrace == 0:
		t.KillGrace = DefaultKillGrace
	case t.KillGrace < 0:
		t.KillGrace = 0
	}
	if m, ok := e.cfg.Models[t.Model]; ok {
		return e.runModel(ctx, m, t, started, out)
	}
	switch {
	case t.Model != ShellModel:
		return cannotStart("this worker has no model '" + t.Model + "'")
	case t.Method != ShellMethod:
		return cannotStart("model '" + t.Model + "' has no method '" + t.Method + "'")
	}
	return e.runShell(ctx, t, started, out)
}

func cannotStart(text string) Outcome {
	return Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: text}
}

func workerCannotStart(err error) Outcome {
	return Outcome{Status: OutcomeWorkerCannotStart, Code: CodeWorkerCannotStart, Error: err.Error()}
}

// timedOut is the sentence for a timeout: seconds, as few digits as say it.
func timedOut(d time.Duration) string {
	return "timed out after " + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
