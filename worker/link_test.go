package worker

import (
	"context"
	"errors"
	"fmt"
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
				return Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"k": "v"}}
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrKilled) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			time.Sleep(3 * time.Second) // it dies slowly
			if err := out.Write(Stdout, []byte("last")); err != nil {
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
		if c.enroll.GetInstanceUuid() != first.GetInstanceUuid() || c.enroll.GetDispatchSeq() != 9 || c.enroll.GetSlotsOffered() != 2 {
			t.Errorf("second enrollment %v", c.enroll)
		}
		var ends []string
		for _, f := range c.enroll.GetInFlight() {
			r := f.GetResult()
			ends = append(ends, fmt.Sprintf("%s/%d %s %d %s %s", f.GetDispatchId(), f.GetGeneration(), f.GetState(), f.GetOutputOffset(), r.GetStatus(), r.GetCode()))
		}
		if d := cmp.Diff([]string{"d1/1 ended 4 lost worker_lost", "d2/1 ended 0 succeeded "}, ends); d != "" {
			t.Error(d)
		}
		c.admit()
		c.expect("d1/1 stdout last")
		c.expect("d1/1 lost worker_lost")
		f := c.expect("d2/1 succeeded")
		if out := f.GetResponse().GetWorkerDispatch().GetOutputs(); len(out) != 1 {
			t.Errorf("outputs %v", out)
		}
		c.ack("d1", 4, true)
		c.ack("d2", 0, true)
		c.silent(time.Minute)
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

func TestAgent_FollowsTheVerdictsOnWhatWasInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			_ = out.Write(Stdout, []byte("12345"))
			return Outcome{Status: OutcomeSucceeded}
		}, func(c *Config) { c.Concurrency = 3 }).run()
		c := o.enrolled()
		for i, id := range []string{"d1", "d2", "d3"} {
			c.dispatch(id, uint32(i+1))
			c.expect(id + "/1 accepted")
			c.expect(id + "/1 started")
			c.expect(id + "/1 stdout 12345")
			c.expect(id + "/1 succeeded")
		}
		_ = c.Close("", "")
		c = o.accept()
		c.send(responseTo(c.id, messages.VerbWorkerEnroll, &messages.EnrollResult{
			Worker: "gpu-1", Session: "17", PingMs: 15_000, GraceMs: 60_000, InFlight: []*messages.InFlightVerdict{
				{DispatchId: "d1", Generation: 1, Action: "abort"},
				{DispatchId: "d2", Generation: 2, Action: "resume", OutputOffset: 3},
				{DispatchId: "d3", Generation: 1, Action: "resume"},
				{DispatchId: "d4", Generation: 1, Action: "abort"},
			},
		}))
		c.expect("d2/2 stdout 45")
		c.expect("d2/2 succeeded")
		c.expect("d3/1 stdout 12345")
		c.expect("d3/1 succeeded")
		c.ack("d2", 5, true) // its generation is another one
		c.ack("d3", 5, true)
		c.expect("d2/2 stdout 45")
		c.expect("d2/2 succeeded")
		c.send(&messages.Frame{Id: "d2/2", Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: 5, Done: true}}})
		c.silent(time.Minute)
		_ = c.Close("", "")
		if c = o.accept(); len(c.enroll.GetInFlight()) != 0 || c.enroll.GetLastSession() != "17" {
			t.Errorf("third enrollment %v", c.enroll)
		}
	})
}

func TestAgent_WhatDiesWithItsConnectionDoesNotWaitForCredit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			for {
				if err := out.Write(Stdout, make([]byte, 3*creditLimit)); err != nil {
					return Outcome{Status: OutcomeCancelled}
				}
			}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		synctest.Wait()
		_ = c.Close("", "")
		c = o.accept()
		if f := c.enroll.GetInFlight(); len(f) != 1 || f[0].GetOutputOffset() == 0 || f[0].GetOutputOffset() > creditLimit ||
			f[0].GetResult().GetFinalOffset() != f[0].GetOutputOffset() {
			t.Errorf("in flight %v", f)
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
