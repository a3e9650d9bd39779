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

func TestParse_GivesTheWholePlan(t *testing.T) {
	t.Parallel()
	src := `name: fan
labels: {pool: cpu}
jobs:
  - name: gather
    dependsOn: [work, {job: work}]
    steps:
      - name: gather
        labels: {}
        task: {type: model_method, modelType: test/noop, methodName: noop, inputs: {z: 1.10, a: true}}
  - name: work
    steps:
      - {name: two, run: echo 2, dependsOn: [{step: one, condition: {type: succeeded}}, one], timeout: 1.5}
      - {name: one, run: echo 1, queueTimeout: 0, onWorkerLost: fail, env: {B: 2, A: 1}}
`
	pool := messages.Placement{Labels: messages.Labels{{Key: "pool", Value: "cpu"}}}
	want := &Plan{
		Name: "fan",
		Jobs: []Job{{Name: "gather", Needs: []int{1}, Steps: []int{0}}, {Name: "work", Steps: []int{1, 2}}},
		Steps: []Step{
			{
				Name: "gather", Job: 0, Model: "test/noop", Method: "noop", Args: []Arg{{Name: "a", Value: "true"}, {Name: "z", Value: "1.10"}},
				OnWorkerLost: messages.LostRequeue,
			},
			{
				Name: "two", Job: 1, Needs: []int{2}, Model: "command/shell", Method: "run", Args: []Arg{{Name: "run", Value: "echo 2"}},
				Placement: pool, Timeout: 1500 * time.Millisecond, OnWorkerLost: messages.LostRequeue,
			},
			{
				Name: "one", Job: 1, Model: "command/shell", Method: "run", Args: []Arg{{Name: "run", Value: "echo 1"}},
				Placement: pool, QueueTimeout: ptr(time.Duration(0)), OnWorkerLost: messages.LostFail,
				Env: messages.Labels{{Key: "A", Value: "1"}, {Key: "B", Value: "2"}},
			},
		},
	}
	got, err := Parse("f", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want.index()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Plan{}, stepName{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, step := range want.Steps {
		job := want.Jobs[step.Job].Name
		if o, ok := got.Ordinal(job, step.Name); o != i || !ok {
			t.Errorf("step %s of job %s has the ordinal %d (%t), want %d", step.Name, job, o, ok, i)
		}
		if o, ok := (&Plan{Jobs: want.Jobs, Steps: want.Steps}).Ordinal(job, step.Name); o != i || !ok {
			t.Errorf("without an index step %s of job %s has the ordinal %d (%t), want %d", step.Name, job, o, ok, i)
		}
	}
	if _, ok := got.Ordinal("gather", "one"); ok {
		t.Error("job gather has a step of job work")
	}
}

func TestParse_RunAndItsTaskAreTheSameCall(t *testing.T) {
	t.Parallel()
	long := "name: w\njobs:\n- name: j\n  steps:\n  - name: s\n    task:\n      type: model_method\n      modelType: command/shell\n" +
		"      methodName: run\n      inputs:\n        run: echo\n"
	a, errA := Parse("f", []byte("name: w\njobs:\n- name: j\n  steps:\n  - name: s\n    run: echo\n"))
	b, errB := Parse("f", []byte(long))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(Plan{}, stepName{})); diff != "" {
		t.Errorf("(-run +task):\n%s", diff)
	}
}

func TestParse_HostileSourcesAreRefusedWithTheLimitThatTheyPass(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	fill := func(s string) string { return strings.Repeat(s, mib/len(s)) }
	keys := func(indent string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%sk%d: v\n", indent, i)
		}
		return b.String()
	}
	steps := "name: x\njobs:\n- name: j\n  steps:\n"
	// Each of these is a second of somebody's processor, or all of the memory, where reading is not linear.
	tests := []struct{ name, src, want string }{
		{"a file of ten megabytes", strings.Repeat("a", 10*mib), "1:1: the file has 10485760 bytes: a workflow has at most 1048576"},
		{"one byte too many", fill("#") + "\n", "a workflow has at most 1048576"},
		{"100,000 brackets", strings.Repeat("[", 100_000), "1:101: nested deeper than 100 levels"},
		{"100,000 braces", strings.Repeat("{a: ", 100_000), "1:401: nested deeper than 100 levels"},
		{"100,000 dashes", strings.Repeat("- ", 100_000), "1:201: nested deeper than 100 levels"},
		{"keys that nest by indentation", nested(200), "101:101: nested deeper than 100 levels"},
		{"lists that nest by lines", nestedList(200), "101:101: nested deeper than 100 levels"},
		{"an alias bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\njobs: *c\n", "1:4: anchors are not supported"},
		{"half a million aliases", "a: [" + strings.Repeat("*a,", 300_000) + "]", "100 errors are shown, there are 299903 more"},
		{"half a million steps", steps + strings.Repeat("  -\n", 200_000), "the workflow has 200000 steps: at most 100000"},
		{"100,001 steps in two jobs", steps + strings.Repeat("  -\n", 50_000) + "- name: k\n  steps:\n" + strings.Repeat("  -\n", 50_001), "the workflow has 100001 steps"},
		{"60,000 steps without a name", steps + strings.Repeat("  - run: echo\n", 60_000), "100 errors are shown, there are 59900 more"},
		{"60,000 steps of one name", steps + strings.Repeat("  - {name: a}\n", 60_000), "a second step named 'a'"},
		{"90,000 keys", keys("", 90_000), "unknown key 'k0' in a workflow"},
		{"80,000 variables", "env:\n" + keys("  ", 80_000), "a workflow needs a 'name'"},
		{"the same key 200,000 times", fill("a: b\n"), "the key 'a' is given twice, the first time in line 1"},
		{"empty lines below a block", "a: |\n" + strings.Repeat("\n", mib-10), "unknown key 'a'"},
		{"blocks without end", fill("a: >\n\n"), "the key 'a' is given twice"},
		{"text of a million lines", fill("a\n\n"), `a workflow must be a map, but is the text 'a\na\n`},
		{"quotes without end", fill("'\n"), "3:1: this does not belong"},
		{"one quote that never ends", `a: "` + strings.Repeat(`\n`, mib/2-10), "this quote is not closed"},
		{"a quote with a million lines", "a:\n  '" + strings.Repeat("\n", mib-20) + "  '", "unknown key 'a'"},
		{"spaces only", fill(" "), "the file is empty"},
		{"tabs only", fill("\t"), "the file is empty"},
		{"line ends only", fill("\n"), "the file is empty"},
		{"comments only", fill("#\n"), "the file is empty"},
		{"a wide line before many small items", "jobs:" + strings.Repeat(" ", mib/2) + "[" + strings.Repeat("1,", mib/4-10) + "]", "a job must be a map"},
		{"documents", fill("---\n"), "2:1: a file holds one workflow"},
		{"anchors", fill("&a "), "anchors are not supported"},
		{"tags", fill("!!a "), "tags are not supported"},
		{"question marks", fill("? "), "'? ' keys are not supported"},
		{"colons", fill(":"), "unknown key"},
		{"a key of a megabyte", strings.Repeat("k", mib-10) + ": v", "unknown key 'kkkkkkkkkk"},
		{"a name of a megabyte", "name: " + strings.Repeat("n", mib-10), "'name' has 1048566 bytes: at most 128"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f", []byte(tt.src))
			var found Diagnoses
			if !errors.As(err, &found) {
				t.Fatal("it is not refused")
			}
			text := found.Error()
			if !strings.Contains(text, tt.want) {
				t.Errorf("want %q in\n%.2000s", tt.want, text)
			}
			if len(found) > maxDiagnoses+1 || len(found.Detail()) > 200_000 {
				t.Errorf("%d diagnoses of %d bytes", len(found), len(found.Detail()))
			}
		})
	}
}

