package workflow

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// InputType is the type of an input. The zero value takes anything.
type InputType string

// The types of inputs.
const (
	AnyInput     InputType = ""
	StringInput  InputType = "string"
	NumberInput  InputType = "number"
	IntegerInput InputType = "integer"
	BooleanInput InputType = "boolean"
	ArrayInput   InputType = "array"
	ObjectInput  InputType = "object"
)

func inputTypes() []string {
	return []string{
		string(StringInput), string(NumberInput), string(IntegerInput), string(BooleanInput), string(ArrayInput), string(ObjectInput),
	}
}

// Input is one declared input of a workflow.
type Input struct {
	Name        string
	Type        InputType
	Description string
	// Required inputs have to be given. They have no default.
	Required bool
	// Default is used where nothing is given; without one that is null.
	Default any
	// Enum holds the values that are taken, if there are any.
	Enum []any
}

// optional tells whether the input may be null.
func (i *Input) optional() bool { return !i.Required && i.Default == nil }

// inputs reads the inputs of a workflow.
func (d *decoder) inputList(e *entry) {
	d.uses(featureInputs, e.at)
	if !d.is(e.value, mapping, quote(e.key)) {
		return
	}
	for i := range e.value.entries {
		if in, ok := d.input(&e.value.entries[i]); ok {
			d.plan.Inputs = append(d.plan.Inputs, in)
		}
	}
}

func (d *decoder) input(e *entry) (Input, bool) {
	in := Input{Name: e.key}
	if !isInputName(e.key) {
		d.found.add(e.at, "the input %s: a name has 1 to 63 letters, digits, _ and -, and begins with a letter or _", quote(e.key))
		return in, false
	}
	switch {
	case e.value.null(): // declared, and that is all
		return in, true
	case e.value.kind == broken:
		return in, false
	case e.value.kind == scalar:
		d.found.add(e.value.at, "the input %s must be a map with keys such as 'type' and 'default', but is %s", quote(e.key), describe(e.value))
		return in, false
	case !d.is(e.value, mapping, "the input "+quote(e.key)):
		return in, false
	}
	var def, enum *entry
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "type":
			in.Type = d.inputType(k.value)
		case "description":
			in.Description, _ = d.text(k.value, "'description'")
		case "required":
			in.Required, _ = d.boolean(k)
		case "default":
			def = k
		case "enum":
			enum = k
		default:
			d.unknown(k, inInput)
		}
	}
	if enum != nil {
		in.Enum = d.enum(enum, &in)
	}
	if def != nil && def.value.kind != broken {
		in.Default = d.inputDefault(def, &in)
	}
	return in, true
}

func isInputName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !letterOrDigit(c) && c != '_' && c != '-' || i == 0 && (c == '-' || c >= '0' && c <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= maxLabelKey
}

func (d *decoder) inputType(n *node) InputType {
	if n.kind == scalar {
		switch n.text {
		case "list":
			return ArrayInput
		case "map":
			return ObjectInput
		case "bool":
			return BooleanInput
		case "int":
			return IntegerInput
		}
	}
	s, _ := d.word(n, "the type of an input", inputTypes()...)
	return InputType(s)
}

func (d *decoder) enum(e *entry, in *Input) []any {
	if !d.is(e.value, list, "'enum'") {
		return nil
	}
	if len(e.value.items) == 0 {
		d.found.add(e.value.at, "'enum' is empty: no value could be given")
	}
	var all []any
	for _, item := range e.value.items {
		v, err := in.convert(inputOf(item, in.Type))
		switch {
		case err != nil:
			d.found.add(item.at, "a value of 'enum' %s", err)
		case slices.ContainsFunc(all, func(o any) bool { return equalValues(o, v) }):
			d.found.add(item.at, "a second %s in 'enum'", shortJSON(v))
		default:
			all = append(all, v)
		}
	}
	return all
}

func (d *decoder) inputDefault(e *entry, in *Input) any {
	if in.Required {
		d.found.add(e.at, "the input %s is required and so never takes a default", quote(in.Name))
		return nil
	}
	if e.value.null() {
		return nil
	}
	v, err := in.take(inputOf(e.value, in.Type))
	if err != nil {
		d.found.add(e.value.at, "the default of %s %s", quote(in.Name), err)
	}
	return v
}

// inputOf is a value of the file for an input: of a string the text as it is written, so that 1.10 stays 1.10.
func inputOf(n *node, t InputType) any {
	if t == StringInput && n.kind == scalar && !n.null() {
		return n.text
	}
	return valueOf(n)
}

