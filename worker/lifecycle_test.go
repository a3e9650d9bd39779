package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

// takeLeave answers the announcement of a drain.
func (c *conn) takeLeave(reason StopReason) *messages.StatusParams {
	c.t.Helper()
	f := c.expect("status draining " + string(reason))
	c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
	return f.GetRequest().GetWorkerStatus()
}

// try sends a frame to a worker that may just have gone.
func (c *conn) try(f *messages.Frame) { _ = c.Write(context.Background(), f) }

func dispatchFrame(id string, seq uint32) *messages.Frame {
	return requestFrame(frameID(id, 1), messages.VerbWorkerDispatch, &messages.DispatchParams{DispatchId: id, Generation: 1, Seq: seq, Attempt: 1})
}

// takes reads that the worker takes a dispatch and starts it.
func (c *conn) takes(id string) {
	c.t.Helper()
	c.expect(id + "/1 accepted")
	c.expect(id + "/1 started")
}

// sleeper is a step that runs for a while, unless it is stopped.
func sleeper(d time.Duration) execFunc {
	return func(ctx context.Context, t Task, started func(), _ Output) Outcome {
		started()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return Outcome{Status: OutcomeSucceeded, StartedAt: time.Now()}
		case <-ctx.Done():
		case <-t.Kill:
		}
		return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled", StartedAt: time.Now()}
	}
}

func TestAgent_EachTriggerAlone(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		story  func(*orchestrator, *conn) // until the trigger
		after  time.Duration              // from the start to the announcement
		reason StopReason
	}{
		{"a signal", func(*Config) {}, func(o *orchestrator, _ *conn) { o.agent.Drain(StopSignal) }, 0, StopSignal},
		{"an order", func(*Config) {}, func(_ *orchestrator, c *conn) {
			c.request("q", messages.VerbWorkerOrder, &messages.OrderParams{Action: "drain", Reason: "drained"})
		}, 0, StopDrained},
		{"idleness without any dispatch", func(c *Config) { c.IdleTimeout = time.Minute }, func(*orchestrator, *conn) {}, time.Minute, StopIdleTimeout},
		{"idleness after a dispatch", func(c *Config) { c.IdleTimeout = time.Minute }, func(_ *orchestrator, c *conn) {
			c.silent(50 * time.Second)
			c.dispatch("d1", 1)
			c.takes("d1")
			c.expect("d1/1 succeeded") // 30 s later
			c.ack("d1", 0, true)
		}, 140 * time.Second, StopIdleTimeout},
		{"age", func(c *Config) { c.MaxUptime = time.Hour }, func(*orchestrator, *conn) {}, time.Hour, StopMaxUptime},
		{"the last dispatch", func(c *Config) { c.MaxDispatches = 2 }, func(_ *orchestrator, c *conn) {
			c.dispatch("d1", 1)
			c.takes("d1")
			c.expect("d1/1 succeeded")
			c.ack("d1", 0, true)
			c.dispatch("d2", 2)
			c.takes("d2")
		}, time.Minute, StopMaxDispatches},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				start := time.Now()
				o := startAgent(t, sleeper(30*time.Second), tt.change).run()
				c := o.enrolled()
				synctest.Wait()
				tt.story(o, c)
				if s := c.takeLeave(tt.reason); s.GetSlotsOffered() != 0 || s.GetIntent() != "draining" {
					t.Errorf("status %v", s)
				}
				if d := time.Since(start); d != tt.after {
					t.Errorf("it drains after %v", d)
				}
				if tt.reason == StopMaxDispatches {
					c.expect("d2/1 succeeded")
					c.ack("d2", 0, true)
				}
				if err := o.ended(tt.reason); err != nil {
					t.Error(err)
				}
				if e := o.event(EventDraining); e.Reason != string(tt.reason) {
					t.Errorf("event %v", e)
				}
				if e := o.event(EventStopped); e.Reason != string(tt.reason) || e.Error != "" || !tt.reason.OnPurpose() {
					t.Errorf("event %v", e)
				}
				if d := time.Since(start); d != tt.after {
					t.Errorf("it leaves %v after it drained", d-tt.after)
				}
			})
		})
	}
}

