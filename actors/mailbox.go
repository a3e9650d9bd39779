package actors

import (
	"runtime"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// mailboxKept is how many places of its ring an empty mailbox keeps.
const mailboxKept = 64

// mailbox is an actor's. Those of the library take twice the memory, and three allocations to wake up. Messages of the
// system overtake the others, and are all that is handled while the actor waits for its restart.
type mailbox struct {
	dispatcher *dispatcher

	mu        sync.Mutex
	invoker   actor.MessageInvoker // nil: not registered yet
	system    ring
	user      ring
	running   bool
	suspended bool
}

var _ actor.Mailbox = (*mailbox)(nil)

func (m *mailbox) PostUserMessage(msg any)   { m.post(&m.user, msg) }
func (m *mailbox) PostSystemMessage(msg any) { m.post(&m.system, msg) }

func (m *mailbox) post(to *ring, msg any) {
	m.mu.Lock()
	to.push(msg)
	start := m.startsLocked()
	m.mu.Unlock()
	if start {
		m.dispatcher.start(m)
	}
}

// startsLocked tells whether somebody has to run the mailbox, which is the caller then.
func (m *mailbox) startsLocked() bool {
	if m.running || m.invoker == nil || (m.system.empty() && (m.suspended || m.user.empty())) {
		return false
	}
	m.running = true
	return true
}

// RegisterHandlers implements actor.Mailbox. The actor is known before that, so there may be messages already.
func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, _ actor.Dispatcher) {
	m.mu.Lock()
	m.invoker = invoker
	m.mu.Unlock()
}

// Start implements actor.Mailbox.
func (m *mailbox) Start() {
	m.mu.Lock()
	start := m.startsLocked()
	m.mu.Unlock()
	if start {
		m.dispatcher.start(m)
	}
}

// UserMessageCount implements actor.Mailbox.
func (m *mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.user.count
}

// process handles what there is, and ends when there is nothing more.
func (m *mailbox) process() {
	for m.run() {
	}
}

// run is process up to the next panic; it returns whether to go on.
func (m *mailbox) run() (again bool) {
	var msg any
	defer func() {
		if p := recover(); p != nil {
			m.invoker.EscalateFailure(p, msg)
			again = true
		}
	}()
	for handled := 1; ; handled++ {
		var system bool
		if msg, system = m.next(); msg == nil {
			return false
		}
		if system {
			m.handleSystem(msg)
		} else {
			m.invoker.InvokeUserMessage(msg)
		}
		if handled%dispatcherThroughput == 0 {
			runtime.Gosched()
		}
	}
}

// next takes the next message. Where there is none the mailbox does not run any more.
func (m *mailbox) next() (msg any, system bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.system.empty():
		return m.system.pop(), true
	case !m.suspended && !m.user.empty():
		return m.user.pop(), false
	default:
		m.running = false
		return nil, false
	}
}

func (m *mailbox) handleSystem(msg any) {
	switch msg.(type) {
	case *actor.SuspendMailbox:
		m.suspend(true)
	case *actor.ResumeMailbox:
		m.suspend(false)
	default:
		m.invoker.InvokeSystemMessage(msg)
	}
}

func (m *mailbox) suspend(suspended bool) {
	m.mu.Lock()
	m.suspended = suspended
	m.mu.Unlock()
}

// ring is a queue that keeps its memory.
type ring struct {
	places []any // a power of two of them
	first  int
	count  int
}

func (r *ring) empty() bool { return r.count == 0 }

func (r *ring) push(msg any) {
	if r.count == len(r.places) {
		places := make([]any, max(4, 2*len(r.places)))
		n := copy(places, r.places[r.first:])
		copy(places[n:], r.places[:r.first])
		r.places, r.first = places, 0
	}
	r.places[(r.first+r.count)&(len(r.places)-1)] = msg
	r.count++
}

// pop takes the first message out: there has to be one.
func (r *ring) pop() any {
	msg := r.places[r.first]
	r.places[r.first] = nil
	r.first = (r.first + 1) & (len(r.places) - 1)
	r.count--
	if r.count == 0 && len(r.places) > mailboxKept {
		r.places, r.first = nil, 0
	}
	return msg
}
