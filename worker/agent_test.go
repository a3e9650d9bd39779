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

func TestAgent_GoldenPath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, task Task, started func(), out Output) Outcome {
			started()
			if err := out.Write(Stdout, []byte("hello ")); err != nil {
				t.Error(err)
			}
			if err := out.Write(Stdout, []byte("world\n")); err != nil {
				t.Error(err)
			}
			if err := out.Write(Stderr, []byte("oops\n")); err != nil {
				t.Error(err)
			}
			want := Task{
				DispatchID: "d1", RunID: "r1", Workflow: "flow", Job: "main", Step: "one", Worker: "gpu-1", Attempt: 1,
				Model: ShellModel, Method: ShellMethod, Args: map[string]string{"run": "echo"}, Env: []string{"A=1", "A=2"},
				Timeout: 1500 * time.Millisecond, KillGrace: 3 * time.Second,
			}
			task.Kill = nil
			if d := cmp.Diff(want, task); d != "" {
				t.Error(d)
			}
			return Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"b": "2", "a": "\xff"}, StartedAt: time.Now()}
		}, func(c *Config) { c.Labels = messages.LabelsOf(map[string]string{"gpu": "true"}) }).run()
		c := o.accept()
		if c.enroll.GetToken() != "gpu-1.0123456789abcdef" || c.enroll.GetMachineId() != "m-1" || c.enroll.GetCapacity() != 1 ||
			c.enroll.GetSlotsOffered() != 1 || c.enroll.GetIntent() != "none" || c.enroll.GetProtocolMax() != messages.ProtocolVersion ||
			c.enroll.GetInstanceUuid() == "" || c.enroll.GetLabels()[0].GetKey() != "gpu" {
			t.Errorf("enrollment %v", c.enroll)
		}
		c.admit()
		c.dispatch("d1", 1, func(p *messages.DispatchParams) {
			p.Args = []*messages.KeyValue{{Key: "run", Value: "echo"}}
			p.Env = []*messages.KeyValue{{Key: "A", Value: "1"}, {Key: "A", Value: "2"}}
			p.TimeoutMs = 1500
			p.Stop = &messages.StopPolicy{GraceMs: 3000}
		})
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.expect("d1/1 stdout hello world\n"[:len("d1/1 stdout hello world")])
		out := c.expect("d1/1 stderr oops").GetEvent().GetOutput()
		if out.GetOffset() != 12 {
			t.Errorf("offset %d", out.GetOffset())
		}
		r := c.expect("d1/1 succeeded").GetResponse().GetWorkerDispatch()
		if r.GetFinalOffset() != 17 || len(r.GetOutputs()) != 2 || r.GetOutputs()[0].GetValue() != "\uFFFD" || r.GetEndedAt() == nil {
			t.Errorf("result %v", r)
		}
		c.ack("d1", 17, true)
		c.silent(time.Minute)
		want := []string{EventConnecting, EventEnrolled, EventDispatchStarted, EventDispatchFinished}
		if d := cmp.Diff(want, o.kinds()); d != "" {
			t.Error(d)
		}
	})
}

func TestAgent_RepeatsAResultUntilItIsAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.expect("d1/1 succeeded")
		sent := time.Now()
		for range 3 {
			c.expect("d1/1 succeeded")
			if d := time.Since(sent); d != repeatTime {
				t.Errorf("repeated after %v", d)
			}
			sent = time.Now()
		}
		c.dispatch("d1", 1)
		c.expect("d1/1 succeeded")
		c.ack("d1", 0, true)
		c.silent(time.Minute)
	})
}

