//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ledger is a file to which steps write when they begin and when they end.
type ledger struct {
	f    *fleet
	path string
}

func newLedger(f *fleet) *ledger {
	f.files++
	return &ledger{f, f.path(fmt.Sprintf("ledger-%d", f.files))}
}

// script wraps a script in two lines of the ledger. Each line is one write of less than a page, so that lines of
// different steps never mix.
func (l *ledger) script(body string) string {
	line := func(what string) string {
		return fmt.Sprintf(`echo "%s $SWAMP_RUN_ID $SWAMP_STEP $SWAMP_ATTEMPT $$ $SWAMP_DISPATCH_ID" >> %s`, what, l.path)
	}
	return line("start") + "\n" + body + "\n" + line("end")
}

// gate is a script that goes on until open is called.
func (l *ledger) gate() string {
	return l.script(fmt.Sprintf("while [ ! -e %s.open ]; do sleep 0.05; done", l.path))
}

func (l *ledger) open(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(l.path+".open", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// beating is a script that goes on for about so many tenths of a second, with a line in the ledger for each.
func (l *ledger) beating(tenths int) string {
	return l.script(fmt.Sprintf(`for i in $(seq %d); do
  sleep 0.1
  echo "beat $SWAMP_RUN_ID $SWAMP_STEP $SWAMP_ATTEMPT $$ $SWAMP_DISPATCH_ID" >> %s
  echo "line $i"
done`, tenths, l.path))
}

// writing is a script that appends so many lines to an artifact of its step, and writes each down in the ledger once it
// has been acknowledged.
func (l *ledger) writing(lines int) string {
	return l.script(fmt.Sprintf(`for i in $(seq %d); do
  echo "$i $SWAMP_DISPATCH_ID" | swamp data append runs/$SWAMP_RUN_ID/$SWAMP_STEP > /dev/null
  echo "wrote $SWAMP_RUN_ID $SWAMP_STEP $SWAMP_ATTEMPT $$ $SWAMP_DISPATCH_ID" >> %s
  sleep 0.1
done`, lines, l.path))
}

// An entry is one line of a ledger.
type entry struct {
	what, run, step string
	attempt, pid    int
	dispatch        string
}

func (l *ledger) entries(t testing.TB) []entry {
	t.Helper()
	var all []entry
	for _, line := range l.f.lines(l.path) {
		var e entry
		if _, err := fmt.Sscan(line, &e.what, &e.run, &e.step, &e.attempt, &e.pid, &e.dispatch); err != nil {
			t.Fatalf("the ledger holds %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// count tells how many lines of a kind a step has.
func (l *ledger) count(t testing.TB, what, step string) int {
	t.Helper()
	n := 0
	for _, e := range l.entries(t) {
		if e.what == what && e.step == step {
			n++
		}
	}
	return n
}

// pid is the process of the last start of a step.
func (l *ledger) pid(t testing.TB, step string) int {
	t.Helper()
	all := l.entries(t)
	slices.Reverse(all)
	i := slices.IndexFunc(all, func(e entry) bool { return e.what == "start" && e.step == step })
	if i < 0 {
		t.Fatalf("the step %s has not started", step)
	}
	return all[i].pid
}

// started waits for the nth start of a step, and returns its process.
func (l *ledger) started(t testing.TB, step string, n int, within time.Duration) int {
	t.Helper()
	eventually(t, within, fmt.Sprintf("start %d of step %s", n, step), func() error {
		if have := l.count(t, "start", step); have < n {
			return fmt.Errorf("it has started %d times", have)
		}
		return nil
	})
	return l.pid(t, step)
}

// check wants that many starts of each step, each with its end, and no two steps at once.
func (l *ledger) check(t testing.TB, starts map[string]int) {
	t.Helper()
	open := 0
	have := map[string]int{}
	for _, e := range l.entries(t) {
		switch e.what {
		case "start":
			have[e.step]++
			if open != 0 {
				t.Errorf("%s started while %d still runs", e.step, open)
			}
			open = e.pid
		case "end":
			if open != e.pid {
				t.Errorf("%s ended as process %d, and %d was running", e.step, e.pid, open)
			}
			open = 0
		}
	}
	if diff := cmp.Diff(starts, have); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}

// wrong looks for two executions of one step at once, and for a dispatch that was carried out twice. The lines of a file
// stand in the order in which they were written, whoever wrote them.
func wrong(entries []entry) []string {
	type stepOfRun struct{ run, step string }
	current := map[stepOfRun]entry{}
	started := map[string]bool{}
	var found []string
	for i, e := range entries {
		key := stepOfRun{e.run, e.step}
		if e.what == "start" {
			if started[e.dispatch] {
				found = append(found, fmt.Sprintf("line %d: dispatch %s of %v started twice", i+1, e.dispatch, key))
			}
			started[e.dispatch] = true
			current[key] = e
			continue
		}
		if now := current[key]; now.dispatch != e.dispatch || now.pid != e.pid {
			found = append(found, fmt.Sprintf("line %d: %v as dispatch %s (process %d) still runs after dispatch %s (process %d) started",
				i+1, key, e.dispatch, e.pid, now.dispatch, now.pid))
		}
	}
	return found
}
