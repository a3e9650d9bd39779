package workflow

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// exprPlan is a workflow whose last step has one variable, X, with a value.
func exprPlan(value string) string {
	return `name: flow
inputs:
  name: {type: string, default: o'neill}
  n: {type: integer, default: 3}
  ratio: {type: number, default: 2}
  flag: {type: boolean, default: true}
  list: {type: array, default: [1, {a: b}, "x"]}
  map: {type: object, default: {k: v, 'a-b': {c: 1}}}
  maybe: {type: string}
  with-dash: {type: string, default: d}
  any:
jobs:
  - name: first
    steps: [{name: make, run: echo}]
  - name: other
    steps: [{name: make, run: echo}]
  - name: main
    dependsOn: [first]
    steps:
      - {name: build-image, run: echo}
      - {name: each, run: echo, forEach: {item: i, in: [a, b]}}
      - {name: aside, run: echo}
      - name: last
        run: echo
        dependsOn: [build-image, each]
        forEach: {item: it, in: [1]}
        env: {X: ` + value + `}
`
}

// found is what the run of exprPlan has come to.
type found struct{}

func (found) Step(ordinal int) StepResult {
	return StepResult{messages.StepSucceeded, map[string]string{"digest": fmt.Sprintf("sha-%d", ordinal), "json": `{"a":[1,2.5]}`}}
}

func (found) Instances(int) map[string]StepResult {
	return map[string]StepResult{"each-a": {messages.StepSucceeded, map[string]string{"k": "va"}}, "each-b": {messages.StepFailed, nil}}
}
func (found) Job(int) messages.StepStatus { return messages.StepSucceeded }

func (found) Latest(name string, version int64) (any, error) {
	if name == "none" {
		return nil, errors.New("no such artifact")
	}
	return map[string]any{"name": name, "version": version}, nil
}

func (found) Connected(labels map[string]string) ([]any, error) {
	return []any{map[string]any{"name": "w1", "labels": map[string]any{"gpu": labels["gpu"]}}}, nil
}

