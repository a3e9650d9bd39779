package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// task is a dispatch that a process has taken. The world's mutex guards it.
type task struct {
	p          *process
	name       string // the lease that it came with, by which its chances are drawn
	lease      string // the id of its frames, under the generation of now
	generation uint32
	params     *messages.DispatchParams

	waits     bool // nothing is said of it until the orchestrator has decided about it
	fence     time.Time
	accepted  bool
	ended     bool
	gone      bool
	cancelled bool
	stopped   chan struct{} // closed with ended
	killed    chan struct{} // closed at a cancel that it minds
	ex        *execution
	chunks    []*messages.OutputChunk
	offset    uint32
	acked     uint32
	last      *messages.Frame
}

// execution is one time that a step ran.
type execution struct {
	dispatch, worker string
	from, to         time.Time
	how              string // it ended; empty: it runs
}

// tasks are what a process knows, the oldest first.
func (p *process) tasks() []*task {
	return slices.SortedFunc(maps.Values(p.known), func(a, b *task) int { return cmp.Compare(a.params.GetSeq(), b.params.GetSeq()) })
}

func (p *process) forget(t *task) {
	t.stop("forgotten")
	t.gone = true
	delete(p.known, t.params.GetDispatchId())
}

// inFlight is how a worker names the task when it comes back.
func (t *task) inFlight() *messages.InFlight {
	f := &messages.InFlight{DispatchId: t.params.GetDispatchId(), Generation: t.generation, State: "accepted", OutputOffset: t.offset}
	switch {
	case t.ended:
		f.State = "ended"
		f.Result = proto.CloneOf(t.last.GetResponse().GetWorkerDispatch())
	case t.ex != nil:
		f.State = "running"
	}
	return f
}

// goOn takes the task on under a generation, from an offset of its output on.
func (t *task) goOn(generation, offset uint32) {
	t.waits = false
	t.generation = generation
	t.lease = t.params.GetDispatchId() + "/" + strconv.Itoa(int(generation))
	if t.last != nil {
		t.last.Id = t.lease
	}
	t.acked = max(t.acked, offset)
}

// lose ends the execution for want of an orchestrator.
func (t *task) lose(why string) {
	t.result(&messages.DispatchResult{Status: "lost", Code: string(messages.CodeWorkerLost), Error: "killed: " + why}, "lost")
}

func (t *task) key() string {
	return strings.Join([]string{t.params.GetRunId(), t.params.GetJob(), t.params.GetStep()}, "/")
}

// stop ends the execution, if there is one.
func (t *task) stop(how string) {
	if t.ended {
		return
	}
	t.ended = true
	close(t.stopped)
	t.p.a.w.trace.say("%s ends %s: %s", t.p.instance, t.lease, how)
	if t.ex != nil {
		t.ex.to, t.ex.how = time.Now(), how
		if w := t.p.a.w; w.running[t.key()] == t.ex {
			delete(w.running, t.key())
		}
	}
}

// result ends the execution, and keeps its result until it is acknowledged.
func (t *task) result(r *messages.DispatchResult, how string) {
	if t.ended {
		return
	}
	t.stop(how)
	r.FinalOffset = t.offset
	t.last = &messages.Frame{Id: t.lease, Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, r)}}
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
	p.tokenGone(messages.Code(g.GetCode()))
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
	w.checkDispatch(p, lease, params)
	w.mu.Lock()
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

// perform runs the step. What has become of it is said, and said again, after it.
func (t *task) perform(mood Mood) {
	w := t.p.a.w
	c := w.chance
	if !t.wait(c.within(0, 20*time.Millisecond, "accept", t.name)) {
		return
	}
	w.mu.Lock()
	if t.ended {
		w.mu.Unlock()
		return
	}
	t.accepted = true
	t.ex = w.executes(t)
	w.mu.Unlock()
	t.sayAgain()
	switch {
	case c.percent(mood.DropAfter, "drop after", t.name):
		t.wait(c.within(0, time.Second, "drop", t.name))
		t.p.a.cut()
	case c.percent(mood.Die, "die", t.name):
		t.wait(c.within(0, time.Second, "death", t.name))
		t.p.a.kill()
	}
	t.work(mood)
}

