package workflow

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

// twin is what Progress does, without a thought for cost: after every end it works everything out from scratch and
// compares with what it had before.
type twin struct {
	plan    *Plan
	ended   map[int]messages.StepStatus
	ready   map[int]bool // ever
	started map[int]bool
	over    map[int]messages.StepStatus // jobs
	runOver bool
}

func newTwin(p *Plan) *twin {
	return &twin{
		plan: p, ended: map[int]messages.StepStatus{}, ready: map[int]bool{},
		started: map[int]bool{}, over: map[int]messages.StepStatus{},
	}
}

func (w *twin) end(step int, s messages.StepStatus) Change {
	if _, ok := w.ended[step]; ok || !s.Ended() {
		return Change{}
	}
	w.ended[step] = s
	return w.work()
}

// work applies the rules until none applies.
func (w *twin) work() Change {
	var c Change
	for again := true; again; {
		again = false
		for i, job := range w.plan.Jobs {
			if _, over := w.over[i]; over {
				continue
			}
			counts := map[messages.StepStatus]int{}
			for _, s := range job.Steps {
				counts[w.ended[s]]++
			}
			if counts[""] == 0 {
				w.over[i] = good
				switch {
				case counts[bad] > 0:
					w.over[i] = bad
				case counts[gone] > 0:
					w.over[i] = gone
				case counts[skip] == len(job.Steps):
					w.over[i] = skip
				}
				c.JobsEnded = append(c.JobsEnded, JobEnd{i, w.over[i]})
				again = true
				continue
			}
			met, lost := w.needs(job.Needs, w.over)
			if met && !w.started[i] {
				w.started[i] = true
				c.JobsStarted = append(c.JobsStarted, i)
				again = true
			}
			for _, s := range job.Steps {
				if _, over := w.ended[s]; over {
					continue
				}
				stepMet, stepLost := w.needs(w.plan.Steps[s].Needs, w.ended)
				switch {
				case lost || stepLost:
					w.ended[s] = skip
					c.Skipped = append(c.Skipped, s)
					again = true
				case w.started[i] && stepMet && !w.ready[s]:
					w.ready[s] = true
					c.Ready = append(c.Ready, s)
				}
			}
		}
	}
	if len(w.over) == len(w.plan.Jobs) && !w.runOver {
		w.runOver, c.RunEnded, c.RunStatus = true, true, messages.RunSucceeded
		for _, s := range w.over {
			if s == bad || s == gone {
				c.RunStatus = messages.RunFailed
			}
		}
	}
	return c
}

func (w *twin) needs(needs []int, ended map[int]messages.StepStatus) (met, lost bool) {
	met = true
	for _, n := range needs {
		met = met && ended[n] == good
		lost = lost || ended[n] != "" && ended[n] != good
	}
	return met, lost
}

func (w *twin) jobStatus(i int) messages.StepStatus {
	switch s, over := w.over[i]; {
	case over:
		return s
	case w.started[i]:
		return messages.StepRunning
	default:
		return messages.StepPending
	}
}

// drawPlan draws jobs and steps whose needs go along a random order, not only towards what stands before.
func drawPlan(t *rapid.T) *Plan {
	p := &Plan{}
	jobs := rapid.IntRange(1, 6).Draw(t, "jobs")
	for range jobs {
		p.Jobs = append(p.Jobs, Job{})
	}
	jobNeeds := drawNeeds(t, jobs)
	for i := range p.Jobs {
		first := len(p.Steps)
		n := rapid.IntRange(1, 6).Draw(t, "steps")
		needs := drawNeeds(t, n)
		for k := range n {
			s := Step{Job: i}
			for _, to := range needs[k] {
				s.Needs = append(s.Needs, first+to)
			}
			p.Jobs[i].Steps = append(p.Jobs[i].Steps, len(p.Steps))
			p.Steps = append(p.Steps, s)
		}
		p.Jobs[i].Needs = jobNeeds[i]
	}
	return p
}

