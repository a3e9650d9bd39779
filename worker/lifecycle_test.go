package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
