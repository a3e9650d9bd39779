package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

func TestAgent_FollowsTheVerdictsOnWhatHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			_ = out.Write(Stdout, []byte("12345"))
			return Outcome{Status: OutcomeSucceeded}
		}, func(c *Config) { c.Concurrency = 5 }).run()
		c := o.enrolled()
		for i, id := range []string{"d1", "d2", "d3", "d4", "d5"} {
			c.dispatch(id, uint32(i+1))
			c.takes(id)
			c.expect(id + "/1 stdout 12345")
			c.expect(id + "/1 succeeded")
		}
		c = o.cut(c)
		c.admitWith(
			verdict("d1", 1, verdictAbort, 0), verdict("d2", 2, verdictResume, 3), verdict("d3", 1, verdictResume, 0),
			verdict("d4", 1, verdictWait, 0), verdict("unknown", 1, verdictAbort, 0), // and nothing about d5
		)
		want := map[string][]string{
			"d2": {"d2/2 accepted", "d2/2 started", "d2/2 stdout 45", "d2/2 succeeded"},
			"d3": {"d3/1 accepted", "d3/1 started", "d3/1 stdout 12345", "d3/1 succeeded"},
		}
		if d := cmp.Diff(want, c.hears()); d != "" {
			t.Error(d)
		}
		c.ack("d2", 5, true) // its generation is another one
		c.ack("d3", 5, true)
		c.expect("d2/2 stdout 45")
		c.expect("d2/2 succeeded")
		c.ackOf("d2/2", 5, true)
		c.silent(time.Hour)
		c = o.cut(c)
		if d := cmp.Diff([]string{"d4/1 ended 5 succeeded", "d5/1 ended 5 succeeded"}, c.inFlight()); d != "" {
			t.Error(d)
		}
		c.admit()
	})
}

// Its result is not delivered either: of what the store has forgotten besides nobody can know.
func TestAgent_AResultIsDisownedByAStoreThatHasForgottenItsOutput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, func(_ context.Context, _ Task, started func(), out Output) Outcome {
			started()
			_ = out.Write(Stdout, []byte("12345"))
			return Outcome{Status: OutcomeSucceeded}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		c.expect("d1/1 stdout 12345")
		c.expect("d1/1 succeeded")
		c.ack("d1", 4, false)
		c = o.cut(c)
		c.admitWith()
		c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation, p.OutputFromOffset = 2, 3 })
		c.expect("d1/2 error ended")
		c.silent(time.Hour)
		if c = o.cut(c); len(c.inFlight()) != 0 {
			t.Errorf("in flight %v", c.inFlight())
		}
		c.admit()
	})
}

