package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	// dialTimeout bounds one try to connect, the handshake included.
	dialTimeout = 30 * time.Second
	// enrollTimeout bounds the wait for the answer to an enrollment.
	enrollTimeout = 30 * time.Second
)

// errLeaving is the cause of whatever is given up because the worker is to leave.
var errLeaving = errors.New("the worker leaves")

// errBound is the end of a drain that took too long.
var errBound = errors.New("the drain came to its bound of")

// run makes the worker ready, and connects until there is a reason to stop. A worker that drains also connects again,
// until the results that it owes are acknowledged or its bound is over.
func (a *Agent) run() (StopReason, error) {
	if a.cfg.CacheDir != "" {
		m, err := openMachine(a.cfg.CacheDir)
		if err != nil {
			return StopError, err
		}
		defer m.close()
		if a.cfg.MachineID == "" {
			a.cfg.MachineID = m.id
		}
		// Enrolling says that every earlier step of this machine has ended, so it has to be true.
		if err := WaitForKeepers(a.leaving, a.cfg.CacheDir); err != nil {
			if reason, left := a.stopReason(); left {
				return reason, nil
			}
			return StopError, err
		}
		sweepShortFolders(a.cfg.CacheDir)
		if err := sweepSpools(a.cfg.CacheDir); err != nil { // no reason not to work, and the next process tries again
			a.cfg.Logger.Warn("what an earlier process left cannot be removed", messages.KeyErr, err)
		}
	}
	var wait backoff
	for try := 1; ; try++ {
		if reason, may := a.mayGo(); may {
			return reason, a.lastWords(reason)
		}
		a.emit(Event{Kind: EventConnecting, Attempt: try})
		end, enrolled := a.connection()
		if enrolled > 0 {
			wait.connected(enrolled)
			try = 0
		}
		if end.stop != "" || a.cfg.NoReconnect {
			return a.finalConnection(end, enrolled > 0)
		}
		if reason, may := a.mayGo(); may {
			return reason, a.lastWords(reason)
		}
		pause := wait.next(a.cfg.Jitter())
		if left, ok := a.timeLeft(); ok {
			pause = hurried(pause, left)
		}
		a.emit(Event{Kind: EventRetrying, DelayMs: messages.Milliseconds(pause), Error: a.secrets.clean(end.err.Error())})
		a.pause(pause)
	}
}

// finalConnection is how a worker ends that does not connect again. Steps that still run end with it.
func (a *Agent) finalConnection(end ending, enrolled bool) (StopReason, error) {
	reason, err := end.stop, end.err
	if reason == "" {
		reason, err = a.onlyConnection(end, enrolled)
	}
	if err == nil {
		err = a.lastWords(reason)
	}
	why := "its one connection is over"
	if end.err != nil {
		why = end.err.Error()
	}
	if left := a.abandon(why); left != nil {
		err = left
	}
	return reason, err
}

// onlyConnection is how a worker ends that connects only once. Losing its connection is an orderly end, unless a step is
// lost with it.
func (a *Agent) onlyConnection(end ending, enrolled bool) (StopReason, error) {
	switch {
	case !enrolled:
		return StopError, fmt.Errorf("%w: %w", ErrUnreachable, end.err)
	case end.lost > 0:
		return StopError, fmt.Errorf("connection lost with %d dispatches in flight: %w", end.lost, end.err)
	default:
		if reason, left := a.stopReason(); left {
			return reason, nil
		}
		return StopDrained, nil
	}
}

// lastWords says what was forced about the end of a worker that goes, if something was and nobody has seen it happen.
func (a *Agent) lastWords(reason StopReason) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.life.known); n > 0 && !a.life.unheard {
		a.cfg.Logger.Warn("the orchestrator has not acknowledged all results", messages.KeyCount, n)
	}
	switch {
	case a.life.gone && a.life.running > 0:
		return errStepsLeft
	case reason != StopForced || a.life.stage != expired:
		return nil
	case a.life.cut > 0:
		return fmt.Errorf("%w %v; steps that did not end in time (%s): %d", errBound, a.cfg.DrainTimeout, a.cfg.DrainMode, a.life.cut)
	default:
		return fmt.Errorf("%w %v; results that are not acknowledged: %d", errBound, a.cfg.DrainTimeout, len(a.life.known))
	}
}

