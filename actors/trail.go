package actors

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

// trailKept is how many of its last messages an actor remembers. It takes memory for as many as have come.
const trailKept = 32

// trail is what an actor took last, and what it has in hand. Others may look at it at any time, also while the actor is stuck.
type trail struct {
	mu    sync.Mutex
	taken []taken // a ring, once it is full
	next  int     // the oldest of a full one
	count uint64  // of those that somebody has sent: its own timers do not count
	busy  bool    // with the last one
}

// taken is one message that was taken out of the mailbox.
type taken struct {
	kind  reflect.Type
	nanos int64 // since 1970: half the size of a time
}

func (m taken) at() time.Time { return time.Unix(0, m.nanos) }

func (m taken) name() string { return strings.TrimPrefix(m.kind.String(), "actors.") }

func (t *trail) take(msg any, counts bool) {
	m := taken{reflect.TypeOf(msg), time.Now().UnixNano()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if counts {
		t.count++
	}
	t.busy = true
	if len(t.taken) < trailKept {
		if len(t.taken) == cap(t.taken) { // grown by hand: most actors live for a few messages
			grown := make([]taken, len(t.taken), min(max(4, 3*cap(t.taken)), trailKept))
			copy(grown, t.taken)
			t.taken = grown
		}
		t.taken = append(t.taken, m)
		return
	}
	t.taken[t.next] = m
	t.next = (t.next + 1) % trailKept
}

// done says that the last message has been handled.
func (t *trail) done() {
	t.mu.Lock()
	t.busy = false
	t.mu.Unlock()
}

// again says that the last message is in hand once more, with others that share its commit.
func (t *trail) again() {
	t.mu.Lock()
	t.busy = len(t.taken) > 0
	t.mu.Unlock()
}

// last is the last message, whether the actor still has it in hand, and how many were sent. Its kind is nil where there is
// none.
func (t *trail) last() (m taken, busy bool, count uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.taken) == 0 {
		return taken{}, false, 0
	}
	i := len(t.taken) - 1
	if len(t.taken) == trailKept {
		i = (t.next + trailKept - 1) % trailKept
	}
	return t.taken[i], t.busy, t.count
}

// all are the messages that are remembered, the oldest first.
func (t *trail) all() []taken {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append(make([]taken, 0, len(t.taken)), t.taken[t.next:]...), t.taken[:t.next]...)
}
