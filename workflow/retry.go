package workflow

import (
	"math"
	"slices"
	"time"

	"github.com/swampd/swampd/messages"
)

// Retry says when a step that has failed is tried again.
type Retry struct {
	// Max is how often it is tried again, after the first time.
	Max     int
	Backoff Backoff
	// Failure, Lost and Timeout are what is tried again, and so is a process that ended with one of ExitCodes.
	Failure, Lost, Timeout bool
	ExitCodes              []int
}

// Backoff is how long to wait before each time.
type Backoff struct {
	Initial, Max time.Duration
	Factor       float64
}

// Delay is the time before the nth time that it is tried again, from 1.
func (b Backoff) Delay(n int) time.Duration {
	f := float64(b.Initial) * math.Pow(b.Factor, float64(n-1))
	if f >= float64(b.Max) {
		return b.Max
	}
	return time.Duration(f)
}

// Again tells whether a step is tried again, and after what time. Attempt counts from 1 and is the one that has failed;
// code and exitCode are those of the failure. A cancelled step is never tried again, and neither is one that no worker took
// in time: its wait was the try.
func (r *Retry) Again(attempt int, code messages.Code, exitCode int) (time.Duration, bool) {
	if r == nil || attempt > r.Max {
		return 0, false
	}
	again := false
	switch code {
	case messages.CodeExitNonzero:
		again = r.Failure || slices.Contains(r.ExitCodes, exitCode)
	case messages.CodeTimeout:
		again = r.Timeout
	case messages.CodeWorkerLost, messages.CodeLostAfterWrite:
		again = r.Lost
	case messages.CodeCannotStart, messages.CodeOutputTooLarge:
		again = r.Failure
	default:
	}
	if !again {
		return 0, false
	}
	return r.Backoff.Delay(attempt), true
}
