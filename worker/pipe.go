package worker

import (
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
)

// spoolRetry is how long a writer waits before it tries again a disk that did not take its output.
const spoolRetry = time.Second

// pipe brings the output of one dispatch to the outbox: at once while there is credit, else by way of the disk, in the
// order in which it was written. Only when the disk takes nothing more either, the writer waits; that of a step that was
// killed does not, and what comes then is thrown away.
//
//	sink ── credit ──────────────────────> outbox
//	   └─── none, or something waits ──> spool ── feed, as there is credit ──^
//
// The goroutine of feed is there as long as something is in the spool, also after the step has ended.
type pipe struct {
	a     *Agent
	f     *flow
	spool *spool        // nil: there is no disk
	kill  chan struct{} // closed when the step is killed
	room  chan struct{} // tells the writer to look again
	more  chan struct{} // tells feed to look again

	// Agent.mu guards these.
	feeding bool
	broken  error // what is on disk cannot be read
}

// newPipe returns the pipe of a flow that has just begun. The caller holds a.mu.
func (a *Agent) newPipe(f *flow, kill chan struct{}) *pipe {
	p := &pipe{a: a, f: f, kill: kill, room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
	if a.cfg.CacheDir != "" {
		a.spools++
		p.spool = newSpool(filepath.Join(spoolRoot(a.cfg.CacheDir), strconv.Itoa(a.spools)), a.cfg.SpoolBytes)
	}
	a.pipes[f.id] = p
	return p
}

// send takes output. It returns when all of it is in the outbox or on disk.
func (p *pipe) send(stream Stream, b []byte) error {
	for len(b) > 0 {
		n, err := p.pass(stream, b)
		if err != nil {
			return err
		}
		var retry time.Duration
		if n == 0 {
			if n, retry, err = p.store(stream, b); err != nil {
				return err
			}
		}
		if n == 0 && !p.wait(retry) {
			return errDropped
		}
		b = b[n:]
	}
	return nil
}

// pass hands over as much as there is credit for, if nothing is on disk before it. If that is nothing, p.room tells when
// there is some.
func (p *pipe) pass(stream Stream, b []byte) (int, error) {
	a, f := p.a, p.f
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case f.dropped || p.broken != nil:
		return 0, errDropped
	case f.spooled > 0:
		return 0, nil
	case f.granted == 0 && f.want == 0:
		a.out.ask(f, min(len(b), f.fits(stream)))
	}
	n := min(f.granted, len(b), f.fits(stream))
	switch {
	case n == 0 && f.hurried:
		return 0, errDropped
	case n == 0:
		return 0, nil
	}
	now := time.Now()
	if a.out.write(f, stream, b[:n], now, now) {
		a.flushing.Reset(gatherTime)
	}
	a.wake()
	return n, nil
}

// store puts output on disk. If that takes nothing, retry is when to try again; 0: not before p.room tells.
func (p *pipe) store(stream Stream, b []byte) (n int, retry time.Duration, err error) {
	if p.spool == nil {
		return 0, 0, nil
	}
	n = min(len(b), chunkBytes)
	switch err := p.spool.put(stream, time.Now(), b[:n]); {
	case errors.Is(err, errSpoolClosed):
		return 0, 0, errDropped
	case errors.Is(err, errSpoolFull):
		return 0, 0, nil
	case err != nil:
		p.a.spoolFails(err)
		return 0, spoolRetry, nil
	}
	if !p.stored(n) {
		p.spool.close()
		return 0, 0, errDropped
	}
	return n, 0, nil
}

// stored counts what was put on disk, and has it fed. It tells whether anybody still wants it.
func (p *pipe) stored(n int) bool {
	a, f := p.a, p.f
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spoolFailed {
		a.spoolFailed = false
		a.cfg.Logger.Info("output can be put on disk again")
	}
	if f.dropped || f.hurried {
		return false
	}
	a.out.spool(f, n)
	if !p.feeding {
		p.feeding = true
		a.performing.Go(p.feed) // the writer itself is counted there, so the wait has not ended
	}
	return true
}

// spoolFails says once that the disk takes no output.
func (a *Agent) spoolFails(err error) {
	a.mu.Lock()
	first := !a.spoolFailed
	a.spoolFailed = true
	a.mu.Unlock()
	if first {
		a.cfg.Logger.Warn("output cannot be put on disk: steps that print wait until the orchestrator takes it", messages.KeyErr, err)
	}
}

// wait returns when there may be room again, or false when the step was killed.
func (p *pipe) wait(retry time.Duration) bool {
	var again <-chan time.Time // never
	if retry > 0 {
		timer := time.NewTimer(retry)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-p.room:
	case <-again:
	case <-p.kill:
		return false
	}
	return true
}

// feed moves what is on disk into the outbox, until nothing is left or nobody wants it. It touches the disk only without
// the agent's lock: a disk that hangs holds up nothing but output.
func (p *pipe) feed() {
	for {
		switch n, end := p.credit(); {
		case end == feedEmpty:
			p.spool.relax()
			return
		case end == feedUnwanted:
			p.spool.close()
			return
		case n == 0:
			<-p.more
		default:
			p.move(n)
		}
	}
}

// feedEnd is why feed ends.
type feedEnd string

const (
	feedOn       feedEnd = ""
	feedEmpty    feedEnd = "empty"    // nothing is left on disk
	feedUnwanted feedEnd = "unwanted" // nobody wants what is left
)

// credit returns how much may be moved now.
func (p *pipe) credit() (n int, end feedEnd) {
	a, f := p.a, p.f
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	switch {
	case f.dropped || f.hurried:
		return 0, feedUnwanted
	case f.spooled == 0:
		p.feeding = false
		a.out.unspooled(f)
		poke(p.room)
		return 0, feedEmpty
	case f.granted == 0 && f.want == 0:
		a.out.ask(f, min(int(f.spooled), chunkBytes))
	}
	return min(f.granted, int(f.spooled)), feedOn // beyond what is counted the writer may just have put more
}

// move moves at most n bytes, for which there is credit.
func (p *pipe) move(n int) {
	stream, at, b, err := p.spool.take(n)
	a, f := p.a, p.f
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	switch {
	case f.dropped || f.hurried:
		return
	case err != nil:
		p.breaks(err)
		return
	}
	now := time.Now()
	for len(b) > 0 {
		n := min(len(b), f.fits(stream))
		if a.out.unspool(f, stream, b[:n], at, now) {
			a.flushing.Reset(gatherTime)
		}
		b = b[n:]
	}
	poke(p.room)
}

// breaks gives up what is on disk, as it cannot be read. A step whose output is not whole has failed, whatever it says
// itself. The caller holds a.mu.
func (p *pipe) breaks(err error) {
	a, f := p.a, p.f
	p.broken = err
	a.cfg.Logger.Error("output cannot be read back from disk", messages.KeyDispatch, f.id, messages.KeyErr, err)
	a.out.hurry(f)
	if r := f.final.GetResponse().GetWorkerDispatch(); r != nil {
		a.out.finish(f, resultFrame(f.frame, spoilt(r, f, err)))
	}
}

// spoilt is the result of a step whose output is not whole.
func spoilt(r *messages.DispatchResult, f *flow, err error) *messages.DispatchResult {
	return &messages.DispatchResult{
		Status: OutcomeFailed, Code: CodeInternal, Error: "the worker could not read the step's output back from its disk: " + err.Error(),
		ExitCode: r.GetExitCode(), FinalOffset: f.written(), StartedAt: r.GetStartedAt(), EndedAt: r.GetEndedAt(),
	}
}
