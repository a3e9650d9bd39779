package actors

import (
	"context"
	"slices"
)

// Slots returns the dispatches that take a slot in the eyes of the scheduler, by worker, in order. They are the leases
// that have not ended; and, for as long as a commit is under way, what was reserved for it. It is a question from the edge,
// for auditors (rule P12).
func (sys *System) Slots(ctx context.Context) (map[string][]string, error) {
	got, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askPool{a} })
	if err != nil {
		return nil, err
	}
	taken := got.(poolNumbers).dispatches
	for _, dispatches := range taken {
		slices.Sort(dispatches)
	}
	return taken, nil
}
