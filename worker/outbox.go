package worker

import (
	"errors"
	"time"
)

const (
	// outputLimit is how much output of one dispatch is kept. What comes after is thrown away, behind a mark that says
	// so: a step is never failed or held for talking too much.
	outputLimit = 256 << 20
	outputMark  = "\n[output beyond 256 MiB is not kept]\n"
)

// errDropped is what a writer gets whose output nobody will take any more.
var errDropped = errors.New("nobody takes the output of this dispatch any more")

// sink is the Output of one dispatch. It masks secrets, and bounds how much is kept.
type sink struct {
	pipe           *pipe
	d              *dispatch
	stdout, stderr redactor
	left           int // bytes until outputLimit
	full           bool
}

func newSink(d *dispatch, p *pipe) *sink {
	return &sink{pipe: p, d: d, left: outputLimit - len(outputMark)}
}

// Write implements Output.
func (s *sink) Write(stream Stream, p []byte) error {
	r := &s.stdout
	if stream == Stderr {
		r = &s.stderr
	}
	r.secrets = s.d.secrets()
	return s.put(stream, r.filter(p))
}

// finish writes what was held back.
func (s *sink) finish() error {
	return errors.Join(s.put(Stdout, s.stdout.finish()), s.put(Stderr, s.stderr.finish()))
}

func (s *sink) put(stream Stream, p []byte) error {
	if s.full {
		return nil
	}
	if len(p) > s.left {
		s.full = true
		if err := s.pipe.send(stream, p[:s.left]); err != nil {
			return err
		}
		return s.pipe.send(Stderr, []byte(outputMark))
	}
	s.left -= len(p)
	return s.pipe.send(stream, p)
}

// flush sends what has been gathered for long enough. It runs on the timer a.flushing.
func (a *Agent) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if next := a.out.flush(now); !next.IsZero() {
		a.flushing.Reset(next.Sub(now))
	}
	a.wake()
}

// repeatLater has repeat called if something waits for an acknowledgement, and nothing has before. The caller holds a.mu.
func (a *Agent) repeatLater(waits bool) {
	if waits && !a.repeatSet {
		a.repeatSet = true
		a.repeating.Reset(repeatTime)
	}
}

// repeat sends again what nobody has acknowledged. It runs on the timer a.repeating.
func (a *Agent) repeat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.repeatSet = false
	if next := a.out.repeats(now); !next.IsZero() {
		a.repeatSet = true
		a.repeating.Reset(next.Sub(now))
	}
	a.wake()
}

// wake tells the connection that there is something to send, if there is, and the pipes that there is credit. The caller
// holds a.mu.
func (a *Agent) wake() {
	for _, f := range a.out.served {
		p, ok := a.pipes[f.id]
		if !ok || p.f != f {
			continue
		}
		poke(p.room)
		poke(p.more)
		if f.dropped { // nobody asks for it any more
			delete(a.pipes, f.id)
		}
	}
	clear(a.out.served)
	a.out.served = a.out.served[:0]
	if a.out.control.len() > 0 || a.out.ready.len() > 0 {
		poke(a.toSend)
	}
}

// poke tells whoever reads c to look again. One such message is as good as many.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
