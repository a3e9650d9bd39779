package worker

import (
	"sync"
	"time"
)

// fenceBoard shows the current fence of one step.
type fenceBoard struct {
	mu    sync.Mutex
	fence Fence
	moved chan struct{} // closed when fence is replaced
}

func newFenceBoard() *fenceBoard { return &fenceBoard{moved: make(chan struct{})} }

func (b *fenceBoard) set(f Fence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fence = f
	close(b.moved)
	b.moved = make(chan struct{})
}

// get returns the fence and a channel that is closed when it is replaced.
func (b *fenceBoard) get() (Fence, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fence, b.moved
}

// timeLeft is how long the step lives that dies first if the orchestrator stays out of reach. ok is false where none
// would.
func (a *Agent) timeLeft() (left time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	for _, d := range a.dispatches {
		f, _ := d.fence.get()
		if f.KillAt <= 0 || d.silent != "" || d.killed || d.fenced {
			continue
		}
		if l := f.TermAt - now; !ok || l < left {
			left, ok = l, true
		}
	}
	return left, ok
}

// promised moves the fence of every step that goes on with this session: the orchestrator owned the books at sent, a
// reading of the fence's clock. The caller holds a.mu.
func (a *Agent) promised(s *session, sent time.Duration) {
	s.fence = s.terms.fence(sent)
	for _, d := range a.dispatches {
		d.follow(s)
	}
	a.watchFences(s.fence)
}

// follow makes the fence of a step that of its session, unless the orchestrator has not said whether the step goes on:
// then it still lives by the last promise of the one before. A step that was asked to end at its fence ends, whatever is
// promised afterwards. Within a session a fence moves only forward; the next one may have other terms, and those hold. The
// caller holds Agent.mu.
func (d *dispatch) follow(s *session) {
	if !d.flow.muted && !d.fenced {
		d.fence.set(s.fence)
	}
}

// watchFences has the fences looked at when f asks for something, if that is not done sooner anyhow. The caller holds a.mu.
func (a *Agent) watchFences(f Fence) {
	if f.KillAt <= 0 {
		return
	}
	now := a.clock()
	wait := f.next(now)
	if a.fencingAt == 0 || now+wait < a.fencingAt {
		a.fencingAt = now + wait
		a.fencing.Reset(wait)
	}
}

// fenceOff ends the steps whose fence has come. It runs on the timer a.fencing. Those under keepers are ended by these,
// even if this process is stopped; the others have only this.
func (a *Agent) fenceOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fencingAt = 0
	now := a.clock()
	for _, d := range a.dispatches {
		f, _ := d.fence.get()
		switch f.at(now) {
		case fenceKill:
			a.cutOff(d, true)
		case fenceTerm:
			a.cutOff(d, false)
			a.watchFences(f)
		case fenceOpen:
			a.watchFences(f)
		}
	}
}

// cutOff ends a step at its fence. One that ends for another reason already keeps that. The caller holds a.mu.
func (a *Agent) cutOff(d *dispatch, force bool) {
	if !d.cancelled && d.drained == "" && !d.killed {
		d.fenced = true
	}
	d.stop(force)
}
