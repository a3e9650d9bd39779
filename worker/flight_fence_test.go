package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

func TestAgent_TheFenceEndsWhatRunsInTheWorkersOwnProcess(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn %t", stubborn), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var asked, killed time.Duration
				promise := time.Now()
				o := startAgent(t, func(ctx context.Context, task Task, started func(), _ Output) Outcome {
					started()
					<-ctx.Done()
					asked = time.Since(promise)
					if stubborn {
						<-task.Kill
						killed = time.Since(promise)
					}
					return Outcome{Status: OutcomeCancelled, Code: CodeCancelled}
				})
				var back atomic.Bool
				o.refuse = func(try int) error {
					if try > 1 && !back.Load() {
						return errDialled
					}
					return nil
				}
				o.run()
				c := o.enrolled()
				c.silent(31 * time.Second) // two promises
				promise = promise.Add(30 * time.Second)
				c.dispatch("d1", 1)
				c.takes("d1")
				_ = c.Close("", "")
				time.Sleep(time.Minute)
				back.Store(true)
				c = o.accept()
				if d := cmp.Diff([]string{"d1/1 ended 0 lost"}, c.inFlight()); d != "" {
					t.Error(d)
				}
				if r := c.enroll.GetInFlight()[0].GetResult(); r.GetCode() != CodeWorkerLost || r.GetError() != outOfReach {
					t.Errorf("result %v", r)
				}
				c.admit()
				c.takes("d1")
				c.expect("d1/1 lost worker_lost")
				if asked != fencedAfter {
					t.Errorf("TERM after %v", asked)
				}
				if stubborn && killed != killedAfter {
					t.Errorf("KILL after %v", killed)
				}
			})
		})
	}
}

func TestAgent_AStepThatItsFenceHasAskedToEndIsKilledWhateverIsPromised(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		killed := make(chan time.Time, 1)
		o := startAgent(t, func(ctx context.Context, task Task, started func(), _ Output) Outcome {
			started()
			<-ctx.Done()
			<-task.Kill
			killed <- time.Now()
			return Outcome{Status: OutcomeCancelled, Code: CodeCancelled}
		})
		promise := time.Now()
		o.refuse = func(try int) error {
			if try > 1 && time.Since(promise) < fencedAfter-2*time.Second {
				return errDialled
			}
			return nil
		}
		o.run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		c = o.cut(c)
		if d := cmp.Diff([]string{"d1/1 running 0"}, c.inFlight()); d != "" {
			t.Error(d)
		}
		time.Sleep(time.Until(promise.Add(fencedAfter + time.Second)))
		c.admit()
		c.takes("d1")
		c.expect("d1/1 lost worker_lost")
		if d := (<-killed).Sub(promise); d != killedAfter {
			t.Errorf("KILL after %v", d)
		}
	})
}

func TestAgent_PromisesOfASessionCountForWhatItHasTakenOver(t *testing.T) {
	tests := []struct {
		name   string
		settle func(*conn)
		dies   bool
	}{
		{"resumed", func(c *conn) { c.admit() }, false},
		{"waiting", func(c *conn) { c.admitWith() }, true},
		{"adopted", func(c *conn) {
			c.admitWith()
			c.silent(20 * time.Second)
			c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation = 2 })
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				step := newSteered()
				o := startAgent(t, step.run).run()
				promise := time.Now()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				c = o.cut(c)
				tt.settle(c)
				for c.next(time.Until(promise.Add(fencedAfter-1))) != nil {
				}
				step.lives(t)
				c.silent(10 * time.Minute) // all its pings are answered
				synctest.Wait()
				select {
				case <-step.gone:
					if !tt.dies {
						t.Error("the fence has ended it")
					}
				default:
					if tt.dies {
						t.Error("it lives without a promise")
					}
				}
			})
		})
	}
}
