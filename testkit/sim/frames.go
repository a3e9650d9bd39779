package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// tasks are what a process knows, the oldest first.
func (p *process) tasks() []*task {
	return slices.SortedFunc(maps.Values(p.known), func(a, b *task) int { return cmp.Compare(a.params.GetSeq(), b.params.GetSeq()) })
}

func (p *process) forget(t *task) {
	t.stop("forgotten")
	t.gone = true
	delete(p.known, t.params.GetDispatchId())
}

// take handles a frame of the orchestrator.
func (p *process) take(l *link, f *messages.Frame) {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		switch params := body.Request.GetParams().(type) {
		case *messages.Request_WorkerDispatch:
			p.offer(l, f.GetId(), params.WorkerDispatch)
		case *messages.Request_WorkerAbort:
			p.abort(l, f.GetId(), params.WorkerAbort)
		case *messages.Request_WorkerOrder:
			p.order(l, f.GetId(), params.WorkerOrder)
		case *messages.Request_WorkerGoodbye:
			p.goodbye(l, f.GetId(), params.WorkerGoodbye)
		}
	case *messages.Frame_Response:
		l.pong(f.GetId())
	case *messages.Frame_Cancel:
		p.cancel(f.GetId(), body.Cancel.GetForce())
	case *messages.Frame_Ack:
		p.ack(f.GetId(), body.Ack)
	}
}

// goodbye ends a process that is not wanted any more: its steps first, then its answer.
func (p *process) goodbye(l *link, id string, g *messages.GoodbyeParams) {
	w := p.a.w
	forGood := g.GetCode() != "" && messages.Code(g.GetCode()).Permanent()
	w.mu.Lock()
	if forGood {
		for _, t := range p.tasks() {
			p.forget(t)
		}
	}
	w.mu.Unlock()
	l.send(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerGoodbye, &messages.GoodbyeResult{})}})
	if !forGood {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.a.tokenGone(p.token, messages.Code(g.GetCode()))
	p.end()
}

// abort gives a dispatch up that is not this worker's any more.
func (p *process) abort(l *link, id string, a *messages.AbortParams) {
	p.a.w.mu.Lock()
	if t := p.known[a.GetDispatchId()]; t != nil && a.GetGeneration() >= t.generation {
		p.forget(t)
	}
	p.a.w.mu.Unlock()
	l.send(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerAbort, &messages.AbortResult{})}})
	p.leaveIfDone()
}

func (p *process) order(l *link, id string, o *messages.OrderParams) {
	l.send(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerOrder, &messages.OrderResult{})}})
	drain := o.GetAction() == "drain"
	p.a.w.mu.Lock()
	p.draining = drain
	p.a.w.mu.Unlock()
	if drain {
		l.say(messages.IntentDraining)
		p.leaveIfDone()
	} else {
		l.say(messages.IntentNone)
	}
}

// offer decides about a dispatch.
func (p *process) offer(l *link, lease string, params *messages.DispatchParams) {
	w := p.a.w
	w.checkDispatch(p.a, lease, params)
	w.mu.Lock()
	p.checkSlot(lease, params)
	stale := params.GetSeq() <= p.seq
	p.seq = max(p.seq, params.GetSeq())
	if t := p.known[params.GetDispatchId()]; t != nil {
		again := params.GetGeneration() >= t.generation
		if params.GetGeneration() > t.generation {
			w.tally.Adopted++
			w.trace.say("%s goes on with %s", p.instance, lease)
			t.goOn(params.GetGeneration(), params.GetOutputFromOffset())
			if p.early[lease] {
				t.asked()
			}
		}
		w.mu.Unlock()
		if again {
			t.sayAgain()
		}
		return
	}
	w.tally.Dispatches++
	w.trace.say("%s is sent %s", p.instance, lease)
	mood := p.a.mood
	if w.calm {
		mood = Mood{}
	}
	refusal := messages.Code("")
	switch {
	case params.GetGeneration() > 1: // it was adopted from this process, which has lost it since
		refusal = messages.CodeEnded
	case p.draining:
		refusal = messages.CodeWorkerDraining
	case p.busy() >= p.a.is.Capacity, w.chance.percent(mood.Busy, "busy", lease):
		refusal = messages.CodeWorkerBusy
	case stale:
		refusal = messages.CodeEnded
	case w.chance.percent(mood.CannotStart, "cannot start", lease):
		refusal = messages.CodeWorkerCannotStart
	}
	if refusal != "" {
		w.tally.Refusals++
		w.trace.say("%s refuses %s: %s", p.instance, lease, refusal)
		w.mu.Unlock()
		l.send(&messages.Frame{Id: lease, Body: &messages.Frame_Error{Error: &messages.Error{Code: string(refusal), Text: "the simulation refuses"}}})
		return
	}
	if w.chance.percent(mood.DropBefore, "drop before", lease) {
		w.mu.Unlock()
		p.a.cut()
		return
	}
	t := &task{
		p: p, name: lease, lease: lease, generation: params.GetGeneration(), params: params, stopped: make(chan struct{}), killed: make(chan struct{}),
		fence: time.Now().Add(p.span()), // as long as the promise that comes with it; the next ping makes it exact
	}
	p.known[params.GetDispatchId()] = t
	p.setFence()
	if p.early[lease] {
		t.accepted = true
		t.result(&messages.DispatchResult{Status: "cancelled", Code: string(messages.CodeCancelled)}, "cancelled")
	}
	w.mu.Unlock()
	w.wg.Go(func() {
		t.perform(mood)
		t.insist()
	})
}

// busy counts the steps that run, or are about to; mu is held.
func (p *process) busy() int {
	n := 0
	for _, t := range p.known {
		if !t.ended {
			n++
		}
	}
	return n
}

// cancel takes a cancel, which may come before its dispatch.
func (p *process) cancel(lease string, force bool) {
	w := p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	dispatch, _, _ := strings.Cut(lease, "/")
	t := p.known[dispatch]
	switch {
	case t == nil || t.lease != lease:
		p.early[lease] = true
	case t.ended:
	case force:
		t.accepted = true
		t.result(&messages.DispatchResult{Status: "cancelled", Code: string(messages.CodeCancelled)}, "cancelled")
	default:
		t.asked()
	}
}

// ack takes what the orchestrator has made durable.
func (p *process) ack(lease string, a *messages.Ack) {
	w := p.a.w
	w.mu.Lock()
	dispatch, _, _ := strings.Cut(lease, "/")
	if t := p.known[dispatch]; t != nil && t.lease == lease {
		t.acked = max(t.acked, a.GetOffset())
		if a.GetDone() {
			p.forget(t)
		}
	}
	w.mu.Unlock()
	p.leaveIfDone()
}
