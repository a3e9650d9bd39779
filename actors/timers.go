package actors

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// timers are one actor's named timers. Each firing is a message that carries the number of its setting, so that a late
// one is recognised and dropped.
type timers struct {
	sys  *System
	self *actor.PID
	set  map[string]*timer
	next uint64
}

type timer struct {
	number uint64
	cmd    any
	timer  *time.Timer
	at     time.Time
}

type timerElapsed struct {
	name   string
	number uint64
}

func (t *timers) init(sys *System, self *actor.PID) { t.sys, t.self = sys, self }

func (t *timers) arm(e arm) {
	t.disarm(e.name)
	if t.set == nil {
		t.set = make(map[string]*timer)
	}
	t.next++
	elapsed := timerElapsed{e.name, t.next}
	t.set[e.name] = &timer{number: t.next, cmd: e.cmd, at: time.Now().Add(e.after), timer: time.AfterFunc(e.after, func() { t.sys.tellPID(t.self, elapsed) })}
}

func (t *timers) disarm(name string) {
	if old := t.set[name]; old != nil {
		old.timer.Stop()
		delete(t.set, name)
	}
}

// due returns the command of a timer that has fired, unless it was set anew or stopped meanwhile.
func (t *timers) due(e timerElapsed) (any, bool) {
	set := t.set[e.name]
	if set == nil || set.number != e.number {
		return nil, false
	}
	delete(t.set, e.name)
	return set.cmd, true
}

// view is what they wait for, the earliest first.
func (t *timers) view() []timerView {
	var list []timerView
	for name, set := range t.set {
		list = append(list, timerView{name, commandName(set.cmd), set.at})
	}
	slices.SortFunc(list, func(a, b timerView) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name)) })
	return list
}

func (t *timers) stop() {
	for name := range t.set {
		t.disarm(name)
	}
}

// Times between the repetitions of an obligation.
const (
	owedFirst = 100 * time.Millisecond
	owedMax   = 5 * time.Second
)

// ledger is what one actor still owes others. It is settled against the state after each transition: what is new is
// told at once, what is no longer owed is dropped, and the rest is told again, on one timer.
type ledger struct {
	sys     *System
	self    *actor.PID
	entries []entry
	timer   *time.Timer
	at      time.Time
	ended   bool
	// show is called with what is told for the first time; nil: nobody watches.
	show func(obligation)
}

type entry struct {
	obligation
	due  time.Time
	wait time.Duration
}

type owedElapsed struct{}

func (l *ledger) init(sys *System, self *actor.PID) { l.sys, l.self = sys, self }

func (l *ledger) settle(sys *System, owed []obligation, now time.Time) {
	if len(owed) == 0 {
		if len(l.entries) > 0 {
			l.entries = l.entries[:0]
		}
		return
	}
	old := l.entries
	l.entries = make([]entry, 0, len(owed))
	for _, o := range owed {
		if e := find(old, o.id); e != nil {
			l.entries = append(l.entries, *e)
			continue
		}
		wait := o.every
		if wait == 0 {
			wait = owedFirst
		}
		l.entries = append(l.entries, entry{o, now.Add(wait), wait})
		if !o.told {
			sys.tell(o.to, o.msg)
			if l.show != nil {
				l.show(o)
			}
		}
	}
	l.rearm(now)
}

func find(entries []entry, id string) *entry {
	for i := range entries {
		if entries[i].id == id {
			return &entries[i]
		}
	}
	return nil
}

// repeat tells again what is due.
func (l *ledger) repeat(sys *System, now time.Time) {
	l.at = time.Time{}
	for i := range l.entries {
		e := &l.entries[i]
		if e.due.After(now) {
			continue
		}
		e.wait = min(2*e.wait, max(owedMax, e.every))
		e.due = now.Add(e.wait)
		sys.tell(e.to, e.msg)
	}
	l.rearm(now)
}

func (l *ledger) rearm(now time.Time) {
	if len(l.entries) == 0 || l.ended {
		return
	}
	next := l.entries[0].due
	for _, e := range l.entries[1:] {
		if e.due.Before(next) {
			next = e.due
		}
	}
	if !l.at.IsZero() && !next.Before(l.at) {
		return
	}
	l.at = next
	if l.timer != nil {
		l.timer.Reset(next.Sub(now))
		return
	}
	l.timer = time.AfterFunc(next.Sub(now), func() { l.sys.tellPID(l.self, owedElapsed{}) })
}

// view is what is owed, in its order.
func (l *ledger) view() []debtView {
	list := make([]debtView, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		list[i] = debtView{e.to, commandName(e.msg), e.due}
	}
	return list
}

// forget makes all that is owed new, so that it is told at once.
func (l *ledger) forget() { l.entries = nil }

func (l *ledger) stop() {
	l.ended = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
