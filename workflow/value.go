package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Values of inputs and expressions are nil, bool, int64, float64, string, []any and map[string]any.

// Bounds of one value.
const (
	maxValueBytes = 1 << 20
	maxValueItems = 100_000
	maxValueDepth = 64
)

// ValueOfJSON reads a value from JSON. Whole numbers are int64 where they fit.
func ValueOfJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if dec.More() {
		return nil, errors.New("read JSON: something follows the value")
	}
	return plainValue(v, 0)
}

// plainValue turns the numbers of a decoder into ours.
func plainValue(v any, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("a value is nested at most %d levels deep", maxValueDepth)
	}
	var err error
	switch v := v.(type) {
	case json.Number:
		return numberOf(string(v))
	case []any:
		for i := range v {
			if v[i], err = plainValue(v[i], depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = plainValue(v[k], depth+1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func numberOf(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("%s is no number that can be kept", quote(s))
	}
	return f, nil
}

// JSONOf is the JSON of a value, with the keys of maps in order.
func JSONOf(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// textOf is a value as it stands in a text: a string as it is, nothing for null, JSON for lists and maps.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
		return JSONOf(v)
	default:
		return JSONOf(v)
	}
}

// typeName is how people call the type of a value.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}

// valueOf is what the file writes: texts in quotes are strings, and plain ones what YAML says that they are.
func valueOf(n *node) any {
	switch {
	case n.kind == list:
		v := make([]any, len(n.items))
		for i, item := range n.items {
			v[i] = valueOf(item)
		}
		return v
	case n.kind == mapping:
		v := make(map[string]any, len(n.entries))
		for i := range n.entries {
			v[n.entries[i].key] = valueOf(n.entries[i].value)
		}
		return v
	case n.null():
		return nil
	case !n.plain:
		return n.text
	}
	switch n.text {
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if _, ok := number(n); ok {
		if v, err := numberOf(strings.TrimPrefix(n.text, "+")); err == nil {
			return v
		}
	}
	return n.text
}
