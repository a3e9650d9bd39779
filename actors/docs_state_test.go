package actors

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// The page of states is held to the lists in the code: each table has every state once, in order, and says of the final
// ones that they are.
func TestStatesPage_HasEveryStateOnceAndSaysWhichAreFinal(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		table  string
		states []string
		final  func(string) bool
	}{
		{"run", wordsOf(messages.AllRunStatuses()), func(s string) bool { return messages.RunStatus(s).Ended() }},
		{"step", wordsOf(messages.AllStepStatuses()), func(s string) bool { return messages.StepStatus(s).Ended() }},
		{"pending dispatch", wordsOf(messages.AllPendingStates()), func(s string) bool { return messages.PendingState(s).Ended() }},
		{"lease", wordsOf(messages.AllLeaseStates()), func(s string) bool { return messages.LeaseState(s).Ended() }},
		{"token", wordsOf(messages.AllTokenStates()), func(s string) bool { return messages.TokenState(s).Ended() }},
		{"intent", wordsOf(messages.AllWorkerIntents()), func(string) bool { return false }},
		{"health", wordsOf(messages.AllWorkerHealths()), func(string) bool { return false }},
	}
	for _, tt := range tests {
		var listed []string
		for _, row := range table(t, string(page), tt.table) {
			state := strings.Trim(row[0], "`")
			listed = append(listed, state)
			if said := strings.HasPrefix(row[1], "final"); said != tt.final(state) {
				t.Errorf("%s %s: the page says final %v, the code %v", tt.table, state, said, tt.final(state))
			}
		}
		if diff := cmp.Diff(tt.states, listed); diff != "" {
			t.Errorf("states of a %s (-code +page):\n%s", tt.table, diff)
		}
	}
}

// What the page says that the end of a lease makes of its step is what the step decides.
func TestStatesPage_WhatTheEndOfALeaseMakesOfItsStep(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	running := sampleStep(messages.StepRunning, "", false)
	proud := running
	proud.def = &samplePlan().Steps[0]
	proud.def.OnWorkerLost = messages.LostFail
	third := running
	third.losses = messages.MaxLosses - 1
	cases := map[string]struct {
		step   stepState
		status string
		wrote  bool
		want   messages.StepStatus
		code   messages.Code
	}{
		"`succeeded`":                          {sampleStep(messages.StepRunning, "cancelled", false), outcomeSucceeded, false, messages.StepSucceeded, ""},
		"anything else, after a cancel":        {sampleStep(messages.StepRunning, "cancelled", false), outcomeLost, true, messages.StepCancelled, ""},
		"`refused`":                            {third, outcomeRefused, false, messages.StepQueued, ""},
		"`lost` after a write":                 {running, outcomeLost, true, messages.StepFailed, messages.CodeLostAfterWrite},
		"`lost`, and `onWorkerLost` is `fail`": {proud, outcomeLost, false, messages.StepFailed, messages.CodeWorkerLost},
		"`lost` for the third time":            {third, outcomeLost, false, messages.StepFailed, messages.CodeWorkerLost},
		"`lost`":                               {running, outcomeLost, false, messages.StepQueued, ""},
		"`restart`":                            {running, outcomeRestart, false, messages.StepRunning, ""},
		"otherwise":                            {running, outcomeTimeout, false, messages.StepFailed, "c"},
	}
	rows := table(t, string(page), "the lease ended")
	if len(rows) != len(cases) {
		t.Errorf("the page has %d rows, the test %d cases", len(rows), len(cases))
	}
	for _, row := range rows {
		c, ok := cases[row[0]]
		if !ok {
			t.Errorf("no case for the row %q", row[0])
			continue
		}
		after, _ := stepStep(c.step, leaseEnded{lease: c.step.leaseID(), worker: "a", hasWrites: c.wrote, outcome: &messages.Outcome{Status: c.status, Code: "c", Error: "e"}}, walkNow())
		if after.status != c.want || messages.Code(after.code) != c.code {
			t.Errorf("%s: the step is %s with code %q, want %s with %q", row[0], after.status, after.code, c.want, c.code)
		}
	}
}

func wordsOf[S ~string](list []S) []string {
	var all []string
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}

// table is the rows of the table whose first heading is the given one.
func table(t *testing.T, page, heading string) [][]string {
	t.Helper()
	var rows [][]string
	in := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "| "+heading+" |"):
			in = true
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "| ---"):
			var cells []string
			for c := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(c))
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("the page has no table of a %s", heading)
	}
	return rows
}
