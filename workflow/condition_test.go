package workflow

import (
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestCondition_HoldsForASetOfEndsIfItHoldsForEachOfThem(t *testing.T) {
	t.Parallel()
	ends := func(statuses ...messages.StepStatus) outcome {
		var o outcome
		for _, s := range statuses {
			o |= outcomeOf(s)
		}
		return o
	}
	tests := []struct {
		name string
		c    Condition
		o    outcome
		want bool
	}{
		{"succeeded after a success", OnSucceeded, ends(good), true},
		{"succeeded after a failure", OnSucceeded, ends(bad), false},
		{"succeeded if one of two failed", OnSucceeded, ends(good, bad), false},
		{"completed if one of two failed", OnCompleted, ends(good, bad), true},
		{"completed if one of two was cancelled", OnCompleted, ends(good, gone), false},
		{"always after everything", Always, ends(good, bad, skip, gone) | passed, true},
		{"succeeded after there was nothing to do", OnSucceeded, passed, true},
		{"skipped after there was nothing to do", OnSkipped, passed, true},
		{"failed after there was nothing to do", OnFailed, passed, false},
		{"not succeeded after there was nothing to do", Always &^ OnSucceeded, passed, true},
		{"succeeded if some had nothing to do and one failed", OnSucceeded, passed | ends(bad), false},
		{"a state that is no end", OnSucceeded, ends(messages.StepRunning), true}, // the empty set
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.c.holds(tt.o); got != tt.want {
				t.Errorf("%s holds for %b: %t", tt.c, tt.o, got)
			}
		})
	}
}
