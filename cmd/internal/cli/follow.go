package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// followPatience is how long a follower tries to reach an orchestrator that is gone.
const followPatience = 5 * time.Minute

// follower keeps a stream of a run's events going through any disconnect. Each event is seen once: a numbered one by
// its number, output by the dispatch and the offset.
type follower struct {
	client   *client
	patience time.Duration
	// unsent is the patience as long as no request has been sent; 0 is patience too.
	unsent time.Duration
	// note takes a line about the connection, for people; event takes each event. Whoever wants them sets them.
	note  func(string)
	event func(*messages.RunEvent) error
	// request makes the request that goes on from where the follower stands.
	request func(position) (messages.Verb, proto.Message)

	mu       sync.Mutex
	at       position
	wasSent  bool
	lostAt   time.Time // zero: the connection works, as far as is known
	tries    int
	accepted chan struct{} // closed when the run is known to exist
}

// position is how far a follower has seen.
type position struct {
	// seq is the number of the last numbered event.
	seq uint32
	// offsets holds the offset of the last output of each dispatch that has not ended.
	offsets map[string]uint32
	// dispatches finds the dispatch of a step.
	dispatches map[string]string
	// keep: the request starts from the beginning each time, so that what has ended may come again.
	keep bool
}

func newFollower(c *client, patience time.Duration) *follower {
	return &follower{
		client: c, patience: patience, accepted: make(chan struct{}),
		note: func(string) {}, event: func(*messages.RunEvent) error { return nil },
		at: position{offsets: map[string]uint32{}, dispatches: map[string]string{}},
	}
}

// run follows until the answer, the end of ctx, or the end of patience.
func (f *follower) run(ctx context.Context) (proto.Message, error) {
	for {
		verb, params := f.request(f.position())
		result, err := f.client.stream(ctx, verb, params, stream{event: f.take, sent: f.sent, alive: f.alive})
		if err == nil {
			f.alive()
			f.accept()
			return result, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !transient(err) {
			return nil, err
		}
		try, ok := f.lose(err)
		if !ok {
			return nil, &unreachableError{server: f.client.shown, err: fmt.Errorf("%w (tried for %s)", reason(err), formatDuration(f.patienceNow()))}
		}
		if err := f.client.pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// reason is why a try failed, without the sentence around it.
func reason(err error) error {
	if e, ok := err.(*unreachableError); ok { //nolint:errorlint // this one level only
		return e.err
	}
	return err
}

// take passes an event on, unless it was seen.
func (f *follower) take(e *messages.RunEvent) error {
	f.alive()
	f.accept()
	if !f.advance(e) {
		return nil
	}
	return f.event(e)
}

// advance moves the position past an event, and tells whether it is new.
func (f *follower) advance(e *messages.RunEvent) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at.advance(e)
}

func (p *position) advance(e *messages.RunEvent) bool {
	dispatch := e.GetDispatchId()
	if e.GetKind() == messages.EventStepOutput {
		last, seen := p.offsets[dispatch]
		if seen && e.GetOffset() <= last {
			return false
		}
		p.offsets[dispatch] = e.GetOffset()
		p.dispatches[stepKey(e)] = dispatch
		return true
	}
	if e.GetSeq() <= p.seq {
		return false
	}
	p.seq = e.GetSeq()
	if !p.keep && messages.EndsDispatch(e.GetKind()) {
		delete(p.offsets, p.dispatches[stepKey(e)])
		delete(p.dispatches, stepKey(e))
	}
	return true
}

// cursors are the offsets as a request carries them.
func (p *position) cursors() []*messages.OutputCursor {
	list := make([]*messages.OutputCursor, 0, len(p.offsets))
	for dispatch, offset := range p.offsets {
		list = append(list, &messages.OutputCursor{DispatchId: dispatch, Offset: offset})
	}
	return list
}

func stepKey(e *messages.RunEvent) string { return e.GetJob() + "/" + e.GetStep() }

// position is a copy.
func (f *follower) position() position {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := position{seq: f.at.seq, offsets: map[string]uint32{}}
	for k, v := range f.at.offsets {
		p.offsets[k] = v
	}
	return p
}

// sent takes note that the orchestrator may have the request.
func (f *follower) sent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wasSent = true
}

// maybeAccepted tells whether the orchestrator may have the request.
func (f *follower) maybeAccepted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wasSent
}

func (f *follower) accept() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.accepted:
	default:
		close(f.accepted)
	}
}

// alive says that the connection works, if it did not before.
func (f *follower) alive() {
	f.mu.Lock()
	lostAt := f.lostAt
	f.lostAt, f.tries = time.Time{}, 0
	f.mu.Unlock()
	if !lostAt.IsZero() {
		f.note(fmt.Sprintf("connected to %s again after %s", f.client.shown, elapsed(time.Since(lostAt))))
	}
}

// patienceNow is how long a loss is borne.
func (f *follower) patienceNow() time.Duration {
	if f.unsent > 0 && !f.wasSent {
		return min(f.unsent, f.patience)
	}
	return f.patience
}

// lose takes note of a failed try, and says so at the first one. It tells whether there is patience left.
func (f *follower) lose(err error) (try int, goOn bool) {
	f.mu.Lock()
	first := f.lostAt.IsZero()
	if first {
		f.lostAt = time.Now()
	}
	goOn = time.Since(f.lostAt) < f.patienceNow()
	patience := f.patienceNow()
	try = f.tries
	f.tries++
	f.mu.Unlock()
	if first && goOn {
		f.note(fmt.Sprintf("no connection to %s: %v; trying again for %s", f.client.shown, reason(err), formatDuration(patience)))
	}
	return try, goOn
}