func TestAgent_DecidesOnDispatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 5)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.dispatch("d1", 5) // a repeat of one that runs
		c.expect("d1/1 accepted")
		c.dispatch("d2", 6)
		c.expect("d2/1 error worker_busy")
		c.dispatch("d1", 5, func(p *messages.DispatchParams) { p.Generation = 2 })
		c.expect("d1/2 error ended")
		c.cancel("d1", false)
		c.expect("d1/1 cancelled cancelled")
		c.ack("d1", 0, true)
		c.dispatch("d1", 5) // it is over and forgotten
		c.expect("d1/1 error ended")
		c.dispatch("d2", 6) // and this one was refused
		c.expect("d2/1 error ended")
		c.cancel("d3", false) // it overtook its dispatch
		c.dispatch("d3", 7)
		c.expect("d3/1 accepted")
		c.expect("d3/1 cancelled cancelled")
		c.ack("d3", 0, true)
		c.request("d4", messages.VerbWorkerDispatch, &messages.DispatchParams{DispatchId: "d4", Generation: 1, Seq: 8})
		c.expect("d4 error invalid")
		c.request("v", messages.VerbVersion, &messages.VersionParams{})
		c.expect("v error unknown_verb")
		c.send(&messages.Frame{Id: "x"})
		c.expect("x error malformed")
		c.silent(time.Minute)
	})
}

func TestAgent_ForceEndsAPoliteCancel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), _ Output) Outcome {
			started()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrCancelled) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			<-task.Kill
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.cancel("d1", false)
		c.cancel("d1", false)
		c.silent(time.Second)
		c.cancel("d1", true)
		c.cancel("d1", true)
		c.expect("d1/1 cancelled cancelled")
	})
}

func TestAgent_ResultsByOutcome(t *testing.T) {
	tests := []struct {
		name    string
		outcome Outcome
		want    string
		text    string
	}{
		{"a failure", Outcome{Status: OutcomeFailed, Code: CodeExitNonzero, Error: "exit status 7", ExitCode: 7}, "d1/1 failed exit_nonzero", "exit status 7"},
		{"a timeout", Outcome{Status: OutcomeTimeout, Code: CodeTimeout, Error: "timed out after 2s"}, "d1/1 timeout timeout", "timed out after 2s"},
		{"a step that cannot start", Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: "no such program"}, "d1/1 failed cannot_start", "no such program"},
		{"a worker that cannot start it", Outcome{Status: OutcomeWorkerCannotStart, Error: "no space"}, "d1/1 error worker_cannot_start", "no space"},
		{"a step that its keeper killed", Outcome{Status: OutcomeFailed, Code: CodeWorkerLost, Error: "out of reach"}, "d1/1 lost worker_lost", "out of reach"},
		{"a text that holds the token", Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "no 0123456789abcdef"}, "d1/1 failed internal", "no ***"},
		{"a text that is no UTF-8", Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "\xff"}, "d1/1 failed internal", "\uFFFD"},
		{"outputs beyond a frame", Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"a": strings.Repeat("x", messages.MaxFrame)}},
			"d1/1 failed output_too_large", "the step's outputs are too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, func(context.Context, Task, func(), Output) Outcome { return tt.outcome }).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.expect("d1/1 accepted")
				f := c.expect(tt.want)
				if got := f.GetResponse().GetWorkerDispatch().GetError() + f.GetError().GetText(); got != tt.text {
					t.Errorf("text %q, want %q", got, tt.text)
				}
				c.expect(tt.want) // a refusal after the acceptance is repeated like any result
				c.ack("d1", 0, true)
				c.silent(time.Minute)
			})
		})
	}
}

func TestAgent_DrainsAnIdleWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		c := o.enrolled()
		synctest.Wait()
		o.agent.Drain("signal")
		o.agent.Drain("again")
		f := c.expect("status draining signal")
		if f.GetRequest().GetWorkerStatus().GetSlotsOffered() != 0 {
			t.Error("a draining worker offers slots")
		}
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		before := time.Now()
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
		}
		if time.Since(before) != 0 {
			t.Errorf("it took %v", time.Since(before))
		}
		if e := o.event(EventDraining); e.Reason != "signal" {
			t.Errorf("event %v", e)
		}
	})
}

