package testkit

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/swampd/swampd/persistence"
)

// ErrDisk is what a disk says that a test has broken.
var ErrDisk = errors.New("testkit: input/output error")

// remembered is how many batches a [Fleet.Crash] can lose.
const remembered = 64

// Disk is the disk of the orchestrator's journal, which outlives its process. What it breaks stays broken until the test
// repairs it, but for Fail and FailLate.
type Disk struct {
	f *Fleet

	mu    sync.Mutex
	fail  string // the stage at which the next batch fails; empty: it does not
	delay time.Duration
	space persistence.Space
}

// Disk is the disk of the orchestrator's journal.
func (f *Fleet) Disk() *Disk { return &f.disk }

// Fail has the next batch of commits fail, before anything of it is written. The process of the orchestrator ends with it;
// see [WithSupervisor] and [Fleet.WaitFailed].
func (d *Disk) Fail() { d.set(func() { d.fail = "before" }) }

// FailLate has the next batch of commits fail although all of it is written, so that nobody can know. The process of the
// orchestrator ends with it.
func (d *Disk) FailLate() { d.set(func() { d.fail = "after" }) }

// Slow has each batch of commits take that long from now on. 0 ends it.
func (d *Disk) Slow(by time.Duration) { d.set(func() { d.delay = by }) }

// A Fullness is how full a disk is.
type Fullness int

// What a disk still has room for.
const (
	// Roomy has room for everything.
	Roomy Fullness = iota
	// NoNewWork refuses new runs.
	NoNewWork
	// NoOutput refuses output too.
	NoOutput
	// Full refuses everything.
	Full
)

// Fill fills the disk. Roomy makes room again.
func (d *Disk) Fill(to Fullness) {
	space := persistence.Space{Free: math.MaxUint64}
	if to >= NoNewWork {
		space = persistence.Space{Free: 10, NewWork: 20}
	}
	if to >= NoOutput {
		space.Data = 20
	}
	if to >= Full {
		space.Hard = 20
	}
	d.set(func() { d.space = space })
	if store := d.f.Journal(); store != nil {
		store.SetSpace(space)
	}
}

func (d *Disk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.f.trace.say("the disk: %s fails, %s slow, %d bytes free", d.fail, d.delay, d.space.Free)
}

// stage is called by the journal before and after it has written a batch.
func (d *Disk) stage(stage string, then func(*persistence.Batch) error) func(*persistence.Batch) error {
	return func(b *persistence.Batch) error {
		d.mu.Lock()
		delay, fails := d.delay, d.fail == stage
		if fails {
			d.fail = ""
		}
		d.mu.Unlock()
		if fails {
			return ErrDisk
		}
		if delay > 0 && stage == "before" {
			time.Sleep(delay)
		}
		if then != nil {
			return then(b)
		}
		return nil
	}
}

// WithSupervisor has an orchestrator that gives up, as it does when its disk fails, start again after a while, as whoever
// supervises its process would do.
func WithSupervisor(after time.Duration) Option { return func(s *settings) { s.supervise = after } }

// supervise waits for an orchestrator to give up, and starts it again.
func (f *Fleet) supervise(system failing, alive <-chan struct{}) {
	select {
	case <-system.Failed():
	case <-alive:
		return
	}
	f.mu.Lock()
	mine := f.system == system && !f.ended
	f.mu.Unlock()
	if !mine {
		return
	}
	f.Crash()
	if f.sleep(f.settings.supervise) {
		f.Restart()
	}
}

// failing is an orchestrator that may give up.
type failing interface{ Failed() <-chan struct{} }

// WaitFailed waits until the orchestrator has given up, and returns why. [Fleet.Crash] ends what is left of it.
func (f *Fleet) WaitFailed() error {
	f.t.Helper()
	system := f.System()
	if system == nil {
		f.t.Fatal("testkit: the orchestrator is down")
	}
	ctx, cancel := f.patience()
	defer cancel()
	select {
	case <-system.Failed():
	case <-ctx.Done():
		f.t.Fatal("testkit: the orchestrator has not given up")
	}
	return system.Err()
}
