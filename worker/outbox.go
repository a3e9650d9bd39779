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

// sink is the Output of one dispatch. It masks secrets, and waits for credit.
type sink struct {
	a              *Agent
	f              *flow
	credit         <-chan struct{}
	stdout, stderr redactor
	left           int // bytes until outputLimit
	full           bool
}

func newSink(a *Agent, d *dispatch, s secrets) *sink {
	return &sink{
		a: a, f: d.flow, credit: d.credit, left: outputLimit - len(outputMark),
		stdout: redactor{secrets: s}, stderr: redactor{secrets: s},
	}
}

// Write implements Output.
func (s *sink) Write(stream Stream, p []byte) error {
	r := &s.stdout
	if stream == Stderr {
		r = &s.stderr
	}
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
		if err := s.send(stream, p[:s.left]); err != nil {
			return err
		}
		return s.send(Stderr, []byte(outputMark))
	}
	s.left -= len(p)
	return s.send(stream, p)
}

// send hands p to the outbox, and waits as often as credit is short.
func (s *sink) send(stream Stream, p []byte) error {
	for len(p) > 0 {
		n, err := s.sendSome(stream, p)
		if err != nil {
			return err
		}
		if n == 0 {
			<-s.credit
		}
		p = p[n:]
	}
	return nil
}

// sendSome hands over as much as there is credit for; 0 means that s.credit tells when there is some.
func (s *sink) sendSome(stream Stream, p []byte) (int, error) {
	a, f := s.a, s.f
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.dropped {
		return 0, errDropped
	}
	if f.granted == 0 && f.want == 0 {
		a.out.ask(f, min(len(p), f.fits(stream)))
	}
	n := f.granted
	switch {
	case n == 0 && f.hurried:
		return 0, errDropped
	case n == 0:
		return 0, nil
	}
	if a.out.write(f, stream, p[:n], time.Now()) {
		a.flushing.Reset(gatherTime)
	}
	a.wake()
	return n, nil
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

// wake tells the connection that there is something to send, if there is, and the sinks that there is credit. The caller
// holds a.mu.
func (a *Agent) wake() {
	for _, f := range a.out.served {
		if d, ok := a.dispatches[f.id]; ok {
			poke(d.credit)
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
