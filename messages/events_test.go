package messages_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func TestRunEvents_OfEveryKindSurviveBothCodings(t *testing.T) {
	t.Parallel()
	for _, kind := range constants(t, "events.go", "") {
		for name, coding := range codings() {
			t.Run(kind+" in "+name, func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					e := anyMessage(t, (&messages.RunEvent{}).ProtoReflect(), 0).(*messages.RunEvent)
					e.Kind = kind
					passes(t, &messages.Frame{Id: "1", Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Run{Run: e}}}}, coding)
				})
			})
		}
	}
}

// A bare event loses nothing either, though JSON shows the fields of its kind.
func TestRunEvents_ThatAreBareComeBackBare(t *testing.T) {
	t.Parallel()
	for _, kind := range constants(t, "events.go", "") {
		e := &messages.RunEvent{Kind: kind}
		data, err := messages.MarshalShape(e)
		if err != nil {
			t.Fatal(err)
		}
		f, err := messages.DecodeFrame([]byte(`{"event":{"run":`+string(data)+`}}`), messages.CodingJSON)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(proto.Message(e), f.GetEvent().GetRun(), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-sent +got):\n%s", kind, diff)
		}
	}
}

func TestRunEvents_WhatTheyEnd(t *testing.T) {
	t.Parallel()
	endsRun := "run_succeeded run_failed run_cancelled"
	endsDispatch := "step_queued step_worker_lost step_retrying step_succeeded step_failed step_cancelled"
	for _, kind := range constants(t, "events.go", "") {
		if got, want := messages.EndsRun(kind), strings.Contains(" "+endsRun+" ", " "+kind+" "); got != want {
			t.Errorf("%s ends its run: %v, want %v", kind, got, want)
		}
		if got, want := messages.EndsDispatch(kind), strings.Contains(" "+endsDispatch+" ", " "+kind+" "); got != want {
			t.Errorf("%s ends its dispatch: %v, want %v", kind, got, want)
		}
	}
}
