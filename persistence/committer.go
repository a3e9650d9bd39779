package persistence

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// gatherMax is how many operations one batch may join.
const gatherMax = 512

// committer joins the operations that wait into batches, one of them under way at a time: one sync for all of them. Its
// goroutine is the only writer of the engine.
type committer struct {
	engine Engine
	now    func() time.Time
	epoch  uint64
	// published is called with each operation of a batch once that batch is durable, in the order of their numbers.
	published func(*operation)

	mu      sync.Mutex
	queue   []*operation
	closing bool
	failed  error

	wake    chan struct{} // one value, coalesced
	done    chan struct{} // closed when the goroutine has ended
	failure chan struct{} // closed at the first failure

	commits, syncs, syncTime atomic.Uint64

	pool sync.Pool
	work workspace // the goroutine's own
}

func newCommitter(engine Engine, now func() time.Time, meta Meta, corrupt func([]byte, error), published func(*operation)) *committer {
	c := &committer{
		engine: engine, now: now, epoch: meta.Epoch, published: published,
		wake: make(chan struct{}, 1), done: make(chan struct{}), failure: make(chan struct{}),
		work: newWorkspace(engine.Limits(), meta.Head, corrupt),
	}
	c.pool.New = func() any { return &operation{done: make(chan struct{}, 1)} }
	return c
}

// commit has one operation made and waits for it.
func (c *committer) commit(ctx context.Context, commit *Commit) ([]uint64, error) {
	op := c.pool.Get().(*operation)
	if err := op.prepare(commit, c.epoch, c.now()); err != nil {
		c.recycle(op)
		return nil, err
	}
	return c.wait(ctx, op)
}

func (c *committer) wait(ctx context.Context, op *operation) ([]uint64, error) {
	if err := c.submit(op); err != nil {
		c.recycle(op)
		return nil, err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		select {
		case <-op.done:
		default:
			return nil, context.Cause(ctx) // the operation stays with the committer, and so does its memory
		}
	}
	seqs, err := op.seqs, op.err
	c.recycle(op)
	if err != nil {
		return nil, err
	}
	return seqs, nil
}

func (c *committer) recycle(op *operation) {
	op.reset()
	c.pool.Put(op)
}

func (c *committer) submit(op *operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usableLocked(); err != nil {
		return err
	}
	c.queue = append(c.queue, op)
	if len(c.queue) == 1 {
		signal(c.wake)
	}
	return nil
}

// usable tells why nothing can be written any more.
func (c *committer) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usableLocked()
}

func (c *committer) usableLocked() error {
	switch {
	case c.failed != nil:
		return c.failed
	case c.closing:
		return ErrClosed
	}
	return nil
}

// run is the committer's goroutine.
func (c *committer) run() {
	defer close(c.done)
	var ops []*operation
	for {
		var open bool
		if ops, open = c.gather(ops[:0]); !open {
			return
		}
		for rest := ops; len(rest) > 0; {
			if err := c.failedWith(); err != nil {
				answer(rest, err)
				break
			}
			rest = rest[c.batch(rest):]
		}
		clear(ops)
	}
}

// gather waits for operations and takes up to gatherMax. Once the committer closes it answers those that wait, and
// returns false.
func (c *committer) gather(into []*operation) (ops []*operation, open bool) {
	for {
		// Those that the last batch has answered are about to come back: they are let, as long as more of them come, and
		// share this sync. To somebody who is alone it costs nothing.
		waiting, closing := c.waiting()
		for before := 0; waiting > before && waiting < gatherMax && !closing; {
			before = waiting
			runtime.Gosched()
			waiting, closing = c.waiting()
		}
		if closing {
			c.mu.Lock()
			answer(c.queue, ErrClosed)
			c.queue = nil
			c.mu.Unlock()
			return into, false
		}
		if waiting > 0 {
			return c.dequeue(into), true
		}
		<-c.wake
	}
}

func (c *committer) waiting() (n int, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue), c.closing
}

func (c *committer) dequeue(into []*operation) []*operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), gatherMax)
	into = append(into, c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return into
}

// batch makes a prefix of ops durable and answers it; it returns its length, at least 1.
func (c *committer) batch(ops []*operation) int {
	w := &c.work
	w.begin(c.engine.Space())
	taken := 0
	err := c.engine.View(func(r Reader) error {
		w.reader = r
		defer func() { w.reader = nil }()
		for _, op := range ops {
			took, err := w.take(op, taken == 0)
			if err != nil {
				return err
			}
			if !took {
				return nil
			}
			taken++
		}
		return nil
	})
	if err != nil {
		c.fail(err)
		answer(ops, c.failedWith())
		return len(ops)
	}
	ops = ops[:taken]
	if len(w.batch.Entries) > 0 {
		start := c.now()
		w.batch.finish(w.head)
		if err := c.engine.Apply(&w.batch); err != nil {
			c.fail(err)
			answer(ops, c.failedWith())
			return taken
		}
		w.head = w.batch.Head
		c.syncs.Add(1)
		c.syncTime.Add(uint64(max(0, c.now().Sub(start))))
	}
	for _, op := range ops {
		if op.err == nil {
			c.commits.Add(1)
			c.published(op)
		}
		op.done <- struct{}{}
	}
	return taken
}

// answer gives up on operations.
func answer(ops []*operation, err error) {
	for _, op := range ops {
		op.err = err
		op.done <- struct{}{}
	}
}

// fail remembers the first failure: nothing can be believed after it.
func (c *committer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
		close(c.failure)
	}
}

func (c *committer) failedWith() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// beginClose refuses what comes from now on.
func (c *committer) beginClose() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	signal(c.wake)
}
