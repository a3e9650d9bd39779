package workflow

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// slotType is the type of a value that an expression refers to.
type slotType uint8

const (
	slotAny slotType = iota
	slotString
	slotInt
	slotDouble
	slotBool
	slotList
	slotMap
	slotStrings   // a map of strings: the outputs of a step
	slotInstances // the outputs of the instances of a template, by their names
	slotNullString
	slotNullInt
	slotNullDouble
	slotNullBool
	slotTypes // how many there are
)

// maxSlots is how many values of one type an expression refers to.
const maxSlots = 16

func (s slotType) cel() *cel.Type {
	switch s {
	case slotString:
		return cel.StringType
	case slotInt:
		return cel.IntType
	case slotDouble:
		return cel.DoubleType
	case slotBool:
		return cel.BoolType
	case slotList:
		return cel.ListType(cel.DynType)
	case slotMap:
		return cel.MapType(cel.StringType, cel.DynType)
	case slotStrings:
		return cel.MapType(cel.StringType, cel.StringType)
	case slotInstances:
		return cel.MapType(cel.StringType, slotStrings.cel())
	case slotNullString:
		return cel.NullableType(cel.StringType)
	case slotNullInt:
		return cel.NullableType(cel.IntType)
	case slotNullDouble:
		return cel.NullableType(cel.DoubleType)
	case slotNullBool:
		return cel.NullableType(cel.BoolType)
	default:
		return cel.DynType
	}
}

// slotName is the variable of the nth value of a type. Nobody can write it: names that are no roots are refused.
func slotName(t slotType, n int) string { return fmt.Sprintf("slot_%d_%d", t, n) }

// The names that the functions of the host have inside, and of the variable through which they find it.
const (
	hostVariable = "slot_host"
	callLatest   = "host_latest"
	callWorkers  = "host_workers"
)

// newExprEnv makes the environment that all expressions share. The names of the language are not in it: they are replaced
// by slots before types are checked, so that names with dashes and mistakes in names are ours.
func newExprEnv() (*cel.Env, error) {
	host := cel.OpaqueType("host")
	text := cel.StringType
	list := cel.ListType(text)
	opts := []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxExpr),
		cel.ParserRecursionLimit(100),
		cel.ParserErrorRecoveryLimit(1),
		cel.ExpressionNodeLimit(1000),
		cel.ExpressionNestingDepthLimit(100),
		cel.RegexProgramSizeLimit(10_000),
		cel.Variable(hostVariable, host),
		cel.Function(callLatest,
			cel.Overload(callLatest+"_name", []*cel.Type{host, text}, cel.DynType, cel.BinaryBinding(func(h, name ref.Val) ref.Val {
				return h.(hostVal).latest(name, types.Int(0))
			})),
			cel.Overload(callLatest+"_version", []*cel.Type{host, text, cel.IntType}, cel.DynType, cel.FunctionBinding(func(a ...ref.Val) ref.Val {
				return a[0].(hostVal).latest(a[1], a[2])
			}))),
		cel.Function(callWorkers,
			cel.Overload(callWorkers+"_all", []*cel.Type{host}, cel.ListType(cel.MapType(text, cel.DynType)), cel.UnaryBinding(func(h ref.Val) ref.Val {
				return h.(hostVal).connected(nil)
			})),
			cel.Overload(callWorkers+"_labels", []*cel.Type{host, cel.MapType(text, text)}, cel.ListType(cel.MapType(text, cel.DynType)), cel.BinaryBinding(func(h, labels ref.Val) ref.Val {
				return h.(hostVal).connected(labels)
			}))),
		cel.Function("toJSON", cel.Overload("to_json", []*cel.Type{cel.DynType}, text, cel.UnaryBinding(toJSON))),
		cel.Function("fromJSON", cel.Overload("from_json", []*cel.Type{text}, cel.DynType, cel.UnaryBinding(fromJSON))),
		cel.Function("lowerAscii", cel.MemberOverload("lower_ascii", []*cel.Type{text}, text, cel.UnaryBinding(ofText(strings.ToLower)))),
		cel.Function("upperAscii", cel.MemberOverload("upper_ascii", []*cel.Type{text}, text, cel.UnaryBinding(ofText(strings.ToUpper)))),
		cel.Function("trim", cel.MemberOverload("trim_text", []*cel.Type{text}, text, cel.UnaryBinding(ofText(strings.TrimSpace)))),
		cel.Function("split", cel.MemberOverload("split_text", []*cel.Type{text, text}, list, cel.BinaryBinding(split))),
		cel.Function("join", cel.MemberOverload("join_list", []*cel.Type{list, text}, text, cel.BinaryBinding(join))),
		cel.Function("replace", cel.MemberOverload("replace_text", []*cel.Type{text, text, text}, text, cel.FunctionBinding(replace))),
	}
	for t := range slotTypes {
		for n := range maxSlots {
			opts = append(opts, cel.Variable(slotName(t, n), t.cel()))
		}
	}
	return cel.NewEnv(opts...)
}