func TestAgent_DrainOfAnIdleWorkerWaitsTwoSecondsAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		o.enrolled()
		synctest.Wait()
		before := time.Now()
		o.agent.Drain("signal")
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
		}
		if d := time.Since(before); d != leaveTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAgent_DrainFinishesWhatRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		finish := make(chan struct{})
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			<-finish
			_ = out.Write(Stdout, []byte("last"))
			return Outcome{Status: OutcomeSucceeded}
		}, func(c *Config) { c.Concurrency = 2 }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.request("q", messages.VerbWorkerDrain, &messages.DrainParams{Reason: "maintenance"})
		c.expect("q response")
		f := c.expect("status draining maintenance")
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		c.dispatch("d2", 2) // although one of the two slots is free
		c.expect("d2/1 error worker_draining")
		c.silent(10 * time.Minute)
		close(finish)
		c.expect("d1/1 stdout last")
		c.expect("d1/1 succeeded")
		c.expect("d1/1 succeeded") // not acknowledged: it does not leave
		c.ack("d1", 4, true)
		if err := o.ended(StopDrained); err != nil {
			t.Error(err)
		}
	})
}

func TestAgent_DrainRequestIsAnsweredAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		o.agent.Drain("signal")
		c.expect("status draining signal")
		c.request("q", messages.VerbWorkerDrain, &messages.DrainParams{Reason: "maintenance"})
		c.expect("q response")
		c.expect("status draining signal")
	})
}

func TestAgent_KillReportsWhatItKilled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		o.agent.Drain("signal")
		f := c.expect("status draining signal")
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		o.agent.Kill()
		c.expect("d1/1 lost worker_lost")
		before := time.Now()
		c.ack("d1", 0, true)
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
		if time.Since(before) != 0 {
			t.Errorf("it took %v", time.Since(before))
		}
	})
}

func TestAgent_KillReportsForASecondAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		before := time.Now()
		o.agent.Kill()
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
		if d := time.Since(before); d != forcedReport {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAgent_KillDoesNotWaitForAStepThatWillNotDie(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		o := startAgent(t, func(_ context.Context, _ Task, started func(), _ Output) Outcome {
			started()
			<-free
			return Outcome{Status: OutcomeCancelled}
		})
		go func() {
			defer close(o.done)
			o.reason, o.err = o.agent.Run(context.Background())
		}()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		before := time.Now()
		o.agent.Kill()
		if err := o.ended(StopForced); !errors.Is(err, errStepsLeft) {
			t.Error(err)
		}
		if d := time.Since(before); d > 2*forcedPatience {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAgent_TheEndOfTheContextKills(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(o.done)
			o.reason, o.err = o.agent.Run(ctx)
		}()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		cancel()
		c.expect("status draining forced")
		c.expect("d1/1 lost worker_lost")
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
	})
}

func TestAgent_LeavesPromptlyWhileItIsNotConnected(t *testing.T) {
	stops := map[string]struct {
		stop   func(*Agent)
		reason StopReason
	}{
		"drain": {func(a *Agent) { a.Drain("signal") }, StopSignal},
		"kill":  {func(a *Agent) { a.Kill() }, StopForced},
	}
	for name, stop := range stops {
		t.Run(name+" in a pause", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, succeed)
				o.refuse = func(int) error { return errDialled }
				o.run()
				time.Sleep(time.Minute)
				stop.stop(o.agent)
				before := time.Now()
				_ = o.ended(stop.reason)
				if time.Since(before) != 0 {
					t.Errorf("it took %v", time.Since(before))
				}
			})
		})
		t.Run(name+" before it runs", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, succeed)
				stop.stop(o.agent)
				o.run()
				_ = o.ended(stop.reason)
				if len(o.dials) != 0 {
					t.Error("it dialled")
				}
			})
		})
		t.Run(name+" in a dial", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, succeed, func(c *Config) {
					c.Dial = func(ctx context.Context) (Link, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}).run()
				time.Sleep(time.Second)
				stop.stop(o.agent)
				before := time.Now()
				_ = o.ended(stop.reason)
				if time.Since(before) != 0 {
					t.Errorf("it took %v", time.Since(before))
				}
			})
		})
		t.Run(name+" in an enrollment", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, succeed).run()
				o.accept() // no answer
				time.Sleep(time.Second)
				stop.stop(o.agent)
				before := time.Now()
				_ = o.ended(stop.reason)
				if d := time.Since(before); d > leaveTimeout || stop.reason == StopForced && d != 0 {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

func TestAgent_DrainDuringEnrollmentIsAnnounced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		c := o.accept()
		o.agent.Drain("signal")
		c.admit()
		f := c.expect("status draining signal")
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
		}
	})
}

