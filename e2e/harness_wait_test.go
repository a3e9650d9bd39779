//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// poll is how often eventually looks.
const poll = 20 * time.Millisecond

// eventually waits until check finds nothing wrong. What it says last is the failure. It runs in the test's goroutine.
func eventually(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	if err := await(within, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, patient(within), err)
	}
}

// await is eventually for those who cannot end the test.
func await(within time.Duration, check func() error) error {
	for end := time.Now().Add(patient(within)); ; {
		err := check()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(poll)
	}
}

// holds looks again and again for a while, and fails as soon as check finds something wrong. It is for what must not
// happen: a test that passes has seen that it did not happen for so long.
func holds(t testing.TB, during time.Duration, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(during); ; {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if time.Now().After(end) {
			return
		}
		time.Sleep(poll)
	}
}

// patient is a limit as it is for these programs on this machine.
func patient(limit time.Duration) time.Duration { return limit * time.Duration(slow) }