// work is the step itself.
func (t *task) work(mood Mood) {
	w := t.p.a.w
	c := w.chance
	most := 2 * time.Second
	switch c.of("length", t.name) % 8 {
	case 0:
		most = 90 * time.Second
	case 1, 2:
		most = 15 * time.Second
	}
	length := c.within(time.Millisecond, most, "time", t.name)
	result := &messages.DispatchResult{Status: "succeeded"}
	how := "succeeded"
	if c.percent(mood.Fail, "fail", t.name) {
		result, how = &messages.DispatchResult{Status: "failed", Code: string(messages.CodeExitNonzero), Error: "exit status 7"}, "failed"
	}
	hangs := c.percent(mood.Hang, "hang", t.name)
	if limit := messages.Duration(t.params.GetTimeoutMs()); limit > 0 && (length > limit || hangs && !c.percent(50, "stuck", t.name)) {
		length, hangs = limit, false
		result, how = &messages.DispatchResult{Status: "timeout", Code: string(messages.CodeTimeout), Error: "timed out"}, "timeout"
	}
	deaf := c.percent(mood.Deaf, "deaf", t.name)
	chunks := int(c.of("chunks", t.name) % 4)
	for i := range chunks {
		if !t.run(length/time.Duration(chunks+1), deaf) {
			return
		}
		t.print(i)
	}
	if hangs {
		select {
		case <-w.calmed:
		case <-t.stopped:
		case <-t.killed:
			if !deaf {
				t.giveUp()
				return
			}
			select {
			case <-w.calmed:
			case <-t.stopped:
			}
		}
	}
	if !t.run(length/time.Duration(chunks+1), deaf) {
		return
	}
	w.mu.Lock()
	t.result(result, how)
	w.mu.Unlock()
}

// run lets the step run for a while. It returns false when it has ended.
func (t *task) run(d time.Duration, deaf bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	killed := t.killed
	if deaf {
		killed = nil
	}
	select {
	case <-timer.C:
		return true
	case <-killed:
		t.giveUp()
		return false
	case <-t.stopped:
		return false
	case <-t.p.ctx.Done():
		return false
	}
}

// giveUp does what a polite cancel asks for, in its own time.
func (t *task) giveUp() {
	w := t.p.a.w
	if !t.wait(w.chance.within(0, 3*time.Second, "give up", t.name)) {
		return
	}
	w.mu.Lock()
	t.result(&messages.DispatchResult{Status: "cancelled", Code: string(messages.CodeCancelled)}, "cancelled")
	w.mu.Unlock()
}

// wait returns false when the task has ended meanwhile.
func (t *task) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.stopped:
		return false
	case <-t.p.ctx.Done():
		return false
	}
}

// insist says the result until it is acknowledged.
func (t *task) insist() {
	w := t.p.a.w
	for {
		w.mu.Lock()
		gone := t.gone
		w.mu.Unlock()
		if gone {
			return
		}
		t.sayAgain()
		if !t.p.pause(t.p.chance().within(sayAgainTime, sayAgainTime+time.Second, "insist", t.name, since().String())) {
			return
		}
	}
}

// print writes a line, which is a long one at times.
func (t *task) print(i int) {
	w := t.p.a.w
	text := fmt.Sprintf("line %d of %s\n", i, t.name)
	if w.chance.percent(5, "long line", t.name) {
		text = strings.Repeat("long ", 8000) + text
	}
	w.mu.Lock()
	if t.ended {
		w.mu.Unlock()
		return
	}
	chunk := &messages.OutputChunk{Offset: t.offset, Stream: "stdout", At: messages.Time(time.Now()), Data: []byte(text)}
	t.chunks = append(t.chunks, chunk)
	t.offset += uint32(len(text))
	l, lease := t.p.link, t.lease
	if t.waits {
		l = nil
	}
	w.mu.Unlock()
	if l != nil {
		l.event(lease, &messages.Event{Event: &messages.Event_Output{Output: proto.CloneOf(chunk)}})
	}
}

func (l *link) event(lease string, e *messages.Event) {
	l.send(&messages.Frame{Id: lease, Body: &messages.Frame_Event{Event: e}})
}

