package worker

import (
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// chunk is a piece of one stream.
type chunk struct {
	offset uint32
	stream Stream
	at     time.Time // of its first byte
	data   []byte
}

func (c chunk) end() uint32 { return c.offset + uint32(len(c.data)) }

// flow is what one dispatch has to say, in this order: accepted, started, its output, its result. What can be lost with
// a connection stays until it is acknowledged. The output that has been written is, from its beginning on:
//
//	|..... acknowledged .....|...... in memory: chunks, open ......|... on disk: spooled ...|
//	0                        acked            sent                 fed                      written()
type flow struct {
	id        string
	frame     string
	accepted  bool // to be sent
	started   time.Time
	startSent bool
	chunks    []chunk // complete ones; those below next were sent
	next      int
	open      chunk     // being gathered; without data there is none
	openSince time.Time // since when
	acked     uint32
	sent      uint32 // the most that any connection was given
	fed       uint32
	spooled   uint32
	final     *messages.Frame // the result, once there is one
	finalDue  bool            // to be sent
	waits     time.Time       // since when something that was sent waits for an acknowledgement; zero if nothing does
	queued    bool            // in outbox.ready
	muted     bool            // the orchestrator of this connection has not said that the dispatch goes on
	dropped   bool
	hurried   bool // its writer does not wait for credit

	want    int // bytes of credit that a writer waits for
	granted int // bytes of credit that it has and has not used
}

// written is how much output the step has produced.
func (f *flow) written() uint32 { return f.fed + f.spooled }

// used is the credit that the flow holds.
func (f *flow) used() int { return int(f.fed-f.acked) + f.granted }

// whole tells whether all output was sent, so that the result can follow.
func (f *flow) whole() bool {
	return f.next == len(f.chunks) && len(f.open.data) == 0 && f.spooled == 0
}

// sendable tells whether a frame of the flow could be sent now.
func (f *flow) sendable() bool {
	return !f.muted && (f.accepted || (!f.started.IsZero() && !f.startSent) || f.next < len(f.chunks) || f.finalDue && f.whole())
}

// fits is how many bytes of stream the chunk that is being gathered still takes; a whole chunk if there is none.
func (f *flow) fits(stream Stream) int {
	if len(f.open.data) > 0 && f.open.stream == stream {
		return chunkBytes - len(f.open.data)
	}
	return chunkBytes
}

// again makes due what the orchestrator may have missed: everything that is not acknowledged.
func (f *flow) again() {
	f.accepted, f.startSent, f.next, f.finalDue, f.waits = true, false, 0, f.final != nil, time.Time{}
}

// forgetUpTo forgets output that is durable, and cuts the chunk in which it ends.
func (f *flow) forgetUpTo(offset uint32) {
	n := 0
	for n < len(f.chunks) && f.chunks[n].end() <= offset {
		n++
	}
	f.chunks, f.next = slices.Delete(f.chunks, 0, n), max(f.next-n, 0)
	if len(f.chunks) > 0 && f.chunks[0].offset < offset {
		c := &f.chunks[0]
		c.data, c.offset = c.data[offset-c.offset:], offset
	}
}

// rename goes on under the id that the frames have from now on.
func (f *flow) rename(frame string) {
	f.frame = frame
	if f.final != nil { // a copy: the one that was sent may still be read
		f.final = &messages.Frame{Id: frame, Body: f.final.GetBody()}
	}
}
