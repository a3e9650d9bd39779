//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// check compares the books with the ledger.
func (s *storm) check() {
	entries := s.ledger.entries(s.t)
	for _, w := range wrong(entries) {
		s.t.Error(w)
	}
	listed := s.listed()
	accepted := 0
	for _, r := range s.runs {
		if r.id == "" {
			continue // the answer never came: it may be there or not
		}
		accepted++
		status, ok := listed[r.id]
		if !ok {
			s.t.Errorf("run %s was accepted and is not in run list", r.id)
			continue
		}
		shown := s.f.show(r.id)
		s.note(r, shown)
		if status != shown.Status {
			s.t.Errorf("run list says that run %s is %s: %s", r.id, status, shown)
		}
		s.checkEnd(r, shown)
		s.checkLedger(r, shown, entries)
		s.checkWrites(r, shown, entries)
		s.checkEvents(r, shown)
	}
	if accepted == 0 {
		s.t.Error("no run was accepted: the storm has tested nothing")
	}
	s.checkIdle()
	s.checkLogs()
}

// listed is run list, as status by id.
func (s *storm) listed() map[string]string {
	var runs list[struct{ RunID, Status string }]
	s.f.json(&runs, "run", "list", "--limit", "0")
	byID := map[string]string{}
	for _, r := range runs.Items {
		if byID[r.RunID] != "" {
			s.t.Errorf("run list has run %s twice", r.RunID)
		}
		byID[r.RunID] = r.Status
	}
	return byID
}

// checkEnd wants an end that has a reason.
func (s *storm) checkEnd(r *stormRun, shown runShown) {
	switch shown.Status {
	case "succeeded":
	case "cancelled":
		if !r.cancelled {
			s.t.Errorf("run %s was cancelled by nobody: %s", r.id, shown)
		}
	case "failed":
		lost := slices.ContainsFunc(r.steps, func(name string) bool {
			step := shown.step(name)
			if step.Status != "failed" || step.Code == nil {
				return false
			}
			return *step.Code == "worker_lost" && step.Losses >= 3 || *step.Code == "lost_after_write" && slices.Contains(r.writes, name)
		})
		if !lost {
			s.t.Errorf("run %s failed, and no step of it was lost three times, or after it had written: %s", r.id, shown)
		}
	default:
		s.t.Errorf("run %s is %s", r.id, shown)
	}
	for _, name := range r.steps {
		if status := shown.step(name).Status; !slices.Contains([]string{"succeeded", "failed", "skipped", "cancelled"}, status) {
			s.t.Errorf("run %s has ended, and its step %s is %s", r.id, name, status)
		}
	}
}

// checkLedger wants an end in the ledger for each success in the books, by the dispatch that the books name, and no
// start after it was shown.
func (s *storm) checkLedger(r *stormRun, shown runShown, entries []entry) {
	for _, name := range r.steps {
		step := shown.step(name)
		mine := func(what string) func(entry) bool {
			return func(e entry) bool { return e.what == what && e.run == r.id && e.step == name }
		}
		if step.Status == "succeeded" {
			ended := slices.ContainsFunc(entries, func(e entry) bool {
				return mine("end")(e) && step.DispatchID != nil && e.dispatch == *step.DispatchID
			})
			if !ended {
				s.t.Errorf("step %s of run %s succeeded, and its dispatch has no end in the ledger: %s", name, r.id, shown)
			}
		}
		if at, ok := r.shown[name]; ok && slices.ContainsFunc(entries[min(at, len(entries)):], mine("start")) {
			s.t.Errorf("step %s of run %s ran again after it was shown as succeeded", name, r.id)
		}
	}
}

// checkWrites wants what a step wrote to be there once, all of it that was acknowledged, and of one dispatch only: the last
// one that started.
func (s *storm) checkWrites(r *stormRun, shown runShown, entries []entry) {
	for _, name := range r.writes {
		last, acknowledged := "", 0
		for _, e := range entries {
			switch {
			case e.run != r.id || e.step != name:
			case e.what == "start":
				last = e.dispatch
			case e.what == "wrote":
				acknowledged++
			}
		}
		artifact := "runs/" + r.id + "/" + name
		var versions list[struct{ Version int }]
		switch err := s.f.call("data.versions", fmt.Sprintf(`{"name":%q}`, artifact), &versions); {
		case err != nil && acknowledged == 0 && strings.Contains(err.Error(), "not_found"):
			continue // it has never written
		case err != nil:
			s.t.Errorf("%s, to which %d lines were written: %v", artifact, acknowledged, err)
			continue
		}
		if len(versions.Items) != 1 {
			s.t.Errorf("%s has %d versions: %s", artifact, len(versions.Items), shown)
		}
		text := s.f.body(artifact)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if n := len(lines); n != acknowledged && n != acknowledged+1 {
			s.t.Errorf("%s has %d lines, %d were acknowledged: %q; %s", artifact, n, acknowledged, text, shown)
		}
		for i, line := range lines {
			if want := fmt.Sprintf("%d %s", i+1, last); line != want {
				s.t.Errorf("%s: line %d is %q, not %q of the last dispatch that started: %s", artifact, i+1, line, want, shown)
			}
		}
	}
}

