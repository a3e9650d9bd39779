package persistence

import (
	"context"
	"sync"
	"sync/atomic"
)

// followBuffer is how many events wait in a follower before it has to read them from the journal instead.
const followBuffer = 256

// Follower reads the events of one stream, those to come included. Its methods may be called from different goroutines,
// but only one may be in Next or Take at a time.
type Follower struct {
	hub    *followers
	stream string
	wake   chan struct{} // one value, coalesced
	done   chan struct{} // closed by Close

	mu     sync.Mutex
	after  uint64  // the last event that Next returned
	buf    []Event // handed over by the committer, without a gap among them; may begin above after+1
	unread bool    // the journal may hold events from before the follower
	dirty  bool    // the journal holds events that buf had no room for; until it has been read, buf takes no more
	closed bool    // by Close
	ended  error   // nothing comes any more: the journal has closed, or the stream is gone
}

// Next returns the events that follow the one it returned last: at least one, in order, with no gap and no repetition.
// It blocks until there is one. The error is the context's, or [ErrClosed] when the journal or the follower has closed,
// or [ErrNotFound] when the stream was dropped, or that of a failed read. The bodies belong to the journal: they must not be changed.
func (f *Follower) Next(ctx context.Context) ([]Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		events, err := f.Take()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-f.wake:
		case <-f.done:
		case <-ctx.Done():
		}
	}
}

// Wake returns a channel that gets a value, coalesced, when Take may have something new.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Take is Next for those who wait by themselves: it returns nothing where there is nothing yet.
func (f *Follower) Take() ([]Event, error) {
	for {
		events, read, err := f.take()
		if err != nil || len(events) > 0 || !read {
			return events, err
		}
		if events, err = f.hub.read(f.stream, f.position(), followBuffer); err != nil {
			return nil, err
		}
		if len(events) > 0 {
			f.mu.Lock()
			f.after = events[len(events)-1].Seq
			if len(events) == followBuffer {
				f.dirty = true // the read stopped at its limit
			}
			f.mu.Unlock()
			return events, nil
		}
	}
}

// take returns what the buffer holds if it continues where the follower stands, and else whether to read the journal.
// Before that read it empties the buffer and clears dirty: what is published from then on comes through the buffer, and
// what was published before is there to be read, so that nothing falls between the two.
func (f *Follower) take() (events []Event, read bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, false, ErrClosed
	}
	if f.ended != nil {
		return nil, false, f.ended
	}
	for len(f.buf) > 0 && f.buf[0].Seq <= f.after {
		f.buf = f.buf[1:]
	}
	if len(f.buf) > 0 && f.buf[0].Seq == f.after+1 {
		events, f.buf, f.unread = f.buf, nil, false
		f.after = events[len(events)-1].Seq
		return events, false, nil
	}
	read = f.dirty || f.unread || len(f.buf) > 0
	f.buf, f.dirty, f.unread = nil, false, false
	return nil, read, nil
}

func (f *Follower) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.after
}

// publish takes events over from the committer, which it never blocks.
func (f *Follower) publish(events []Event) {
	f.mu.Lock()
	if len(f.buf)+len(events) <= followBuffer && !f.dirty {
		f.buf = append(f.buf, events...)
	} else {
		f.dirty = true
	}
	f.mu.Unlock()
	signal(f.wake)
}

func (f *Follower) end(why error) {
	f.mu.Lock()
	f.ended = why
	f.mu.Unlock()
	signal(f.wake)
}

// Close ends the follower; a Next under way returns [ErrClosed]. It may be called more than once.
func (f *Follower) Close() {
	f.mu.Lock()
	was := f.closed
	f.closed = true
	f.mu.Unlock()
	if was {
		return
	}
	close(f.done)
	f.hub.remove(f)
}

// followers are the followers of one journal, by stream.
type followers struct {
	read func(stream string, after uint64, limit int) ([]Event, error)

	count atomic.Int64 // of followers

	mu       sync.Mutex
	byStream map[string]map[*Follower]struct{}
	closed   bool
}

func newFollowers(read func(string, uint64, int) ([]Event, error)) *followers {
	return &followers{read: read, byStream: map[string]map[*Follower]struct{}{}}
}

func (h *followers) add(stream string, after uint64) *Follower {
	f := &Follower{
		hub: h, stream: stream, after: after, unread: true,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		f.ended = ErrClosed
		return f
	}
	set := h.byStream[stream]
	if set == nil {
		set = map[*Follower]struct{}{}
		h.byStream[stream] = set
	}
	set[f] = struct{}{}
	h.count.Add(1)
	return f
}

func (h *followers) remove(f *Follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.byStream[f.stream]
	if _, in := set[f]; !in {
		return
	}
	delete(set, f)
	h.count.Add(-1)
	if len(set) == 0 {
		delete(h.byStream, f.stream)
	}
}

// any tells whether there is somebody to publish to.
func (h *followers) any() bool { return h.count.Load() > 0 }

// publish hands a durable pack of events to the stream's followers. The committer calls it in the order of the numbers.
func (h *followers) publish(p *preparedPack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.byStream[p.stream]
	if len(set) == 0 {
		return
	}
	events := make([]Event, 0, p.count)
	// What has just been encoded decodes.
	_ = decodePack(p.value, number(p.key), func(e Event) {
		if n := len(events); n < len(p.values) && p.values[n] != nil {
			e.Value = p.values[n]
			e.Value.Number(e.Seq)
		}
		events = append(events, e)
	})
	for f := range set {
		f.publish(events)
	}
}

// drop ends the followers of a stream that is gone.
func (h *followers) drop(stream string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.byStream[stream] {
		f.end(ErrNotFound)
	}
}

func (h *followers) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, set := range h.byStream {
		for f := range set {
			f.end(ErrClosed)
		}
	}
	clear(h.byStream)
	h.count.Store(0)
}