// take converts a value to the type of the input and checks it against the enum.
func (i *Input) take(v any) (any, error) {
	v, err := i.convert(v)
	if err != nil || len(i.Enum) == 0 || slices.ContainsFunc(i.Enum, func(o any) bool { return equalValues(o, v) }) {
		return v, err
	}
	words := make([]string, len(i.Enum))
	for k, o := range i.Enum {
		words[k], _ = textOf(o)
	}
	text, _ := textOf(v)
	hint := ""
	if near, ok := nearest(text, words); ok {
		hint = ": did you mean " + quote(near) + "?"
	}
	return nil, fmt.Errorf("is one of %s, not %s%s", strings.Join(words, ", "), quote(text), hint)
}

func (i *Input) convert(v any) (any, error) {
	ok := true
	switch i.Type {
	case StringInput:
		_, ok = v.(string)
	case NumberInput:
		if n, whole := v.(int64); whole {
			return float64(n), nil
		}
		_, ok = v.(float64)
	case IntegerInput:
		if f, number := v.(float64); number && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
		_, ok = v.(int64)
	case BooleanInput:
		_, ok = v.(bool)
	case ArrayInput:
		_, ok = v.([]any)
	case ObjectInput:
		_, ok = v.(map[string]any)
	default: // anything
	}
	if ok {
		return v, nil
	}
	article := "a"
	if strings.ContainsRune("aio", rune(i.Type[0])) {
		article = "an"
	}
	return nil, fmt.Errorf("is %s %s, not %s: %s", article, i.Type, typeName(v), shortJSON(v))
}

func shortJSON(v any) string {
	s, err := JSONOf(v)
	if err != nil {
		return typeName(v)
	}
	if s != "" && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	return quote(s)
}

func equalValues(a, b any) bool {
	if x, ok := a.(int64); ok {
		a = float64(x)
	}
	if x, ok := b.(int64); ok {
		b = float64(x)
	}
	left, errLeft := JSONOf(a)
	right, errRight := JSONOf(b)
	return errLeft == nil && errRight == nil && left == right
}

// InputText is an input as a command line gives it, k=v: a string input takes the text as it is, every other type reads
// JSON.
type InputText struct{ Name, Text string }

// InputErrors is everything that is wrong with the inputs of a run, one sentence each.
type InputErrors []string

// Error is one line for each.
func (e InputErrors) Error() string { return strings.Join(e, "\n") }

// ResolveInputs makes the inputs of a run: what is given as text wins over what is given as values, such as the content
// of a file, and both over the defaults. Every declared input has a value then, null if nothing says another. The error
// is an InputErrors.
func (p *Plan) ResolveInputs(values map[string]any, texts []InputText) (map[string]any, error) {
	var wrong InputErrors
	given := make(map[string]any, len(values)+len(texts))
	maps.Copy(given, values)
	declared := make(map[string]*Input, len(p.Inputs))
	for i := range p.Inputs {
		declared[p.Inputs[i].Name] = &p.Inputs[i]
	}
	for _, t := range texts {
		given[t.Name] = t.Text
		in := declared[t.Name]
		if in == nil || in.Type == StringInput {
			continue
		}
		if v, err := ValueOfJSON(t.Text); err == nil {
			given[t.Name] = v
		}
	}
	resolved := make(map[string]any, len(p.Inputs))
	for i := range p.Inputs {
		in := &p.Inputs[i]
		v, ok := given[in.Name]
		switch {
		case ok && v == nil && !in.optional() && in.Required:
			wrong = append(wrong, fmt.Sprintf("the input %s is required, not null", quote(in.Name)))
		case ok && v != nil:
			kept, err := in.take(v)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("the input %s %s", quote(in.Name), err))
			}
			resolved[in.Name] = kept
		case !ok && in.Required:
			hint := ""
			if in.Description != "" {
				hint = ": " + printable(in.Description)
			}
			wrong = append(wrong, fmt.Sprintf("the input %s is required%s", quote(in.Name), hint))
		default:
			resolved[in.Name] = in.Default
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if declared[name] == nil {
			wrong = append(wrong, p.unknownInput(name))
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return resolved, nil
}

// unknownInput is a sentence about an input that is given and not declared.
func (p *Plan) unknownInput(name string) string {
	names := make([]string, len(p.Inputs))
	for i := range p.Inputs {
		names[i] = p.Inputs[i].Name
	}
	if near, ok := nearest(name, names); ok {
		return fmt.Sprintf("the workflow has no input %s: did you mean %s?", quote(name), quote(near))
	}
	if len(names) == 0 {
		return fmt.Sprintf("the workflow has no input %s: it has none", quote(name))
	}
	return fmt.Sprintf("the workflow has no input %s: it has %s", quote(name), strings.Join(names, ", "))
}
