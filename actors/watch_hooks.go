package actors

import (
	"fmt"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// viewers are the watches that an actor is in. They are looked for anew only when the set of open ones is another.
type viewers struct {
	of      *watchList
	watches []*watch
}

// look returns who watches now; nobody costs a load and a comparison.
func (v *viewers) look(sys *System, at address, info *actorInfo) []*watch {
	list := sys.watches.open.Load()
	if list != v.of {
		v.of, v.watches = list, nil
		if list != nil {
			v.watches = list.of(at, info.pid.GetId())
		}
	}
	return v.watches
}

// viewed returns who watches the actor.
func (r *runner[S]) viewed() []*watch { return r.viewers.look(r.sys, r.self, r.info) }

// show tells those who watch of something that the actor does. Each gets an event of its own, for it is numbered.
func (r *runner[S]) show(to []*watch, kind string, cmd any, fill func(*messages.ActorEvent)) {
	now := messages.Time(time.Now())
	for _, w := range to {
		e := &messages.ActorEvent{Kind: kind, At: now, Pid: r.info.pid.GetId()}
		if cmd != nil {
			name := commandName(cmd)
			e.Command = &name
		}
		if fill != nil {
			fill(e)
		}
		w.put(e)
	}
}

// showCommand tells of a command that the actor has taken.
func (r *runner[S]) showCommand(cmd any) {
	if to := r.viewed(); to != nil {
		r.show(to, "command", cmd, nil)
	}
}

// showDecision tells of a decision that has been carried out: the transition, the commit, and its effects.
func (r *runner[S]) showDecision(to []*watch, cmd any, next S, d *decision, took time.Duration) {
	if before, after := r.info.state.Load(), r.machine.word(next); before != after {
		r.show(to, "transition", cmd, func(e *messages.ActorEvent) { e.From, e.To = optional(before), &after })
	}
	if d.durable() {
		ms := messages.Milliseconds(took)
		r.show(to, "commit", cmd, func(e *messages.ActorEvent) { e.Text, e.TookMs = optional(commitText(d)), &ms })
	}
	for _, e := range d.effects {
		where, text := r.effectText(e)
		r.show(to, "effect", cmd, func(e *messages.ActorEvent) { e.To, e.Text = optional(where), optional(text) })
	}
}

func (r *runner[S]) showRefusal(to []*watch, cmd any, err error) {
	r.show(to, "refused", cmd, func(e *messages.ActorEvent) { e.Text = optional(err.Error()) })
}

// showDebt tells of what the actor tells others because it owes it; nil where nobody watches.
func (r *runner[S]) showDebt() func(obligation) {
	to := r.viewed()
	if to == nil {
		return nil
	}
	return func(o obligation) {
		where, text := r.sys.pidOf(o.to), "tells "+commandName(o.msg)+", until it is confirmed"
		r.show(to, "effect", nil, func(e *messages.ActorEvent) { e.To, e.Text = &where, &text })
	}
}

// commitText is what a commit holds.
func commitText(d *decision) string {
	var parts []string
	for _, w := range d.writes {
		parts = append(parts, fmt.Sprintf("%s %s v%d %s", w.kind, w.id, w.replaces+1, w.state))
	}
	for _, e := range d.erases {
		parts = append(parts, fmt.Sprintf("erases %s %s", e.kind, e.id))
	}
	for _, e := range d.events {
		parts = append(parts, "event "+e.GetKind())
	}
	if d.log != nil {
		parts = append(parts, fmt.Sprintf("%d chunks of output", len(d.log.chunks)))
	}
	return strings.Join(parts, ", ")
}

// effectText is an effect in a few words, and where it goes to.
func (r *runner[S]) effectText(e effect) (to, text string) {
	session := func(n uint64) string { return r.sys.pidOf(sessionAddress(n)) }
	switch e := e.(type) {
	case tell:
		return r.sys.pidOf(e.to), "tells " + commandName(e.msg)
	case respond:
		if e.err != nil {
			return "", "answers " + e.err.Error()
		}
		return "", "answers"
	case transmit:
		return session(e.session), "sends " + frameName(e.frame)
	case hangUp:
		return session(e.session), "hangs up: " + e.text
	case probe:
		return session(e.session), "probes"
	case arm:
		return "", fmt.Sprintf("sets timer %s to %s", e.name, e.after)
	case disarm:
		return "", "stops timer " + e.name
	case again:
		return r.info.pid.GetId(), "tells itself " + commandName(e.cmd)
	case bear:
		return r.sys.pidOf(e.child), "bears, with " + commandName(e.msg)
	case tellChildren:
		return "", "tells its children " + commandName(e.msg)
	case closeLog:
		return "", "closes the log of " + e.dispatch
	case leave:
		return "", "leaves"
	case rest:
		return "", "rests, if nobody has spoken to it"
	default:
		return "", fmt.Sprintf("%T", e)
	}
}

// frameName is what a frame says.
func frameName(f *messages.Frame) string {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		return body.Request.GetVerb() + " " + f.GetId()
	case *messages.Frame_Response:
		return "a response to " + f.GetId()
	case *messages.Frame_Error:
		return body.Error.GetCode() + " to " + f.GetId()
	case *messages.Frame_Cancel:
		return "a cancel of " + f.GetId()
	case *messages.Frame_Ack:
		if body.Ack.GetDone() {
			return "the last ack of " + f.GetId()
		}
		return fmt.Sprintf("an ack of %s to %d", f.GetId(), body.Ack.GetOffset())
	default:
		return "a frame of " + f.GetId()
	}
}
