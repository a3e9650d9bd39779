package workflow

import (
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

func TestRetry_TriesAgainWhatThePolicyNames(t *testing.T) {
	t.Parallel()
	all := &Retry{Max: 2, Backoff: Backoff{Initial: time.Second, Factor: 3, Max: 2 * time.Second}, Failure: true, Lost: true, Timeout: true}
	codes := &Retry{Max: 5, ExitCodes: []int{75}}
	tests := []struct {
		name     string
		policy   *Retry
		attempt  int
		code     messages.Code
		exitCode int
		delay    time.Duration
		again    bool
	}{
		{"no policy", nil, 1, messages.CodeExitNonzero, 1, 0, false},
		{"a failure", all, 1, messages.CodeExitNonzero, 1, time.Second, true},
		{"the second failure waits longer, up to the most", all, 2, messages.CodeExitNonzero, 1, 2 * time.Second, true},
		{"the last one", all, 3, messages.CodeExitNonzero, 1, 0, false},
		{"a timeout", all, 1, messages.CodeTimeout, 0, time.Second, true},
		{"a lost worker", all, 1, messages.CodeWorkerLost, 0, time.Second, true},
		{"a lost worker that had written", all, 1, messages.CodeLostAfterWrite, 0, time.Second, true},
		{"a cancel", all, 1, messages.CodeCancelled, 0, 0, false},
		{"no worker in time", all, 1, messages.CodeQueueTimeout, 0, 0, false},
		{"a fault of ours", all, 1, messages.CodeInternal, 0, 0, false},
		{"an exit code that is named", codes, 5, messages.CodeExitNonzero, 75, 0, true},
		{"an exit code that is not", codes, 1, messages.CodeExitNonzero, 1, 0, false},
		{"a timeout that is not named", codes, 1, messages.CodeTimeout, 75, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			delay, again := tt.policy.Again(tt.attempt, tt.code, tt.exitCode)
			if delay != tt.delay || again != tt.again {
				t.Errorf("got %s, %t", delay, again)
			}
		})
	}
}
