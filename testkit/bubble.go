package testkit

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Bubble runs a test in virtual time: the clock moves only while all goroutines wait. Everything that the test uses has to
// be made inside. The test given to fn must not be parallel and has no subtests; the one around it may.
func Bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

// inBubble tells whether the caller is in a bubble: clocks there begin with the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// throttle is how long the actor library counts messages that could not be delivered, in a goroutine that nobody can end.
const throttle = 2 * time.Second

// awaitThrottle waits until that goroutine has ended, if there is one: it is no leak, and must not be taken for one.
func (f *Fleet) awaitThrottle() {
	if f.bubble {
		time.Sleep(throttle)
		return
	}
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(throttle); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("actor.NewDeadLetter.NewThrottle")) {
			return
		}
	}
}

// Settle returns once nothing moves any more: every message has been handled, and what is left waits for time or for the
// test. It belongs into a [Bubble].
func (f *Fleet) Settle() {
	f.t.Helper()
	if !f.bubble {
		f.t.Fatal("testkit: Settle needs a bubble: outside of one, wait for the thing itself")
	}
	synctest.Wait()
}

// Advance lets time pass, and settles. It belongs into a [Bubble].
func (f *Fleet) Advance(d time.Duration) {
	f.t.Helper()
	f.Settle()
	time.Sleep(d)
	synctest.Wait()
}

// Eventually waits until cond holds, and fails the test if it does not. It is for conditions that nobody announces.
func (f *Fleet) Eventually(what string, cond func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(f.settings.patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if f.bubble {
			synctest.Wait()
		}
		if cond() {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("testkit: %s: not within %s", what, f.settings.patience)
		}
		time.Sleep(wait)
	}
}
