package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// The kinds of events in a worker's life.
const (
	EventConnecting       = "connecting"
	EventEnrolled         = "enrolled"
	EventDisconnected     = "disconnected"
	EventRetrying         = "retrying"
	EventDraining         = "draining"
	EventDispatchStarted  = "dispatch_started"
	EventDispatchFinished = "dispatch_finished"
	EventStopped          = "stopped"
)

// StopReason is why a worker ended.
type StopReason string

// The reasons. The first five mean that it left on purpose (exit 0), the others that it did not (exit 1).
const (
	StopDrained       StopReason = "drained" // the orchestrator asked it to, or its one connection was over with nothing lost
	StopSignal        StopReason = "signal"  // somebody stopped it, and it finished what it ran
	StopMaxDispatches StopReason = "max_dispatches"
	StopIdleTimeout   StopReason = "idle_timeout"
	StopMaxUptime     StopReason = "max_uptime"
	StopRefused       StopReason = "refused"    // the orchestrator does not want it, for good
	StopSuperseded    StopReason = "superseded" // another connection of this very instance took over
	StopForced        StopReason = "forced"     // its steps were killed, or it left before its results were acknowledged
	StopError         StopReason = "error"
)

// OnPurpose tells whether a worker that ended for this reason exits with 0.
func (r StopReason) OnPurpose() bool {
	switch r {
	case StopDrained, StopSignal, StopMaxDispatches, StopIdleTimeout, StopMaxUptime:
		return true
	default:
		return false
	}
}

// An Event is something in a worker's life that a person or a script may want to know. Which fields a kind has beside
// kind and at is said in fields; the others are zero.
type Event struct {
	Kind string
	At   time.Time
	// Worker is the name under which it is enrolled.
	Worker string
	// Reason says why it disconnected, drains or stopped.
	Reason     string
	DispatchID string
	// Status is how a dispatch ended: succeeded, failed, cancelled, timeout, lost, handed_back or worker_cannot_start.
	Status string
	// Error is what went wrong, or empty.
	Error string
	// Run is a run's id; Job and Step are names.
	Run, Job, Step string
	// Attempt counts a step's attempts, or those to connect, from 1.
	Attempt int
	// DelayMs is the pause before the next try, DurationMs how long a dispatch took.
	DelayMs, DurationMs float64
}

type eventField struct {
	name  string
	value any
}

// fields is the table of what each kind has, in JSON names and in order.
func (e Event) fields() []eventField {
	step := []eventField{
		{"worker", e.Worker}, {"dispatchId", e.DispatchID}, {"runId", e.Run}, {"job", e.Job}, {"step", e.Step},
		{"attempt", e.Attempt},
	}
	var failed any
	if e.Error != "" {
		failed = e.Error
	}
	switch e.Kind {
	case EventConnecting:
		return []eventField{{"attempt", e.Attempt}}
	case EventEnrolled:
		return []eventField{{"worker", e.Worker}}
	case EventDisconnected:
		return []eventField{{"worker", e.Worker}, {"reason", e.Reason}}
	case EventRetrying:
		return []eventField{{"delayMs", e.DelayMs}, {"error", failed}}
	case EventDraining:
		return []eventField{{"reason", e.Reason}}
	case EventDispatchStarted:
		return step
	case EventDispatchFinished:
		return append(step, eventField{"status", e.Status}, eventField{"error", failed}, eventField{"durationMs", e.DurationMs})
	case EventStopped:
		return []eventField{{"reason", e.Reason}, {"error", failed}}
	default:
		return nil
	}
}

// MarshalJSON gives the event as one object: kind, at in UTC, and the fields of its kind, each always present.
func (e Event) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range append([]eventField{{"kind", e.Kind}, {"at", e.At.UTC()}}, e.fields()...) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(f.name))
		b.WriteByte(':')
		v, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("event field %s: %w", f.name, err)
		}
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// String is the event as a log line.
func (e Event) String() string {
	of := fmt.Sprintf("dispatch %s (%s/%s of run %s, attempt %d)", e.DispatchID, e.Job, e.Step, e.Run, e.Attempt)
	because := ""
	if e.Error != "" {
		because = ": " + e.Error
	}
	switch e.Kind {
	case EventConnecting:
		if e.Attempt > 1 {
			return fmt.Sprintf("connecting (try %d)", e.Attempt)
		}
		return "connecting"
	case EventEnrolled:
		return "enrolled as " + e.Worker
	case EventDisconnected:
		return "disconnected: " + e.Reason
	case EventRetrying:
		return "retrying in " + ms(e.DelayMs) + because
	case EventDraining:
		return "draining: " + e.Reason
	case EventDispatchStarted:
		return "started " + of
	case EventDispatchFinished:
		return "finished " + of + ": " + e.Status + " after " + ms(e.DurationMs) + because
	case EventStopped:
		return "stopped: " + e.Reason + because
	default:
		return e.Kind
	}
}

func ms(v float64) string {
	d := time.Duration(v * float64(time.Millisecond))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
