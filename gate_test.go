package swampd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// People ask for the steps of the gate by the targets of Taskfile.yml.
func TestTaskfile_CallsStepsThatTheGateHas(t *testing.T) {
	t.Parallel()
	gate, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, list := range regexp.MustCompile(`(?m)^(?:all|extra)='([^']*)'$`).FindAllStringSubmatch(string(gate), -1) {
		steps = append(steps, strings.Fields(list[1])...)
	}
	tasks, err := os.ReadFile("Taskfile.yml")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`\.ci/run ([a-z0-9]+)`).FindAllStringSubmatch(string(tasks), -1)
	if len(calls) < 10 {
		t.Fatalf("the Taskfile calls %d steps: this test no longer reads it", len(calls))
	}
	for _, call := range calls {
		if !slices.Contains(steps, call[1]) {
			t.Errorf("a target calls .ci/run %s; the steps are %q", call[1], steps)
		}
		if !strings.Contains(string(gate), "\nstep_"+call[1]+"() {") {
			t.Errorf("the gate has no function for its step %s", call[1])
		}
	}
}
