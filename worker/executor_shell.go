package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// runShell runs the script of "run:" under a keeper.
func (e *StepExecutor) runShell(ctx context.Context, t Task, started func(), out Output) Outcome {
	script, ok := t.Args["run"]
	if !ok {
		return cannotStart("model '" + ShellModel + "' needs the argument 'run'")
	}
	argv, err := shellCommand(e.cfg.BaseEnv)
	if err != nil {
		return cannotStart(err.Error())
	}
	// The lock comes first and goes last: whoever holds it whole may remove every scratch folder.
	lock, err := e.lockKeepers()
	if err != nil {
		return workerCannotStart(fmt.Errorf("lock for the keeper: %w", err))
	}
	defer func() { _ = lock.Close() }()
	s, err := makeScratch(e.cfg.CacheDir, t.DispatchID, script)
	if err != nil {
		return workerCannotStart(err)
	}
	defer func() {
		if err := s.remove(); err != nil {
			e.cfg.Logger.Warn("scratch folder cannot be removed", messages.KeyDispatch, t.DispatchID, messages.KeyErr, err)
		}
	}()
	if t.Data != nil {
		socket, err := openDataSocket(t.Data, e.cfg.CacheDir, s)
		if err != nil {
			return workerCannotStart(err)
		}
		defer func() {
			if err := socket.close(); err != nil {
				e.cfg.Logger.Warn("data socket cannot be closed", messages.KeyDispatch, t.DispatchID, messages.KeyErr, err)
			}
		}()
		s.data = socket.URL()
	}
	env, err := stepEnv(e.cfg.BaseEnv, t, s)
	if err != nil {
		return cannotStart(err.Error())
	}
	if len(e.cfg.Tools) > 0 {
		if err := makeTools(e.cfg.CacheDir, e.cfg.Tools); err != nil {
			return workerCannotStart(err)
		}
		env = withTools(env, toolsDir(e.cfg.CacheDir))
	}
	spec := keeperSpec{
		dispatch: t.DispatchID,
		lock:     keeperLockPath(e.cfg.CacheDir),
		dir:      s.dir,
		argv:     append(argv, s.script),
		env:      env,
		timeout:  t.Timeout,
		grace:    t.KillGrace,
	}
	rep, startedAt, err := e.keep(ctx, t, spec, lock, started, out)
	if err != nil {
		return workerCannotStart(err)
	}
	o := e.outcome(t, rep)
	o.StartedAt = startedAt
	if o.Status == OutcomeSucceeded {
		if o.Outputs, err = readOutputs(s.output); err != nil {
			o.Status, o.Code, o.Error = OutcomeFailed, outputsCode(err), err.Error()
		}
	}
	return o
}

func (e *StepExecutor) lockKeepers() (*os.File, error) {
	path := keeperLockPath(e.cfg.CacheDir)
	lock, err := holdKeeperLock(path)
	if !errors.Is(err, os.ErrNotExist) {
		return lock, err
	}
	if err := os.MkdirAll(e.cfg.CacheDir, 0o700); err != nil {
		return nil, err
	}
	return holdKeeperLock(path)
}

// keep runs spec under a keeper, and returns when the keeper is gone and nothing is left below it.
func (e *StepExecutor) keep(
	ctx context.Context, t Task, spec keeperSpec, lock *os.File, started func(), out Output,
) (rep keeperReport, startedAt time.Time, err error) {
	k, err := launchKeeper(e.cfg.KeeperCommand, t.DispatchID, lock)
	if err != nil {
		return rep, startedAt, fmt.Errorf("start keeper: %w", err)
	}
	done, steered := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(steered)
		k.steer(ctx, t, spec, done)
	}()
	rep = k.read(func() {
		startedAt = time.Now()
		started()
	}, out, func(err error) {
		e.cfg.Logger.Warn("output of step is thrown away", messages.KeyDispatch, t.DispatchID, messages.KeyErr, err)
	})
	if rep.result == nil {
		// It is dead, or we do not understand each other; then it must not go on by itself.
		_ = k.cmd.Process.Kill()
	}
	close(done)
	_ = k.control.Close()
	<-steered
	_ = k.report.Close()
	waitErr := k.cmd.Wait()
	if rep.result == nil {
		rep.err = errors.Join(rep.err, waitErr)
		e.clearAfterKeeper(t, rep, k.stderr.String())
	}
	return rep, startedAt, nil
}

// clearAfterKeeper does the work of a keeper that did not live to do it. The kernel has killed the main process.
func (e *StepExecutor) clearAfterKeeper(t Task, rep keeperReport, stderr string) {
	log := e.cfg.Logger.With(messages.KeyDispatch, t.DispatchID)
	log.Error("keeper died", messages.KeyErr, errors.Join(rep.err, fmt.Errorf("its standard error: %q", stderr)))
	ctx, cancel := context.WithTimeout(context.Background(), strayPatience)
	defer cancel()
	if err := killStrays(ctx, t.DispatchID, rep.pid); err != nil {
		log.Error("processes of a step cannot be killed", messages.KeyErr, err)
	}
}

// outcome is how the step ended that the keeper reported of.
func (e *StepExecutor) outcome(t Task, rep keeperReport) Outcome {
	switch {
	case rep.result == nil && !rep.starting:
		return workerCannotStart(fmt.Errorf("the keeper died before it started anything: %w", rep.err))
	case rep.result == nil:
		return Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "the keeper of the step died"}
	case rep.result.startError != "" && rep.result.workerFault:
		return workerCannotStart(errors.New(rep.result.startError))
	case rep.result.startError != "":
		return cannotStart(rep.result.startError)
	}
	r := *rep.result
	o := Outcome{ExitCode: r.exit.code, Signal: r.exit.signal}
	switch r.reason {
	case stopTimeout:
		o.Status, o.Code, o.Error = OutcomeTimeout, CodeTimeout, timedOut(t.Timeout)
	case stopCancelled:
		o.Status, o.Code, o.Error = OutcomeCancelled, CodeCancelled, ErrCancelled.Error()
	case stopKilled:
		o.Status, o.Code, o.Error = OutcomeCancelled, CodeCancelled, ErrKilled.Error()
	case stopFenced, stopWorkerGone:
		o.Status, o.Code, o.Error = OutcomeFailed, CodeWorkerLost, outOfReach
	case stopNone:
		switch {
		case r.exit.signal != "":
			o.Status, o.Code, o.Error = OutcomeFailed, CodeExitNonzero, "killed by signal "+r.exit.signal
		case r.exit.code != 0:
			o.Status, o.Code, o.Error = OutcomeFailed, CodeExitNonzero, fmt.Sprintf("exit status %d", r.exit.code)
		default:
			o.Status = OutcomeSucceeded
		}
	}
	if r.left {
		e.cfg.Logger.Warn("processes of a step cannot be killed", messages.KeyDispatch, t.DispatchID)
		if o.Error != "" {
			o.Error += "; not everything that it started could be killed"
		}
	}
	return o
}

// shellCommand is what runs a script, without the script: bash where there is one. It is looked for in the worker's
// PATH, so that what a step does to its own cannot change which shell reads it.
func shellCommand(base []string) ([]string, error) {
	path := lookupEnv(base, "PATH")
	if path == "" {
		path = defaultPath
	}
	var tried []string
	for _, shell := range shells() {
		if program := findProgram(path, shell[0]); program != "" {
			return append([]string{program}, shell[1:]...), nil
		}
		tried = append(tried, shell[0])
	}
	return nil, fmt.Errorf("no such program in %s: %s", path, strings.Join(tried, ", "))
}
