package workflow

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// conforms checks a value against the part of JSON Schema that Schema uses, and fails on any other.
func conforms(root, s map[string]any, v any) error {
	for keyword := range s {
		switch keyword {
		case "$schema", "title", "$defs", "description", "$ref", "type", "enum", "const", "anyOf", "oneOf", "properties", "additionalProperties", "required", "items", "minItems":
		default:
			return fmt.Errorf("the test does not know the keyword %s", keyword)
		}
	}
	if r, ok := s["$ref"].(string); ok {
		def, ok := root["$defs"].(map[string]any)[strings.TrimPrefix(r, "#/$defs/")].(map[string]any)
		if !ok {
			return fmt.Errorf("there is no %s", r)
		}
		if err := conforms(root, def, v); err != nil {
			return err
		}
	}
	if types, ok := s["type"]; ok {
		names, many := types.([]any)
		if !many {
			names = []any{types}
		}
		if !slices.ContainsFunc(names, func(n any) bool { return isType(n.(string), v) }) {
			return fmt.Errorf("%v is no %v", v, types)
		}
	}
	if words, ok := s["enum"].([]any); ok && !slices.Contains(words, v) {
		return fmt.Errorf("%v is none of %v", v, words)
	}
	if c, ok := s["const"]; ok && c != v {
		return fmt.Errorf("%v is not %v", v, c)
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		all, ok := s[keyword].([]any)
		if !ok {
			continue
		}
		var why []string
		for _, one := range all {
			if err := conforms(root, one.(map[string]any), v); err != nil {
				why = append(why, err.Error())
			}
		}
		if n := len(all) - len(why); n == 0 || keyword == "oneOf" && n != 1 {
			return fmt.Errorf("%d of %s: %s", n, keyword, strings.Join(why, "; "))
		}
	}
	switch v := v.(type) {
	case []any:
		if n, ok := s["minItems"].(float64); ok && float64(len(v)) < n {
			return fmt.Errorf("%d items", len(v))
		}
		if items, ok := s["items"].(map[string]any); ok {
			for _, item := range v {
				if err := conforms(root, items, item); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		return conformsMap(root, s, v)
	}
	return nil
}

func conformsMap(root, s, v map[string]any) error {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%v is missing", name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, value := range v {
		p, ok := properties[name].(map[string]any)
		switch more := s["additionalProperties"].(type) {
		case bool:
			if !ok && !more {
				return fmt.Errorf("unknown %s", name)
			}
		case map[string]any:
			if !ok {
				p, ok = more, true
			}
		}
		if ok {
			if err := conforms(root, p, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func isType(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case int64:
		return name == "number" || name == "integer"
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

func schemaOf(t *testing.T) map[string]any {
	t.Helper()
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchema_EveryValidSourceConforms(t *testing.T) {
	t.Parallel()
	s := schemaOf(t)
	for file, src := range sources(t, "valid") {
		var found findings
		text, _ := checkBytes(string(src), &found)
		n := read(text, &found)
		if n == nil || len(found.list) > 0 {
			t.Fatalf("%s cannot be read", file)
		}
		if err := conforms(s, s, valueOf(n)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchema_RefusesWhatTheParserRefusesOfKeysAndTypes(t *testing.T) {
	t.Parallel()
	s := schemaOf(t)
	for _, src := range []string{
		"name: x", "name: x\njobs: []", "name: x\njobs: {}\n", "name: x\njobs: [{name: j, steps: [{name: s, run: a, foo: 1}]}]",
		"name: x\njobs: [{name: j, steps: [{name: s}]}]", "name: x\njobs: [{name: j, steps: [{name: s, run: a, timeout: 5m}]}]",
		"name: x\njobs: [{name: j, steps: [{name: s, run: a, task: {type: assert, expr: a}}]}]",
		"name: x\njobs: [{name: j, steps: [{name: s, run: a, retry: {max: 1, on: never}}]}]",
	} {
		var found findings
		if err := conforms(s, s, valueOf(read(src, &found))); err == nil {
			t.Errorf("the schema takes %s", src)
		}
		if _, err := parse("f", []byte(src), nil); err == nil {
			t.Errorf("the parser takes %s", src)
		}
	}
}