// TestAgent_TriggersRace lets all of them come at one instant, beside a dispatch: one names the reason, once, and the step
// runs to its end or is refused.
func TestAgent_TriggersRace(t *testing.T) {
	t.Parallel()
	reasons := map[StopReason]int{}
	ran := 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			o := startAgent(t, sleeper(time.Second), func(c *Config) {
				c.IdleTimeout, c.MaxUptime, c.Concurrency, c.MaxDispatches = time.Minute, time.Minute, 2, 1
			}).run()
			c := o.enrolled()
			c.silent(time.Minute - time.Duration(1+r.IntN(3)))
			moves := []func(){
				func() { o.agent.Drain(StopSignal) },
				func() { c.try(requestFrame("q", messages.VerbWorkerOrder, &messages.OrderParams{Action: "drain"})) },
				func() { c.try(dispatchFrame("d1", 1)) },
				func() { time.Sleep(3 * time.Nanosecond) },
			}
			r.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
			var all sync.WaitGroup
			for _, move := range moves[:1+r.IntN(len(moves))] {
				all.Go(move)
			}
			var status, last string
			for f := c.next(time.Hour); f != nil; f = c.next(time.Hour) {
				switch say := describe(f); {
				case strings.HasPrefix(say, "status draining"):
					if status != "" && say != status {
						t.Errorf("seed %d: it says %q and %q", seed, status, say)
					}
					status = say
					c.try(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
				case strings.HasPrefix(say, "d1/1"):
					last = say
					if say == "d1/1 succeeded" {
						ran++
						c.ack("d1", 0, true)
					}
				}
			}
			all.Wait()
			select {
			case <-o.done:
			case <-time.After(time.Hour):
				t.Fatalf("seed %d: it does not leave", seed)
			}
			if last != "" && last != "d1/1 succeeded" && last != "d1/1 error worker_draining" {
				t.Errorf("seed %d: the last word on the step is %q", seed, last)
			}
			if o.err != nil || !o.reason.OnPurpose() || status != "status draining "+string(o.reason) {
				t.Errorf("seed %d: it left with %s (%v), and had said %q", seed, o.reason, o.err, status)
			}
			drains := 0
			for _, k := range o.kinds() {
				if k == EventDraining {
					drains++
				}
			}
			if drains != 1 {
				t.Errorf("seed %d: events %v", seed, o.kinds())
			}
			reasons[o.reason]++
		})
	}
	if len(reasons) < 4 || ran < 10 {
		t.Errorf("the races are no races: %v, %d steps ran", reasons, ran)
	}
}

// TestAgent_IdleTimerAgainstADispatch sends a step at the very instant at which the worker may leave, a thousand times.
func TestAgent_IdleTimerAgainstADispatch(t *testing.T) {
	t.Parallel()
	ran, refused := 0, 0
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			var runs atomic.Int32
			o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
				runs.Add(1)
				return sleeper(time.Duration(r.IntN(3))*time.Second)(ctx, task, started, out)
			}, func(c *Config) { c.IdleTimeout = time.Second }).run()
			c := o.enrolled()
			time.Sleep(time.Second + time.Duration(r.IntN(3)-1))
			c.try(dispatchFrame("d1", 1))
			var says []string
			for f := c.next(time.Hour); f != nil; f = c.next(time.Hour) {
				say := describe(f)
				if f.GetRequest() != nil {
					c.try(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
					continue
				}
				says = append(says, say)
				if say == "d1/1 succeeded" {
					c.ack("d1", 0, true)
				}
			}
			if err := o.ended(StopIdleTimeout); err != nil {
				t.Error(err)
			}
			switch got := strings.Join(says, ", "); got {
			case "d1/1 accepted, d1/1 started, d1/1 succeeded":
				if runs.Load() != 1 {
					t.Errorf("seed %d: it ran %d times", seed, runs.Load())
				}
				ran++
			case "d1/1 error worker_draining", "": // refused, or not read any more
				if runs.Load() != 0 {
					t.Errorf("seed %d: refused, and it ran", seed)
				}
				refused++
			default:
				t.Errorf("seed %d: the worker says %s", seed, got)
			}
		})
	}
	if ran < 100 || refused < 100 {
		t.Errorf("%d ran, %d were refused: the two do not meet", ran, refused)
	}
}