// sayAgain repeats what is not acknowledged.
func (t *task) sayAgain() {
	w := t.p.a.w
	w.mu.Lock()
	l, lease, accepted, started, acked, chunks := t.p.link, t.lease, t.accepted, t.ex != nil, t.acked, t.chunks
	last := proto.CloneOf(t.last)
	silent := t.gone || t.waits
	w.mu.Unlock()
	if l == nil || silent {
		return
	}
	if accepted {
		l.event(lease, &messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})
	}
	if started {
		l.event(lease, &messages.Event{Event: &messages.Event_Started{Started: &messages.DispatchStarted{At: messages.Time(time.Now())}}})
	}
	for _, c := range chunks {
		if c.GetOffset()+uint32(len(c.GetData())) > acked {
			l.event(lease, &messages.Event{Event: &messages.Event_Output{Output: proto.CloneOf(c)}})
		}
	}
	if last != nil {
		l.send(last)
	}
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

// asked notes that the step is to end; mu is held.
func (t *task) asked() {
	if !t.cancelled {
		t.cancelled = true
		close(t.killed)
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

// executes notes that a step begins to run. It must not run already.
func (w *world) executes(t *task) *execution {
	ex := &execution{dispatch: t.params.GetDispatchId(), worker: t.p.a.name, from: time.Now()}
	w.tally.Executions++
	if other := w.running[t.key()]; other != nil {
		w.judge.find("step %s runs on %s as %s while it still runs on %s as %s", t.key(), ex.worker, ex.dispatch, other.worker, other.dispatch)
	}
	w.running[t.key()] = ex
	w.history[t.key()] = append(w.history[t.key()], ex)
	return ex
}

// checkDispatch holds a dispatch to what the orchestrator has promised: it is durable before it is told, it goes to a
// worker that fits, and to one that has a slot.
func (w *world) checkDispatch(p *process, lease string, params *messages.DispatchParams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.over {
		return
	}
	rec, err := w.fleet.Journal().Get(persistence.KindLease, lease)
	if err != nil {
		w.judge.find("worker %s is sent %s, and the journal knows no such lease: %v", p.a.is.Name, lease, err)
		return
	}
	r := &messages.LeaseRecord{}
	if err := proto.Unmarshal(rec.Body, r); err != nil || r.GetWorker() != p.name() {
		w.judge.find("worker %s is sent %s, which is %s's: %v", p.a.is.Name, lease, r.GetWorker(), err)
	}
	if p.known[params.GetDispatchId()] == nil && !p.draining && w.tally.GivenUp == 0 && rec.State == string(messages.LeaseActive) && p.busy() >= p.a.is.Capacity {
		w.judge.find("worker %s has %d slots, runs %d steps, and is sent %s", p.a.is.Name, p.a.is.Capacity, p.busy(), lease)
	}
	c := w.runs[params.GetRunId()]
	if c == nil || c.flow == nil {
		w.judge.find("worker %s is sent %s of a run that nobody has submitted", p.a.is.Name, lease)
		return
	}
	if where, ok := c.flow.where(params.GetJob(), params.GetStep()); !ok || !p.a.fits(where) {
		w.judge.find("worker %s is sent %s, which wants %s", p.a.is.Name, lease, where)
	}
}

func (p *process) name() string { return p.a.name }

func (f Flow) where(job, step string) (Where, bool) {
	for _, j := range f.Jobs {
		for _, s := range j.Steps {
			if j.Name == job && s.Name == step {
				return s.Where, true
			}
		}
	}
	return Where{}, false
}

// fits is what a placement means, worked out anew.
func (a *agent) fits(p Where) bool {
	if p == (Where{}) {
		return a.loopback == (a.w.s.Loopback > 0)
	}
	if a.loopback || p.Target != "" && p.Target != a.is.Name {
		return false
	}
	if key, value, ok := strings.Cut(p.Label, "="); ok && a.is.Labels[key] != value {
		return false
	}
	return p.Platform == "" || p.Platform == a.is.Platform || strings.HasPrefix(a.is.Platform, p.Platform+"/")
}
