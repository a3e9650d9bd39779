package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
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
			task.Kill, task.Fence = nil, nil
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
		c.dispatch("d5", 6, func(p *messages.DispatchParams) { p.Generation = 2 }) // it is none that this worker has
		c.expect("d5/2 error ended")
		c.cancel("d1", false)
		c.expect("d1/1 cancelled cancelled")
		c.ack("d1", 0, true)
		c.expect("status none") // for the one that found no slot
		c.dispatch("d1", 5)     // it is over and forgotten
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

func TestAgent_AbortKillsInSilence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			started()
			if task.DispatchID != "d1" {
				return untilStopped(ctx, task, func() {}, out)
			}
			_ = out.Write(Stdout, []byte("x"))
			<-task.Kill
			<-time.After(time.Second)
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
		c.dispatch("d0", 2)
		c.cancel("d0", false)
		c.expect("d0/1 accepted")
		c.expect("d0/1 started")
		c.expect("d0/1 cancelled cancelled")
		c.request("q4", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "d0", Generation: 1}) // its result waits
		c.expect("q4 response")
		c.dispatch("d2", 3)
		c.expect("d2/1 accepted")
		c.expect("d2/1 started")
		c.silent(time.Minute)
	})
}

func TestAgent_SendsAgainFromTheLastAcknowledgedOutput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			for _, s := range []Stream{Stdout, Stderr, Stdout, Stderr} {
				_ = out.Write(s, []byte("12345"))
			}
			return Outcome{Status: OutcomeSucceeded}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		said := []string{"d1/1 stdout 12345", "d1/1 stderr 12345", "d1/1 stdout 12345", "d1/1 stderr 12345", "d1/1 succeeded"}
		for from := range said {
			for i, want := range said[from:] {
				f := c.expect(want)
				if out := f.GetEvent().GetOutput(); out != nil && out.GetOffset() != uint32(5*(from+i)) {
					t.Fatalf("offset %d", out.GetOffset())
				}
			}
			c.silent(time.Second)
			c.ack("d1", uint32(5*(from+1)), false)
			acked := time.Now()
			if from == len(said)-1 {
				break
			}
			c.silent(repeatTime - 1)
			if time.Since(acked) != repeatTime-1 {
				t.Fatal("it did not wait")
			}
		}
		c.expect("d1/1 succeeded")
		c.ack("d1", 20, true)
		c.silent(time.Minute)
	})
}

func TestAgent_ADispatchThatTheOrchestratorHasEndedIsKilled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		c.expect("d1/1 started")
		c.ack("d1", 0, true)
		c.silent(time.Second)
		c.dispatch("d2", 2) // the slot is free
		c.expect("d2/1 accepted")
		if e := o.event(EventDispatchFinished); e.Status != statusLost {
			t.Errorf("event %v", e)
		}
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
			f := c.next(repeatTime / 2)
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
