package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

func TestAgent_TheBoundOfADrain(t *testing.T) {
	stubborn := func(ctx context.Context, task Task, started func(), out Output) Outcome {
		started()
		for { // it prints on and on, which stretches nothing
			if out.Write(Stdout, []byte("x")) != nil {
				t.Error("its output is thrown away")
			}
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
			break
		}
		select {
		case <-time.After(task.KillGrace):
		case <-task.Kill:
		}
		return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled", StartedAt: time.Now()}
	}
	tests := []struct {
		name  string
		mode  DrainMode
		step  execFunc
		says  string // how the step ended
		text  string
		after time.Duration // from the drain to the result
		end   StopReason
		error string
	}{
		{"handed back", "", stubborn, "d1/1 handed_back worker_draining", "worker gpu-1 drained before the step had ended", 40 * time.Second, StopForced, "in time (handback): 1"},
		{"cancelled", DrainCancel, stubborn, "d1/1 cancelled cancelled", "worker gpu-1 drained before the step had ended", 40 * time.Second, StopForced, "in time (cancel): 1"},
		{"finished", DrainFinish, sleeper(time.Hour), "d1/1 succeeded", "", time.Hour, StopSignal, ""},
		{"over before the bound", "", sleeper(20 * time.Second), "d1/1 succeeded", "", 20 * time.Second, StopSignal, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, tt.step, func(c *Config) { c.DrainTimeout, c.DrainMode = 30*time.Second, tt.mode }).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				o.agent.Drain(StopSignal)
				before := time.Now()
				var result *messages.DispatchResult
				var offset uint32
				for result == nil {
					f := c.read()
					switch {
					case f.GetRequest() != nil:
						c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
					case f.GetResponse() != nil:
						result = f.GetResponse().GetWorkerDispatch()
						if got := describe(f); got != tt.says {
							t.Errorf("the worker says %q", got)
						}
					default:
						offset = f.GetEvent().GetOutput().GetOffset() + uint32(len(f.GetEvent().GetOutput().GetData()))
						c.ack("d1", offset, false)
					}
				}
				if d := time.Since(before); d != tt.after {
					t.Errorf("it took %v", d)
				}
				if result.GetError() != tt.text {
					t.Errorf("error %q", result.GetError())
				}
				if result.GetFinalOffset() != offset {
					t.Errorf("%d bytes of output came, it says %d", offset, result.GetFinalOffset())
				}
				c.ack("d1", offset, true)
				err := o.ended(tt.end)
				if (err != nil) != (tt.error != "") || err != nil && !strings.Contains(err.Error(), tt.error) {
					t.Errorf("error %v", err)
				}
				if d := time.Since(before); d != tt.after {
					t.Errorf("it left after %v", d)
				}
			})
		})
	}
}

func TestAgent_ResultsThatNobodyAcknowledgesEndWithTheBound(t *testing.T) {
	for _, mode := range AllDrainModes() {
		t.Run(string(mode), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, sleeper(time.Second), func(c *Config) { c.DrainTimeout, c.DrainMode = 30*time.Second, mode }).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				o.agent.Drain(StopSignal)
				before := time.Now()
				c.takeLeave(StopSignal)
				c.expect("d1/1 succeeded")
				for c.next(time.Hour) != nil { // it is repeated
				}
				if err := o.ended(StopForced); err == nil || !strings.Contains(err.Error(), "not acknowledged: 1") {
					t.Errorf("error %v", err)
				}
				if d := time.Since(before); d != 30*time.Second+boundReport {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

func TestAgent_ADrainingWorkerComesBackToReport(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
			if task.DispatchID == "d1" {
				return succeed(ctx, task, started, out)
			}
			return sleeper(time.Minute)(ctx, task, started, out)
		}, func(c *Config) { c.Concurrency = 3 }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		c.expect("d1/1 succeeded")
		c.dispatch("d2", 2)
		c.takes("d2")
		o.agent.Drain(StopSignal)
		c.takeLeave(StopSignal)
		_ = c.Close("", "") // with one result on its way, and a step that runs
		for range 3 {
			c = o.accept()
			e := c.enroll
			if e.GetIntent() != "draining" || e.GetReason() != "signal" || e.GetSlotsOffered() != 0 || len(e.GetInFlight()) != 2 {
				t.Errorf("enrollment %v", e)
			}
			c.send(errorFrame(c.id, messages.CodeNotReady, "starting")) // it goes on trying
		}
		c = o.enrolled()
		var said []string
		for len(said) < 6 {
			f := c.read()
			said = append(said, describe(f))
			switch id, _ := dispatchOf(f.GetId()); {
			case f.GetRequest() != nil:
				c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
			case id == "d1" && f.GetResponse() != nil:
				c.ack("d1", 0, true)
			}
		}
		slices.Sort(said)
		want := []string{"d1/1 accepted", "d1/1 started", "d1/1 succeeded", "d2/1 accepted", "d2/1 started", "status draining signal"}
		if d := cmp.Diff(want, said); d != "" {
			t.Error(d)
		}
		c.dispatch("d3", 3)
		c.expect("d3/1 error worker_draining")
		c.expect("d2/1 succeeded") // its step has outlived the drop
		before := time.Now()
		c.ack("d2", 0, true)
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
		}
		if d := time.Since(before); d != 0 {
			t.Errorf("it took %v", d)
		}
		var kinds []string
		for _, k := range o.kinds() {
			if k != EventConnecting && k != EventRetrying {
				kinds = append(kinds, k)
			}
		}
		want = []string{
			EventEnrolled, EventDispatchStarted, EventDispatchFinished, EventDispatchStarted, EventDraining, EventDisconnected,
			EventEnrolled, EventDispatchFinished, EventStopped,
		}
		if d := cmp.Diff(want, kinds); d != "" {
			t.Error(d)
		}
	})
}

