package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swampd/swampd/workflow"
)

func fleet(t *testing.T) *workflow.Plan {
	t.Helper()
	source, err := os.ReadFile("fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := workflow.Parse("fleet.yaml", source)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestFleet_NeedsTwoKindsOfWorkers(t *testing.T) {
	t.Parallel()
	plan := fleet(t)
	classes := map[string]bool{}
	for i := range plan.Steps {
		if p := plan.Steps[i].Placement; !p.IsZero() {
			classes[p.Key()] = true
		}
	}
	if len(classes) < 2 || len(plan.Warnings) > 0 {
		t.Errorf("%d demand classes, warnings %v", len(classes), plan.Warnings)
	}
}

// run runs a step's script as a worker does, in a scratch folder of its own.
func run(t *testing.T, step *workflow.Step, shell []string, shared string) (string, error) {
	t.Helper()
	scratch := t.TempDir()
	script := filepath.Join(scratch, "script")
	if err := os.WriteFile(script, []byte(step.Args[0].Value), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], script)...)
	cmd.Dir = scratch
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SWAMP_RUN_ID=run-1", "SWAMP_STEP=" + step.Name}
	for _, e := range step.Env {
		if e.Key != "SHARED" {
			cmd.Env = append(cmd.Env, e.Key+"="+e.Value)
		}
	}
	cmd.Env = append(cmd.Env, "SHARED="+shared)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// shells are the two that a worker takes.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for name, args := range map[string][]string{"bash": {"-eo", "pipefail"}, "sh": {"-e"}} {
		if path, err := exec.LookPath(name); err == nil {
			found[name] = append([]string{path}, args...)
		}
	}
	if len(found) == 0 {
		t.Skip("there is no Unix shell")
	}
	return found
}

func TestFleet_CountsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, shared := fleet(t), t.TempDir()
			var out string
			for i := range plan.Steps { // in file order, which is one that dependencies allow
				for range 2 - i%2 { // a step that lost its worker runs again
					if plan.Steps[i].Name == "sum" && strings.Contains(out, "all files together") {
						break // it has removed what it reads
					}
					var err error
					if out, err = run(t, &plan.Steps[i], shell, shared); err != nil {
						t.Fatalf("%s: %v: %s", plan.Steps[i].Name, err, out)
					}
				}
			}
			if !strings.Contains(out, "all files together: 1199990 words") {
				t.Errorf("the last step says %q", out)
			}
			if left, err := os.ReadDir(shared); err != nil || len(left) != 0 {
				t.Errorf("left behind %v, %v", left, err)
			}
		})
	}
}

// TestFleet_IsHonestAboutFailure takes something away before each step: the step, or one that depends on it, fails.
func TestFleet_IsHonestAboutFailure(t *testing.T) {
	t.Parallel()
	tests := []struct{ before, remove string }{
		{"north", "north.txt"},
		{"sum", "west.count"},
		{"sum", "expected"},
		{"sum", ""}, // everything
	}
	for name, shell := range shells(t) {
		for _, tt := range tests {
			t.Run(name+" without "+tt.remove+" before "+tt.before, func(t *testing.T) {
				t.Parallel()
				plan, shared := fleet(t), t.TempDir()
				for i := range plan.Steps {
					if plan.Steps[i].Name == tt.before {
						if err := os.RemoveAll(filepath.Join(shared, "run-1", tt.remove)); err != nil {
							t.Fatal(err)
						}
					}
					out, err := run(t, &plan.Steps[i], shell, shared)
					if plan.Steps[i].Name == tt.before {
						if err == nil {
							t.Errorf("%s succeeds: %s", tt.before, out)
						}
						return
					}
					if err != nil {
						t.Fatalf("%s: %v: %s", plan.Steps[i].Name, err, out)
					}
				}
			})
		}
	}
}
