package messages_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestTraceID_IsTheRunsOwnIdWhereThatIsAUUID(t *testing.T) {
	t.Parallel()
	tests := []struct{ run, want string }{
		{"01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f", "01998f7e6f0e7cc19d0f1f1b3c1d2e3f"},
		{"01998F7E-6F0E-7CC1-9D0F-1F1B3C1D2E3F", "01998f7e6f0e7cc19d0f1f1b3c1d2e3f"},
		{"nightly", messages.TraceID("nightly")},
		{"00000000-0000-0000-0000-000000000000", messages.TraceID("00000000-0000-0000-0000-000000000000")},
	}
	for _, tt := range tests {
		if got := messages.TraceID(tt.run); got != tt.want || len(got) != 32 {
			t.Errorf("%s has trace %s, want %s", tt.run, got, tt.want)
		}
	}
	if messages.TraceID("nightly") == messages.TraceID("nightly2") {
		t.Error("two runs have one trace")
	}
}

func TestTraceparent_IsValidWhateverTheIds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run, dispatch := rapid.String().Draw(t, "run"), rapid.String().Draw(t, "dispatch")
		if got := messages.Traceparent(run, dispatch); !messages.ValidTraceparent(got) {
			t.Fatalf("%q and %q give %q", run, dispatch, got)
		}
	})
	for _, bad := range []string{
		"", "00", "00-x-y-01", "ff-01998f7e6f0e7cc19d0f1f1b3c1d2e3f-00f067aa0ba902b7-01", "00-01998f7e6f0e7cc19d0f1f1b3c1d2e3f-0000000000000000-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-01998F7e6f0e7cc19d0f1f1b3c1d2e3f-00f067aa0ba902b7-01",
		"00-01998f7e6f0e7cc19d0f1f1b3c1d2e3f-00f067aa0ba902b7-01-x", "00-01998f7e6f0e7cc19d0f1f1b3c1d2e3f-00f067aa0ba902b7-0\n",
	} {
		if messages.ValidTraceparent(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}
