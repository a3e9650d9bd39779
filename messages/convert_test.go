package messages_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestDuration_OfItsMillisecondsIsItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// What a float carries exactly: whole microseconds of a hundred years.
		d := time.Duration(rapid.Int64Range(-3_000_000_000_000, 3_000_000_000_000).Draw(t, "us")) * time.Microsecond
		if got := messages.Duration(messages.Milliseconds(d)); (got - d).Abs() > time.Microsecond {
			t.Fatalf("%s became %s", d, got)
		}
	})
}

func TestDuration_StaysWithinWhatADurationHolds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ms   float64
		want time.Duration
	}{
		{1500, 1500 * time.Millisecond},
		{0.25, 250 * time.Microsecond},
		{math.NaN(), 0},
		{math.Inf(1), 1 << 62},
		{math.Inf(-1), -(1 << 62)},
		{1e300, 1 << 62},
		{-1e300, -(1 << 62)},
	}
	for _, tt := range tests {
		if got := messages.Duration(tt.ms); got != tt.want {
			t.Errorf("%v ms is %s, want %s", tt.ms, got, tt.want)
		}
	}
}

func TestTime_TheZeroTimeIsAbsent(t *testing.T) {
	t.Parallel()
	if messages.Time(time.Time{}) != nil || !messages.GoTime(nil).IsZero() {
		t.Error("the zero time is not absent")
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.FixedZone("x", 3600))
	if got := messages.GoTime(messages.Time(now)); !got.Equal(now) || got.Location() != time.UTC {
		t.Errorf("%s became %s", now, got)
	}
}
