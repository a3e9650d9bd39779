package workflow

import (
	"encoding/json"
	"fmt"
)

// Schema is a JSON Schema (draft 2020-12) of workflow files, for editors. It is made of the tables that the parser reads
// by, so that it knows the same keys. What is behind a key it says roughly: expressions may stand for much, and what
// belongs together Parse tells better.
func Schema() ([]byte, error) {
	defs := map[string]any{}
	for l := range levels {
		defs[l.define()] = l.schema()
	}
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "swampd workflow", "$ref": "#/$defs/" + inWorkflow.define(), "$defs": defs,
	}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return append(b, '\n'), nil
}

// define is the name of a level in the schema.
func (l level) define() string {
	return [levels]string{
		"workflow", "job", "step", "modelMethod", "nestedWorkflow", "manualApproval", "assert", "dependency", "condition",
		"input", "forEach", "retry", "backoff", "stop", "concurrency", "preference",
	}[l]
}

func refTo(l level) map[string]any { return map[string]any{"$ref": "#/$defs/" + l.define()} }

// needed are the keys that a map of the level cannot do without.
func (l level) needed() []string {
	switch l {
	case inWorkflow:
		return []string{"name", "jobs"}
	case inJob:
		return []string{"name", "steps"}
	case inStep:
		return []string{"name"}
	case inTask:
		return []string{"type", "modelType", "methodName"}
	case inNested:
		return []string{"type", "file"}
	case inApproval:
		return []string{"type", "prompt"}
	case inAssert:
		return []string{"type", "expr"}
	case inCondition:
		return []string{"type"}
	case inForEach:
		return []string{"item", "in"}
	case inRetry:
		return []string{"max"}
	case inPreferred:
		return []string{"labels"}
	default:
		return nil
	}
}

func (l level) schema() map[string]any {
	properties := map[string]any{}
	for _, k := range l.table() {
		s := k.typ.schema()
		if k.doc != "" {
			s["description"] = k.doc
		}
		properties[k.name] = s
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if l.needed() != nil {
		out["required"] = l.needed()
	}
	if l == inStep {
		out["oneOf"] = []any{map[string]any{"required": []string{"run"}}, map[string]any{"required": []string{"task"}}}
	}
	for name, task := range taskKinds() {
		if task == l {
			properties["type"] = map[string]any{"const": name}
		}
	}
	return out
}

// schema is what may stand behind a key.
func (t keyType) schema() map[string]any {
	of := func(kinds ...string) map[string]any { return map[string]any{"type": kinds} }
	scalar := []string{"string", "number", "boolean"}
	switch t {
	case textKey, scalarKey:
		return of(scalar...)
	case clearableKey:
		return of(append(scalar, "null")...)
	case numberKey:
		return of("number")
	case integerKey:
		return of("integer")
	case booleanKey:
		return of("boolean")
	case textsKey:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": of(scalar...)}
	case valuesKey:
		return of("array", "object", "string")
	case argsKey:
		return of("object", "string")
	case listKey:
		return of("array")
	case jobsKey:
		return listOf(refTo(inJob))
	case stepsKey:
		return listOf(refTo(inStep))
	case taskKey:
		return oneSchema(refTo(inTask), refTo(inNested), refTo(inApproval), refTo(inAssert))
	case inputsKey:
		return map[string]any{"type": "object", "additionalProperties": oneSchema(refTo(inInput), of("null"))}
	case jobNeedsKey, stepNeedsKey:
		return oneSchema(of(scalar...), map[string]any{"type": "array", "items": oneSchema(of(scalar...), refTo(inDependency))})
	default:
		return t.small()
	}
}

func (t keyType) small() map[string]any {
	of := func(kinds ...string) map[string]any { return map[string]any{"type": kinds} }
	words := func(words ...string) map[string]any { return map[string]any{"enum": words} }
	switch t {
	case conditionKey:
		return oneSchema(words(conditionWords(false)...), refTo(inCondition))
	case conditionsKey:
		return map[string]any{"type": "array", "minItems": 2, "items": conditionKey.small()}
	case conditionTypeKey:
		return words(conditionWords(true)...)
	case forEachKey:
		return refTo(inForEach)
	case retryKey:
		return oneSchema(of("integer"), refTo(inRetry))
	case backoffKey:
		return oneSchema(of("number"), refTo(inBackoff))
	case retryOnKey:
		one := oneSchema(words("failure", "lost", "timeout"), of("integer"))
		return oneSchema(words("failure", "lost", "timeout"), of("integer"), map[string]any{"type": "array", "items": one})
	case stopKey:
		return refTo(inStop)
	case concurrencyKey:
		return oneSchema(of("integer"), refTo(inConcurrency))
	case preferKey:
		return oneSchema(textsKey.schema(), map[string]any{"type": "array", "items": refTo(inPreferred)})
	case typeNameKey:
		return words(append(inputTypes(), "list", "map", "int", "bool")...)
	case taskTypeKey:
		return words(taskTypes()...)
	case lostKey:
		return words("requeue", "fail")
	case severityKey:
		return words(string(LowSeverity), string(MediumSeverity), string(HighSeverity))
	case shellKey:
		return words(shells()...)
	case signalKey:
		all := signals()
		for _, s := range signals() {
			all = append(all, "SIG"+s)
		}
		return words(all...)
	default:
		return map[string]any{}
	}
}

func listOf(s map[string]any) map[string]any {
	return map[string]any{"type": "array", "minItems": 1, "items": s}
}

func oneSchema(all ...map[string]any) map[string]any { return map[string]any{"anyOf": all} }
