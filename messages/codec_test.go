package messages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func codings() map[string]messages.Coding {
	return map[string]messages.Coding{"protobuf": messages.CodingProtobuf, "JSON": messages.CodingJSON}
}

// passes sends a frame through a coding and compares.
func passes(tb interface {
	Helper()
	Fatalf(string, ...any)
}, f *messages.Frame, coding messages.Coding) {
	tb.Helper()
	data, err := messages.EncodeFrame(f, coding)
	if err != nil {
		tb.Fatalf("encode %v: %v", f, err)
	}
	got, err := messages.DecodeFrame(data, coding)
	if err != nil {
		tb.Fatalf("decode %q: %v", data, err)
	}
	if diff := cmp.Diff(f, got, protocmp.Transform()); diff != "" {
		tb.Fatalf("frame (-sent +got):\n%s\nas %q", diff, data)
	}
}

func TestFrames_SurviveBothCodings(t *testing.T) {
	t.Parallel()
	for name, coding := range codings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				f := anyMessage(t, (&messages.Frame{}).ProtoReflect(), 0).(*messages.Frame)
				passes(t, f, coding)
			})
		})
	}
}

// Drawing bodies at random reaches a verb now and then only: here is each in turn.
func TestFrames_OfEveryVerbAndBodySurviveBothCodings(t *testing.T) {
	t.Parallel()
	for name, coding := range codings() {
		for _, v := range messages.AllVerbs() {
			t.Run(fmt.Sprintf("%s in %s", v, name), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					params := anyMessage(t, messages.NewParams(v).ProtoReflect(), 2)
					passes(t, &messages.Frame{Id: "1", Body: &messages.Frame_Request{Request: messages.NewRequest(v, params)}}, coding)
					result := anyMessage(t, newResult(v).ProtoReflect(), 2)
					passes(t, &messages.Frame{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(v, result)}}, coding)
				})
			})
		}
		t.Run("news in "+name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				passes(t, &messages.Frame{Body: &messages.Frame_Error{Error: anyMessage(t, (&messages.Error{}).ProtoReflect(), 1).(*messages.Error)}}, coding)
				passes(t, &messages.Frame{Body: &messages.Frame_Event{Event: anyMessage(t, (&messages.Event{}).ProtoReflect(), 1).(*messages.Event)}}, coding)
				passes(t, &messages.Frame{Body: &messages.Frame_Cancel{Cancel: anyMessage(t, (&messages.Cancel{}).ProtoReflect(), 1).(*messages.Cancel)}}, coding)
				passes(t, &messages.Frame{Body: &messages.Frame_Ack{Ack: anyMessage(t, (&messages.Ack{}).ProtoReflect(), 1).(*messages.Ack)}}, coding)
			})
		})
	}
}

func TestDecodeFrame_ReadsTheJSONOfOtherWriters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := anyMessage(t, (&messages.Frame{}).ProtoReflect(), 0)
		data, err := protojson.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := messages.DecodeFrame(data, messages.CodingJSON)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, proto.Message(got), protocmp.Transform()); diff != "" {
			t.Fatalf("frame (-sent +got):\n%s", diff)
		}
	})
}

// The kinds that protobuf's JSON writes as strings have no place in frames; records are never JSON.
func TestFrames_UseNoKindThatJSONCannotCarryAsItself(t *testing.T) {
	t.Parallel()
	file := (&messages.Frame{}).ProtoReflect().Descriptor().ParentFile()
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			switch f.Kind() {
			case protoreflect.BoolKind, protoreflect.StringKind, protoreflect.Int32Kind, protoreflect.Uint32Kind, protoreflect.DoubleKind:
			case protoreflect.BytesKind:
				if m.Name() != "OutputChunk" && m.Name() != "BackupChunk" {
					t.Errorf("%s is bytes: only output and backups are", f.FullName())
				}
			case protoreflect.MessageKind:
				if name := f.Message().FullName(); strings.HasPrefix(string(name), "google.") &&
					name != "google.protobuf.Timestamp" && name != "google.protobuf.Struct" && name != "google.protobuf.Value" {
					t.Errorf("%s is a %s", f.FullName(), name)
				}
			default:
				t.Errorf("%s is %s", f.FullName(), f.Kind())
			}
		}
	}
	if file.Enums().Len() > 0 {
		t.Error("frames have enums: states are words")
	}
}

