package messages_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// What anybody may send decodes or is malformed; what decodes can be encoded again and says the same.
func fuzzFrame(f *testing.F, coding messages.Coding) {
	for _, v := range messages.AllVerbs() {
		for _, frame := range []*messages.Frame{
			{Id: "1", Trace: "t", Body: &messages.Frame_Request{Request: messages.NewRequest(v, filled(messages.NewParams(v).ProtoReflect()))}},
			{Id: "1", Body: &messages.Frame_Response{Response: messages.NewResponse(v, filled(newResult(v).ProtoReflect()))}},
		} {
			data, err := messages.EncodeFrame(frame, coding)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(`{"id":"1","event":{"output":{"offset":1,"data":"AA=="}}}`))
	f.Add([]byte("\x0a\x05ab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := messages.DecodeFrame(data, coding)
		if err != nil {
			if code := messages.CodeOf(err); code != messages.CodeMalformed && code != messages.CodeFrameTooLarge {
				t.Fatalf("code %s: %v", code, err)
			}
			return
		}
		messages.ParamsOf(frame.GetRequest())
		again, err := messages.EncodeFrame(frame, messages.CodingProtobuf)
		if err != nil {
			if messages.CodeOf(err) == messages.CodeFrameTooLarge {
				return
			}
			t.Fatalf("a frame that was read cannot be written: %v", err)
		}
		back, err := messages.DecodeFrame(again, messages.CodingProtobuf)
		if err != nil {
			t.Fatalf("a frame that was written cannot be read: %v", err)
		}
		if !proto.Equal(frame, back) {
			t.Fatalf("%v became %v", frame, back)
		}
	})
}

func FuzzDecodeFrame_Protobuf(f *testing.F) { fuzzFrame(f, messages.CodingProtobuf) }

func FuzzDecodeFrame_JSON(f *testing.F) { fuzzFrame(f, messages.CodingJSON) }
