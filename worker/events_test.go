package worker

import (
	"encoding/json"
	"testing"
	"time"
)

func TestEvent_LineAndJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("here", 3600))
	dispatch := Event{At: at, Worker: "gpu-1", DispatchID: "d1", Run: "r1", Job: "main", Step: "one", Attempt: 2}
	finished := dispatch
	finished.Kind, finished.Status, finished.DurationMs = EventDispatchFinished, "succeeded", 1234.5
	failed := dispatch
	failed.Kind, failed.Status, failed.DurationMs, failed.Error = EventDispatchFinished, "failed", 12.25, "exit status 7"
	started := dispatch
	started.Kind = EventDispatchStarted
	const when = `"at":"2026-03-04T04:06:07Z"`
	tests := []struct {
		event Event
		line  string
		json  string
	}{
		{Event{Kind: EventConnecting, At: at, Attempt: 1}, "connecting", `{"kind":"connecting",` + when + `,"attempt":1}`},
		{Event{Kind: EventConnecting, At: at, Attempt: 3}, "connecting (try 3)", `{"kind":"connecting",` + when + `,"attempt":3}`},
		{Event{Kind: EventEnrolled, At: at, Worker: "gpu-1"}, "enrolled as gpu-1", `{"kind":"enrolled",` + when + `,"worker":"gpu-1"}`},
		{Event{Kind: EventDisconnected, At: at, Worker: "gpu-1", Reason: "it broke"}, "disconnected: it broke",
			`{"kind":"disconnected",` + when + `,"worker":"gpu-1","reason":"it broke"}`},
		{Event{Kind: EventRetrying, At: at, DelayMs: 1523.4, Error: "refused"}, "retrying in 1.5s: refused",
			`{"kind":"retrying",` + when + `,"delayMs":1523.4,"error":"refused"}`},
		{Event{Kind: EventDraining, At: at, Reason: "signal"}, "draining: signal", `{"kind":"draining",` + when + `,"reason":"signal"}`},
		{started, "started dispatch d1 (main/one of run r1, attempt 2)",
			`{"kind":"dispatch_started",` + when + `,"worker":"gpu-1","dispatchId":"d1","runId":"r1","job":"main","step":"one","attempt":2}`},
		{finished, "finished dispatch d1 (main/one of run r1, attempt 2): succeeded after 1.2s",
			`{"kind":"dispatch_finished",` + when + `,"worker":"gpu-1","dispatchId":"d1","runId":"r1","job":"main","step":"one","attempt":2,` +
				`"status":"succeeded","error":null,"durationMs":1234.5}`},
		{failed, "finished dispatch d1 (main/one of run r1, attempt 2): failed after 12ms: exit status 7",
			`{"kind":"dispatch_finished",` + when + `,"worker":"gpu-1","dispatchId":"d1","runId":"r1","job":"main","step":"one","attempt":2,` +
				`"status":"failed","error":"exit status 7","durationMs":12.25}`},
		{Event{Kind: EventStopped, At: at, Reason: "signal"}, "stopped: signal", `{"kind":"stopped",` + when + `,"reason":"signal","error":null}`},
		{Event{Kind: EventStopped, At: at, Reason: "refused", Error: "revoked"}, "stopped: refused: revoked",
			`{"kind":"stopped",` + when + `,"reason":"refused","error":"revoked"}`},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			t.Parallel()
			if got := tt.event.String(); got != tt.line {
				t.Errorf("line %q, want %q", got, tt.line)
			}
			got, err := json.Marshal(tt.event)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.json {
				t.Errorf("JSON %s, want %s", got, tt.json)
			}
		})
	}
}

func TestStopReason_OnPurpose(t *testing.T) {
	t.Parallel()
	for reason, want := range map[StopReason]bool{
		StopDrained: true, StopSignal: true, StopRefused: false, StopSuperseded: false, StopForced: false, StopError: false,
	} {
		if reason.OnPurpose() != want {
			t.Errorf("%s: %t", reason, !want)
		}
	}
}
