package testkit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// traceKept is how many lines of the trace are kept, where the test says nothing else.
const traceKept = 200

// trace is the last part of what has happened: what actors took and committed, what went over each connection, and what
// the test did. It is shown when the test has failed.
type trace struct {
	mu    sync.Mutex
	lines []traced
	next  int // where the next one goes, once all places are taken
	most  int
}

// traced is one thing that happened. What it says is put together for who reads it, which is hardly ever.
type traced struct {
	at    time.Time
	point actors.Point
	text  string
}

func (t *trace) add(x traced) {
	x.at = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.most == 0:
	case len(t.lines) < t.most:
		t.lines = append(t.lines, x)
	default:
		t.lines[t.next] = x
		t.next = (t.next + 1) % t.most
	}
}

// point notes what an actor has taken, or committed.
func (t *trace) point(p actors.Point) {
	if p.Stage != decidedStage && p.Kind != "session" {
		t.add(traced{point: p})
	}
}

// say notes anything else.
func (t *trace) say(format string, args ...any) {
	if t.most > 0 {
		t.add(traced{text: fmt.Sprintf(format, args...)})
	}
}

// frame notes what goes over a connection.
func (t *trace) frame(socket, arrow string, f *messages.Frame) {
	if t.most > 0 {
		t.add(traced{text: socket + " " + arrow + " " + frameText(f)})
	}
}

// all is what is kept, the oldest first.
func (t *trace) all() []traced {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append([]traced(nil), t.lines[t.next:]...), t.lines[:t.next]...)
}

// String is the trace, a line for each thing.
func (t *trace) String() string {
	var b strings.Builder
	for _, x := range t.all() {
		text := x.text
		if text == "" {
			text = fmt.Sprintf("%s %s %s %s", x.point.Kind, x.point.ID, x.point.Stage, x.point.Command)
		}
		fmt.Fprintf(&b, "%s %s\n", x.at.Format(time.TimeOnly+".000"), text)
	}
	return b.String()
}

// frameText says what a frame is, in a few words.
func frameText(f *messages.Frame) string {
	switch body := f.GetBody().(type) {
	case *messages.Frame_Request:
		return fmt.Sprintf("asks %s as %s", strings.TrimPrefix(fmt.Sprintf("%T", body.Request.GetParams()), "*messages.Request_"), f.GetId())
	case *messages.Frame_Response:
		if r := body.Response.GetWorkerDispatch(); r != nil {
			return fmt.Sprintf("result of %s: %s", f.GetId(), strings.TrimSpace(r.GetStatus()+" "+r.GetError()))
		}
		return "answers " + f.GetId()
	case *messages.Frame_Error:
		return fmt.Sprintf("refuses %s: %s", f.GetId(), body.Error.GetCode())
	case *messages.Frame_Event:
		switch e := body.Event.GetEvent().(type) {
		case *messages.Event_Accepted:
			return "accepts " + f.GetId()
		case *messages.Event_Started:
			return "has started " + f.GetId()
		case *messages.Event_Output:
			return fmt.Sprintf("output of %s: %d bytes at %d", f.GetId(), len(e.Output.GetData()), e.Output.GetOffset())
		default:
			return "event of " + f.GetId()
		}
	case *messages.Frame_Cancel:
		return "cancels " + f.GetId()
	case *messages.Frame_Ack:
		return fmt.Sprintf("acknowledges %s up to %d, done %t", f.GetId(), body.Ack.GetOffset(), body.Ack.GetDone())
	default:
		return "sends what is no frame"
	}
}

// Trace is the last part of what has happened: what the actors have taken and committed, what went over the connections,
// and what the test did.
func (f *Fleet) Trace() string { return f.trace.String() }

// show tells what there is to be known of a test that has failed.
func (f *Fleet) show() {
	f.mu.Lock()
	system, runs := f.system, f.runs
	f.mu.Unlock()
	for _, r := range runs {
		f.t.Logf("story of %s:\n%s", r.ID, r)
	}
	f.t.Logf("what happened last:\n%s", f.Trace())
	if system == nil {
		f.t.Logf("the orchestrator is down")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTime) // not the test's: it has failed
	defer cancel()
	tree, err := system.Do(ctx, messages.VerbActorTree, &messages.ActorTreeParams{}, nil)
	if err != nil {
		f.t.Logf("the actors cannot be listed: %v", err)
		return
	}
	var b strings.Builder
	for _, a := range tree.(*messages.ActorTreeResult).GetItems() {
		fmt.Fprintf(&b, "%-40s %-12s mailbox %d, %g done, %d restarts, last %s\n",
			a.GetPid(), a.GetState(), a.GetMailbox(), a.GetProcessed(), a.GetRestarts(), a.GetLastMessage())
	}
	f.t.Logf("the actors:\n%s", b.String())
}

// showTime is how long an orchestrator of a test that has failed may take to list its actors.
const showTime = 2 * time.Second
