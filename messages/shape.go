package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// MarshalShape returns the JSON that people and scripts see of a message: every field present, an empty map as {}, an
// empty list as [], anything else that is missing as null, times in UTC. Of a [RunEvent] it has the fields of its kind.
func MarshalShape(m proto.Message) ([]byte, error) {
	return appendMessage(nil, m.ProtoReflect(), true)
}

// appendMessage appends m as JSON. With full every field is present; without, only those that are set. Run events and
// the results of client verbs are always whole.
func appendMessage(b []byte, m protoreflect.Message, full bool) ([]byte, error) {
	desc := m.Descriptor()
	var wanted []string
	if desc.Name() == "RunEvent" {
		if e, ok := m.Interface().(*RunEvent); ok {
			wanted = EventFields(e.GetKind())
			full = false
		}
	}
	b = append(b, '{')
	first := true
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		inOneof := field.ContainingOneof() != nil && !field.ContainingOneof().IsSynthetic()
		if !m.Has(field) && (inOneof || (!full && !slices.Contains(wanted, field.JSONName()))) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, field.JSONName())
		b = append(b, ':')
		whole := full || wanted != nil || (desc.Name() == "Response" && field.Number() >= 40)
		var err error
		if b, err = appendField(b, m, field, whole); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendField(b []byte, m protoreflect.Message, field protoreflect.FieldDescriptor, full bool) ([]byte, error) {
	v := m.Get(field)
	switch {
	case field.IsMap():
		return appendMap(b, field, v.Map(), full)
	case field.IsList():
		b = append(b, '[')
		for i := range v.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendValue(b, field, v.List().Get(i), full); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case field.HasPresence() && !m.Has(field):
		if field.Message() != nil && field.Message().FullName() == (&structpb.Struct{}).ProtoReflect().Descriptor().FullName() {
			return append(b, "{}"...), nil
		}
		return append(b, "null"...), nil
	default:
		return appendValue(b, field, v, full)
	}
}

func appendMap(b []byte, field protoreflect.FieldDescriptor, m protoreflect.Map, full bool) ([]byte, error) {
	keys := make([]string, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k.String())
		return true
	})
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, k)
		b = append(b, ':')
		var err error
		v := m.Get(protoreflect.ValueOfString(k).MapKey())
		if b, err = appendValue(b, field.MapValue(), v, full); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value, full bool) ([]byte, error) {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.StringKind:
		return appendString(b, v.String()), nil
	case protoreflect.Int32Kind:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.Uint32Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case protoreflect.MessageKind:
		switch inner := v.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			return appendString(b, inner.AsTime().UTC().Format(time.RFC3339Nano)), nil
		case *structpb.Struct, *structpb.Value:
			data, err := protojson.Marshal(inner)
			if err != nil {
				return nil, err
			}
			// protojson puts blanks in by chance, so that nobody relies on where they are.
			plain := bytes.NewBuffer(b)
			err = json.Compact(plain, data)
			return plain.Bytes(), err
		}
		return appendMessage(b, v.Message(), full)
	case protoreflect.DoubleKind, protoreflect.BytesKind:
		data, err := json.Marshal(v.Interface())
		return append(b, data...), err
	default:
		return nil, fmt.Errorf("messages: field %s has kind %s, which the wire's JSON does not use", field.FullName(), field.Kind())
	}
}

func appendString(b []byte, s string) []byte {
	data, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return append(b, `""`...)
	}
	return append(b, data...)
}