func scopeOf(t testing.TB, p *Plan) Scope {
	t.Helper()
	inputs, err := p.ResolveInputs(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Scope{
		Inputs: inputs, RunID: "r1", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Results: found{}, Host: found{},
		Item: map[string]any{"name": "item", "n": int64(7)},
	}
}

// exprValue evaluates the value of X, as one value.
func exprValue(t testing.TB, value string) (any, error) {
	t.Helper()
	p, err := parse("f", []byte(exprPlan(value)), nil)
	if err != nil {
		return nil, err
	}
	last := len(p.Steps) - 1
	scope := scopeOf(t, p)
	scope.plan = p
	x := p.Steps[last].Exprs
	if x == nil {
		return p.Steps[last].Env[0].Value, nil
	}
	return x.Env[0].value(&scope)
}

func TestTemplate_GivesTheValueOfItsExpressions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		value string
		want  any
	}{
		{`"${{ inputs.name }}"`, "o'neill"},
		{`"${{inputs.n}}"`, int64(3)},
		{`"n is ${{ inputs.n }}, ${{ inputs.flag }}"`, "n is 3, true"},
		{`"${{ inputs.n + 1 }}"`, int64(4)},
		{`"${{ inputs.ratio }} ${{ inputs.ratio / 4.0 }}"`, "2 0.5"},
		{`"${{ inputs.n > inputs.ratio }}"`, true},
		{`"${{ inputs.flag ? 'yes' : 'no' }}"`, "yes"},
		{`"${{ inputs.list[1].a }}"`, "b"},
		{`"${{ inputs.list }}!"`, `[1,{"a":"b"},"x"]!`},
		{`"${{ inputs.map['a-b'].c }}"`, int64(1)},
		{`"${{ inputs['with-dash'] }}"`, "d"},
		{`"${{ inputs.maybe }}"`, nil},
		{`"[${{ inputs.maybe }}]"`, "[]"},
		{`"${{ inputs.maybe == null }}"`, true},
		{`"${{ has(inputs.name) && !has(inputs.map.nope) }}"`, true},
		{`"${{ inputs.list.size() }}"`, int64(3)},
		{`"${{ [1, 2, 3].filter(x, x > inputs.n - 2).map(x, x * 2) }}"`, []any{int64(4), int64(6)}},
		{`"${{ {'a': {'b': inputs.n}} }}"`, map[string]any{"a": map[string]any{"b": int64(3)}}},
		{`"${{ '}}' + \"}}\" }}"`, "}}}}"},
		{`"${{ '${{ x }}' }}"`, "${{ x }}"},
		{`"${{ r'\\' }}"`, `\`},
		{`"$${{ inputs.n }}"`, "$3"},
		{`"plain { } }} $ {{ text"`, "plain { } }} $ {{ text"},
		{`"${{ run.id }} ${{ run.workflowName }} ${{ run.startedAt }}"`, "r1 flow 2026-01-02T03:04:05Z"},
		{`"${{ timestamp(run.startedAt).getFullYear() }}"`, int64(2026)},
		{`"${{ self.it.name + '-' + string(self.it.n) }}"`, "item-7"},
		{`"${{ self.it.n }}"`, int64(7)},
		{`"${{ steps['build-image'].outputs.digest }}"`, "sha-2"},
		{`"${{ steps['build-image'].outputs['digest'] + '!' }}"`, "sha-2!"},
		{`"${{ has(steps['build-image'].outputs.nope) }}"`, false},
		{`"${{ steps['build-image'].status }}"`, "succeeded"},
		{`"${{ fromJSON(steps['build-image'].outputs.json).a[1] }}"`, 2.5},
		{`"${{ steps.each.outputs['each-a'].k }}"`, "va"},
		{`"${{ steps.each.outputs.map(name, name).join(',').size() }}"`, int64(13)},
		{`"${{ jobs.first.status == 'succeeded' }}"`, true},
		{`"${{ jobs.first.steps.make.outputs.digest }}"`, "sha-0"},
		{`"${{ data.latest('report').version }} ${{ data.latest('report', 2).version }}"`, "0 2"},
		{`"${{ workers.connected().map(w, w.name) }}"`, []any{"w1"}},
		{`"${{ workers.connected({'gpu': 'a100'})[0].labels.gpu }}"`, "a100"},
		{`"${{ toJSON(inputs.map) }}"`, `{"a-b":{"c":1},"k":"v"}`},
		{`"${{ 'A,b'.lowerAscii().split(',').join('+').replace('+', '-').upperAscii().trim() }}"`, "A-B"},
		{`"two\n${{\n inputs.n\n + 1 }}\n"`, "two\n4\n"},
		{`"${{ duration('90s') }}"`, "1m30s"},
		{`"${{ 1.0 }} ${{ 1e20 }}"`, "1 100000000000000000000"},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			t.Parallel()
			got, err := exprValue(t, tt.value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplate_FailsWithASentenceAtRunTime(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 2000)
	tests := map[string]string{
		`"${{ steps['build-image'].outputs.nope }}"`: "the step 'build-image', which is succeeded, has no output 'nope': it has digest, json",
		`"${{ inputs.list[9] }}"`:                    "index out of bounds: 9",
		`"${{ inputs.list[9] + 1 }}"`:                "index out of bounds: 9",
		`"${{ inputs.map.nope }}"`:                   "there is no key 'nope'",
		`"${{ inputs.map.nope + 'x' }}"`:             "there is no key 'nope'",
		`"${{ self.it.n.x }}"`:                       "an integer has no 'x'",
		`"${{ data.latest('none') }}"`:               "data.latest('none'): no such artifact",
		`"${{ fromJSON('{') }}"`:                     "fromJSON of '{': read JSON: unexpected EOF",
		`"${{ 1 / (inputs.n - 3) }}"`:                "division by zero",
		`"${{ double(inputs.n) / 0.0 }}"`:            "the number is not finite",
		`"${{ [1,2,3,4,5,6,7,8,9,0].map(a,[1,2,3,4,5,6,7,8,9,0].map(b,[1,2,3,4,5,6,7,8,9,0].map(c,[1,2,3,4,5,6,7,8,9,0].map(d,[1,2,3,4,5,6,7,8,9,0].map(e,[1,2,3,4,5,6,7,8,9,0].map(f,f)))))) }}"`:                                                                                              "the evaluation was given up: it costs more than 2000000",
		`"${{ [dyn(inputs.list)].map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])).map(x,dyn([x,x,x,x,x,x,x,x,x,x])) == dyn([1]) }}"`: "the evaluation was given up: it costs more than 2000000",
		`"${{ '` + big + `'.replace('', '` + big + `') }}"`: "a value is longer than 1048576 bytes",
		`"${{ type(1) }}"`: "a value of the type type cannot be the result of an expression",
	}
	for value, want := range tests {
		t.Run(value[:min(len(value), 60)], func(t *testing.T) {
			t.Parallel()
			got, err := exprValue(t, value)
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("got %v and %v, want an error with %q", got, err, want)
			}
		})
	}
}
