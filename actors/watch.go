package actors

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

const (
	// watchesMost bounds the watches at a time, and watchKept the events of one that are not read yet: what comes beyond that
	// is dropped and counted, for an actor never waits for whoever watches it.
	watchesMost = 64
	watchKept   = 1024
	// watchStall is how long a reader may take for one event before its watch is cut off.
	watchStall = 10 * time.Second
)

// watchBook holds the watches that are open. Each actor that does something looks whether there is one, which costs a load
// as long as there is none.
type watchBook struct {
	mu   sync.Mutex
	open atomic.Pointer[watchList]
}

// watchList is one set of watches; another one is another list.
type watchList struct{ watches []*watch }

// watch is one client's view of some actors.
type watch struct {
	wants func(at address, pid string) bool

	mu      sync.Mutex
	events  []*messages.ActorEvent
	seq     uint64
	dropped uint64 // since the last that was kept
	lost    uint64 // in all
	news    chan struct{}
}

// add opens a watch.
func (b *watchBook) add(w *watch) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var old []*watch
	if list := b.open.Load(); list != nil {
		old = list.watches
	}
	if len(old) >= watchesMost {
		return false
	}
	b.open.Store(&watchList{append(slices.Clone(old), w)})
	return true
}

func (b *watchBook) remove(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(b.open.Load().watches), func(o *watch) bool { return o == w })
	if len(rest) == 0 {
		b.open.Store(nil)
		return
	}
	b.open.Store(&watchList{rest})
}

// watching is how many watch an actor.
func (b *watchBook) watching(info *actorInfo) int {
	list := b.open.Load()
	if list == nil {
		return 0
	}
	return len(list.of(info.address, info.pid.GetId()))
}

// of are the watches that want an actor.
func (l *watchList) of(at address, pid string) []*watch {
	var list []*watch
	for _, w := range l.watches {
		if w.wants(at, pid) {
			list = append(list, w)
		}
	}
	return list
}

// put takes an event. It never waits for anybody but another actor that does the same.
func (w *watch) put(e *messages.ActorEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	if len(w.events) >= watchKept {
		w.dropped++
		w.lost++
		return
	}
	if w.dropped > 0 {
		w.events = append(w.events, droppedEvent(&w.dropped, e.GetAt().AsTime()))
	}
	e.Seq = float64(w.seq)
	w.events = append(w.events, e)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// droppedEvent says that some are missing, and counts from anew.
func droppedEvent(dropped *uint64, at time.Time) *messages.ActorEvent {
	n := float64(*dropped)
	*dropped = 0
	return &messages.ActorEvent{Kind: "dropped", At: messages.Time(at), Dropped: &n}
}

// take returns what has come since, and what was dropped behind it.
func (w *watch) take() []*messages.ActorEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	if w.dropped > 0 {
		events = append(events, droppedEvent(&w.dropped, time.Now()))
	}
	return events
}

// actorWatch streams what actors do until the client has enough.
func (sys *System) actorWatch(ctx context.Context, p *messages.ActorWatchParams, emit Emit) (proto.Message, error) {
	if emit == nil {
		return nil, messages.Faultf(messages.CodeInvalid, "this verb streams")
	}
	wants, subject, err := sys.watched(p.GetSubject())
	if err != nil {
		return nil, err
	}
	w := &watch{wants: wants, news: make(chan struct{}, 1)}
	if !sys.watches.add(w) {
		return nil, messages.Faultf(messages.CodeTooManyRequests, "%d watches of actors are open", watchesMost)
	}
	defer sys.watches.remove(w)
	opened := &messages.ActorEvent{Kind: "watching", At: messages.Time(time.Now()), Pid: subject}
	if err := emit(&messages.Event{Event: &messages.Event_Actor{Actor: opened}}); err != nil {
		return nil, err
	}
	for seen := 0; ; {
		for _, e := range w.take() {
			began := time.Now()
			if err := emit(&messages.Event{Event: &messages.Event_Actor{Actor: e}}); err != nil {
				return nil, err
			}
			seen++
			if took := time.Since(began); took > watchStall {
				w.mu.Lock()
				lost := w.lost
				w.mu.Unlock()
				return nil, messages.Faultf(messages.CodeStreamOverflow, "the watch is cut off: its reader took %s for one event; %d were read, %d dropped", spoken(took), seen, lost)
			}
		}
		select {
		case <-w.news:
		case <-sys.failed:
			return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// watched is which actors a subject means: all of a kind, those of a run, or one with those below it.
func (sys *System) watched(subject string) (wants func(address, string) bool, name string, err error) {
	if subject == "" || len(subject) > 1024 {
		return nil, "", messages.Faultf(messages.CodeInvalid, "actor watch needs a PID, a kind of actors or a run's id")
	}
	if slices.Contains(actorKinds(), subject) {
		return func(at address, _ string) bool { return at.kind == subject }, subject, nil
	}
	if _, err := sys.journal.Get(persistence.KindRun, subject); err == nil {
		return ofRun(escape(subject)), subject, nil
	}
	pid, _, err := sys.findPID(subject)
	if err != nil {
		at, ok := sys.pastAddress(subject)
		if !ok {
			return nil, "", err
		}
		pid = sys.pidOf(at) // it may come back
	}
	return func(_ address, id string) bool {
		return id == pid || strings.HasPrefix(id, pid) && id[len(pid)] == '/'
	}, pid, nil
}

// ofRun are the actors of a run: itself, its steps and their leases.
func ofRun(run string) func(address, string) bool {
	return func(at address, _ string) bool {
		rest, ok := strings.CutPrefix(at.id, run)
		switch at.kind {
		case kindRun:
			return ok && rest == ""
		case kindStep:
			return ok && strings.HasPrefix(rest, "/")
		case kindLease: // a dispatch's id is made of its run's
			return ok && strings.HasPrefix(rest, ".")
		default:
			return false
		}
	}
}