func TestAgent_FollowsTheVerdictsOnWhatRuns(t *testing.T) {
	order := func(c *conn, id string, generation uint32) {
		c.t.Helper()
		c.request("q", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: id, Generation: generation})
	}
	adoption := func(c *conn, generation, offset uint32) {
		c.dispatch("d1", 9, func(p *messages.DispatchParams) { p.Generation, p.OutputFromOffset = generation, offset })
	}
	tests := []struct {
		name     string
		verdicts []*messages.InFlightVerdict
		story    func(*conn)
		says     []string // then the step is told to print and to end, if it lives
		dies     error
	}{
		{"resumed", []*messages.InFlightVerdict{verdict("d1", 1, verdictResume, 5)}, func(*conn) {},
			[]string{"d1/1 accepted", "d1/1 started", "d1/1 stdout e", "d1/1 stdout after", "d1/1 succeeded"}, nil},
		{"resumed under a new generation", []*messages.InFlightVerdict{verdict("d1", 2, verdictResume, 5)}, func(*conn) {},
			[]string{"d1/2 accepted", "d1/2 started", "d1/2 stdout e", "d1/2 stdout after", "d1/2 succeeded"}, nil},
		{"aborted", []*messages.InFlightVerdict{verdict("d1", 1, verdictAbort, 0)}, func(*conn) {}, nil, ErrKilled},
		{"resumed under an older generation", []*messages.InFlightVerdict{verdict("d1", 0, verdictResume, 0)}, func(*conn) {}, nil, nil},
		{"not mentioned", nil, func(*conn) {}, nil, nil},
		{"waiting", []*messages.InFlightVerdict{verdict("d1", 1, verdictWait, 0)}, func(*conn) {}, nil, nil},
		{"a word that nobody knows", []*messages.InFlightVerdict{verdict("d1", 1, "dance", 0)}, func(*conn) {}, nil, nil},
		{"waiting, then adopted", []*messages.InFlightVerdict{verdict("d1", 1, verdictWait, 0)}, func(c *conn) { adoption(c, 2, 3) },
			[]string{"d1/2 accepted", "d1/2 started", "d1/2 stdout o", "d1/2 stdout re", "d1/2 stdout after", "d1/2 succeeded"}, nil},
		{"waiting, then adopted twice", []*messages.InFlightVerdict{verdict("d1", 1, verdictWait, 0)}, func(c *conn) {
			adoption(c, 2, 6)
			c.expect("d1/2 accepted")
			c.expect("d1/2 started")
			adoption(c, 2, 6)
			c.expect("d1/2 accepted")
			adoption(c, 1, 0) // late, and of no meaning
		}, []string{"d1/2 stdout after", "d1/2 succeeded"}, nil},
		{"waiting, then sent again under the same generation", nil, func(c *conn) { adoption(c, 1, 6) },
			[]string{"d1/1 accepted", "d1/1 started", "d1/1 stdout after", "d1/1 succeeded"}, nil},
		{"waiting, then given up", nil, func(c *conn) { order(c, "d1", 1) }, []string{"q response"}, ErrKilled},
		{"waiting, then given up under a generation that never came", nil, func(c *conn) { order(c, "d1", 2) }, []string{"q response"}, ErrKilled},
		{"given up under an older generation", nil, func(c *conn) {
			adoption(c, 2, 6)
			order(c, "d1", 1)
			c.expect("q response") // before anything else, as control frames go first
		}, []string{"d1/2 accepted", "d1/2 started", "d1/2 stdout after", "d1/2 succeeded"}, nil},
		{"waiting, then over", nil, func(c *conn) { c.ack("d1", 6, true) }, nil, ErrKilled},
		{"adopted by a store that has forgotten nothing that it had acknowledged", nil, func(c *conn) {
			c.ack("d1", 4, false)
			adoption(c, 2, 4)
		}, []string{"d1/2 accepted", "d1/2 started", "d1/2 stdout re", "d1/2 stdout after", "d1/2 succeeded"}, nil},
		{"adopted by a store that has forgotten what it had acknowledged", nil, func(c *conn) {
			c.ack("d1", 4, false)
			adoption(c, 2, 3)
			synctest.Wait()
			adoption(c, 2, 3)
		}, []string{"d1/2 error ended"}, ErrKilled},
		{"adopted by a store that has forgotten what it had acknowledged, after its cancel", nil, func(c *conn) {
			c.ack("d1", 4, false)
			c.send(&messages.Frame{Id: "d1/2", Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{}}})
			adoption(c, 2, 3)
			synctest.Wait()
			adoption(c, 2, 3)
		}, []string{"d1/2 error ended"}, ErrKilled},
		{"adopted after its cancel", nil, func(c *conn) {
			c.send(&messages.Frame{Id: "d1/2", Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{}}})
			adoption(c, 2, 6)
		}, []string{"d1/2 accepted", "d1/2 started", "d1/2 cancelled cancelled"}, ErrCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				step := newSteered()
				o := startAgent(t, step.run).run()
				c := o.enrolled()
				c.dispatch("d1", 1)
				c.takes("d1")
				step.says <- "befo"
				c.expect("d1/1 stdout befo")
				step.says <- "re"
				c.expect("d1/1 stdout re")
				c = o.cut(c)
				c.admitWith(tt.verdicts...)
				tt.story(c)
				synctest.Wait()
				if tt.dies == nil {
					step.lives(t)
					step.says <- "after"
					time.Sleep(time.Second)
					step.end <- Outcome{Status: OutcomeSucceeded}
				}
				var says []string
				for f := c.next(time.Second); f != nil; f = c.next(time.Second) {
					says = append(says, describe(f))
				}
				if d := cmp.Diff(tt.says, says); d != "" {
					t.Error(d)
				}
				select {
				case why := <-step.gone:
					if !errors.Is(why.cause, tt.dies) {
						t.Errorf("it was stopped by %v, want %v", why.cause, tt.dies)
					}
				default:
					t.Error("the step still runs")
				}
			})
		})
	}
}

func TestAgent_WhatIsGivenUpStaysNamedUntilItIsDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		free := make(chan struct{})
		o := startAgent(t, func(_ context.Context, _ Task, started func(), _ Output) Outcome {
			started()
			<-free
			return Outcome{Status: OutcomeCancelled}
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1)
		c.takes("d1")
		c.request("q", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: "d1", Generation: 1})
		c.silent(time.Second)
		c = o.cut(c)
		if d := cmp.Diff([]string{"d1/1 running 0"}, c.inFlight()); d != "" {
			t.Error(d)
		}
		c.admitWith(verdict("d1", 1, verdictAbort, 0))
		c.dispatch("d1", 1, func(p *messages.DispatchParams) { p.Generation = 2 }) // it cannot say that it has ended yet
		c.silent(time.Second)
		close(free)
		c.silent(time.Second) // and whoever asked for the abort is gone
		c.dispatch("d1", 1, func(p *messages.DispatchParams) { p.Generation = 2 })
		c.expect("d1/2 error ended")
	})
}
