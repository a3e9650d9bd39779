//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// booksAgree runs doctor books.
func (f *fleet) booksAgree() {
	f.t.Helper()
	if got := f.swamp("doctor", "books"); !strings.Contains(got, "the books agree") {
		f.t.Errorf("doctor books says %q", got)
	}
}

// stopping is a fleet with one step on loopback, one on a worker, one that waits, and one run that is followed.
type stopping struct {
	*fleet

	w      *worker
	ledger *ledger
	run    follower
	id     string
	own    int // the process of the step on loopback
}

func newStopping(t *testing.T, flags ...string) *stopping {
	t.Helper()
	f := newFleet(t, flags...)
	s := &stopping{fleet: f, w: f.worker("w", "--label", "pool=a"), ledger: newLedger(f)}
	s.run = f.follow(flow(
		step("own", s.ledger.gate()), step("placed", s.ledger.gate(), "labels: {pool: a}"),
		step("waits", s.ledger.script("true"), "labels: {pool: b}"),
	))
	s.run.event(20*time.Second, "step_queued", "waits")
	s.id = s.run.events()[0].RunID
	s.own = s.ledger.started(t, "own", 1, 20*time.Second)
	s.ledger.started(t, "placed", 1, 20*time.Second)
	return s
}

// goesOn starts swampd again, and wants everything that was under way to end well and to be counted right.
func (s *stopping) goesOn(t *testing.T) {
	t.Helper()
	s.start()
	s.ledger.started(t, "own", 2, 30*time.Second)
	s.ledger.open(t)
	s.worker("other", "--label", "pool=b")
	run := s.ends(s.id, 60*time.Second, "succeeded")
	for _, name := range []string{"own", "placed", "waits"} {
		if got := run.step(name); got.Losses != 0 {
			t.Errorf("the stop of the orchestrator counts as a loss of %s: %+v", name, got)
		}
	}
	for _, w := range wrong(s.ledger.entries(t)) {
		t.Error(w)
	}
	s.run.exits(30*time.Second, 0)
	if err := dense(s.run.events()); err != nil {
		t.Error(err)
	}
	s.booksAgree()
}

func TestStop_WorkersAndClientsAreToldAndTheWorkGoesOn(t *testing.T) {
	t.Parallel()
	s := newStopping(t, "--grace-window", "5s")
	s.d.signal(syscall.SIGTERM)
	s.d.exits(20*time.Second, 0)
	if left := living(s.own); len(left) > 0 {
		t.Errorf("the step of the loopback outlives it as %v", left)
	}
	s.run.line(10*time.Second, "the orchestrator stops")
	s.w.line(10*time.Second, "the orchestrator stops")
	for _, line := range s.d.stderr() {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("a stop is no trouble: %s", line)
		}
	}
	s.goesOn(t)
}

// A worker that does not read its goodbye holds up the stop, within its time.
func TestStop_AWorkerThatDoesNotAnswerDoesNotStretchIt(t *testing.T) {
	t.Parallel()
	s := newStopping(t, "--grace-window", "30s", "--shutdown-timeout", "3s")
	s.w.signal(syscall.SIGSTOP)
	s.d.signal(syscall.SIGTERM)
	s.d.exits(4*time.Second, 0)
	s.w.signal(syscall.SIGCONT)
	s.goesOn(t)
}

func TestStop_ASecondSignalEndsItAtOnce(t *testing.T) {
	t.Parallel()
	s := newStopping(t, "--grace-window", "30s")
	s.w.signal(syscall.SIGSTOP) // so that the stop waits for it
	s.d.signal(syscall.SIGTERM)
	s.d.line(10*time.Second, "stopping")
	holds(t, 500*time.Millisecond, "it waits for the worker", func() error {
		if !s.d.alive() {
			return fmt.Errorf("it has ended with %d", s.d.code)
		}
		return nil
	})
	s.d.signal(syscall.SIGTERM)
	s.d.exits(2*time.Second, 1)
	s.w.signal(syscall.SIGCONT)
	s.goesOn(t)
}

// A run that is submitted while the orchestrator stops is not lost: its client brings it to the next one.
func TestStop_ARunThatComesMeanwhileWaitsForTheNextStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	w.signal(syscall.SIGSTOP) // so that the stop takes its time
	f.d.signal(syscall.SIGTERM)
	f.d.line(10*time.Second, "stopping")
	ledger := newLedger(f)
	run := f.follow(flow(step("late", ledger.script("true"))))
	f.d.exits(40*time.Second, 0)
	w.signal(syscall.SIGCONT)
	if n := ledger.count(t, "start", "late"); n != 0 {
		t.Errorf("a step was started %d times by an orchestrator that stops", n)
	}
	f.start()
	run.exits(60*time.Second, 0)
	ledger.check(t, map[string]int{"late": 1})
}