func TestAgent_BacksOffWithJitter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed)
		o.refuse = func(try int) error {
			if try <= 20 {
				return errDialled
			}
			return nil
		}
		o.run()
		o.enrolled()
		bound := time.Second
		pauses := map[time.Duration]bool{}
		for i := range o.dials[1:] {
			pause := o.dials[i+1].Sub(o.dials[i])
			if pause > bound {
				t.Errorf("pause %d is %v, above %v", i, pause, bound)
			}
			pauses[pause] = true
			bound = min(2*bound, 30*time.Second)
		}
		if len(pauses) < 15 {
			t.Errorf("only %d of %d pauses differ", len(pauses), len(o.dials)-1)
		}
		if e := o.event(EventRetrying); e.Error != errDialled.Error() || e.DelayMs < 0 {
			t.Errorf("event %v", e)
		}
	})
}

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

func TestAgent_StopsAtPermanentRefusals(t *testing.T) {
	tests := []struct {
		code   messages.Code
		reason StopReason // empty: it comes back
		says   []string
	}{
		{messages.CodeInvalidToken, StopRefused, []string{"invalid_token", "worker token create"}},
		{messages.CodeTokenRevoked, StopRefused, []string{"token_revoked", "worker token create gpu-1"}},
		{messages.CodeTokenExpired, StopRefused, []string{"token_expired", "worker token create gpu-1"}},
		{messages.CodeEnrollmentsSpent, StopRefused, []string{"enrollment_exhausted", "--cache-dir", "--max-enrollments"}},
		{messages.CodeProtocolMismatch, StopRefused, []string{"protocol_mismatch", "upgrade"}},
		{messages.CodeInvalid, StopRefused, []string{"invalid", "because"}},
		{messages.CodeSuperseded, StopSuperseded, []string{"took over"}},
		{messages.CodeAlreadyConnected, "", nil},
		{messages.CodeRateLimited, "", nil},
		{messages.CodeNotReady, "", nil},
		{messages.CodeInternal, "", nil},
		{"what_comes_later", "", nil},
	}
	for _, tt := range tests {
		ways := map[string]func(*conn){
			"enrollment": func(c *conn) { c.send(errorFrame(c.id, tt.code, "because")) },
			"goodbye before enrollment": func(c *conn) {
				c.goodbye("", tt.code)
			},
			"goodbye": func(c *conn) {
				c.admit()
				c.dispatch("d1", 1)
				c.expect("d1/1 accepted")
				c.expect("d1/1 started")
				c.goodbye("", tt.code)
			},
			"close": func(c *conn) {
				c.admit()
				synctest.Wait()
				_ = c.Close(tt.code, "because")
			},
		}
		for way, refuse := range ways {
			t.Run(fmt.Sprintf("%s by %s", tt.code, way), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					o := startAgent(t, untilStopped).run()
					refuse(o.accept())
					if tt.reason == "" {
						o.accept()
						return
					}
					err := o.ended(tt.reason)
					if messages.CodeOf(err) != tt.code {
						t.Errorf("error %v has code %s", err, messages.CodeOf(err))
					}
					for _, s := range tt.says {
						if !strings.Contains(err.Error(), s) {
							t.Errorf("%q does not say %q", err, s)
						}
					}
					if e := o.event(EventStopped); e.Reason != string(tt.reason) || e.Error == "" {
						t.Errorf("event %v", e)
					}
				})
			})
		}
	}
}

func TestAgent_GoodbyeByReason(t *testing.T) {
	tests := map[string]StopReason{"revoked": StopRefused, "expired": StopRefused, "superseded": StopSuperseded, "restart": "", "moved": ""}
	for reason, want := range tests {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, untilStopped).run()
				o.enrolled().goodbye(reason, "")
				if want == "" {
					o.accept()
					return
				}
				_ = o.ended(want)
			})
		})
	}
}

