package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
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
	forgotten        bool   // its worker has come back without it
	a                *agent
	away             *spans          // of the process that ran it
	life             context.Context //nolint:containedctx // that process's
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
	t.ex = t.executes()
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
	length := c.length(t.name)
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

// asked notes that the step is to end; mu is held.
func (t *task) asked() {
	if !t.cancelled {
		t.cancelled = true
		close(t.killed)
	}
}