// pause waits, unless the worker is to leave.
func (a *Agent) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.leaving.Done():
	}
}

// ending is how a connection ended, or a try to make one.
type ending struct {
	stop StopReason // empty: connect again
	err  error
	lost int // dispatches that were in flight
	// goodbye is the request with which the orchestrator ended it, if it did.
	goodbye string
}

// connection makes one connection and works on it until it has ended. It returns for how long the worker was enrolled;
// 0 means that it was not.
func (a *Agent) connection() (_ ending, enrolled time.Duration) {
	limit := dialTimeout
	if left, ok := a.timeLeft(); ok {
		limit = tryFor(limit, left)
	}
	ctx, cancel := context.WithTimeout(a.leaving, limit)
	link, err := a.cfg.Dial(ctx)
	cancel()
	if err != nil {
		return ending{err: err}, 0
	}
	s := newSession(a, link)
	if err := s.enroll(); err != nil {
		s.cancel(err)
		_ = s.link.Close("", "")
		return endingOf(err, a.cfg, true), 0
	}
	since := time.Now()
	a.emit(Event{Kind: EventEnrolled, Worker: s.worker})
	end := s.serve()
	if end.stop == "" || end.err != nil {
		a.emit(Event{Kind: EventDisconnected, Worker: s.worker, Reason: a.secrets.clean(fmt.Sprint(end.err))})
	}
	return end, max(time.Since(since), 1)
}

// endingOf decides by the code of an error whether to connect again. enrolling tells whether the worker was not admitted
// yet.
func endingOf(err error, cfg Config, enrolling bool) ending {
	var fault *messages.Fault
	switch {
	case !errors.As(err, &fault) || fault.Code == "":
		return ending{err: err}
	case fault.Code == messages.CodeSuperseded:
		return ending{stop: StopSuperseded, err: fmt.Errorf("another connection of this worker took over: %w", fault)}
	case forGood(fault.Code, enrolling):
		return ending{stop: StopRefused, err: &refusal{fault: fault, advice: advice(fault, cfg)}}
	default:
		return ending{err: fmt.Errorf("%s: %w", fault.Code, fault)}
	}
}

// forGood tells whether connecting again cannot help. What goes wrong on a connection says nothing about the next one,
// but for who is admitted at all. An orchestrator that stumbled over itself may do better after a restart or an upgrade,
// and a fleet that has exited would not see it.
func forGood(c messages.Code, enrolling bool) bool {
	switch c {
	case messages.CodeInvalidToken, messages.CodeTokenRevoked, messages.CodeTokenExpired, messages.CodeEnrollmentsSpent,
		messages.CodeProtocolMismatch:
		return true
	case messages.CodeInternal:
		return false
	default:
		return enrolling && c.Permanent()
	}
}

// refusal is a permanent no. It unwraps to the *messages.Fault.
type refusal struct {
	fault  *messages.Fault
	advice string
}

func (r *refusal) Error() string {
	text := string(r.fault.Code)
	if r.fault.Text != "" {
		text += ": " + r.fault.Text
	}
	if r.advice != "" {
		text += "; " + r.advice
	}
	return text
}

func (r *refusal) Unwrap() error { return r.fault }

// advice says what a person can do about a refusal, as far as the orchestrator has not said it.
func advice(f *messages.Fault, cfg Config) string {
	name, _, _ := strings.Cut(cfg.Token.Reveal(), ".")
	switch f.Code {
	case messages.CodeInvalidToken:
		return "create a token with 'swamp worker token create NAME' on this orchestrator (one whose store was lost knows no old token)"
	case messages.CodeTokenRevoked, messages.CodeTokenExpired:
		return fmt.Sprintf("create a new token with 'swamp worker token create %s'", name)
	case messages.CodeEnrollmentsSpent:
		if strings.Contains(f.Text, "--cache-dir") && strings.Contains(f.Text, "--max-enrollments") {
			return "this worker's cache directory is " + cfg.CacheDir
		}
		return fmt.Sprintf("if this machine enrolled before, its machine id was not kept: give a cache directory that lasts with --cache-dir"+
			" (it is %s); else create a token with --max-enrollments for more machines", cfg.CacheDir)
	case messages.CodeProtocolMismatch:
		if strings.Contains(f.Text, "upgrade") {
			return ""
		}
		return "upgrade the older of worker and orchestrator"
	default:
		return ""
	}
}
