package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/messages"
)

// oneStep parses a workflow with one step, with lines for the keys of workflow, job and step.
func oneStep(t *testing.T, workflow, job, step string) (Step, []Diagnosis) {
	t.Helper()
	var b strings.Builder
	put := func(indent, text string) {
		for line := range strings.Lines(text) {
			b.WriteString(indent + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	put("", "name: w")
	put("", workflow)
	put("", "jobs:\n- name: j")
	put("  ", job)
	put("  ", "steps:\n- name: s\n  run: echo")
	put("    ", step)
	p, err := Parse("f", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return p.Steps[0], p.Warnings
}

// layers are the ways to give one key at each of three levels; nested is called for every combination.
func layers(texts []string, nested func(workflow, job, step int)) {
	for w := range texts {
		for j := range texts {
			for s := range texts {
				nested(w, j, s)
			}
		}
	}
}

// innermost is the value of the innermost level that gives one.
func innermost[T any](values []*T, w, j, s int) *T {
	for _, i := range []int{s, j, w} {
		if values[i] != nil {
			return values[i]
		}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

func TestPlacement_EachFieldComesFromTheInnermostLevelThatGivesIt(t *testing.T) {
	t.Parallel()
	type field struct {
		texts  []string
		values []*messages.Placement
	}
	fields := map[string]field{
		"target": {
			[]string{"", `target: ""`, "target: gpu-1", "target: gpu-2"},
			[]*messages.Placement{nil, {}, {Target: "gpu-1"}, {Target: "gpu-2"}},
		},
		"platform": {
			[]string{"", `platform: ''`, "platform: linux", "platform: darwin/arm64"},
			[]*messages.Placement{nil, {}, {Platform: "linux"}, {Platform: "darwin/arm64"}},
		},
		"labels": {
			[]string{"", "labels: {}", "labels: {b: 1, a: true}", "labels:\n  c: x"},
			[]*messages.Placement{
				nil, {},
				{Labels: messages.Labels{{Key: "a", Value: "true"}, {Key: "b", Value: "1"}}},
				{Labels: messages.Labels{{Key: "c", Value: "x"}}},
			},
		},
	}
	for name, f := range fields {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layers(f.texts, func(w, j, s int) {
				step, _ := oneStep(t, f.texts[w], f.texts[j], f.texts[s])
				want := messages.Placement{}
				if v := innermost(f.values, w, j, s); v != nil {
					want = *v
				}
				if diff := cmp.Diff(want, step.Placement); diff != "" {
					t.Errorf("%q %q %q (-want +got):\n%s", f.texts[w], f.texts[j], f.texts[s], diff)
				}
			})
		})
	}
}

func TestPlacement_FieldsAreInheritedOneByOne(t *testing.T) {
	t.Parallel()
	step, _ := oneStep(t, "target: a\nlabels: {x: 1}\nplatform: linux", "labels: {y: 2}\ntarget: ''", "platform: darwin")
	want := messages.Placement{Labels: messages.Labels{{Key: "y", Value: "2"}}, Platform: "darwin"}
	if diff := cmp.Diff(want, step.Placement); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlacement_TheOrderOfKeysDoesNotMatter(t *testing.T) {
	t.Parallel()
	src := "jobs:\n- steps:\n  - run: echo\n    name: s\n  labels: {b: 2}\n  name: j\nlabels: {a: 1}\nplatform: linux\nname: w\n"
	p, err := Parse("f", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := messages.Placement{Labels: messages.Labels{{Key: "b", Value: "2"}}, Platform: "linux"}
	if diff := cmp.Diff(want, p.Steps[0].Placement); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlacement_ANullClearsAndWarns(t *testing.T) {
	t.Parallel()
	step, warnings := oneStep(t, "labels: {x: 1}\ntarget: a\nplatform: linux", "", "labels:\ntarget: ~\nplatform: null")
	if !step.Placement.IsZero() {
		t.Errorf("placement is %v", step.Placement)
	}
	for i, key := range []string{"labels", "target", "platform"} {
		if len(warnings) != 3 || !strings.Contains(warnings[i].Text, "'"+key+"' is empty") {
			t.Fatalf("warnings are %v", warnings)
		}
	}
}

func TestPlacement_StepsOfOneWorkflowDoNotShareWhatTheyReplace(t *testing.T) {
	t.Parallel()
	src := "name: w\nlabels: {x: 1}\nenv: {A: w, B: w}\njobs:\n- name: j\n  steps:\n" +
		"  - {name: a, run: echo, labels: {y: 2}, env: {A: a}}\n  - {name: b, run: echo, env: {B: b}}\n  - {name: c, run: echo}\n"
	p, err := Parse("f", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]string{}
	for _, s := range p.Steps {
		got[s.Name] = [2]string{s.Placement.Labels.String(), s.Env.String()}
	}
	want := map[string][2]string{"a": {"y=2", "A=a,B=w"}, "b": {"x=1", "A=w,B=b"}, "c": {"x=1", "A=w,B=w"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQueueTimeout_TheInnermostLevelWinsAndZeroIsAValue(t *testing.T) {
	t.Parallel()
	texts := []string{"", "queueTimeout: 0", "queueTimeout: 1.5", "queueTimeout: 5400"}
	values := []*time.Duration{nil, ptr(time.Duration(0)), ptr(1500 * time.Millisecond), ptr(90 * time.Minute)}
	layers(texts, func(w, j, s int) {
		step, _ := oneStep(t, texts[w], texts[j], texts[s])
		if diff := cmp.Diff(innermost(values, w, j, s), step.QueueTimeout); diff != "" {
			t.Errorf("%q %q %q (-want +got):\n%s", texts[w], texts[j], texts[s], diff)
		}
	})
}

func TestOnWorkerLost_TheInnermostLevelWinsAndTheDefaultIsRequeue(t *testing.T) {
	t.Parallel()
	texts := []string{"", "onWorkerLost: requeue", "onWorkerLost: fail"}
	values := []*messages.OnWorkerLost{nil, ptr(messages.LostRequeue), ptr(messages.LostFail)}
	layers(texts, func(w, j, s int) {
		step, _ := oneStep(t, texts[w], texts[j], texts[s])
		want := messages.LostRequeue
		if v := innermost(values, w, j, s); v != nil {
			want = *v
		}
		if step.OnWorkerLost != want {
			t.Errorf("%q %q %q: %s, not %s", texts[w], texts[j], texts[s], step.OnWorkerLost, want)
		}
	})
}

func TestEnv_IsMergedNameByNameInKeyOrder(t *testing.T) {
	t.Parallel()
	texts := []string{"", "env: {}", "env: {B: %s, A: %s}", "env: {C: %s}", `env: {A: "", D: %s}`}
	keys := [][]string{nil, nil, {"A", "B"}, {"C"}, {"A", "D"}}
	level := func(text, name string) string { return strings.ReplaceAll(text, "%s", name) }
	layers(texts, func(w, j, s int) {
		step, _ := oneStep(t, level(texts[w], "workflow"), level(texts[j], "job"), level(texts[s], "step"))
		merged := map[string]string{}
		put(merged, keys[w], texts[w], "workflow")
		put(merged, keys[j], texts[j], "job")
		put(merged, keys[s], texts[s], "step")
		if diff := cmp.Diff(messages.LabelsOf(merged), step.Env, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q %q %q (-want +got):\n%s", texts[w], texts[j], texts[s], diff)
		}
	})
}

func put(merged map[string]string, keys []string, text, level string) {
	for _, k := range keys {
		merged[k] = level
		if strings.Contains(text, k+`: ""`) {
			merged[k] = ""
		}
	}
}

func TestQueueTimeout_WithoutAPlacementIsAWarning(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                string
		workflow, job, step string
		want                []string // places of the warnings
	}{
		{"a step that is placed", "", "", "queueTimeout: 5\ntarget: a", nil},
		{"a step that is placed by its job", "", "labels: {a: b}", "queueTimeout: 5", nil},
		{"a step that is placed by its workflow", "platform: linux", "", "queueTimeout: 0", nil},
		{"a step without placement", "", "", "queueTimeout: 5", []string{"7:5"}},
		{"a step that clears its placement", "target: a", "", "queueTimeout: 5\ntarget: ''", []string{"8:5"}},
		{"a job without a placed step", "", "queueTimeout: 5", "", []string{"4:3"}},
		{"a job with a placed step", "", "queueTimeout: 5", "target: a", nil},
		{"a workflow without a placed step", "queueTimeout: 5", "", "", []string{"2:1"}},
		{"a workflow with a placed step", "queueTimeout: 5", "", "target: a", nil},
		{"a workflow whose job is placed", "queueTimeout: 5", "target: a", "", nil},
		{"all three", "queueTimeout: 5", "queueTimeout: 6", "queueTimeout: 7", []string{"2:1", "5:3", "9:5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, warnings := oneStep(t, tt.workflow, tt.job, tt.step)
			var got []string
			for _, w := range warnings {
				if !strings.HasPrefix(w.Text, "'queueTimeout' without") {
					t.Errorf("another warning: %s", w)
				}
				got = append(got, fmt.Sprintf("%d:%d", w.Line, w.Column))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeconds_AreReadExactly(t *testing.T) {
	t.Parallel()
	tests := map[string]time.Duration{
		"0": 0, "-0": 0, "0.0": 0, "1": time.Second, "+1": time.Second, "1.5": 1500 * time.Millisecond, "0.001": time.Millisecond,
		".5": 500 * time.Millisecond, "1.1": 1100 * time.Millisecond, "1e3": 1000 * time.Second, "2.5E-1": 250 * time.Millisecond,
		"0.123456789": 123456789, "86400": 24 * time.Hour, "315360000": 87600 * time.Hour, "007": 7 * time.Second,
		"1.001": 1001 * time.Millisecond, "2.01": 2010 * time.Millisecond,
	}
	for text, want := range tests {
		step, _ := oneStep(t, "", "", "timeout: "+text+"\nlabels: {a: b}\nqueueTimeout: "+text)
		if step.Timeout != want || *step.QueueTimeout != want {
			t.Errorf("%s is %v and %v, not %v", text, step.Timeout, *step.QueueTimeout, want)
		}
	}
}
