package sim

import (
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// client is what the submitter of a run knows of it.
type client struct {
	flow     *Flow
	asking   int
	accepted bool
	run      *testkit.Run
	refused  error
	// cancelled is when a cancel of the whole run was first acknowledged.
	cancelled time.Time
	// stopped are the steps whose cancels were acknowledged.
	stopped map[string]bool
}

// client of a run; mu is held.
func (w *world) client(run string) *client {
	c := w.runs[run]
	if c == nil {
		c = &client{stopped: make(map[string]bool)}
		w.runs[run] = c
		w.order = append(w.order, run)
	}
	return c
}

// submit submits a run until it is accepted or refused for good.
func (w *world) submit(o Op) {
	w.mu.Lock()
	c := w.client(o.Run)
	if c.flow == nil {
		c.flow = o.Flow
	}
	flow := c.flow
	c.asking++
	w.mu.Unlock()
	_, err := w.ask(messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: o.Run, File: "sim.yaml", Source: flow.YAML()})
	w.mu.Lock()
	defer w.mu.Unlock()
	c.asking--
	switch {
	case w.ctx.Err() != nil || w.judge.Failed():
	case err == nil:
		if !c.accepted {
			c.accepted = true
			c.run = w.fleet.Follow(o.Run)
		}
	case c.accepted && !w.poison(err):
		w.judge.find("run %s was accepted, and its repeat is refused: %v", o.Run, err)
	case !w.poison(err):
		w.judge.find("run %s is refused: %v", o.Run, err)
	default:
		c.refused = err
		w.tally.Refused++
	}
}

// poison tells whether an error is what clients get whose question made an actor panic each time; mu is held.
func (w *world) poison(err error) bool {
	return w.tally.GivenUp > 0 && messages.CodeOf(err) == messages.CodeInternal
}

// conflict submits something else under the id of a run that was accepted.
func (w *world) conflict(o Op) {
	w.mu.Lock()
	c := w.client(o.Run)
	accepted := c.accepted && o.Flow.YAML() != c.flow.YAML()
	w.mu.Unlock()
	if !accepted {
		return // it might win
	}
	_, err := w.ask(messages.VerbWorkflowRun, &messages.WorkflowRunParams{RunId: o.Run, File: "sim.yaml", Source: o.Flow.YAML()})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil && !w.judge.Failed() && messages.CodeOf(err) != messages.CodeRunIDConflict && !w.poison(err) {
		w.judge.find("run %s exists, and another workflow under its id gets %v", o.Run, err)
	}
	w.tally.Conflicts++
}

// cancelRun cancels a run or a step of it.
func (w *world) cancelRun(o Op) {
	w.mu.Lock()
	accepted := w.client(o.Run).accepted
	w.mu.Unlock()
	got, err := w.ask(messages.VerbRunCancel, &messages.RunCancelParams{RunId: o.Run, Step: o.Step, Force: o.Force, By: "sim"})
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.client(o.Run)
	switch {
	case w.ctx.Err() != nil || w.judge.Failed():
	case err != nil && messages.CodeOf(err) == messages.CodeNotFound && w.s.Keep > 0: // it has ended, and was kept for long enough
	case err != nil && accepted && !w.poison(err):
		w.judge.find("run %s was accepted, and cannot be cancelled: %v", o.Run, err)
	case err != nil:
	case o.Step != "":
		c.stopped[o.Step] = true
	case c.cancelled.IsZero() && got.(*messages.RunCancelResult).GetCancelRequested():
		c.cancelled = time.Now()
	}
}

// revoke takes a machine's token back. Its next process gets a new one.
func (w *world) revoke(a *agent) {
	if _, err := w.ask(messages.VerbWorkerTokenRevoke, &messages.WorkerTokenRevokeParams{Name: a.is.tokenName()}); err == nil {
		w.mu.Lock()
		if a.is.Pool {
			w.pool = ""
		}
		a.token, a.revoked = "", true
		w.tally.Revoked++
		w.mu.Unlock()
	}
}

// poolToken is the name of the token that several machines share.
const poolToken = "pool"

func (m Machine) tokenName() string {
	if m.Pool {
		return poolToken
	}
	return m.Name
}

// newToken makes a token for a machine. One that exists already was made by a question whose answer was lost.
func (w *world) newToken(m Machine) (string, error) {
	p := &messages.WorkerTokenCreateParams{Name: m.tokenName(), DurationMs: messages.Milliseconds(m.Token)}
	if m.Pool {
		p.MaxEnrollments = -1
	}
	for {
		w.mu.Lock()
		pool := w.pool
		w.mu.Unlock()
		if m.Pool && pool != "" {
			return pool, nil
		}
		got, err := w.ask(messages.VerbWorkerTokenCreate, p)
		switch {
		case err == nil:
			token := got.(*messages.WorkerTokenCreateResult).GetToken()
			w.mu.Lock()
			if m.Pool {
				w.pool = token
			}
			w.mu.Unlock()
			return token, nil
		case messages.CodeOf(err) == messages.CodeExists:
			if _, err := w.ask(messages.VerbWorkerTokenRevoke, &messages.WorkerTokenRevokeParams{Name: p.GetName()}); err != nil {
				return "", err
			}
		default:
			return "", err
		}
	}
}
