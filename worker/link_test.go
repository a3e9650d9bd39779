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

func TestAgent_DropKillsTheStepsAndComesBackOnceTheyAreDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			started()
			if task.DispatchID != "d1" {
				return Outcome{Status: OutcomeSucceeded}
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrKilled) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			time.Sleep(3 * time.Second) // it dies slowly
			if err := out.Write(Stdout, []byte("too late")); !errors.Is(err, errDropped) {
				t.Errorf("write after the drop: %v", err)
			}
			return Outcome{Status: OutcomeCancelled}
		}, func(c *Config) { c.Concurrency = 2 }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.dispatch("d2", 9)
		c.expect("d2/1 accepted")
		c.expect("d2/1 started")
		c.expect("d2/1 succeeded") // and never acknowledged
		first := c.enroll
		dropped := time.Now()
		_ = c.Close("", "")
		c = o.accept()
		if d := time.Since(dropped); d < 3*time.Second {
			t.Errorf("it came back after %v, while its step lived", d)
		}
		if c.enroll.GetInstanceUuid() != first.GetInstanceUuid() || len(c.enroll.GetInFlight()) != 0 || c.enroll.GetDispatchSeq() != 9 {
			t.Errorf("second enrollment %v", c.enroll)
		}
		c.admit()
		c.silent(time.Minute) // no result of the earlier session
		c.dispatch("d1", 1)
		c.expect("d1/1 error ended")
		c.dispatch("d3", 10)
		c.expect("d3/1 accepted")
		if e := o.event(EventDispatchFinished); e.Status != "succeeded" {
			t.Errorf("event %v", e)
		}
		want := []string{
			EventConnecting, EventEnrolled, EventDispatchStarted, EventDispatchStarted, EventDispatchFinished,
			EventDispatchFinished, EventDisconnected, EventRetrying, EventConnecting, EventEnrolled, EventDispatchStarted,
			EventDispatchFinished,
		}
		synctest.Wait()
		if d := cmp.Diff(want, o.kinds()); d != "" {
			t.Error(d)
		}
	})
}

func TestAgent_ASilentOrchestratorIsGoneAfterThreeIntervals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		synctest.Wait()
		start := time.Now()
		c2 := o.accept()
		if d := time.Since(start); d < 45*time.Second || d > 47*time.Second {
			t.Errorf("it came back after %v", d)
		}
		c2.admit()
		c2.silent(5 * time.Minute) // answers pings
		if n := len(o.dials); n != 2 {
			t.Errorf("%d connections", n)
		}
		if e := o.event(EventDisconnected); !strings.Contains(e.Reason, "silent") {
			t.Errorf("event %v", e)
		}
		_ = c
	})
}

func TestAgent_AnyFrameCountsAsLife(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		for range 20 { // no ping is answered
			time.Sleep(40 * time.Second)
			c.ack("nobody", 0, true)
		}
		if n := len(o.dials); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// fenced is an executor with a dead-man clock.
type fenced struct {
	execFunc
	fences chan Fence
}

func (f fenced) Keep(v Fence) { f.fences <- v }

func TestAgent_MovesTheFenceWithEachPromise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := fenced{succeed, make(chan Fence, 100)}
		o := startAgent(t, nil, func(c *Config) { c.Executor = e }).run()
		c := o.enrolled()
		f := <-e.fences // the enrollment itself
		if f.KillAt-f.TermAt != 10*time.Second || f.KillAt <= FenceClock() {
			t.Errorf("fence %v at %v", f, FenceClock())
		}
		c.silent(31 * time.Second) // two pings
		if n := len(e.fences); n != 2 {
			t.Errorf("%d fences after two promises", n)
		}
		<-e.fences
		<-e.fences
		read := func() *messages.Frame {
			f, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		ping := read()
		c.send(errorFrame(ping.GetId(), messages.CodeUnavailable, "no promise"))
		synctest.Wait()
		if n := len(e.fences); n != 0 {
			t.Errorf("a refused ping moved the fence")
		}
	})
}
