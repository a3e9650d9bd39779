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

// task is a piece of work, such as a mailbox with messages in it.
type task interface{ process() }

// taskFunc is a function as a task.
type taskFunc func()

func (f taskFunc) process() { f() }

// dispatcher runs tasks on goroutines that it uses again. A fresh goroutine for each wake-up would grow its stack
// anew every time, which costs a sixth of the processor under load. It never waits for a free one: an actor may block
// in a commit, and holds its goroutine alone.
type dispatcher struct {
	mu      sync.Mutex
	idle    []chan task
	stopped bool
	wg      sync.WaitGroup
}

var _ actor.Dispatcher = (*dispatcher)(nil)

// Throughput implements actor.Dispatcher.
func (d *dispatcher) Throughput() int { return dispatcherThroughput }

// Schedule implements actor.Dispatcher.
func (d *dispatcher) Schedule(fn func()) { d.start(taskFunc(fn)) }

// start has a task done.
func (d *dispatcher) start(t task) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		next := d.idle[n-1] // the one that was used last: its stack is warm
		d.idle[n-1] = nil
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		next <- t
		return
	}
	if d.stopped { // a letter to an actor that has ended
		d.mu.Unlock()
		t.process()
		return
	}
	d.wg.Add(1)
	d.mu.Unlock()
	go d.work(t)
}

func (d *dispatcher) work(t task) {
	defer d.wg.Done()
	next := make(chan task, 1)
	for t != nil {
		t.process()
		if !d.rest(next) {
			return
		}
		t = <-next
	}
}

// rest makes the goroutine idle, unless there are enough.
func (d *dispatcher) rest(next chan task) bool {
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
