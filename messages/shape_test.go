package messages_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// indented is a shape as a golden file shows it.
func indented(t *testing.T, m proto.Message) string {
	t.Helper()
	data, err := messages.MarshalShape(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return b.String() + "\n"
}

// Scripts depend on these shapes. Each file has the empty result, where every field is still present, and the full one.
func TestMarshalShape_ResultsOfClientVerbsAreThoseOfTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, v := range clientVerbs() {
		golden(t, "shapes/"+string(v)+".json", indented(t, newResult(v))+indented(t, filled(newResult(v).ProtoReflect())))
	}
}

func TestMarshalShape_EventsHaveTheFieldsOfTheirKind(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, kind := range constants(t, "events.go", "") {
		bare := indented(t, &messages.RunEvent{Kind: kind})
		full := filled((&messages.RunEvent{}).ProtoReflect()).(*messages.RunEvent)
		full.Kind = kind
		b.WriteString(bare)
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(bare), &fields); err != nil {
			t.Fatal(err)
		}
		for _, f := range messages.EventFields(kind) {
			if _, ok := fields[f]; !ok {
				t.Errorf("%s lacks %s", kind, f)
			}
			delete(fields, f)
		}
		if len(fields) > 0 {
			t.Errorf("%s has fields that are neither of its kind nor set: %v", kind, fields)
		}
		if got := indented(t, full); strings.Count(got, "\n") < 20 {
			t.Errorf("a %s with everything set does not show everything: %s", kind, got)
		}
	}
	golden(t, "shapes/events.json", b.String())
}

// The fields of the contract, in the words of scripts. Nested ones come after their list's name.
func TestMarshalShape_HasTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	item := func(list string, fields string) string { return "items count " + prefixed(list, fields) }
	tests := []struct {
		verb messages.Verb
		want string
	}{
		{messages.VerbWorkerQueueList, item("items", "queueId requirement why target labels platform runId workflowName jobName stepName modelType methodName queuedAt ageMs")},
		{messages.VerbWorkerList, item("items", "name status connected intent health reason labels platform arch instanceUuid machineId capacity activeDispatchIds enrolledAt lastSeenAt version")},
		{messages.VerbWorkerShow, "name status connected intent health reason labels platform arch instanceUuid machineId capacity activeDispatchIds enrolledAt lastSeenAt version " +
			"intentSince note until remainingMs running " + prefixed("running", "dispatchId runId jobName stepName attempt status error code startedAt endedAt") +
			" recent " + prefixed("recent", "dispatchId runId jobName stepName attempt status error code startedAt endedAt")},
		{messages.VerbWorkerTokenCreate, "name token expiresAt maxEnrollments"},
		{messages.VerbWorkerTokenList, item("items", "name state createdAt expiresAt maxEnrollments bindings bindings.machineId bindings.worker bindings.enrolledAt")},
		{messages.VerbRunList, item("items", "runId workflowName status startedAt endedAt") + " cursor"},
		{messages.VerbRunShow, "runId parentRunId workflowName status error cancelRequested inputs startedAt endedAt jobs " +
			prefixed("jobs", "name status steps "+prefixed("steps", "name status worker dispatchId attempts losses queuedMs error code outputs startedAt endedAt"))},
		{messages.VerbActorTree, item("items", "pid kind state mailbox processed restarts lastMessage lastMessageAt startedAt") + " cursor"},
		{messages.VerbRunCancel, "runId status cancelRequested"},
	}
	for _, tt := range tests {
		var got any
		if err := json.Unmarshal([]byte(indented(t, filled(newResult(tt.verb).ProtoReflect()))), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(words(strings.Fields(tt.want)), words(paths("", got))); diff != "" {
			t.Errorf("fields of %s (-contract +got):\n%s", tt.verb, diff)
		}
	}
}

func prefixed(prefix, fields string) string {
	return prefix + "." + strings.Join(strings.Fields(fields), " "+prefix+".")
}

// paths are the names of all fields; what is free inside is left out.
func paths(prefix string, v any) []string {
	var list []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			list = append(list, paths(prefix, e)...)
		}
	case map[string]any:
		for name, inner := range v {
			list = append(list, prefix+name)
			if name != "labels" && name != "outputs" && name != "inputs" {
				list = append(list, paths(prefix+name+".", inner)...)
			}
		}
	}
	return list
}

func TestMarshalShape_EmptyIsThereAndMissingIsNull(t *testing.T) {
	t.Parallel()
	tests := []struct {
		message proto.Message
		want    string
	}{
		{&messages.WorkerListResult{}, `{"items":[],"count":0}`},
		{&messages.RunListResult{}, `{"items":[],"count":0,"cursor":null}`},
		{&messages.RunSummary{RunId: "r"}, `{"runId":"r","workflowName":"","status":"","startedAt":null,"endedAt":null}`},
		{
			&messages.WorkerTokenCreateResult{Name: "t"}, `{"name":"t","token":"","expiresAt":null,"maxEnrollments":null}`,
		},
		{
			&messages.StepItem{Name: "s", Worker: proto.String("")},
			`{"name":"s","status":"","worker":"","dispatchId":null,"attempts":0,"losses":0,"queuedMs":0,"error":null,"code":null,` +
				`"outputs":{},"startedAt":null,"endedAt":null}`,
		},
		{
			&messages.RunItem{RunId: "r"},
			`{"runId":"r","parentRunId":null,"workflowName":"","status":"","error":null,"cancelRequested":false,"inputs":{},` +
				`"startedAt":null,"endedAt":null,"jobs":[]}`,
		},
	}
	for _, tt := range tests {
		got, err := messages.MarshalShape(tt.message)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", tt.message, diff)
		}
	}
}

// In a frame too a client's result and a run's event are whole; what the two sides of a worker's socket say is short.
func TestEncodeFrame_WhatClientsSeeIsWholeAndTheRestIsShort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		frame *messages.Frame
		want  string
	}{
		{
			&messages.Frame{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbRunList, &messages.RunListResult{})}},
			`{"id":"1","response":{"runList":{"items":[],"count":0,"cursor":null}}}`,
		},
		{
			&messages.Frame{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "w"})}},
			`{"id":"1","response":{"workerEnroll":{"worker":"w"}}}`,
		},
		{
			&messages.Frame{Id: "1", Body: &messages.Frame_Event{Event: &messages.Event{Event: &messages.Event_Run{Run: &messages.RunEvent{
				Kind: messages.EventStepSucceeded, Seq: 3, RunId: "r", Job: proto.String("j"), Step: proto.String("s"),
			}}}}},
			`{"id":"1","event":{"run":{"kind":"step_succeeded","seq":3,"runId":"r","at":null,"job":"j","step":"s","outputs":{}}}}`,
		},
		{&messages.Frame{Id: "1", Body: &messages.Frame_Ack{Ack: &messages.Ack{}}}, `{"id":"1","ack":{}}`},
	}
	for _, tt := range tests {
		got, err := messages.EncodeFrame(tt.frame, messages.CodingJSON)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("frame (-want +got):\n%s", diff)
		}
	}
}