// TestAgent_MaxDispatchesUnderAFullQueue always has another step for whatever slot seems free, also ones that are not.
func TestAgent_MaxDispatchesUnderAFullQueue(t *testing.T) {
	for n := 1; n <= 9; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var runs atomic.Int32
				o := startAgent(t, func(ctx context.Context, task Task, started func(), out Output) Outcome {
					if task.Step == "broken" {
						return Outcome{Status: OutcomeWorkerCannotStart, Error: "no space"}
					}
					k := runs.Add(1)
					return sleeper(time.Duration(k%3)*time.Second)(ctx, task, started, out)
				}, func(c *Config) { c.Concurrency, c.MaxDispatches = 4, n }).run()
				c := o.enrolled()
				if got := c.enroll.GetSlotsOffered(); got != int32(min(4, n)) {
					t.Errorf("it offers %d slots at first", got)
				}
				seq := uint32(0)
				send := func() { // it may have left by now
					seq++
					c.try(dispatchOrder(fmt.Sprintf("d%d", seq), seq, func(p *messages.DispatchParams) {
						if seq == 2 {
							p.Step = "broken"
						}
					}))
				}
				for range 6 {
					send()
				}
				taken, ends, offered := 0, 0, int32(-1)
				untold := 1 // a status overtakes what is said of a dispatch, so it may know more of the broken one
				for f := c.next(time.Hour); f != nil; f = c.next(time.Hour) {
					id, _ := dispatchOf(f.GetId())
					switch {
					case f.GetRequest().GetWorkerStatus() != nil:
						s := f.GetRequest().GetWorkerStatus()
						if s.GetSlotsOffered() > int32(min(n-taken+untold, 4)) {
							t.Errorf("it offers %d slots with %d dispatches left", s.GetSlotsOffered(), n-taken)
						}
						offered = s.GetSlotsOffered()
						c.try(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
						if s.GetIntent() == "none" {
							send()
						}
					case f.GetEvent().GetAccepted() != nil:
						taken++
					case f.GetResponse().GetWorkerDispatch() != nil:
						ends++
						c.ack(id, 0, true)
						send()
					case messages.Code(f.GetError().GetCode()) == messages.CodeWorkerCannotStart:
						taken--
						untold = 0
						c.ack(id, 0, true)
						send()
					}
				}
				if err := o.ended(StopMaxDispatches); err != nil {
					t.Error(err)
				}
				if runs.Load() != int32(n) || ends != n || offered != 0 {
					t.Errorf("%d ran, %d ended, %d slots were offered in the end", runs.Load(), ends, offered)
				}
			})
		})
	}
}

func TestAgent_ASlotThatFreesIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, sleeper(time.Minute), func(c *Config) { c.Concurrency = 2 }).run()
		c := o.enrolled()
		for i, id := range []string{"d1", "d2"} {
			c.dispatch(id, uint32(i+1))
			c.takes(id)
			c.silent(time.Second)
		}
		c.dispatch("d3", 3)
		c.expect("d3/1 error worker_busy")
		c.expect("d1/1 succeeded")
		c.expect("d2/1 succeeded")
		c.ack("d1", 0, true)
		f := c.expect("status none")
		if n := f.GetRequest().GetWorkerStatus().GetSlotsOffered(); n != 2 {
			t.Errorf("%d slots", n)
		}
		c.ack("d2", 0, true)
		c.silent(time.Minute)
	})
}

