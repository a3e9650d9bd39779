package actors

import (
	"context"
	"time"

	"github.com/swampd/swampd/messages"
)

// Bounds on accepting runs. Acceptance is cheaper than completion, so unbounded submitters would starve what they have
// submitted: only so many submits are in work at once, and only so many runs live.
const (
	submitsAtOnce = 64
	submitPatient = 10 * time.Second
	maxLiveRuns   = 200_000
)

// admission stands before a run's mailbox: a queue at the edge has a bound and an answer, a mailbox has neither.
type admission struct{ room chan struct{} }

func newAdmission() *admission { return &admission{room: make(chan struct{}, submitsAtOnce)} }

// enter waits for room, and returns what gives it back.
func (a *admission) enter(ctx context.Context, live int64) (leave func(), err error) {
	if live >= maxLiveRuns {
		return nil, messages.Faultf(messages.CodeOverloaded, "%d runs have not ended: submit again when some have", live)
	}
	leave = func() { <-a.room }
	select {
	case a.room <- struct{}{}:
		return leave, nil
	default:
	}
	patience := time.NewTimer(submitPatient)
	defer patience.Stop()
	select {
	case a.room <- struct{}{}:
		return leave, nil
	case <-patience.C:
		return nil, messages.Faultf(messages.CodeOverloaded, "too many runs are being submitted: submit again in a moment")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
