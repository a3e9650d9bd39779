package messages_test

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

// anyMessage draws a message of m's type with every kind of field that the wire uses. What JSON writes for an absent
// Struct or Value is not nothing, so those are always there.
func anyMessage(t *rapid.T, m protoreflect.Message, depth int) proto.Message {
	switch msg := m.Interface().(type) {
	case *timestamppb.Timestamp:
		msg.Seconds = rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds")
		msg.Nanos = rapid.Int32Range(0, 999999999).Draw(t, "nanos")
		return msg
	case *structpb.Struct:
		msg.Fields = map[string]*structpb.Value{}
		for range rapid.IntRange(0, 2).Draw(t, "fields") {
			msg.Fields[anyText(t)] = anyValue(t, depth)
		}
		return msg
	case *structpb.Value:
		return anyValue(t, depth)
	}
	desc := m.Descriptor()
	for i := range desc.Oneofs().Len() {
		if o := desc.Oneofs().Get(i); !o.IsSynthetic() {
			f := o.Fields().Get(rapid.IntRange(0, o.Fields().Len()-1).Draw(t, "body"))
			m.Set(f, drawValue(t, m, f, depth))
		}
	}
	for i := range desc.Fields().Len() {
		f := desc.Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			continue
		}
		known := f.Message() != nil && f.Message().ParentFile().Package() == "google.protobuf" && f.Message().Name() != "Timestamp"
		if !known && rapid.Bool().Draw(t, "absent") {
			continue
		}
		switch {
		case f.IsMap():
			for range rapid.IntRange(0, 2).Draw(t, "entries") {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(anyText(t)).MapKey(), drawScalar(t, f.MapValue()))
			}
		case f.IsList():
			for range rapid.IntRange(0, 2).Draw(t, "items") {
				list := m.Mutable(f).List()
				if f.Message() != nil {
					list.Append(protoreflect.ValueOfMessage(anyMessage(t, list.NewElement().Message(), depth+1).ProtoReflect()))
				} else {
					list.Append(drawScalar(t, f))
				}
			}
		default:
			m.Set(f, drawValue(t, m, f, depth))
		}
	}
	return m.Interface()
}

func drawValue(t *rapid.T, m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	if f.Message() != nil {
		return protoreflect.ValueOfMessage(anyMessage(t, m.NewField(f).Message(), depth+1).ProtoReflect())
	}
	return drawScalar(t, f)
}

func drawScalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(anyText(t))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	default:
		t.Fatalf("field %s has a kind that no frame uses: %s", f.FullName(), f.Kind())
		return protoreflect.Value{}
	}
}

// anyText is valid UTF-8: the wire takes no other.
func anyText(t *rapid.T) string {
	return rapid.OneOf(rapid.SampledFrom([]string{"", "x", "\x00", "\u2028", "<&>", `"\`, "ü", "😀"}), rapid.StringN(0, 6, -1)).Draw(t, "text")
}

func anyValue(t *rapid.T, depth int) *structpb.Value {
	kinds := 4
	if depth < 5 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return structpb.NewNullValue()
	case 1:
		return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
	case 2:
		return structpb.NewNumberValue(rapid.Float64().Draw(t, "number"))
	case 3:
		return structpb.NewStringValue(anyText(t))
	case 4:
		list := &structpb.ListValue{}
		for range rapid.IntRange(0, 2).Draw(t, "items") {
			list.Values = append(list.Values, anyValue(t, depth+2))
		}
		return structpb.NewListValue(list)
	default:
		return structpb.NewStructValue(anyMessage(t, (&structpb.Struct{}).ProtoReflect(), depth+2).(*structpb.Struct))
	}
}

// filled returns a message in which everything is set, to values that follow from the fields' names.
func filled(m protoreflect.Message) proto.Message {
	switch msg := m.Interface().(type) {
	case *timestamppb.Timestamp:
		msg.Seconds, msg.Nanos = 1782864000, 250_000_000
		return msg
	case *structpb.Struct:
		msg.Fields = map[string]*structpb.Value{"n": structpb.NewNumberValue(1.5), "s": structpb.NewStringValue("text")}
		return msg
	case *structpb.Value:
		return structpb.NewNumberValue(3)
	}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsMap():
			for _, k := range []string{"b", "a"} {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(k).MapKey(), filledScalar(f.MapValue()))
			}
		case f.IsList() && f.Message() != nil:
			list := m.Mutable(f).List()
			list.Append(protoreflect.ValueOfMessage(filled(list.NewElement().Message()).ProtoReflect()))
		case f.IsList():
			m.Mutable(f).List().Append(filledScalar(f))
		case f.Message() != nil:
			m.Set(f, protoreflect.ValueOfMessage(filled(m.NewField(f).Message()).ProtoReflect()))
		default:
			m.Set(f, filledScalar(f))
		}
	}
	return m.Interface()
}

func filledScalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("some " + string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes\xff"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.Number()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(f.Number()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(f.Number()))
	default:
		return protoreflect.ValueOfFloat64(float64(f.Number()) + 0.5)
	}
}

// clientVerbs are the verbs whose results people and scripts see.
func clientVerbs() []messages.Verb {
	var verbs []messages.Verb
	for _, v := range messages.AllVerbs() {
		if v.From() == messages.PeerClient {
			verbs = append(verbs, v)
		}
	}
	return verbs
}

// newResult is an empty result of a verb.
func newResult(v messages.Verb) proto.Message {
	r := (&messages.Response{}).ProtoReflect()
	field := r.Descriptor().Fields().ByName(protoreflect.Name(strings.ReplaceAll(string(v), ".", "_")))
	return r.NewField(field).Message().Interface()
}
