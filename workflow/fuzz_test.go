package workflow

import (
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
		p, err := Parse("f.yaml", src)
		again, errAgain := Parse("f.yaml", slices.Clone(src))
		if diff := cmp.Diff(p, again, cmp.AllowUnexported(Plan{}, stepName{})); diff != "" || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
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
		if s.Name == "" || s.Model == "" || s.Method == "" || s.OnWorkerLost == "" || s.Timeout < 0 || !slices.IsSorted(s.Needs) {
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
	for ready := c.Ready; len(ready) > 0; ready = append(ready[1:], c.Ready...) {
		c = g.End(ready[0], messages.StepSucceeded)
		count--
	}
	if count != 0 || !c.RunEnded || c.RunStatus != messages.RunSucceeded {
		t.Fatalf("%d steps never became ready; the last change is %+v", count, c)
	}
}
