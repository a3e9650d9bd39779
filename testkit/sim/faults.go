package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/persistence"
)

// injected is in the text of each panic that the simulation makes.
const injected = "injected by the simulation"

// Delays of an actor at a point. Each handling of a command begins at an instant of its own, in an order that the seed
// decides, and so do its effects: what has waited for one batch would go on together otherwise. Now and then there is a
// pause before the commit as well.
const (
	delayMost = 2 * time.Millisecond
	delayOne  = 8 // in so many is delayed between its decision and its commit
	// slowMost is how long a commit may take while commits take their time.
	slowMost = 300 * time.Millisecond
)

// faults is what is to happen at some point.
type faults struct {
	boots     uint64
	seen      map[uint64]uint64 // how often each point was reached in this boot
	armed     []*armed
	disk      string // the stage at which the next batch fails; empty: it does not
	bootIn    int    // batches to go in a boot; 0: it does not die
	slowTill  time.Time
	stillTill time.Time // the process stands still
	fullTill  time.Time
	level     int
}

type armed struct {
	op   Op
	left int // points to go
}

// arm has a fault happen later.
func (w *world) arm(o Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o.Kind {
	case OpSlow:
		w.faults.slowTill = time.Now().Add(o.For)
	case OpNoSpace:
		w.faults.fullTill, w.faults.level = time.Now().Add(o.For), o.Level
		w.fill()
		w.wg.Go(func() {
			if w.sleep(o.For) {
				w.mu.Lock()
				w.fill()
				w.mu.Unlock()
			}
		})
	default:
		w.faults.armed = append(w.faults.armed, &armed{o, o.N})
	}
}

// fill sets what the disk has left; mu is held.
func (w *world) fill() {
	space := persistence.Space{Free: 1 << 40}
	if time.Now().Before(w.faults.fullTill) {
		space = persistence.Space{Free: 10, NewWork: 20}
		if w.faults.level > 1 {
			space.Data = 20
		}
		if w.faults.level > 2 {
			space.Hard = 20
		}
	}
	if store := w.fleet.Journal(); store != nil {
		store.SetSpace(space)
	}
}

// stall has the orchestrator's process stand still for a while. Its workers do not, and neither does the clock.
func (w *world) stall(o Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.over {
		return
	}
	w.tally.Stalls++
	w.trace.say("stall")
	w.faults.stillTill = time.Now().Add(o.For)
	w.out.add(time.Now(), w.faults.stillTill)
}

// stalled waits while the process stands still. A crash ends that too, and so does the end of all faults.
func (w *world) stalled() {
	w.mu.Lock()
	wait, boot := time.Until(w.faults.stillTill), w.boot
	dead := w.dead() || w.calm
	w.mu.Unlock()
	if wait <= 0 || dead {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-boot.Done():
	case <-w.calmed:
	case <-w.judge.found:
	}
}

// point is called by each actor at each of its points: it delays the actor, and does what is to happen there.
func (w *world) point(p actors.Point) {
	w.mu.Lock()
	if w.dead() { // let it run out
		w.mu.Unlock()
		return
	}
	key := fold(fnvOffset, p.Stage, p.Kind, p.ID, p.Command)
	w.faults.seen[key]++
	n := w.chance.number(key^mix(w.faults.boots), w.faults.seen[key])
	w.mu.Unlock()
	w.stalled()
	if p.Stage != "decided" || n%delayOne == 0 {
		time.Sleep(time.Duration(n / delayOne % uint64(delayMost)))
	}
	w.reached(p, key)
}

// dead tells whether an orchestrator's process has ended; mu is held.
func (w *world) dead() bool { return w.down && !w.booting && !w.stopping || w.over }

func (w *world) reached(p actors.Point, key uint64) {
	w.mu.Lock()
	if w.dead() {
		w.mu.Unlock()
		return
	}
	w.tally.Points++
	w.trace.add(key, p)
	var panics, crash *Op
	kept := w.faults.armed[:0]
	for _, a := range w.faults.armed {
		if (a.op.Actor == "" || a.op.Actor == p.Kind) && (a.op.Stage == "" && p.Stage != "received" || a.op.Stage == p.Stage) && panics == nil && crash == nil {
			switch a.left--; {
			case a.left > 0:
			case a.op.Kind == OpCrash:
				crash = &a.op
				continue
			case a.op.Kind == OpDisk:
				w.faults.disk = a.op.Disk
				continue
			default:
				panics = &a.op
				if a.left <= 1-max(a.op.Times, 1) {
					continue
				}
			}
		}
		kept = append(kept, a)
	}
	w.faults.armed = kept
	if panics != nil {
		w.tally.Panics++
		w.trace.say("panic")
	}
	w.mu.Unlock()
	if crash != nil {
		w.crash(*crash)
	}
	if panics != nil {
		panic(fmt.Sprintf("%s, at %s %s %s", injected, p.Stage, p.Kind, p.Command))
	}
}

