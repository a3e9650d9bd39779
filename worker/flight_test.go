package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// verdict is a word on one dispatch.
func verdict(id string, generation uint32, action string, offset uint32) *messages.InFlightVerdict {
	return &messages.InFlightVerdict{DispatchId: id, Generation: generation, Action: action, OutputOffset: offset}
}

// steered is a step that prints what it is told to, until it is told to end or is stopped.
type steered struct {
	says chan string
	end  chan Outcome
	gone chan halt // why it was stopped; nil: it ended by itself
}

type halt struct{ cause error }

func newSteered() *steered {
	return &steered{says: make(chan string), end: make(chan Outcome), gone: make(chan halt, 10)}
}

func (s *steered) run(ctx context.Context, _ Task, started func(), out Output) Outcome {
	started()
	for {
		select {
		case text := <-s.says:
			_ = out.Write(Stdout, []byte(text))
		case o := <-s.end:
			s.gone <- halt{}
			return o
		case <-ctx.Done():
			s.gone <- halt{context.Cause(ctx)}
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled"}
		}
	}
}

// lives checks that nobody has stopped the step.
func (s *steered) lives(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case why := <-s.gone:
		t.Fatalf("the step has ended: %v", why)
	default:
	}
}

// cut cuts the connection when all that was sent has arrived, and returns the next one.
func (o *orchestrator) cut(c *conn) *conn {
	o.t.Helper()
	synctest.Wait()
	_ = c.Close("", "")
	return o.accept()
}

// hears returns what the worker says of each dispatch, until it says nothing for a while.
func (c *conn) hears() map[string][]string {
	said := map[string][]string{}
	for f := c.next(time.Second); f != nil; f = c.next(time.Second) {
		id, _ := dispatchOf(f.GetId())
		said[id] = append(said[id], describe(f))
	}
	return said
}

func TestAgent_StepsOutliveTheirConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		long, waiting := newSteered(), make(chan struct{})
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			switch task.DispatchID {
			case "long":
				return long.run(ctx, task, started, out)
			case "late":
				<-waiting
			}
			return succeed(ctx, task, started, out)
		}, func(c *Config) { c.Concurrency = 3 }).run()
		c := o.enrolled()
		first := c.enroll
		c.dispatch("long", 1)
		c.takes("long")
		long.says <- "before "
		c.expect("long/1 stdout before")
		c.ack("long", 3, false)
		c.dispatch("short", 2)
		c.takes("short")
		c.expect("short/1 succeeded") // and never acknowledged
		c.dispatch("late", 3)
		c.expect("late/1 accepted")
		c = o.cut(c)
		long.says <- "while cut off "
		if c.enroll.GetInstanceUuid() != first.GetInstanceUuid() || c.enroll.GetDispatchSeq() != 3 || c.enroll.GetSlotsOffered() != 1 {
			t.Errorf("second enrollment %v", c.enroll)
		}
		if d := cmp.Diff([]string{"late/1 accepted 0", "long/1 running 7", "short/1 ended 0 succeeded"}, c.inFlight()); d != "" {
			t.Error(d)
		}
		close(waiting)
		c.admitWith(verdict("long", 1, verdictResume, 5), verdict("short", 1, verdictResume, 0), verdict("late", 1, verdictResume, 0))
		want := map[string][]string{
			"long":  {"long/1 accepted", "long/1 started", "long/1 stdout e", "long/1 stdout while cut off"},
			"short": {"short/1 accepted", "short/1 started", "short/1 succeeded"},
			"late":  {"late/1 accepted", "late/1 started", "late/1 succeeded"},
		}
		if d := cmp.Diff(want, c.hears()); d != "" {
			t.Error(d)
		}
		long.lives(t)
		long.end <- Outcome{Status: OutcomeSucceeded}
		c.expect("long/1 succeeded")
		for _, id := range []string{"long", "short", "late"} {
			c.ack(id, 21, true)
		}
		c.silent(time.Minute)
		if c = o.cut(c); len(c.enroll.GetInFlight()) != 0 {
			t.Errorf("in flight %v", c.inFlight())
		}
	})
}

func TestAgent_WithOneConnectionTheStepsEndWithIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		step := newSteered()
		o := startAgent(t, step.run, func(c *Config) { c.NoReconnect = true }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		_ = c.Close("", "")
		if err := o.ended(StopError); err == nil || !strings.Contains(err.Error(), "with 1 dispatches in flight") {
			t.Errorf("error %v", err)
		}
		if why := <-step.gone; !errors.Is(why.cause, ErrKilled) {
			t.Errorf("it was stopped by %v", why.cause)
		}
	})
}

