package cli

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
)

// age writes how long something lasts, as roughly as a person asks: <1s, 5s, 3m, 1h5m, 2d3h.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return parts(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	default:
		return parts(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

// elapsed writes how long something took: 0.4s, 5.2s, 3m07s, 1h05m.
func elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0s"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

func parts(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, unitA)
	}
	return fmt.Sprintf("%d%s%d%s", a, unitA, b, unitB)
}

// ago writes how long ago a time was.
func ago(now time.Time, t *timestamppb.Timestamp) string {
	at := messages.GoTime(t)
	if at.IsZero() {
		return "-"
	}
	return age(now.Sub(at)) + " ago"
}

// until writes how far away a time is.
func until(now time.Time, t *timestamppb.Timestamp) string {
	at := messages.GoTime(t)
	switch {
	case at.IsZero():
		return "-"
	case at.Before(now):
		return age(now.Sub(at)) + " ago"
	default:
		return "in " + age(at.Sub(now))
	}
}

// clock writes a moment in the zone of now.
func clock(now time.Time, t *timestamppb.Timestamp) string {
	at := messages.GoTime(t)
	if at.IsZero() {
		return "-"
	}
	return at.In(now.Location()).Format("2006-01-02 15:04:05")
}

// span writes how long something took that may not have ended.
func span(now time.Time, from, to *timestamppb.Timestamp) string {
	start, end := messages.GoTime(from), messages.GoTime(to)
	switch {
	case start.IsZero():
		return "-"
	case end.IsZero():
		return elapsed(now.Sub(start))
	default:
		return elapsed(end.Sub(start))
	}
}

// moment writes the time of day of something that happens fast, in UTC as the journal has it.
func moment(t *timestamppb.Timestamp) string {
	at := messages.GoTime(t)
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("15:04:05.000")
}