// before is called by the committer before each batch, and after once it is applied.
func (w *world) before(*persistence.Batch) error {
	w.mu.Lock()
	w.tally.Batches++
	slow := time.Now().Before(w.faults.slowTill) && !w.over
	delay := w.chance.within(0, slowMost, "disk", since().String())
	err := w.diskFails("before")
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.stalled()
	if slow {
		time.Sleep(delay)
	}
	return nil
}

func (w *world) after(b *persistence.Batch) error {
	w.mu.Lock()
	err := w.diskFails("after")
	if w.booting && w.faults.bootIn > 0 {
		if w.faults.bootIn--; w.faults.bootIn == 0 {
			w.tally.BootCrashes++
			err = errors.Join(err, errDied)
		}
	}
	over := w.over
	w.mu.Unlock()
	if !over {
		w.applied(b)
	}
	return err
}

// diskFails tells whether a batch fails now; mu is held.
func (w *world) diskFails(stage string) error {
	if w.over || w.down || w.booting || w.faults.disk != stage {
		return nil
	}
	w.faults.disk = ""
	return errDisk
}

// crash is the end of the orchestrator's process, here and now: nothing of it reaches anybody any more. It may be called by
// an actor.
func (w *world) crash(o Op) {
	w.mu.Lock()
	if w.down || w.over {
		w.mu.Unlock()
		return
	}
	w.down = true
	w.faults.stillTill = time.Time{}
	w.out.begin()
	w.faults.disk = ""
	w.tally.Crashes++
	w.trace.say("crash")
	w.die(errDied)
	links := w.links()
	for _, l := range links {
		l.cut()
	}
	for _, m := range w.s.Machines {
		if a := w.agents[m.Name]; a != nil && a.real != nil {
			a.real.cut()
		}
	}
	if a := w.agents[loopback]; a != nil && a.proc != nil {
		a.proc.end()
	}
	w.mu.Unlock()
	w.fleet.Journal().Crash()
	up := time.Now().Add(max(o.For, 10*time.Millisecond))
	w.wg.Go(func() {
		for _, l := range links {
			l.socket.Close()
		}
		w.fleet.Crash()
		if w.sleep(time.Until(up)) {
			w.restart(o.Again)
		}
	})
}

// stop stops the orchestrator and starts it again.
func (w *world) stop(o Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.over || time.Now().Before(w.faults.stillTill) { // who stands still is not stopped in an orderly way
		return
	}
	w.down, w.stopping = true, true
	w.out.begin()
	w.tally.Stops++
	if a := w.agents[loopback]; a != nil && a.proc != nil {
		a.proc.end()
	}
	up := time.Now().Add(o.For)
	w.wg.Go(func() {
		w.fleet.Stop()
		w.mu.Lock()
		w.stopping = false
		w.die(errDied)
		w.mu.Unlock()
		if w.sleep(time.Until(up)) {
			w.restart(o.Again)
		}
	})
}

// restart boots until it works: a boot may die as well.
func (w *world) restart(again int) {
	for {
		w.mu.Lock()
		w.booting, w.faults.bootIn = true, again
		w.faults.boots++
		clear(w.faults.seen)
		if w.calm {
			w.faults.bootIn = 0
		}
		w.mu.Unlock()
		err := w.fleet.TryRestart()
		if err == nil {
			w.booted()
			return
		}
		w.mu.Lock()
		w.booting = false
		w.mu.Unlock()
		if again == 0 && !errors.Is(err, persistence.ErrNoSpace) { // nobody has let it fail
			w.judge.find("the orchestrator does not start: %v", err)
			return
		}
		again = 0 // once
		if !w.sleep(time.Second) {
			return
		}
	}
}

// booted watches an orchestrator that has started.
func (w *world) booted() {
	w.mu.Lock()
	w.down, w.booting = false, false
	w.out.end()
	w.trace.say("up")
	w.boot, w.die = context.WithCancelCause(w.ctx)
	boot := w.boot
	w.fill()
	w.mu.Unlock()
	if a := w.agents[loopback]; a != nil {
		a.start(Mood{})
	}
	system := w.fleet.System()
	w.wg.Go(func() {
		select {
		case <-system.Failed():
			w.failed(system.Err())
		case <-boot.Done():
		}
	})
}

// failed is an orchestrator that has given up: its process exits, and whoever supervises it starts it again.
func (w *world) failed(err error) {
	w.count(&w.tally.Failures)
	if text := err.Error(); !errors.Is(err, errDisk) && !strings.Contains(text, injected) && !strings.Contains(text, persistence.ErrNoSpace.Error()) {
		w.judge.find("the orchestrator gives up: %v", err)
	}
	w.crash(Op{For: time.Second})
}
