//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// What looks for mistakes must find them.
func TestLedger_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	line := func(what, step, dispatch string, pid int) entry {
		return entry{what: what, run: "r", step: step, dispatch: dispatch, pid: pid}
	}
	for _, tt := range []struct {
		name    string
		entries []entry
		want    string // part of the one thing found, or empty
	}{
		{"one after the other", []entry{line("start", "a", "d1", 1), line("end", "a", "d1", 1), line("start", "a", "d2", 2), line("beat", "a", "d2", 2)}, ""},
		{"two steps at once", []entry{line("start", "a", "d1", 1), line("start", "b", "d2", 2), line("end", "a", "d1", 1), line("end", "b", "d2", 2)}, ""},
		{"killed and again", []entry{line("start", "a", "d1", 1), line("start", "a", "d2", 2), line("end", "a", "d2", 2)}, ""},
		{"the first goes on beside the second", []entry{line("start", "a", "d1", 1), line("start", "a", "d2", 2), line("beat", "a", "d1", 1)}, "still runs"},
		{"the first ends beside the second", []entry{line("start", "a", "d1", 1), line("start", "a", "d2", 2), line("end", "a", "d1", 1)}, "still runs"},
		{"one dispatch twice", []entry{line("start", "a", "d1", 1), line("end", "a", "d1", 1), line("start", "a", "d1", 2)}, "started twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(wrong(tt.entries), "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("it finds %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDense_FindsHolesAndRepetitions(t *testing.T) {
	t.Parallel()
	out := func(dispatch string, offset int) event {
		return event{Kind: "step_output", DispatchID: dispatch, Offset: offset}
	}
	for _, tt := range []struct {
		name   string
		events []event
		ok     bool
	}{
		{"from one by one", []event{{Seq: 1}, {Seq: 2}, out("d", 3), out("e", 1), out("d", 4), {Seq: 3}}, true},
		{"a hole", []event{{Seq: 1}, {Seq: 3}}, false},
		{"a repetition", []event{{Seq: 1}, {Seq: 1}}, false},
		{"the first is missing", []event{{Seq: 2}}, false},
		{"output twice", []event{{Seq: 1}, out("d", 3), out("d", 3)}, false},
		{"output out of order", []event{{Seq: 1}, out("d", 3), out("d", 2)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := dense(tt.events); (err == nil) != tt.ok {
				t.Errorf("it says %v", err)
			}
		})
	}
}