func TestRead_TheDepthOfWhatIsCompleteDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"- - a\n", "- a: b\n", "- [a]\n", "- {a: b}\n", "-\n  - a\n", "-\n  a:\n  - b\n"} {
		if _, wrong := readTree(strings.Repeat(part, 3*maxNesting)); wrong != "" {
			t.Errorf("%q: %s", part, wrong)
		}
	}
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func nestedList(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "-\n")
	}
	return b.String()
}

func TestParse_EveryKnownKeyIsTakenAndEveryOtherIsUnknown(t *testing.T) {
	t.Parallel()
	// where holds for each level a source in which KEY stands in a map of it.
	const step = "name: w\njobs:\n- name: j\n  steps:\n  - name: r\n    run: echo\n  - name: s\n"
	where := [levels]string{
		inWorkflow: "name: w\nKEY\njobs: [{name: j, steps: [{name: s, run: echo}]}]\n", inJob: "name: w\njobs:\n- name: j\n  KEY\n  steps: [{name: s, run: echo}]\n",
		inStep: step + "    KEY\n", inTask: step + "    task:\n      type: model_method\n      KEY\n", inNested: step + "    task:\n      type: workflow\n      KEY\n",
		inApproval: step + "    task:\n      type: manual_approval\n      KEY\n", inAssert: step + "    task:\n      type: assert\n      KEY\n",
		inDependency: step + "    dependsOn:\n    - step: r\n      KEY\n", inCondition: step + "    dependsOn:\n    - step: r\n      condition:\n        type: failed\n        KEY\n",
		inInput: "name: w\ninputs:\n  i:\n    KEY\n", inForEach: step + "    forEach:\n      KEY\n", inRetry: step + "    retry:\n      KEY\n",
		inBackoff: step + "    retry:\n      max: 1\n      backoff:\n        KEY\n", inStop: step + "    stop:\n      KEY\n",
		inConcurrency: step + "    concurrency:\n      KEY\n", inPreferred: step + "    prefer:\n    - weight: 1\n      KEY\n",
	}
	for l := range levels {
		for _, key := range l.keys() {
			_, err := parse("f", []byte(strings.Replace(where[l], "KEY", key+": 1", 1)), nil)
			if text := fmt.Sprint(err); strings.Contains(text, "unknown key") {
				t.Errorf("%s: the key %s is unknown: %s", l, key, text)
			}
		}
		_, err := parse("f", []byte(strings.Replace(where[l], "KEY", "xyzzy: 1", 1)), nil)
		if !strings.Contains(fmt.Sprint(err), "unknown key 'xyzzy' in "+l.String()) {
			t.Errorf("%s takes any key: %v", l, err)
		}
	}
}