func TestAgent_ADrainingWorkerThatCannotComeBack(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		step   execFunc
		end    StopReason
		error  string
		after  time.Duration // of the drop; 0: it never gives up
	}{
		{"a loss is not reported for longer than the grace", func(*Config) {}, untilStopped, StopSignal, "", time.Minute},
		{"a step that the bound ended is not reported for longer", func(c *Config) { c.DrainTimeout = 20 * time.Second }, untilStopped, StopForced, "in time (handback): 1", 20*time.Second + boundReport},
		{"a result is not reported beyond the bound", func(c *Config) { c.DrainTimeout = 20 * time.Minute }, succeed, StopForced, "not acknowledged", 20*time.Minute + boundReport},
		{"a result without a bound waits", func(*Config) {}, succeed, "", "", 0},
		{"one connection is all there is", func(c *Config) { c.NoReconnect = true }, succeed, StopError, "with 1 dispatches in flight", time.Nanosecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := startAgent(t, tt.step, tt.change)
				o.refuse = func(try int) error {
					if try > 1 {
						return errDialled
					}
					return nil
				}
				o.run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				synctest.Wait()
				o.agent.Drain(StopSignal)
				before := time.Now()
				_ = c.Close("", "")
				if tt.after == 0 {
					time.Sleep(24 * time.Hour)
					select {
					case <-o.done:
						t.Errorf("it gave up: %v", o.err)
					default:
					}
					o.agent.Kill() // and a second signal ends it
					if err := o.ended(StopForced); err != nil {
						t.Error(err)
					}
					if d := time.Since(before) - 24*time.Hour; d != forcedReport {
						t.Errorf("it took %v", d)
					}
					if n := len(o.dials); n < 1000 {
						t.Errorf("%d tries in a day", n)
					}
					return
				}
				err := o.ended(tt.end)
				if (err != nil) != (tt.error != "") || err != nil && !strings.Contains(err.Error(), tt.error) {
					t.Errorf("error %v", err)
				}
				if d := time.Since(before); d != tt.after && tt.after > time.Nanosecond {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

func TestAgent_KillAtTheBoundReportsWhatTheBoundDid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, task Task, started func(), _ Output) Outcome {
			started()
			<-task.Kill // it does not care for TERM
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled}
		}, func(c *Config) { c.DrainTimeout = time.Second }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		o.agent.Drain(StopMaxUptime)
		c.takeLeave(StopMaxUptime)
		c.silent(3 * time.Second)
		o.agent.Kill()
		c.expect("d1/1 handed_back worker_draining")
		c.ack("d1", 0, true)
		if err := o.ended(StopForced); err != nil {
			t.Error(err)
		}
	})
}

func TestAgent_ACancelBeforeTheBoundStaysOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, task Task, started func(), _ Output) Outcome {
			started()
			select {
			case <-time.After(10 * time.Second):
			case <-task.Kill:
			}
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled}
		}, func(c *Config) { c.DrainTimeout = time.Second }).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		o.agent.Drain(StopSignal)
		c.takeLeave(StopSignal)
		c.cancel("d1", false)
		c.expect("d1/1 cancelled cancelled")
		c.ack("d1", 0, true)
		if err := o.ended(StopSignal); err != nil {
			t.Error(err)
		}
	})
}

func TestAgent_StepsThatDoNotDieAtTheBound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		o := startAgent(t, func(_ context.Context, _ Task, started func(), _ Output) Outcome {
			started()
			<-free
			return Outcome{Status: OutcomeCancelled}
		}, func(c *Config) { c.DrainTimeout = time.Minute })
		go func() {
			defer close(o.done)
			o.reason, o.err = o.agent.Run(context.Background())
		}()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		o.agent.Drain(StopSignal)
		before := time.Now()
		for c.next(time.Hour) != nil {
		}
		if err := o.ended(StopForced); !errors.Is(err, errStepsLeft) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(before); d != time.Minute+10*time.Second+forcedPatience {
			t.Errorf("it took %v", d)
		}
	})
}