// functions are those of the language that people may mean.
func functionNames() []string {
	return []string{
		"data.latest", "workers.connected", "toJSON", "fromJSON", "lowerAscii", "upperAscii", "trim", "split", "join", "replace",
		"has", "all", "exists", "exists_one", "map", "filter", "size", "contains", "startsWith", "endsWith", "matches", "int", "double",
		"string", "bool", "type", "timestamp", "duration", "dyn",
	}
}

// hostVal carries the host into the functions.
type hostVal struct {
	types.Null // what else a value has to be able to do
	host       Host
}

// Type is the opaque type of the variable.
func (hostVal) Type() ref.Type { return cel.OpaqueType("host") }

func (h hostVal) latest(name, version ref.Val) ref.Val {
	n, isText := name.(types.String)
	v, isInt := version.(types.Int)
	switch {
	case !isText || !isInt:
		return types.MaybeNoSuchOverloadErr(name)
	case h.host == nil:
		return types.NewErr("data.latest is not available here")
	}
	value, err := h.host.Latest(string(n), int64(v))
	if err != nil {
		return types.NewErr("data.latest(%s): %v", quote(string(n)), err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

func (h hostVal) connected(labels ref.Val) ref.Val {
	if h.host == nil {
		return types.NewErr("workers.connected is not available here")
	}
	want := map[string]string{}
	if labels != nil {
		v, err := nativeOf(labels)
		m, ok := v.(map[string]any)
		if err != nil || !ok {
			return types.NewErr("workers.connected takes a map of labels")
		}
		for k, value := range m {
			if want[k], err = textOf(value); err != nil {
				return types.NewErr("workers.connected: %v", err)
			}
		}
	}
	workers, err := h.host.Connected(want)
	if err != nil {
		return types.NewErr("workers.connected: %v", err)
	}
	return types.DefaultTypeAdapter.NativeToValue(workers)
}

func toJSON(v ref.Val) ref.Val {
	value, err := nativeOf(v)
	if err != nil {
		return types.NewErr("toJSON: %v", err)
	}
	s, err := JSONOf(value)
	if err != nil {
		return types.NewErr("toJSON: %v", err)
	}
	return types.String(s)
}

func fromJSON(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	value, err := ValueOfJSON(string(s))
	if err != nil {
		return types.NewErr("fromJSON of %s: %v", quote(string(s)), err)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

func ofText(f func(string) string) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val {
		s, ok := v.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		return types.String(f(string(s)))
	}
}

func split(v, sep ref.Val) ref.Val {
	s, ok := v.(types.String)
	by, good := sep.(types.String)
	if !ok || !good {
		return types.MaybeNoSuchOverloadErr(v)
	}
	return types.DefaultTypeAdapter.NativeToValue(strings.Split(string(s), string(by)))
}

func join(v, sep ref.Val) ref.Val {
	l, ok := v.(traits.Lister)
	by, good := sep.(types.String)
	if !ok || !good {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var b strings.Builder
	for it, first := l.Iterator(), true; it.HasNext() == types.True; first = false {
		s, text := it.Next().(types.String)
		if !text {
			return types.NewErr("join takes a list of strings")
		}
		if !first {
			b.WriteString(string(by))
		}
		b.WriteString(string(s))
		if b.Len() > maxValueBytes {
			return tooLong()
		}
	}
	return types.String(b.String())
}

func replace(args ...ref.Val) ref.Val {
	s, ok := args[0].(types.String)
	from, good := args[1].(types.String)
	to, fine := args[2].(types.String)
	if !ok || !good || !fine {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	if n := strings.Count(string(s), string(from)); len(s)+n*(len(to)-len(from)) > maxValueBytes {
		return tooLong()
	}
	return types.String(strings.ReplaceAll(string(s), string(from), string(to)))
}

func tooLong() ref.Val { return types.NewErr("a value is longer than %d bytes", maxValueBytes) }