func TestParse_FindsErrorsOfAllKindsAtOnceInFileOrder(t *testing.T) {
	t.Parallel()
	src := "name: x\nlabelz: {}\njobs:\n- name: a\n  dependsOn: [b]\n  steps:\n  - {name: s, run: echo, timeout: 5m}\n" +
		"  - {name: s, run: echo, dependsOn: [nobody]}\n- name: b\n  dependsOn: [a]\n  steps: []\n"
	_, err := Parse("f", []byte(src))
	var found Diagnoses
	if !errors.As(err, &found) {
		t.Fatal("it is not refused")
	}
	var lines []int
	for _, d := range found {
		lines = append(lines, d.Line)
	}
	if diff := cmp.Diff([]int{2, 5, 7, 8, 8, 11}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, err)
	}
}

func TestDiagnosis_StringIsOneHarmlessLine(t *testing.T) {
	t.Parallel()
	src := "name: x\n\"a\\nb\\e[31m\\u202e\": 1\n"
	_, err := Parse("dir/f\n\x1b.yaml", []byte(src))
	text := err.Error()
	if want := "dir/f��.yaml:1:1: a workflow needs 'jobs'\ndir/f��.yaml:2:1: unknown key 'a\\nb�[31m�' in a workflow"; !strings.HasPrefix(text, want) {
		t.Errorf("got %q", text)
	}
}

func TestDiagnosis_SourceIsBoundedAndWholeCharacters(t *testing.T) {
	t.Parallel()
	src := "name: x\njobs: []\nx" + strings.Repeat("é", 2000) + ": 1\n"
	_, err := Parse("f", []byte(src))
	var found Diagnoses
	if !errors.As(err, &found) {
		t.Fatal("it is not refused")
	}
	last := found[len(found)-1]
	if want := "x" + strings.Repeat("é", maxSourceBytes/2-1); last.Source != want {
		t.Errorf("source is %q", last.Source)
	}
	far := Diagnosis{File: "f", Line: 1, Column: 5000, Text: "far", Source: last.Source}
	if want := "f:1:5000: far\n"; far.Detail() != want {
		t.Errorf("a place beyond the source shows %q", far.Detail())
	}
	tab := Diagnosis{File: "f", Line: 12, Column: 4, Text: "here", Source: "\ta b"}
	if want := "f:12:4: here\n  12 | \ta b\n     | \t  ^\n"; tab.Detail() != want {
		t.Errorf("a tab shows %q", tab.Detail())
	}
}

func TestNearest_FindsWhatWasMeantAndNothingElse(t *testing.T) {
	t.Parallel()
	words := inStep.keys()
	tests := map[string]string{
		"labelz": "labels", "label": "labels", "lables": "labels", "Labels": "labels", "queue_timeout": "queueTimeout",
		"depends-on": "dependsOn", "dependOn": "dependsOn", "rnu": "run", "tsak": "task", "nam": "name", "timeouts": "timeout",
		"x": "", "": "", "on": "", "description": "", "if": "", "labelssss": "", "run it": "",
	}
	for word, want := range tests {
		if got, ok := nearest(word, words); got != want || ok != (want != "") {
			t.Errorf("nearest to %q is %q, not %q", word, got, want)
		}
	}
}
