package testkit

import (
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
)

// A PanicAt is a place for a fault: the Nth time that a Point of that stage, kind of actor and command is reached. An
// empty field is any, but for a stage before a decision, which has to be named: nothing has happened there.
type PanicAt struct {
	Stage, Kind, Command string
	// ID is the actor's, or a part of it; empty is any.
	ID string
	// Nth counts from 1; 0 is 1. Times is how often it happens from then on; 0 is once.
	Nth, Times int
}

// reached returns a function that tells of each point whether it is the place. Restarts of the orchestrator do not make it
// count anew.
func (at PanicAt) reached() func(actors.Point) bool {
	var mu sync.Mutex
	seen := 0
	first := max(at.Nth, 1)
	last := first + max(at.Times, 1) - 1
	matches := func(want, have string) bool { return want == "" || want == have }
	return func(p actors.Point) bool {
		if at.Stage == "" && p.Stage == beforeAll {
			return false
		}
		if !matches(at.Stage, p.Stage) || !matches(at.Kind, p.Kind) || !matches(at.Command, p.Command) || !strings.Contains(p.ID, at.ID) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		return seen >= first && seen <= last
	}
}

// WithCall calls fn at a place, by the actor itself, which goes on when fn returns. Options act in their order.
func WithCall(at PanicAt, fn func(f *Fleet)) Option {
	reached := at.reached()
	return func(s *settings) {
		s.hooks = append(s.hooks, func(f *Fleet, p actors.Point) {
			if reached(p) {
				fn(f)
			}
		})
	}
}

// WithPanic panics at a place. It implies [WithFaults].
func WithPanic(at PanicAt) Option {
	reached := at.reached()
	return func(s *settings) {
		s.faults = true
		s.hooks = append(s.hooks, func(_ *Fleet, p actors.Point) {
			if reached(p) {
				panic("injected by the test, at " + p.Stage + " " + p.Kind + " " + p.Command)
			}
		})
	}
}

// WithDeath has the process of the orchestrator die at a place: before the commit, or after it and before anybody is told.
// It comes back after a while. Meanwhile the methods that ask it something wait for it, as its clients do.
func WithDeath(at PanicAt, while time.Duration) Option {
	reached := at.reached()
	return func(s *settings) {
		s.hooks = append(s.hooks, func(f *Fleet, p actors.Point) {
			if reached(p) && f.die(while) {
				panic("the process dies, at " + p.Stage + " " + p.Kind + " " + p.Command)
			}
		})
	}
}

// die ends the process from within one of its actors, which must not go on after it. It returns false where there is
// nothing left to die, since the test has ended.
func (f *Fleet) die(while time.Duration) bool {
	f.mu.Lock()
	if f.ended || f.system == nil {
		f.mu.Unlock()
		return false
	}
	f.store.Crash()
	f.wg.Go(func() {
		f.Crash()
		if f.sleep(while) {
			f.Restart()
		}
	})
	f.mu.Unlock()
	f.severAll() // nothing that the process still says may arrive
	return true
}

// Cut cuts every connection. It may be called at a place.
func (f *Fleet) Cut() {
	f.mu.Lock()
	workers, agents := f.workers, f.agents
	f.mu.Unlock()
	for _, w := range workers {
		w.Drop()
	}
	for _, a := range agents {
		a.Drop()
	}
}

// Find is the scripted worker of that name, which has enrolled before. It may be called at a place.
func (f *Fleet) Find(name string) *Worker {
	f.mu.Lock()
	workers := f.workers
	f.mu.Unlock()
	for _, w := range workers {
		if w.Name() == name {
			return w
		}
	}
	f.t.Errorf("testkit: no worker %s has enrolled", name)
	return &Worker{f: f}
}

// Go runs fn beside the test, which waits for it at its end.
func (f *Fleet) Go(fn func()) { f.run(fn) }
