package testkit

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A Probe lets what a test watches say "it got there", in place of a sleep in the test. The zero Probe is ready.
type Probe[T any] struct {
	mu   sync.Mutex
	got  []T
	news bell
}

// Signal says that it got there, with what. It never blocks.
func (p *Probe[T]) Signal(v T) {
	p.mu.Lock()
	p.got = append(p.got, v)
	p.mu.Unlock()
	p.news.ring()
}

// Wait returns the oldest signal that it has not returned yet, and fails the test where none comes within patience.
func (p *Probe[T]) Wait(t testing.TB, patience time.Duration) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var v T
	if !p.news.wait(ctx, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.got) == 0 {
			return false
		}
		v, p.got = p.got[0], p.got[1:]
		return true
	}) {
		t.Fatalf("testkit: no signal within %s", patience)
	}
	return v
}

// bell wakes all who wait for a change. The zero bell is ready.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

func (b *bell) heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// wait returns true once cond holds, looking again at each ring, and false when ctx has ended before.
func (b *bell) wait(ctx context.Context, cond func() bool) bool {
	for {
		heard := b.heard()
		if cond() {
			return true
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return cond()
		}
	}
}
