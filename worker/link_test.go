package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

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

func TestAgent_MovesTheFenceWithEachPromise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fence := make(chan func() (Fence, <-chan struct{}), 1)
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			fence <- task.Fence
			return untilStopped(ctx, task, started, out)
		}).run()
		c := o.enrolled()
		enrolled := o.agent.clock()
		c.silent(14 * time.Second)
		c.dispatch("d1", 1)
		c.takes("d1")
		now := <-fence
		want := func(sent time.Duration) {
			t.Helper()
			synctest.Wait()
			if f, _ := now(); f.KillAt != sent+57400*time.Millisecond || f.TermAt != f.KillAt-10*time.Second {
				t.Errorf("fence %v, want one for a promise at %v", f, sent)
			}
		}
		want(enrolled) // the enrollment itself is the first promise
		c.silent(2 * time.Second)
		want(enrolled + 15*time.Second)
		c.silent(15 * time.Second)
		want(enrolled + 30*time.Second)
		ping, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.send(errorFrame(ping.GetId(), messages.CodeUnavailable, "no promise"))
		want(enrolled + 30*time.Second)
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