func drawNeeds(t *rapid.T, n int) [][]int {
	order := rapid.Permutation(numbers(n)).Draw(t, "order")
	needs := make([][]int, n)
	for k, i := range order {
		for _, to := range order[:k] {
			if rapid.IntRange(0, 3).Draw(t, "need") == 0 {
				needs[i] = append(needs[i], to)
			}
		}
		slices.Sort(needs[i])
	}
	return needs
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// drawEnd draws the next end: mostly of a step that is ready, at times of any step, with any status.
func drawEnd(t *rapid.T, w *twin) (int, messages.StepStatus) {
	var running []int
	for i := range w.plan.Steps {
		if _, over := w.ended[i]; w.ready[i] && !over {
			running = append(running, i)
		}
	}
	statuses := []messages.StepStatus{good, good, good, good, good, good, bad, gone, skip, messages.StepRunning}
	status := rapid.SampledFrom(statuses).Draw(t, "status")
	if len(running) > 0 && rapid.IntRange(0, 9).Draw(t, "any") > 0 {
		return rapid.SampledFrom(running).Draw(t, "step"), status
	}
	return rapid.IntRange(0, len(w.plan.Steps)-1).Draw(t, "step"), status
}

// sameChange compares two changes; the twin does not know in which order jobs ended.
func sameChange(want, got Change) string {
	byJob := cmpopts.SortSlices(func(a, b JobEnd) bool { return a.Job < b.Job })
	ascending := cmpopts.SortSlices(func(a, b int) bool { return a < b })
	return cmp.Diff(want, got, byJob, ascending, cmpopts.EquateEmpty())
}

// checkOrder checks what the twin cannot: ordinals ascend, and the end of a job comes after the end that caused it.
func checkOrder(t *rapid.T, p *Plan, c Change) {
	if !slices.IsSorted(c.Ready) || !slices.IsSorted(c.Skipped) || !slices.IsSorted(c.JobsStarted) {
		t.Fatalf("not ascending: %+v", c)
	}
	at := map[int]int{}
	for i, e := range c.JobsEnded {
		at[e.Job] = i
	}
	for i, e := range c.JobsEnded {
		causes, before := 0, false
		for _, n := range p.Jobs[e.Job].Needs {
			if k, ok := at[n]; ok && c.JobsEnded[k].Status != good {
				causes++
				before = before || k < i
			}
		}
		if e.Status == skip && causes > 0 && !before {
			t.Fatalf("job %d is skipped before any need of it ended: %+v", e.Job, c.JobsEnded)
		}
	}
}

func TestProgress_DoesWhatItsDumbTwinDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		g, w := NewProgress(p), newTwin(p)
		check := func(what string, want, got Change) {
			if diff := sameChange(want, got); diff != "" {
				t.Fatalf("%s (-twin +progress):\n%s", what, diff)
			}
			checkOrder(t, p, got)
			for i := range p.Jobs {
				if got, want := g.JobStatus(i), w.jobStatus(i); got != want {
					t.Fatalf("%s: job %d is %s, the twin says %s", what, i, got, want)
				}
			}
		}
		check("begin", w.work(), g.Begin())
		for range 3 * len(p.Steps) {
			step, s := drawEnd(t, w)
			check("end", w.end(step, s), g.End(step, s))
		}
	})
}

func TestProgress_EveryRunEndsOnceAndEveryStepIsReadyOrSkippedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		g := NewProgress(p)
		seen := map[int]bool{}
		runEnds := 0
		var running []int
		take := func(c Change) {
			for _, i := range append(slices.Clone(c.Ready), c.Skipped...) {
				if seen[i] {
					t.Fatalf("step %d comes twice", i)
				}
				seen[i] = true
			}
			running = append(running, c.Ready...)
			if c.RunEnded {
				runEnds++
			}
		}
		take(g.Begin())
		for len(running) > 0 {
			if runEnds > 0 {
				t.Fatalf("the run has ended while %v run", running)
			}
			k := rapid.IntRange(0, len(running)-1).Draw(t, "next")
			step := running[k]
			running = slices.Delete(running, k, k+1)
			take(g.End(step, rapid.SampledFrom([]messages.StepStatus{good, good, good, bad, gone}).Draw(t, "status")))
		}
		if runEnds != 1 || len(seen) != len(p.Steps) {
			t.Fatalf("the run ended %d times and %d of %d steps came up", runEnds, len(seen), len(p.Steps))
		}
	})
}

func TestResumeProgress_IsTheProgressThatWasPlayed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		w := newTwin(p)
		derived := map[int]bool{} // skips that follow from other ends
		note := func(c Change) {
			for _, i := range c.Skipped {
				derived[i] = true
			}
		}
		note(w.work())
		for range rapid.IntRange(0, 2*len(p.Steps)).Draw(t, "ends") {
			note(w.end(drawEnd(t, w)))
		}

		// The crash lost the records of some skips.
		records := maps.Clone(w.ended)
		var lost []int
		for i := range p.Steps {
			if derived[i] && rapid.Bool().Draw(t, "lost") {
				delete(records, i)
				lost = append(lost, i)
			}
		}
		g, c := ResumeProgress(p, records)
		checkOrder(t, p, c)
		var ready []int
		for i := range p.Steps {
			if _, over := w.ended[i]; w.ready[i] && !over {
				ready = append(ready, i)
			}
		}
		var ended []JobEnd
		for i := range p.Jobs {
			if got, want := g.JobStatus(i), w.jobStatus(i); got != want {
				t.Fatalf("job %d is %s, not %s", i, got, want)
			}
			if s, over := w.over[i]; over {
				ended = append(ended, JobEnd{i, s})
			} else if w.started[i] != slices.Contains(c.JobsStarted, i) {
				t.Fatalf("jobs started %v, job %d is %s", c.JobsStarted, i, w.jobStatus(i))
			}
		}
		want := Change{Ready: ready, Skipped: lost, JobsEnded: ended, JobsStarted: c.JobsStarted, RunEnded: w.runOver, RunStatus: c.RunStatus}
		if diff := sameChange(want, c); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}

		// From here on nobody can tell it from the one that was played.
		for range 2 * len(p.Steps) {
			step, s := drawEnd(t, w)
			if diff := sameChange(w.end(step, s), g.End(step, s)); diff != "" {
				t.Fatalf("end of %d after resuming (-twin +progress):\n%s", step, diff)
			}
		}
	})
}