func TestJSON_NumbersAreNumbersAndNamesAreCamelCase(t *testing.T) {
	t.Parallel()
	for _, v := range messages.AllVerbs() {
		for what, m := range map[string]proto.Message{"params": messages.NewParams(v), "result": newResult(v)} {
			m = filled(m.ProtoReflect())
			data, err := messages.MarshalShape(m)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("%s of %s is no JSON: %v\n%s", what, v, err, data)
			}
			checkJSON(t, m.ProtoReflect().Descriptor(), got)
		}
	}
}

// checkJSON compares the types in JSON with those of the fields.
func checkJSON(t *testing.T, m protoreflect.MessageDescriptor, got map[string]any) {
	t.Helper()
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		v, ok := got[f.JSONName()]
		if !ok {
			t.Errorf("%s has no %s: %v", m.Name(), f.JSONName(), got)
			continue
		}
		if strings.Contains(f.JSONName(), "_") {
			t.Errorf("%s is not camelCase", f.JSONName())
		}
		if f.IsMap() {
			continue // of strings
		}
		values := []any{v}
		if f.IsList() {
			values = v.([]any)
		}
		for _, v := range values {
			switch f.Kind() {
			case protoreflect.Int32Kind, protoreflect.Uint32Kind, protoreflect.DoubleKind:
				if _, ok := v.(float64); !ok {
					t.Errorf("%s is %#v and no number", f.FullName(), v)
				}
			case protoreflect.BoolKind:
				if _, ok := v.(bool); !ok {
					t.Errorf("%s is %#v and no bool", f.FullName(), v)
				}
			case protoreflect.MessageKind:
				if f.Message().ParentFile() == m.ParentFile() {
					checkJSON(t, f.Message(), v.(map[string]any))
				}
			default:
			}
		}
	}
}

func TestFrames_AboveTheLimitAreNeitherSentNorRead(t *testing.T) {
	t.Parallel()
	for name, coding := range codings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := func(n int) *messages.Frame {
				return &messages.Frame{Body: &messages.Frame_Cancel{Cancel: &messages.Cancel{Reason: strings.Repeat("x", n)}}}
			}
			empty, err := messages.EncodeFrame(with(100_000), coding)
			if err != nil {
				t.Fatal(err)
			}
			n := 100_000 + messages.MaxFrame - len(empty) - 8
			for size := 0; size < messages.MaxFrame; n++ { // the exact limit goes through
				data, err := messages.EncodeFrame(with(n), coding)
				if err != nil {
					t.Fatalf("%d bytes: %v", size+1, err)
				}
				size = len(data)
				if size == messages.MaxFrame {
					if _, err := messages.DecodeFrame(data, coding); err != nil {
						t.Fatalf("read a frame of exactly the limit: %v", err)
					}
				}
			}
			_, err = messages.EncodeFrame(with(n), coding)
			if !errors.Is(err, &messages.Fault{Code: messages.CodeFrameTooLarge}) {
				t.Errorf("encode one byte too many: %v", err)
			}
			_, err = messages.DecodeFrame(make([]byte, messages.MaxFrame+1), coding)
			if !errors.Is(err, &messages.Fault{Code: messages.CodeFrameTooLarge}) {
				t.Errorf("decode one byte too many: %v", err)
			}
		})
	}
}

func TestDecodeFrame_WhatIsNoneIsMalformed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		coding messages.Coding
		data   string
	}{
		{"a cut protobuf", messages.CodingProtobuf, "\x0a\x05ab"},
		{"a protobuf with a wrong wire type", messages.CodingProtobuf, "\x0f"},
		{"an id that is not UTF-8", messages.CodingProtobuf, "\x0a\x01\xff"},
		{"text that is no JSON", messages.CodingJSON, "hello"},
		{"an empty text", messages.CodingJSON, ""},
		{"a JSON list", messages.CodingJSON, "[]"},
		{"two bodies", messages.CodingJSON, `{"ack":{},"cancel":{}}`},
		{"a number where text belongs", messages.CodingJSON, `{"id":1}`},
		{"two documents", messages.CodingJSON, `{} {}`},
		{"a number out of range", messages.CodingJSON, `{"ack":{"offset":4294967296}}`},
		{"a negative offset", messages.CodingJSON, `{"ack":{"offset":-1}}`},
		{"deep nesting", messages.CodingJSON, `{"request":{"workflowRun":{"inputs":` + strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000) + "}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := messages.DecodeFrame([]byte(tt.data), tt.coding)
			if !errors.Is(err, &messages.Fault{Code: messages.CodeMalformed}) {
				t.Errorf("error %v, want malformed", err)
			}
		})
	}
}

