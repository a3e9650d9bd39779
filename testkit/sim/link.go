package sim

import (
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// link is one connection of a process.
type link struct {
	p      *process
	socket *testkit.Socket
	half   bool
	dead   bool          // guarded by the world's mutex
	gone   chan struct{} // closed when the process knows that it is dead
	asked  int
	pings  map[string]time.Time // when each was sent that is not answered
}

// cut ends the link for the process; mu is held. The socket is left to be closed.
func (l *link) cut() {
	if !l.dead {
		l.dead = true
		if l.p.link == l {
			l.p.away.begin()
		}
		close(l.gone)
	}
}

func (l *link) send(f *messages.Frame) {
	l.p.a.w.mu.Lock()
	dead := l.dead
	l.p.a.w.mu.Unlock()
	if !dead {
		l.socket.Send(f)
	}
}

// links are those that are up; mu is held.
func (w *world) links() []*link {
	var all []*link
	for _, m := range append(w.s.Machines, Machine{Name: loopback}) {
		if a := w.agents[m.Name]; a != nil && a.proc != nil && a.proc.link != nil && !a.proc.link.dead {
			all = append(all, a.proc.link)
		}
	}
	return all
}

// closeSoon lets the orchestrator know that a link is dead: at once, unless it is half open, where only its silence tells;
// mu is held.
func (w *world) closeSoon(l *link) {
	wait := time.Duration(0)
	if l.half {
		wait = l.p.silence()
	}
	w.wg.Go(func() {
		w.sleep(wait)
		l.socket.Close()
	})
}

// say reports what the worker wants.
func (l *link) say(intent messages.WorkerIntent) {
	l.p.a.w.mu.Lock()
	l.asked++
	id := fmt.Sprintf("status-%d", l.asked)
	l.p.a.w.mu.Unlock()
	l.send(&messages.Frame{Id: id, Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerStatus, &messages.StatusParams{Intent: string(intent), Reason: "signal"}),
	}})
}

// travel is the time that a frame takes to arrive, so that what it leads to does not race with what its sender does next.
func (l *link) travel() {
	timer := time.NewTimer(l.p.chance().within(time.Microsecond, 100*time.Microsecond, "travel", l.p.instance, since().String()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.gone:
	case <-l.p.ctx.Done():
	}
}