// checkEvents wants a history without holes: one end of each step and of the run, and all that the step printed.
func (s *storm) checkEvents(r *stormRun, shown runShown) {
	p := s.f.client("run", "watch", r.id, "--output", "json")
	p.wait(60e9)
	events := follower{p}.events()
	if err := dense(events); err != nil {
		s.t.Errorf("run %s: %v", r.id, err)
	}
	ends := map[string]int{}
	printed := map[string]string{}
	for _, e := range events {
		switch e.Kind {
		case "run_succeeded", "run_failed", "run_cancelled":
			ends[""]++
			if e.Kind != "run_"+shown.Status {
				s.t.Errorf("run %s is %s, and its event is %s", r.id, shown.Status, e.Kind)
			}
		case "step_succeeded", "step_failed", "step_skipped", "step_cancelled":
			ends[e.Step]++
			if e.Kind != "step_"+shown.step(e.Step).Status {
				s.t.Errorf("step %s of run %s is %s, and its event is %s", e.Step, r.id, shown.step(e.Step).Status, e.Kind)
			}
		case "step_output":
			printed[e.DispatchID] += e.Line
			if !e.Partial {
				printed[e.DispatchID] += "\n"
			}
		}
	}
	for _, name := range append([]string{""}, r.steps...) {
		if ends[name] != 1 {
			s.t.Errorf("run %s: step %q has %d ends: %v", r.id, name, ends[name], kinds(events))
		}
	}
	s.checkOutput(r, shown, printed)
}

// checkOutput wants all that a step printed which succeeded: the lines 1 to n, as many as it has beats in the ledger.
func (s *storm) checkOutput(r *stormRun, shown runShown, printed map[string]string) {
	for _, name := range r.steps {
		step := shown.step(name)
		if step.Status != "succeeded" || step.DispatchID == nil {
			continue
		}
		var want strings.Builder
		n := 0
		for _, e := range s.ledger.entries(s.t) {
			if e.what == "beat" && e.dispatch == *step.DispatchID {
				n++
				fmt.Fprintf(&want, "line %d\n", n)
			}
		}
		if got := printed[*step.DispatchID]; got != want.String() {
			s.t.Errorf("step %s of run %s succeeded, and of what it printed is kept %q, not %q", name, r.id, got, want.String())
		}
	}
}

// checkIdle wants books in which nothing waits, runs or is held.
func (s *storm) checkIdle() {
	if q := s.f.queue(); len(q) > 0 {
		s.t.Errorf("every run has ended, and the queue holds %+v", q)
	}
	for _, w := range s.f.workers() {
		if len(w.ActiveDispatchIDs) > 0 || w.Status != "idle" {
			s.t.Errorf("every run has ended, and a worker is %+v", w)
		}
	}
	var tree list[struct{ PID, Kind, State string }]
	s.f.ask("actor.tree", `{}`, &tree)
	for _, a := range tree.Items {
		if slices.Contains([]string{"run", "step", "lease"}, a.Kind) {
			s.t.Errorf("every run has ended, and there is still an actor %+v", a)
		}
	}
}

// checkLogs wants no fault of the orchestrator's own in what it logged, nothing set aside, and no worker that gave up.
func (s *storm) checkLogs() {
	const killed, terminated = 137, 143
	for _, p := range s.f.processes {
		unborn := p.code == terminated && len(p.stdout()) == 0                // the signal came before the program had begun
		twice := p.code == 1 && strings.Contains(p.text(), "stopped: forced") // the storm has drained it again
		if strings.HasPrefix(p.name, "swamp-worker ") && !p.alive() && p.code != killed && p.code != 0 && !unborn && !twice {
			s.t.Errorf("a worker ended by itself with %d: %s", p.code, p.text())
		}
		if !strings.HasPrefix(p.name, "swampd ") {
			continue
		}
		for _, l := range p.stderr() {
			if strings.Contains(l, "level=ERROR") || strings.Contains(l, "panic") || strings.Contains(l, "DATA RACE") ||
				(strings.Contains(l, "reconciled") && !strings.Contains(l, " 0 records quarantined")) {
				s.t.Errorf("swampd says: %s", l)
			}
		}
	}
}