func TestAgent_AWorkerThatIsTurnedAwayForGoodKillsItsSteps(t *testing.T) {
	tests := []struct {
		name string
		end  func(*orchestrator, *conn)
		want StopReason
	}{
		{"superseded", func(_ *orchestrator, c *conn) { c.goodbye("superseded", "") }, StopSuperseded},
		{"revoked", func(_ *orchestrator, c *conn) { c.goodbye("revoked", "") }, StopRefused},
		{"refused when it comes back", func(o *orchestrator, c *conn) {
			c = o.cut(c)
			c.send(errorFrame(c.id, messages.CodeInvalidToken, "no"))
		}, StopRefused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				step := newSteered()
				o := startAgent(t, step.run).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				tt.end(o, c)
				if err := o.ended(tt.want); err == nil {
					t.Error("it does not say why")
				}
				if why := <-step.gone; !errors.Is(why.cause, ErrKilled) {
					t.Errorf("the step was stopped by %v", why.cause)
				}
				if e := o.event(EventDispatchFinished); e.Status != statusLost {
					t.Errorf("event %v", e)
				}
			})
		})
	}
}

func TestAgent_ARestartOfTheOrchestratorEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		step := newSteered()
		o := startAgent(t, step.run).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		c.goodbye("restart", messages.CodeNotReady)
		c = o.accept()
		step.lives(t)
		c.admit()
		c.takes("d1")
	})
}

func TestAgent_ACredentialOfAnAdoptionIsMaskedToo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		step := newSteered()
		o := startAgent(t, step.run).run()
		c := o.enrolled()
		c.dispatch("d1", 1, func(p *messages.DispatchParams) { p.Credential = "the-first-credential" })
		c.takes("d1")
		c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation, p.Credential = 2, "the-second-credential" })
		c.expect("d1/2 accepted")
		c.expect("d1/2 started")
		step.says <- "the-first-credential the-second-credential"
		c.expect("d1/2 stdout *** ***")
	})
}

// fencedAfter is from a promise until TERM, killedAfter until KILL, by the terms of the harness.
const (
	fencedAfter = 47_400 * time.Millisecond
	killedAfter = 57_400 * time.Millisecond
)

func TestAgent_HurriesToComeBackForStepsThatRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		step := newSteered()
		o := startAgent(t, step.run)
		o.refuse = func(try int) error {
			if try > 1 {
				return errDialled
			}
			return nil
		}
		o.run()
		c := o.enrolled()
		fence := time.Now().Add(fencedAfter)
		c.dispatch("d1", 1)
		c.takes("d1")
		_ = c.Close("", "")
		time.Sleep(15 * time.Minute)
		o.agent.Kill()
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
		before, late := 0, 0
		for i := range o.dials[1:] {
			at, next := o.dials[i], fence
			if i+1 < len(o.dials) {
				next = o.dials[i+1]
			}
			if left := fence.Sub(at); left >= tooLate {
				before++
				if pause := next.Sub(at); i > 0 && pause > left/4 {
					t.Errorf("with %v left it waits for %v", left, pause)
				}
			}
		}
		for i := len(o.dials) - 5; i < len(o.dials)-1; i++ {
			if o.dials[i+1].Sub(o.dials[i]) > time.Second {
				late++
			}
		}
		if before < 8 || late == 0 {
			t.Errorf("%d tries while the step lived; afterwards %d pauses", before, late)
		}
	})
}

func TestAgent_ATryToConnectLeavesTimeForAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		step := newSteered()
		o := startAgent(t, step.run).run()
		c := o.enrolled()
		fence := time.Now().Add(fencedAfter)
		c.dispatch("d1", 1)
		c.takes("d1")
		_ = c.Close("", "")
		tries := 0
		for time.Now().Before(fence) {
			o.accept() // and never answer
			tries++
		}
		if tries < 5 {
			t.Errorf("%d tries before the step was given up", tries)
		}
	})
}

func TestAgent_BlipsChangeNeitherCountsNorIdleness(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, sleeper(time.Minute), func(c *Config) { c.MaxDispatches, c.IdleTimeout = 2, 30*time.Second }).run()
		c := o.enrolled()
		for i, id := range []string{"d1", "d2"} {
			c.dispatch(id, uint32(i+1))
			c.takes(id)
			for range 2 {
				c.silent(10 * time.Second)
				c = o.cut(c)
				if n := c.enroll.GetSlotsOffered(); n != 0 {
					t.Errorf("it offers %d slots", n)
				}
				c.admit()
				c.takes(id)
			}
			if i == 0 {
				c.expect(id + "/1 succeeded")
				c.ack(id, 0, true)
			}
		}
		c.takeLeave(StopMaxDispatches)
		c.expect("d2/1 succeeded")
		c.ack("d2", 0, true)
		if err := o.ended(StopMaxDispatches); err != nil {
			t.Error(err)
		}
	})
}
