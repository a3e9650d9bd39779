package messages

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Coding is how a frame stands in a WebSocket message. An answer comes in the coding of its question.
type Coding int

// The codings.
const (
	CodingProtobuf Coding = iota // in a binary message
	CodingJSON                   // in a text message
)

// EncodeFrame returns the frame in the given coding. A frame above [MaxFrame] is CodeFrameTooLarge: senders refuse it,
// so that readers never have to.
func EncodeFrame(f *Frame, c Coding) ([]byte, error) {
	var data []byte
	var err error
	if c == CodingJSON {
		data, err = appendMessage(nil, f.ProtoReflect(), false)
	} else {
		data, err = proto.Marshal(f)
	}
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(data) > MaxFrame {
		return nil, Faultf(CodeFrameTooLarge, "frame of %d bytes is above the limit of %d", len(data), MaxFrame)
	}
	return data, nil
}

// DecodeFrame reads a frame. What is none is CodeMalformed. Unknown fields survive in protobuf and are ignored in JSON.
func DecodeFrame(data []byte, c Coding) (*Frame, error) {
	if len(data) > MaxFrame {
		return nil, Faultf(CodeFrameTooLarge, "frame of %d bytes is above the limit of %d", len(data), MaxFrame)
	}
	f := &Frame{}
	var err error
	if c == CodingJSON {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, f)
	} else {
		err = proto.Unmarshal(data, f)
	}
	if err != nil {
		return nil, Faultf(CodeMalformed, "no valid frame: %v", err)
	}
	return f, nil
}

// DecodeParams reads the JSON params of a client's verb, as POST /v1/rpc/<verb> carries them. An empty body stands for
// empty params.
func DecodeParams(v Verb, body []byte) (proto.Message, error) {
	params := NewParams(v)
	if params == nil {
		return nil, Faultf(CodeUnknownVerb, "unknown verb %q", string(v))
	}
	if len(body) == 0 {
		return params, nil
	}
	if err := protojson.Unmarshal(body, params); err != nil {
		return nil, Faultf(CodeInvalid, "params of %s: %v", v, err)
	}
	return params, nil
}
