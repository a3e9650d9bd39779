package worker

import (
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
)

// batchBytes is about how much is sent at once. What is queued behind it can be overtaken by a control frame.
const batchBytes = 64 << 10

// write sends what the outbox has, until the connection ends.
func (s *session) write() {
	var batch []*messages.Frame
	for {
		batch = s.take(batch[:0])
		if len(batch) == 0 {
			select {
			case <-s.a.toSend:
				continue
			case <-s.halt:
				return
			case <-s.ctx.Done():
				return
			}
		}
		s.busy.Store(max(int64(time.Since(s.start)), 1))
		err := s.writeBatch(batch)
		s.busy.Store(0)
		clear(batch)
		if err != nil {
			s.end(ending{err: s.cause(fmt.Errorf("send: %w", err))})
			return
		}
	}
}

func (s *session) writeBatch(batch []*messages.Frame) error {
	if l, ok := s.link.(batchLink); ok && len(batch) > 1 {
		return l.WriteBatch(s.ctx, batch)
	}
	for _, f := range batch {
		if err := s.link.Write(s.ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// take returns the next frames to send, appended to batch. What it returned before has been written.
func (s *session) take(batch []*messages.Frame) []*messages.Frame {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	batch, waits := a.out.take(batch, batchBytes, time.Now())
	if s.writing = len(batch) > 0; !s.writing {
		a.pokeServe() // a worker that leaves waits for that
	}
	a.repeatLater(waits)
	return batch
}
