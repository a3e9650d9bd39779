package messages_test

import (
	"slices"
	"testing"

	"github.com/swampd/swampd/messages"
)

// checkStates holds a list of states to the rules of all: no zero value, no word twice, and the final ones are these.
func checkStates[S interface {
	~string
	Ended() bool
}](t *testing.T, all, final []S) {
	t.Helper()
	seen := map[S]bool{}
	for _, s := range all {
		if s == "" {
			t.Error("the zero value is listed as a state")
		}
		if seen[s] {
			t.Errorf("%s is listed twice", s)
		}
		seen[s] = true
		if s.Ended() != slices.Contains(final, s) {
			t.Errorf("%s: ended is %v", s, s.Ended())
		}
	}
}

func TestStates_TheFinalOnesAreFinal(t *testing.T) {
	t.Parallel()
	checkStates(t, messages.AllRunStatuses(), []messages.RunStatus{messages.RunSucceeded, messages.RunFailed, messages.RunCancelled})
	checkStates(t, messages.AllStepStatuses(), []messages.StepStatus{
		messages.StepSucceeded, messages.StepFailed, messages.StepSkipped, messages.StepCancelled,
	})
	checkStates(t, messages.AllPendingStates(), []messages.PendingState{
		messages.PendingDispatched, messages.PendingTimedOut, messages.PendingCancelled, messages.PendingOrphaned,
	})
	checkStates(t, messages.AllLeaseStates(), []messages.LeaseState{
		messages.LeaseCompleted, messages.LeaseRefused, messages.LeaseExpired, messages.LeaseFailed,
	})
	checkStates(t, messages.AllTokenStates(), []messages.TokenState{messages.TokenExpired, messages.TokenRevoked})
}

func TestStatusOf_TheFirstThatHoldsIsShown(t *testing.T) {
	t.Parallel()
	order := []messages.WorkerStatus{
		messages.WorkerDisconnected, messages.WorkerDraining, messages.WorkerPaused, messages.WorkerUnhealthy,
		messages.WorkerUnverified, messages.WorkerBusy, messages.WorkerIdle,
	}
	for _, connected := range []bool{false, true} {
		for _, intent := range messages.AllWorkerIntents() {
			for _, health := range messages.AllWorkerHealths() {
				for dispatches := range 2 {
					holds := map[messages.WorkerStatus]bool{
						messages.WorkerDisconnected: !connected,
						messages.WorkerDraining:     intent == messages.IntentDraining,
						messages.WorkerPaused:       intent == messages.IntentPaused,
						messages.WorkerUnhealthy:    health == messages.HealthUnhealthy,
						messages.WorkerUnverified:   health == messages.HealthUnverified,
						messages.WorkerBusy:         dispatches > 0,
						messages.WorkerIdle:         true,
					}
					want := order[slices.IndexFunc(order, func(s messages.WorkerStatus) bool { return holds[s] })]
					if got := messages.StatusOf(connected, intent, health, dispatches); got != want {
						t.Errorf("connected %v, %s, %s, %d dispatches: %s, want %s", connected, intent, health, dispatches, got, want)
					}
				}
			}
		}
	}
}

func TestValid_KnowsTheWordsOfAListAndNoOthers(t *testing.T) {
	t.Parallel()
	if !messages.Valid(messages.IntentPaused, messages.AllWorkerIntents()) {
		t.Error("paused is no intent")
	}
	if messages.Valid("", messages.AllWorkerIntents()) || messages.Valid("Paused", messages.AllWorkerIntents()) {
		t.Error("a word that is no intent is one")
	}
}
