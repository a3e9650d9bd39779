package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

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

// A dispatch that was on its way is refused before the announcement is answered. Who left without saying so would make it
// one that is lost.
func TestAgent_ARefusalIsWrittenBeforeItLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		o.agent.Drain(StopSignal)
		f := c.expect("status draining signal")
		c.dispatch("d1", 1)
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		synctest.Wait() // nobody reads what it says meanwhile
		c.expect("d1/1 error worker_draining")
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
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
		c.request("q", messages.VerbWorkerOrder, &messages.OrderParams{Action: "drain", Reason: "maintenance"})
		f := c.expect("status draining maintenance")
		c.expect("q response")
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		c.dispatch("d2", 2) // although one of the two slots is free
		c.expect("d2/1 error worker_draining")
		c.silent(10 * time.Minute)
		close(finish)
		c.expect("d1/1 stdout last")
		c.expect("d1/1 succeeded")
		c.expect("d1/1 stdout last") // not acknowledged: it does not leave
		c.expect("d1/1 succeeded")
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
		c.request("q", messages.VerbWorkerOrder, &messages.OrderParams{Action: "drain", Reason: "maintenance"})
		c.expect("status draining signal")
		c.expect("q response")
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
		if d := time.Since(before); d != forcedPatience {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAgent_KillAfterADropDoesNotWaitForAStepThatWillNotDie(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		o := startAgent(t, func(_ context.Context, _ Task, started func(), _ Output) Outcome {
			started()
			<-free
			return Outcome{Status: OutcomeCancelled}
		})
		o.refuse = func(try int) error {
			if try > 1 {
				return errDialled
			}
			return nil
		}
		go func() {
			defer close(o.done)
			o.reason, o.err = o.agent.Run(context.Background())
		}()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.expect("d1/1 accepted")
		_ = c.Close("", "")
		o.agent.Drain("signal")
		time.Sleep(time.Hour)
		before := time.Now()
		o.agent.Kill()
		if err := o.ended(StopForced); !errors.Is(err, errStepsLeft) {
			t.Error(err)
		}
		if d := time.Since(before); d != forcedPatience {
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
		{"a label that is no UTF-8", func(c *Config) { c.Labels = messages.Labels{{Key: "a", Value: "\xff"}} }, "UTF-8"},
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
