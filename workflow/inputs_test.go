package workflow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const inputSource = `name: x
inputs:
  name: {type: string, required: true, description: whom to greet}
  n: {type: integer, default: 3}
  ratio: {type: number}
  flag: {type: boolean, default: false}
  list: {type: array}
  map: {type: object, default: {a: 1}}
  stage: {type: string, enum: [staging, production], default: staging}
  version: {type: string, default: 1.10}
  any:
jobs: [{name: j, steps: [{name: s, run: echo}]}]
`

func TestPlan_ResolveInputsGivesEveryInputItsTypedValue(t *testing.T) {
	t.Parallel()
	p, err := parse("f", []byte(inputSource), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.ResolveInputs(
		map[string]any{"name": "file", "n": 4.0, "any": map[string]any{"x": true}, "list": []any{"a"}},
		[]InputText{{"name", "42"}, {"ratio", "2"}, {"flag", "true"}, {"list", `[1, "b"]`}, {"stage", "production"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "42", "n": int64(4), "ratio": 2.0, "flag": true, "list": []any{int64(1), "b"}, "map": map[string]any{"a": int64(1)},
		"stage": "production", "version": "1.10", "any": map[string]any{"x": true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = p.ResolveInputs(map[string]any{"name": "x", "n": nil}, []InputText{{"any", "not json"}})
	if err != nil || got["n"] != int64(3) || got["any"] != "not json" || got["ratio"] != nil {
		t.Errorf("defaults: %v, %v", got, err)
	}
}

func TestPlan_ResolveInputsReportsEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	p, err := parse("f", []byte(inputSource), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.ResolveInputs(map[string]any{"map": []any{}}, []InputText{
		{"n", "1.5"}, {"ratio", "high"}, {"flag", "yes"}, {"list", "{}"}, {"stage", "prodction"}, {"namer", "x"}, {"q", "1"},
	})
	want := strings.Join([]string{
		"the input 'name' is required: whom to greet",
		"the input 'n' is an integer, not a number: '1.5'",
		"the input 'ratio' is a number, not a string: 'high'",
		"the input 'flag' is a boolean, not a string: 'yes'",
		"the input 'list' is an array, not an object: '{}'",
		"the input 'map' is an object, not an array: '[]'",
		"the input 'stage' is one of staging, production, not 'prodction': did you mean 'production'?",
		"the workflow has no input 'namer': did you mean 'name'?",
		"the workflow has no input 'q': it has name, n, ratio, flag, list, map, stage, version, any",
	}, "\n")
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValueOfJSON_KeepsWholeNumbersAndBoundsDepth(t *testing.T) {
	t.Parallel()
	v, err := ValueOfJSON(`{"a": 9007199254740993, "b": 1.5, "c": [null, "x"]}`)
	if want := map[string]any{"a": int64(9007199254740993), "b": 1.5, "c": []any{nil, "x"}}; err != nil || cmp.Diff(want, v) != "" {
		t.Errorf("got %v, %v", v, err)
	}
	for _, bad := range []string{"", "{", "1 2", "1e999", strings.Repeat("[", 100) + strings.Repeat("]", 100)} {
		if v, err := ValueOfJSON(bad); err == nil {
			t.Errorf("%s is taken as %v", bad, v)
		}
	}
}
