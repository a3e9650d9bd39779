package testkit

import (
	"context"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
)

// lane is one direction of a connection. Frames arrive in their order, each as much later as the delay was when it was
// sent, and never before those that were sent before it.
type lane struct {
	mu      sync.Mutex
	delay   time.Duration
	queue   []onItsWay
	running bool // somebody delivers the queue
}

type onItsWay struct {
	frame   *messages.Frame
	due     time.Time
	deliver func(*messages.Frame) error
}

// take sets how long frames take that are sent from now on.
func (l *lane) take(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// send sends a frame on its way; without a delay that is the whole of it.
func (l *lane) send(f *Fleet, frame *messages.Frame, deliver func(*messages.Frame) error) error {
	l.mu.Lock()
	if l.delay == 0 && !l.running {
		l.mu.Unlock()
		return deliver(frame)
	}
	l.queue = append(l.queue, onItsWay{frame, time.Now().Add(l.delay), deliver})
	start := !l.running
	l.running = true
	l.mu.Unlock()
	if start {
		f.run(func() { l.run(f) })
	}
	return nil
}

// run delivers what is on its way, until nothing is.
func (l *lane) run(f *Fleet) {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		first := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		if !f.sleep(time.Until(first.due)) {
			return
		}
		_ = first.deliver(first.frame) // its connection may be gone by now
	}
}

// pass waits as long as a frame takes.
func (l *lane) pass(ctx context.Context) {
	l.mu.Lock()
	d := l.delay
	l.mu.Unlock()
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
