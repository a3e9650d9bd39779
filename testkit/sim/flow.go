package sim

import (
	"fmt"
	"strings"
	"time"
)

// A Flow is the workflow of a run, as far as the simulation varies it.
type Flow struct {
	Name string
	Jobs []Job
}

// A Job is a job of a flow. After names jobs before it.
type Job struct {
	Name  string
	After []string
	Steps []Step
}

// A Step is a step of a job. After names steps of the job before it.
type Step struct {
	Name  string
	After []string
	Where Where
	// Timeout is how long the step may run; 0: as long as it likes.
	Timeout time.Duration
	// Queue is how long it may wait: 0 is for ever, below 0 what the orchestrator says.
	Queue time.Duration
	// Fails: it is not repeated when its worker is lost.
	Fails bool
}

// Where is what a step requires of its worker. An empty one is unplaced.
type Where struct{ Target, Label, Platform string }

// String is what a person reads in a list of operations.
func (w Where) String() string {
	var parts []string
	for _, p := range []string{w.Target, w.Label, w.Platform} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "anywhere"
	}
	return strings.Join(parts, "+")
}

// String is the flow in one line.
func (f Flow) String() string {
	var b strings.Builder
	for i, j := range f.Jobs {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(j.Name)
		if len(j.After) > 0 {
			fmt.Fprintf(&b, " after %s", strings.Join(j.After, ","))
		}
		b.WriteString(":")
		for _, s := range j.Steps {
			fmt.Fprintf(&b, " %s(%s", s.Name, s.Where)
			if len(s.After) > 0 {
				fmt.Fprintf(&b, " after %s", strings.Join(s.After, ","))
			}
			if s.Timeout > 0 {
				fmt.Fprintf(&b, " timeout %s", s.Timeout)
			}
			if s.Queue >= 0 {
				fmt.Fprintf(&b, " queue %s", s.Queue)
			}
			if s.Fails {
				b.WriteString(" fails")
			}
			b.WriteString(")")
		}
	}
	return b.String()
}

// YAML is the flow as the orchestrator reads it.
func (f Flow) YAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\njobs:\n", f.Name)
	for _, j := range f.Jobs {
		fmt.Fprintf(&b, "  - name: %s\n", j.Name)
		if len(j.After) > 0 {
			fmt.Fprintf(&b, "    dependsOn: [%s]\n", strings.Join(j.After, ", "))
		}
		b.WriteString("    steps:\n")
		for _, s := range j.Steps {
			fmt.Fprintf(&b, "      - {name: %s, run: work", s.Name)
			if len(s.After) > 0 {
				fmt.Fprintf(&b, ", dependsOn: [%s]", strings.Join(s.After, ", "))
			}
			if s.Where.Target != "" {
				fmt.Fprintf(&b, ", target: %s", s.Where.Target)
			}
			if key, value, ok := strings.Cut(s.Where.Label, "="); ok {
				fmt.Fprintf(&b, ", labels: {%s: %q}", key, value)
			}
			if s.Where.Platform != "" {
				fmt.Fprintf(&b, ", platform: %s", s.Where.Platform)
			}
			if s.Timeout > 0 {
				fmt.Fprintf(&b, ", timeout: %g", s.Timeout.Seconds())
			}
			if s.Queue >= 0 {
				fmt.Fprintf(&b, ", queueTimeout: %g", s.Queue.Seconds())
			}
			if s.Fails {
				b.WriteString(", onWorkerLost: fail")
			}
			b.WriteString("}\n")
		}
	}
	return b.String()
}

// without is the flow without a step, or without a job where step is empty; what names them names them no more. It is
// false where nothing would be left.
func (f Flow) without(job, step string) (Flow, bool) {
	out := Flow{Name: f.Name}
	for _, j := range f.Jobs {
		kept := Job{Name: j.Name, After: j.After}
		for _, s := range j.Steps {
			if j.Name == job && (step == "" || s.Name == step) {
				continue
			}
			after := []string(nil)
			for _, a := range s.After {
				if j.Name != job || a != step {
					after = append(after, a)
				}
			}
			s.After = after
			kept.Steps = append(kept.Steps, s)
		}
		if len(kept.Steps) > 0 {
			out.Jobs = append(out.Jobs, kept)
		}
	}
	there := make(map[string]bool)
	for i := range out.Jobs {
		j := &out.Jobs[i]
		after := []string(nil)
		for _, a := range j.After {
			if there[a] {
				after = append(after, a)
			}
		}
		j.After = after
		there[j.Name] = true
	}
	return out, len(out.Jobs) > 0
}
