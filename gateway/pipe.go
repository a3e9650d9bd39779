package gateway

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// pipeFrames is how many frames may be on their way from the worker's end to the session.
const pipeFrames = 64

var _ actors.Conn = (*pipeConn)(nil)

// PipeEnd is the worker's end of a connection within the process. Frames are handed over as they are: whoever sends one
// gives it away, and neither reads nor changes it afterwards. Its methods are safe for concurrent use; Read is meant for
// one goroutine.
type PipeEnd struct {
	up   chan *messages.Frame // to the session
	gone chan struct{}        // closed with the pipe
	idle chan struct{}        // closed when the session has been told the end

	mu     sync.Mutex
	down   []sized         // from the session
	size   int             // bytes in down
	reason *messages.Fault // why the pipe ended, nil before
	news   chan struct{}   // holds one token while there is something to look at
	room   chan struct{}   // closed when a frame has been read; nil while nobody waits for that
}

// sized is a frame with its size on the wire.
type sized struct {
	frame *messages.Frame
	bytes int
}

// pipeConn is the session's end.
type pipeConn struct{ end *PipeEnd }

// Pipe connects to o without a network, as the orchestrator's own worker does. The limits are those of a socket: frames up
// to [messages.MaxFrame], and a bounded queue in both directions. The goroutine behind it ends with Close of either side.
func Pipe(o actors.Orchestrator, info actors.ConnInfo) (*PipeEnd, error) {
	p := &PipeEnd{
		up:   make(chan *messages.Frame, pipeFrames),
		gone: make(chan struct{}),
		idle: make(chan struct{}),
		news: make(chan struct{}, 1),
	}
	session, err := o.Connect(pipeConn{p}, info)
	if err != nil {
		return nil, err
	}
	go p.pump(session)
	return p, nil
}

// pump hands frames to the session. What was written before the pipe closed still arrives.
func (p *PipeEnd) pump(session actors.Session) {
	defer close(p.idle)
	for open := true; open; {
		select {
		case f := <-p.up:
			session.Receive(f)
		case <-p.gone:
			open = false
		}
	}
	for {
		select {
		case f := <-p.up:
			session.Receive(f)
		default:
			session.Closed(p.fault())
			return
		}
	}
}

// Read returns the next frame that the session sent. Once everything sent before the end has been read, it returns why
// the pipe ended, a *messages.Fault.
func (p *PipeEnd) Read(ctx context.Context) (*messages.Frame, error) {
	for {
		if f, err := p.next(); f != nil || err != nil {
			return f, err
		}
		select {
		case <-p.news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *PipeEnd) next() (*messages.Frame, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.down) > 0 {
		first := p.down[0]
		p.down[0] = sized{}
		p.down = p.down[1:]
		p.size -= first.bytes
		p.wakeSenders()
		return first.frame, nil
	}
	if p.reason != nil {
		p.tell() // for the next Read
		return nil, p.reason
	}
	return nil, nil //nolint:nilnil // nothing yet
}

// tell lets Read look again.
func (p *PipeEnd) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Write hands a frame to the session. It waits while many frames are on their way.
func (p *PipeEnd) Write(ctx context.Context, f *messages.Frame) error {
	if _, err := sizeOf(f); err != nil {
		return err
	}
	if fault := p.fault(); fault != nil {
		return fault
	}
	select {
	case p.up <- f:
		return nil
	case <-p.gone:
		return p.fault()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the pipe and waits until the session has been told. Closing twice is harmless.
func (p *PipeEnd) Close(code messages.Code, text string) error {
	p.end(messages.Faultf(code, "%s", text))
	<-p.idle
	return nil
}

func (p *PipeEnd) end(why *messages.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(why)
}

func (p *PipeEnd) endLocked(why *messages.Fault) {
	if p.reason != nil {
		return
	}
	p.reason = why
	close(p.gone)
	p.tell()
	p.wakeSenders()
}

// wakeSenders lets those that wait for room look again.
func (p *PipeEnd) wakeSenders() {
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
}

func (p *PipeEnd) fault() *messages.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// Send implements actors.Conn.
func (c pipeConn) Send(f *messages.Frame) error {
	sent, err := toSend(f)
	if err != nil {
		return err
	}
	p := c.end
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil && len(p.down) > 0 && p.size+sent.bytes > queueWorker {
		p.endLocked(messages.Faultf(messages.CodeStreamOverflow, "%d bytes wait to be read", p.size))
	}
	return p.put(sent)
}

// SendWait implements actors.Conn.
func (c pipeConn) SendWait(ctx context.Context, f *messages.Frame) error {
	sent, err := toSend(f)
	if err != nil {
		return err
	}
	p := c.end
	for {
		p.mu.Lock()
		if p.reason != nil || p.size <= queueWorker/4 {
			err := p.put(sent)
			p.mu.Unlock()
			return err
		}
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put queues a frame for Read: mu is held.
func (p *PipeEnd) put(f sized) error {
	if p.reason != nil {
		return p.reason
	}
	p.down = append(p.down, f)
	p.size += f.bytes
	p.tell()
	return nil
}

// toSend measures a frame. A response that is too large becomes an error on the same id.
func toSend(f *messages.Frame) (sized, error) {
	size, err := sizeOf(f)
	if err != nil && f.GetResponse() != nil {
		f = errorFrame(f.GetId(), err)
		size, err = sizeOf(f)
	}
	return sized{f, size}, err
}

// Close implements actors.Conn.
func (c pipeConn) Close(code messages.Code, text string) {
	c.end.end(messages.Faultf(code, "%s", text))
}

// Ping implements actors.Conn. The other end is this very process.
func (c pipeConn) Ping(ctx context.Context) error {
	if fault := c.end.fault(); fault != nil {
		return fault
	}
	return ctx.Err()
}

// sizeOf keeps frames within the process to what a socket would carry.
func sizeOf(f *messages.Frame) (int, error) {
	size := proto.Size(f)
	if size > messages.MaxFrame {
		return 0, messages.Faultf(messages.CodeFrameTooLarge, "frame of %d bytes is above the limit of %d", size, messages.MaxFrame)
	}
	return size, nil
}
