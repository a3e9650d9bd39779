package workflow

import (
	"strings"

	"github.com/swampd/swampd/messages"
)

// Condition says after which ends of a step or job something that depends on it may start. It is a set of ends, so that
// every condition of the language, however it is nested, is one of sixteen values. The zero value never holds, and no
// plan has it.
type Condition uint8

// The conditions that have a name. The others are made of them.
const (
	OnSucceeded Condition = 1 << iota
	OnFailed
	OnSkipped
	onCancelled
	OnCompleted = OnSucceeded | OnFailed
	// Always holds after any end. What depends on something in this way also starts in a run that is cancelled: it
	// cleans up.
	Always = OnSucceeded | OnFailed | OnSkipped | onCancelled
)

// String names the condition, by the ends that it is made of where it has no name.
func (c Condition) String() string {
	switch c {
	case OnCompleted:
		return "completed"
	case Always:
		return "always"
	case 0:
		return "never"
	default: // put together from its ends
	}
	var words []string
	for _, w := range []struct {
		c    Condition
		word string
	}{{OnSucceeded, "succeeded"}, {OnFailed, "failed"}, {OnSkipped, "skipped"}, {onCancelled, "cancelled"}} {
		if c&w.c != 0 {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " or ")
}

// MarshalText is String.
func (c Condition) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// outcome is the set of the ends that a step has come to: one, or for a template those of its instances.
type outcome uint8

// passed marks a step that was skipped because there was nothing to do: its guard said so, or its list is empty. What
// needs its success goes on, and so does what needs it to be skipped.
const passed outcome = 1 << 7

func outcomeOf(s messages.StepStatus) outcome {
	switch s {
	case messages.StepSucceeded:
		return outcome(OnSucceeded)
	case messages.StepFailed:
		return outcome(OnFailed)
	case messages.StepSkipped:
		return outcome(OnSkipped)
	case messages.StepCancelled:
		return outcome(onCancelled)
	default:
		return 0
	}
}

// holds tells whether the condition holds for every end of the set.
func (c Condition) holds(o outcome) bool {
	if o&passed != 0 && c&(OnSucceeded|OnSkipped) == 0 {
		return false
	}
	return Condition(o&^passed)&^c == 0
}

// when is the condition of the k-th need.
func when(conditions []Condition, k int) Condition {
	if conditions == nil {
		return OnSucceeded
	}
	return conditions[k]
}

// cleansUp tells whether one of the conditions also holds in a cancelled run.
func cleansUp(conditions []Condition) bool {
	for _, c := range conditions {
		if c == Always {
			return true
		}
	}
	return false
}
