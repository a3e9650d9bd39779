package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

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

func TestAgent_BacksOffAsItsConfigSays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := startAgent(t, succeed, func(c *Config) { c.Jitter = func() float64 { return 0.5 } })
		o.refuse = func(try int) error {
			if try <= 8 {
				return errDialled
			}
			return nil
		}
		o.run()
		o.enrolled()
		for i, want := range []float64{0.5, 1, 2, 4, 8, 15, 15, 15} {
			if pause := o.dials[i+1].Sub(o.dials[i]).Seconds(); pause != want {
				t.Errorf("pause %d is %v s, want %v s", i, pause, want)
			}
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
		{messages.CodeMalformed, StopRefused, []string{"malformed", "because"}},
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
					// What is wrong with a connection is no refusal of the next one.
					admitted := way == "goodbye" || way == "close"
					if tt.reason == "" || admitted && (tt.code == messages.CodeInvalid || tt.code == messages.CodeMalformed) {
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
