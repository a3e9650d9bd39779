package workflow

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// FuzzParse checks what holds for any source: no panic, the same answer twice, diagnoses that a script can read, and
// plans that a run can follow to its end.
func FuzzParse(f *testing.F) {
	for _, folder := range []string{"valid", "invalid"} {
		for _, src := range sources(f, folder) {
			f.Add(src)
		}
	}
	for _, tt := range documents() {
		f.Add([]byte(tt.src))
	}
	for _, src := range []string{
		"\ufeff", "\ufeff\ufeff", "---", "...", "--- ---", "-", "?", ":", "'", "\"", "\"\\", "\"\\x", "\"\\u", "|", ">9", "|-+", "[", "{", "{a", "{a:", "[,", "&", "*", "!", "#", "\t", "\r", "\r\n",
		"a:\n\tb", "a: |\n\t\n", "- - -\n  -", "a: [\n]", "'a\n", "\"a\\\n", "a: b\n c", "name: x\njobs: [{name: a, steps: [{name: a, run: a, dependsOn: a}]}]",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := parse("f.yaml", src, nil)
		again, errAgain := parse("f.yaml", slices.Clone(src), nil)
		if diff := cmp.Diff(inJSON(t, p), inJSON(t, again)); diff != "" || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("two answers: %v, %v\n%s", err, errAgain, diff)
		}
		if err == nil {
			checkPlan(t, p)
			checkDiagnoses(t, src, p.Warnings)
			return
		}
		var found Diagnoses
		if !errors.As(err, &found) || len(found) == 0 || p != nil {
			t.Fatalf("an error that is no diagnosis, or with a plan: %v", err)
		}
		checkDiagnoses(t, src, found)
		if strings.Count(err.Error(), "\n") != len(found)-1 {
			t.Fatalf("not one line each: %q", err)
		}
	})
}

func checkDiagnoses(t *testing.T, src []byte, found []Diagnosis) {
	lines := strings.Count(string(src), "\n") + 1
	for i, d := range found {
		if d.Line < 1 || d.Line > lines || d.Column < 1 || d.Text == "" || d.File != "f.yaml" {
			t.Fatalf("no place: %+v", d)
		}
		if len(d.Source) < maxSourceBytes-utf8.UTFMax && d.Column > utf8.RuneCountInString(d.Source)+1 {
			t.Fatalf("beyond its line: %+v", d)
		}
		if i > 0 && (d.Line < found[i-1].Line || d.Line == found[i-1].Line && d.Column < found[i-1].Column) {
			t.Fatalf("not in file order: %v before %v", found[i-1], d)
		}
		if strings.ContainsAny(d.String(), "\n\r\x1b\x00") {
			t.Fatalf("not one harmless line: %q", d.String())
		}
	}
}

// checkPlan checks what others rely on, and plays the run: all steps succeed.
func checkPlan(t *testing.T, p *Plan) {
	count := 0
	for i, job := range p.Jobs {
		if job.Name == "" || len(job.Steps) == 0 || !slices.IsSorted(job.Needs) || slices.Contains(job.Needs, i) {
			t.Fatalf("job %d: %+v", i, job)
		}
		for _, s := range job.Steps {
			if s != count || p.Steps[s].Job != i {
				t.Fatalf("job %d has step %d", i, s)
			}
			count++
		}
	}
	if count != len(p.Steps) || p.Name == "" {
		t.Fatalf("%d steps in jobs, %d in all", count, len(p.Steps))
	}
	for i, s := range p.Steps {
		if s.Name == "" || (s.Task == nil) != (s.Model != "" && s.Method != "") || s.OnWorkerLost == "" || s.Timeout < 0 || !slices.IsSorted(s.Needs) {
			t.Fatalf("step %d: %+v", i, s)
		}
		for _, n := range s.Needs {
			if n == i || p.Steps[n].Job != s.Job {
				t.Fatalf("step %d needs %d", i, n)
			}
		}
		byKey := func(a, b messages.Label) int { return strings.Compare(a.Key, b.Key) }
		if !slices.IsSortedFunc(s.Env, byKey) || !slices.IsSortedFunc(s.Placement.Labels, byKey) {
			t.Fatalf("step %d is not in key order", i)
		}
	}
	g := NewProgress(p)
	c := g.Begin()
	count -= len(c.Skipped)
	for ready := c.Ready; len(ready) > 0; ready = append(ready[1:], c.Ready...) {
		c = g.End(ready[0], messages.StepSucceeded)
		count -= 1 + len(c.Skipped)
	}
	if count != 0 || !c.RunEnded || c.RunStatus != messages.RunSucceeded {
		t.Fatalf("%d steps never became ready; the last change is %+v", count, c)
	}
}

// FuzzExpression checks what holds for any expression: it is refused at a place inside it or has a value or an error, no
// panic, within bounds, and a path has the value that CEL gives it.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		"inputs.name", "inputs.list[1].a", "1 + 2 * 3", "'a' + \"b\"", "[1,2].map(x, x+1)", "{'a': {'b': 1}}", "has(inputs.maybe)", "inputs['with-dash']",
		"steps['build-image'].outputs.digest", "jobs.first.status", "self.it.name", "workers.connected()[0].name", "data.latest('x', 1)", "fromJSON('[1]')",
		"r'\\'", "'''a'b'''", "b'x'", "a.b.c", "inputs.name.split('e').join('x')", "timestamp(run.startedAt) + duration('1h')", "!!true", "1 in [1]", "((((1))))",
		"[1,2,3].all(x, [1,2].exists(y, y == x))", "type(1)", "'x'.matches('(a+)+')", "inputs.n ? 1 : 2", "slot_0_0", "host_latest", "google.protobuf.Value{}",
	} {
		f.Add(s)
	}
	p, err := parse("f", []byte(exprPlan("plain")), nil)
	if err != nil {
		f.Fatal(err)
	}
	scope := scopeOf(f, p)
	scope.plan = p
	last := len(p.Steps) - 1
	at := site{level: inStep, job: p.Steps[last].Job, step: last, what: "a variable", item: "it"}
	shared := codes{}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxExpr || !utf8.ValidString(text) {
			return
		}
		x := compiler{site: &at, plan: p, env: shared.environment}
		c, faults := x.compile(text)
		for _, fault := range faults {
			if fault.at < 0 || fault.at > len(text) || fault.text == "" || strings.ContainsAny(fault.text, "\n\x00") {
				t.Fatalf("%q: %+v", text, fault)
			}
		}
		if (c == nil || len(faults) > 0) && len(faults) == 0 {
			t.Fatalf("%q: no code and no fault", text)
		}
		if c == nil || len(faults) > 0 {
			return
		}
		v, err := c.eval(&scope)
		if err == nil {
			s, err := JSONOf(v)
			if err != nil || len(s) > 8*maxValueBytes {
				t.Fatalf("%q: %d bytes, %v", text, len(s), err)
			}
		}
		if c.env == nil { // a path: the long way gives the same
			x := compiler{site: &at, plan: p, env: shared.environment}
			long, faults := x.compile("(" + text + ")")
			if len(faults) > 0 {
				t.Fatalf("%q: %v", text, faults)
			}
			w, errLong := long.eval(&scope)
			if (err == nil) != (errLong == nil) || cmp.Diff(v, w) != "" {
				t.Fatalf("%q: %v, %v and the long way %v, %v", text, v, err, w, errLong)
			}
		}
	})
}

func inJSON(t *testing.T, p *Plan) string {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