func TestAgent_AnAnnouncementIsRepeatedUntilItIsAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, untilStopped).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		o.agent.Drain(StopSignal)
		first := c.expect("status draining signal")
		again := c.expect("status draining signal")
		if first.GetId() != again.GetId() {
			t.Errorf("it is another request: %s, then %s", first.GetId(), again.GetId())
		}
		c.send(responseTo(first.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
		c.silent(time.Hour)
	})
}

func TestAgent_ResumeTakesAnOrderBack(t *testing.T) {
	// The status comes before the answer, so that whoever has the answer knows what came of the order.
	order := func(c *conn, action, status string) *messages.Frame {
		c.t.Helper()
		c.request(action, messages.VerbWorkerOrder, &messages.OrderParams{Action: action, Reason: "maintenance"})
		f := c.expect(status)
		c.expect(action + " response")
		return f
	}
	hear := func(c *conn, f *messages.Frame) {
		c.t.Helper()
		c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
	}
	t.Run("while a step runs", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, untilStopped, func(c *Config) {
				c.Concurrency, c.DrainTimeout, c.IdleTimeout = 2, time.Minute, time.Hour
			}).run()
			c := o.enrolled()
			c.dispatch("d1", 1)
			c.takes("d1")
			hear(c, order(c, "drain", "status draining maintenance"))
			c.silent(30 * time.Second)
			if f := order(c, "resume", "status none"); f.GetRequest().GetWorkerStatus().GetSlotsOffered() != 1 {
				t.Errorf("%v", f)
			}
			c.silent(time.Minute) // and its bound is gone with it
			c.dispatch("d2", 2)
			c.takes("d2")
			order(c, "drain", "status draining maintenance")
			c.cancel("d1", true)
			c.cancel("d2", true)
			for range 2 {
				id, _ := dispatchOf(c.read().GetId())
				c.ack(id, 0, true)
			}
			if err := o.ended(StopDrained); err != nil {
				t.Error(err)
			}
			if e := o.event(EventDraining); e.Reason != string(StopDrained) {
				t.Errorf("event %v", e)
			}
			drains := strings.Count(strings.Join(o.kinds(), " "), EventDraining)
			if drains != 2 {
				t.Errorf("%d events of a drain", drains)
			}
		})
	})
	t.Run("not a drain of its own", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, untilStopped).run()
			c := o.enrolled()
			c.dispatch("d1", 1)
			c.takes("d1")
			order(c, "drain", "status draining maintenance")
			o.agent.Drain(StopSignal)
			hear(c, order(c, "resume", "status draining maintenance"))
			c.silent(time.Minute)
		})
	})
	t.Run("not when it has nothing in flight", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, untilStopped).run()
			c := o.enrolled()
			f := order(c, "drain", "status draining maintenance")
			order(c, "resume", "status draining maintenance")
			c.send(responseTo(f.GetId(), messages.VerbWorkerStatus, &messages.StatusResult{}))
			if err := o.ended(StopDrained); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("what it does not know is refused", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			o := startAgent(t, untilStopped).run()
			c := o.enrolled()
			c.request("q", messages.VerbWorkerOrder, &messages.OrderParams{Action: "dance"})
			c.expect("q error invalid")
			c.silent(time.Minute)
		})
	})
}

func TestNew_RefusesBadLives(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"max dispatches -1": func(c *Config) { c.MaxDispatches = -1 },
		"idle timeout -1ns": func(c *Config) { c.IdleTimeout = -1 },
		"max uptime -1ns":   func(c *Config) { c.MaxUptime = -1 },
		"drain timeout":     func(c *Config) { c.DrainTimeout = -1 },
		`drain mode "kill"`: func(c *Config) { c.DrainMode = "kill" },
	} {
		cfg := Config{URL: "ws://127.0.0.1:4000", Token: "a.b", MachineID: "m", Executor: execFunc(succeed)}
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