func TestAgent_NoReconnect(t *testing.T) {
	once := func(c *Config) { c.NoReconnect = true }
	t.Run("never connected", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, succeed, once)
			o.refuse = func(int) error { return errDialled }
			o.run()
			if err := o.ended(StopError); !errors.Is(err, ErrUnreachable) || !errors.Is(err, errDialled) {
				t.Errorf("error %v", err)
			}
			if len(o.dials) != 1 {
				t.Errorf("%d dials", len(o.dials))
			}
		})
	})
	t.Run("not admitted now", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, succeed, once).run()
			c := o.accept()
			c.send(errorFrame(c.id, messages.CodeNotReady, "starting"))
			if err := o.ended(StopError); !errors.Is(err, ErrUnreachable) {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("dropped while idle", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, succeed, once).run()
			c := o.enrolled()
			synctest.Wait()
			_ = c.Close("", "")
			if err := o.ended(StopDrained); err != nil {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("dropped with a step", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, untilStopped, once).run()
			c := o.enrolled()
			c.dispatch("d1", 1)
			c.expect("d1/1 accepted")
			_ = c.Close("", "")
			if err := o.ended(StopError); err == nil || errors.Is(err, ErrUnreachable) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestAgent_AbortKillsInSilence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			started()
			if task.DispatchID != "d1" {
				return untilStopped(ctx, task, func() {}, out)
			}
			_ = out.Write(Stdout, []byte("x"))
			<-task.Kill
			time.Sleep(time.Second)
			return Outcome{Status: OutcomeCancelled}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.expect("d1/1 stdout x")
		before := time.Now()
		c.request("q1", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "d1", Generation: 1})
		c.request("q2", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "d1", Generation: 1})
		c.expect("q1 response")
		if time.Since(before) != time.Second {
			t.Errorf("answered after %v", time.Since(before))
		}
		c.expect("q2 response")
		c.request("q3", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "unknown", Generation: 1})
		c.expect("q3 response")
		c.dispatch("d2", 2)
		c.expect("d2/1 accepted")
		c.expect("d2/1 started")
		c.silent(time.Minute)
	})
}

func TestAgent_CancelWorksWhileOutputIsBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, _ Task, started func(), out Output) Outcome {
			started()
			written := make(chan struct{})
			go func() {
				defer close(written)
				_ = out.Write(Stdout, make([]byte, 2*creditLimit))
			}()
			<-ctx.Done()
			<-written
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled"}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		got := uint32(0)
		for {
			f := c.next(10 * time.Minute)
			if f == nil {
				break
			}
			got += uint32(len(f.GetEvent().GetOutput().GetData()))
		}
		if got != creditLimit {
			t.Errorf("%d bytes without an acknowledgement", got)
		}
		c.cancel("d1", false)
		c.ack("d1", got, false)
		for {
			f := c.read()
			if out := f.GetEvent().GetOutput(); out != nil {
				if out.GetOffset() != got {
					t.Fatalf("offset %d after %d", out.GetOffset(), got)
				}
				got += uint32(len(out.GetData()))
				c.ack("d1", got, false)
				continue
			}
			if describe(f) != "d1/1 cancelled cancelled" {
				t.Fatalf("%s", describe(f))
			}
			if got != 2*creditLimit {
				t.Errorf("the result came after %d bytes", got)
			}
			return
		}
	})
}

func TestAgent_RunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed).run()
		o.accept()
		if _, err := o.agent.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}

func TestNew_RefusesBadConfig(t *testing.T) {
	t.Parallel()
	good := Config{URL: "ws://127.0.0.1:4000", Token: "a.b", MachineID: "m", Executor: execFunc(succeed)}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no URL", func(c *Config) { c.URL = "" }, "no orchestrator URL"},
		{"a URL with a path", func(c *Config) { c.URL = "ws://h/x" }, "path"},
		{"no token", func(c *Config) { c.Token = "" }, "no token"},
		{"a token without a secret", func(c *Config) { c.Token = "abc" }, "NAME.SECRET"},
		{"a negative concurrency", func(c *Config) { c.Concurrency = -1 }, "concurrency -1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			tt.change(&cfg)
			_, err := New(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tt.want)
			}
		})
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
