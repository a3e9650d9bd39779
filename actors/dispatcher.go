package actors

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Idle goroutines that the dispatcher keeps, and how many messages a mailbox may handle before it yields.
const (
	dispatcherIdle       = 128
	dispatcherThroughput = 300
)

// dispatcher runs mailboxes on goroutines that it uses again. A fresh goroutine for each wake-up would grow its stack
// anew every time, which costs a sixth of the processor under load. It never waits for a free one: an actor may block
// in a commit, and holds its goroutine alone.
type dispatcher struct {
	mu      sync.Mutex
	idle    []chan func()
	stopped bool
	wg      sync.WaitGroup
}

var _ actor.Dispatcher = (*dispatcher)(nil)

// Throughput implements actor.Dispatcher.
func (d *dispatcher) Throughput() int { return dispatcherThroughput }

// Schedule implements actor.Dispatcher.
func (d *dispatcher) Schedule(fn func()) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		next := d.idle[n-1] // the one that was used last: its stack is warm
		d.idle[n-1] = nil
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		next <- fn
		return
	}
	if d.stopped { // a letter to an actor that has ended
		d.mu.Unlock()
		fn()
		return
	}
	d.wg.Add(1)
	d.mu.Unlock()
	go d.work(fn)
}

func (d *dispatcher) work(fn func()) {
	defer d.wg.Done()
	next := make(chan func(), 1)
	for fn != nil {
		fn()
		if !d.rest(next) {
			return
		}
		fn = <-next
	}
}

// rest makes the goroutine idle, unless there are enough.
func (d *dispatcher) rest(next chan func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || len(d.idle) >= dispatcherIdle {
		return false
	}
	d.idle = append(d.idle, next)
	return true
}

// stop ends the idle goroutines, and waits for those that work.
func (d *dispatcher) stop() {
	d.mu.Lock()
	d.stopped = true
	for _, next := range d.idle {
		close(next)
	}
	d.idle = nil
	d.mu.Unlock()
	d.wg.Wait()
}
