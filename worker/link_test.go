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

// deaf makes an orchestrator that talks, but from which only one frame is taken at a time.
func deaf() (worker, orchestrator *memLink) {
	w, s := newMemLinks(1)
	down := make(chan *messages.Frame, 4*controlLimit)
	s.out, w.in = down, down
	return w, s
}

func TestAgent_AWriteThatIsStuckEndsTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, _ Task, started func(), out Output) Outcome {
			started()
			_ = out.Write(Stdout, make([]byte, 2*creditLimit))
			<-ctx.Done()
			return Outcome{Status: OutcomeCancelled}
		})
		o.links = deaf
		o.run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		synctest.Wait()
		stuck := time.Now()
		for range 5 { // it lives, by what it says
			time.Sleep(10 * time.Second)
			c.ack("nobody", 0, false)
		}
		o.accept()
		if d := time.Since(stuck); d < writeLimit || d > writeLimit+20*time.Second {
			t.Errorf("it gave up after %v", d)
		}
		if e := o.event(EventDisconnected); e.Reason != errWriteStuck.Error() {
			t.Errorf("event %v", e)
		}
	})
}

func TestAgent_AFloodOfRequestsEndsTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed)
		o.links = deaf
		o.run()
		c := o.enrolled()
		question := requestFrame("v", messages.VerbVersion, &messages.VersionParams{})
		for range 2 * controlLimit {
			if c.Write(t.Context(), question) != nil {
				break // it has had enough
			}
		}
		o.accept()
		if e := o.event(EventDisconnected); e.Reason != errFloodedSend.Error() {
			t.Errorf("event %v", e)
		}
	})
}

func TestAgent_AnEnrollmentWithoutAnswerIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		c := o.accept()
		c.request("x", messages.VerbWorkerDispatch, &messages.DispatchParams{}) // not before the answer
		before := time.Now()
		c = o.accept()
		if d := time.Since(before); d < enrollTimeout || d > enrollTimeout+backoffFirst {
			t.Errorf("it tried again after %v", d)
		}
		if e := o.event(EventRetrying); !strings.Contains(e.Error, errNoAnswer.Error()) {
			t.Errorf("event %v", e)
		}
		c.send(errorFrame("", messages.CodeMalformed, "what was that"))
		if err := o.ended(StopRefused); messages.CodeOf(err) != messages.CodeMalformed {
			t.Errorf("error %v", err)
		}
	})
}

func TestAgent_AComplaintDoesNotEndTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.send(errorFrame("", messages.CodeMalformed, "what was that"))
		c.silent(time.Minute)
		if n := len(o.dials); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
