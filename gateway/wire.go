package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// writePiece is how much is written under one write deadline: a peer that takes less than that in writeTimeout is dead.
const writePiece = 256 << 10

// errQueueFull ends a connection whose peer makes us answer, and does not read the answers.
var errQueueFull = errors.New("too much waits to be written")

// wire is a connection below HTTP, and below TLS. As long as HTTP is spoken it passes everything through. Once it is
// detached for a WebSocket, Write only queues, and a goroutine of its own writes all that has come together in one go. So
// the WebSocket library, which holds its locks while it writes, never holds them for long: pings and pongs do not wait
// behind a blocked write, and many small frames cost one system call.
//
// It also knows when the last byte came, of whatever kind: that is the sign of life of a peer.
type wire struct {
	net.Conn
	clock   func() time.Duration
	buffers *sync.Pool // of *[]byte

	heard     atomic.Int64 // when the last byte came, on clock
	limit     atomic.Int64 // bytes that may be queued, apart from queueSlack
	detached  atomic.Bool
	listening atomic.Bool // next is set

	mu       sync.Mutex
	work     sync.Cond
	queue    *[]byte       // nil: empty
	writing  int           // bytes that the goroutine is writing
	closing  bool          // write what is queued, then close
	err      error         // why nothing can be written any more
	progress chan struct{} // closed when something has been written, or never will be
	next     chan struct{} // closed when a byte comes
	done     chan struct{} // closed at the end of write
}

func newWire(c net.Conn, clock func() time.Duration, buffers *sync.Pool) *wire {
	w := &wire{Conn: c, clock: clock, buffers: buffers, done: make(chan struct{})}
	w.work.L = &w.mu
	return w
}

// detach makes Write queue. The caller runs write in a goroutine.
func (w *wire) detach() {
	w.hear()
	w.detached.Store(true)
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.hear()
		if w.listening.Load() {
			w.mu.Lock()
			if w.next != nil {
				close(w.next)
				w.next = nil
			}
			w.listening.Store(false)
			w.mu.Unlock()
		}
	}
	return n, err
}

// hear takes note of a sign of life.
func (w *wire) hear() { w.heard.Store(int64(w.clock())) }

// excuse makes the last sign of life no older than at.
func (w *wire) excuse(at time.Duration) {
	for {
		old := w.heard.Load()
		if old >= int64(at) || w.heard.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// silence is for how long nothing came.
func (w *wire) silence(now time.Duration) time.Duration { return now - time.Duration(w.heard.Load()) }

// nextByte returns a channel that is closed when a byte comes.
func (w *wire) nextByte() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = make(chan struct{})
		w.listening.Store(true)
	}
	return w.next
}

// Write implements net.Conn. Once detached it does not block.
func (w *wire) Write(p []byte) (int, error) {
	if !w.detached.Load() {
		return w.Conn.Write(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.closing {
		return 0, net.ErrClosed
	}
	if w.err == nil && int64(w.queuedLocked()+len(p)) > w.limit.Load()+queueSlack {
		w.fail(errQueueFull)
	}
	if w.err != nil {
		return 0, w.err
	}
	if w.queue == nil {
		w.queue = w.buffer()
	}
	*w.queue = append(*w.queue, p...)
	w.work.Signal()
	return len(p), nil
}

func (w *wire) buffer() *[]byte {
	if b, ok := w.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 8<<10)
	return &b
}

// queued is how many bytes wait to be written.
func (w *wire) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queuedLocked()
}

func (w *wire) queuedLocked() int {
	if w.queue == nil {
		return w.writing
	}
	return w.writing + len(*w.queue)
}

// await blocks until no more than so many bytes wait to be written. It returns why nothing is written any more, or the
// cause of ctx.
func (w *wire) await(ctx context.Context, bytes int) error {
	for {
		w.mu.Lock()
		if w.err != nil || w.queuedLocked() <= bytes {
			err := w.err
			w.mu.Unlock()
			return err
		}
		if w.progress == nil {
			w.progress = make(chan struct{})
		}
		progress := w.progress
		w.mu.Unlock()
		select {
		case <-progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// advanced lets those in await look again: mu is held.
func (w *wire) advanced() {
	if w.progress != nil {
		close(w.progress)
		w.progress = nil
	}
}

// write writes what is queued until the wire is closed or broken, then closes the connection.
func (w *wire) write() {
	defer close(w.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.queue == nil && !w.closing && w.err == nil {
			w.work.Wait()
		}
		if w.queue == nil || w.err != nil {
			w.fail(net.ErrClosed)
			return
		}
		out := w.queue
		w.queue, w.writing = nil, len(*out)
		w.mu.Unlock()
		err := w.writePieces(*out)
		if cap(*out) <= keepQueue {
			*out = (*out)[:0]
			w.buffers.Put(out)
		}
		w.mu.Lock()
		if err != nil {
			w.fail(err)
		}
	}
}

func (w *wire) writePieces(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), writePiece)
		w.mu.Lock()
		if !w.closing { // else Close has set a nearer one
			_ = w.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only on a closed connection, as the write will
		}
		w.mu.Unlock()
		_, err := w.Conn.Write(p[:n])
		w.mu.Lock()
		w.writing -= n
		w.advanced()
		w.mu.Unlock()
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// fail ends the wire at once: mu is held.
func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
		w.queue = nil
		_ = w.Conn.Close() // its error would say only that the peer is gone
	}
	w.advanced()
	w.work.Signal()
}

// kill drops what is queued and closes the connection.
func (w *wire) kill(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
}

// Close implements net.Conn. Once detached, what is queued is still written, for lingerTimeout, and reading ends now.
func (w *wire) Close() error {
	if !w.detached.Load() {
		return w.Conn.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.err != nil {
		return net.ErrClosed
	}
	w.closing = true
	now := time.Now()
	_ = w.Conn.SetWriteDeadline(now.Add(lingerTimeout)) // both fail only on a closed connection
	_ = w.Conn.SetReadDeadline(now)
	w.work.Signal()
	return nil
}

// SetDeadline implements net.Conn.
func (w *wire) SetDeadline(t time.Time) error {
	if w.detached.Load() {
		return w.Conn.SetReadDeadline(t)
	}
	return w.Conn.SetDeadline(t)
}

// SetWriteDeadline implements net.Conn. Once detached the wire sets its own: those of TLS, which sets one before it
// closes, would cut what is queued.
func (w *wire) SetWriteDeadline(t time.Time) error {
	if w.detached.Load() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}

// wireListener makes every accepted connection a wire.
type wireListener struct {
	net.Listener
	clock   func() time.Duration
	buffers *sync.Pool
}

// Accept implements net.Listener.
func (l *wireListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newWire(c, l.clock, l.buffers), nil
}

// wireOf finds the wire under a connection of the HTTP server.
func wireOf(c net.Conn) *wire {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = wrapped.NetConn()
	}
	w, _ := c.(*wire)
	return w
}