func TestDecodeFrame_UnknownFieldsSurviveInProtobuf(t *testing.T) {
	t.Parallel()
	inner := protowire.AppendTag(nil, 999, protowire.BytesType)
	inner = protowire.AppendString(inner, "news in the body")
	data := protowire.AppendTag(nil, 1, protowire.BytesType)
	data = protowire.AppendString(data, "7")
	data = protowire.AppendTag(data, 15, protowire.BytesType)
	data = protowire.AppendBytes(data, inner)
	data = protowire.AppendTag(data, 998, protowire.BytesType)
	data = protowire.AppendString(data, "news in the frame")
	f, err := messages.DecodeFrame(data, messages.CodingProtobuf)
	if err != nil {
		t.Fatal(err)
	}
	again, err := messages.EncodeFrame(f, messages.CodingProtobuf)
	if err != nil {
		t.Fatal(err)
	}
	for _, news := range []string{"news in the body", "news in the frame"} {
		if !strings.Contains(string(again), news) {
			t.Errorf("%q did not survive: %q", news, again)
		}
	}
	if f.GetId() != "7" || f.GetAck() == nil {
		t.Errorf("frame %v", f)
	}
	if _, err := messages.EncodeFrame(f, messages.CodingJSON); err != nil {
		t.Errorf("a frame with unknown fields has no JSON: %v", err)
	}
}

func TestDecodeFrame_UnknownFieldsAreIgnoredInJSON(t *testing.T) {
	t.Parallel()
	f, err := messages.DecodeFrame([]byte(`{"id":"7","news":{"a":[1]},"ack":{"offset":3,"more":true}}`), messages.CodingJSON)
	if err != nil {
		t.Fatal(err)
	}
	if f.GetId() != "7" || f.GetAck().GetOffset() != 3 {
		t.Errorf("frame %v", f)
	}
}

func TestDecodeFrame_ABodyOfANewerPeerIsNoBody(t *testing.T) {
	t.Parallel()
	f, err := messages.DecodeFrame([]byte(`{"id":"7","gossip":{}}`), messages.CodingJSON)
	if err != nil || f.GetBody() != nil || f.GetId() != "7" {
		t.Errorf("frame %v, %v", f, err)
	}
	f, err = messages.DecodeFrame([]byte(`{"id":"7","request":{"verb":"worker.gossip","workerGossip":{"x":1}}}`), messages.CodingJSON)
	if err != nil || f.GetRequest().GetVerb() != "worker.gossip" || messages.ParamsOf(f.GetRequest()) != nil {
		t.Errorf("frame %v, %v", f, err)
	}
}

func TestDecodeParams(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		verb messages.Verb
		body string
		want proto.Message
		code messages.Code
	}{
		{"an empty body stands for empty params", messages.VerbRunList, "", &messages.RunListParams{}, ""},
		{"params", messages.VerbRunList, `{"limit":5,"cursor":"x"}`, &messages.RunListParams{Limit: 5, Cursor: "x"}, ""},
		{"an unknown verb", "run.burn", `{}`, nil, messages.CodeUnknownVerb},
		{"text that is no JSON", messages.VerbRunList, `limit=5`, nil, messages.CodeInvalid},
		{"a field that the verb does not have", messages.VerbRunList, `{"limt":5}`, nil, messages.CodeInvalid},
		{"text where a number belongs", messages.VerbRunList, `{"limit":"five"}`, nil, messages.CodeInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := messages.DecodeParams(tt.verb, []byte(tt.body))
			if tt.code != "" {
				if err == nil || messages.CodeOf(err) != tt.code {
					t.Fatalf("error %v, want code %s", err, tt.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("params (-want +got):\n%s", diff)
			}
		})
	}
}
