package workflow

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

// twin is what Progress does, without a thought for cost: after every end it works everything out from scratch and
// compares with what it had before. Steps and instances are told apart by their ordinals.
type twin struct {
	plan      *Plan
	ended     map[int]messages.StepStatus
	passed    map[int]bool
	ready     map[int]bool // ever
	started   map[int]bool
	over      map[int]messages.StepStatus // jobs
	runOver   bool
	cancelled bool
	instances map[int][]int // of the templates that are expanded
	expanded  []Expansion
	next      int
}

func newTwin(p *Plan) *twin {
	return &twin{
		plan: p, ended: map[int]messages.StepStatus{}, passed: map[int]bool{}, ready: map[int]bool{},
		started: map[int]bool{}, over: map[int]messages.StepStatus{}, instances: map[int][]int{}, next: len(p.Steps),
	}
}

func (w *twin) end(step int, s messages.StepStatus) Change {
	if _, ok := w.ended[step]; ok || !s.Ended() || w.instances[step] != nil {
		return Change{}
	}
	w.ended[step] = s
	return w.work()
}

func (w *twin) pass(step int) Change {
	if _, ok := w.ended[step]; ok || w.instances[step] != nil {
		return Change{}
	}
	w.ended[step], w.passed[step] = skip, true
	return w.work()
}

func (w *twin) expand(step, count int) Change {
	if _, ok := w.ended[step]; ok || w.instances[step] != nil {
		return Change{}
	}
	w.expanded = append(w.expanded, Expansion{step, count})
	if count == 0 {
		c := w.pass(step)
		c.TemplatesEnded = append(c.TemplatesEnded, step)
		return c
	}
	for range count {
		w.instances[step] = append(w.instances[step], w.next)
		w.ready[w.next] = true
		w.next++
	}
	return Change{Ready: slices.Clone(w.instances[step])}
}

func (w *twin) cancel(begun func(int) bool) Change {
	w.cancelled = true
	var c Change
	for s := range w.plan.Steps {
		job := w.plan.Steps[s].Job
		jobCleans := slices.Contains(w.plan.Jobs[job].When, Always)
		cleans := jobCleans || slices.Contains(w.plan.Steps[s].When, Always)
		never := !w.started[job] && !jobCleans
		own := w.instances[s]
		if own == nil {
			own = []int{s}
		}
		for _, i := range own {
			if _, over := w.ended[i]; !over && (never || !cleans && !begun(i)) {
				w.ended[i] = gone
				c.Cancelled = append(c.Cancelled, i)
			}
		}
	}
	then := w.work()
	then.Cancelled = c.Cancelled
	return then
}

// ends are those that conditions on a step are asked about, or nil while there are some to come.
func (w *twin) ends(step int) []int {
	own := w.instances[step]
	if own == nil {
		own = []int{step}
	}
	for _, i := range own {
		if w.ended[i] == "" {
			return nil
		}
	}
	return own
}

// work applies the rules until none applies.
func (w *twin) work() Change {
	var c Change
	for again := true; again; {
		again = false
		for s, own := range w.instances {
			if _, over := w.ended[s]; !over && w.ends(s) != nil {
				w.ended[s] = skip
				for _, rank := range []messages.StepStatus{good, gone, bad} { // the last one found wins
					for _, i := range own {
						if w.ended[i] == rank {
							w.ended[s] = rank
						}
					}
				}
				w.passed[s] = slices.ContainsFunc(own, func(i int) bool { return w.passed[i] })
				c.TemplatesEnded = append(c.TemplatesEnded, s)
				again = true
			}
		}
		for i, job := range w.plan.Jobs {
			if _, over := w.over[i]; over {
				continue
			}
			counts := map[messages.StepStatus]int{}
			for _, s := range job.Steps {
				switch {
				case w.ended[s] == bad && w.plan.Steps[s].AllowFailure, w.ended[s] == skip && w.passed[s]:
					counts[good]++
				default:
					counts[w.ended[s]]++
				}
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
			met, lost := true, false
			for k, n := range job.Needs {
				s, over := w.over[n]
				met = met && over
				lost = lost || over && !slices.Contains(meaning(job.When, k), s)
			}
			met = met && !lost
			if met && !w.started[i] {
				w.started[i] = true
				c.JobsStarted = append(c.JobsStarted, i)
				again = true
			}
			for _, s := range job.Steps {
				if _, over := w.ended[s]; over || w.instances[s] != nil {
					continue
				}
				stepMet, stepLost := w.needs(s)
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

// meaning spells out the ends that the k-th condition takes.
func meaning(conditions []Condition, k int) []messages.StepStatus {
	if conditions == nil {
		return []messages.StepStatus{good}
	}
	var all []messages.StepStatus
	for _, s := range []messages.StepStatus{good, bad, skip, gone} {
		if conditions[k]&Condition(outcomeOf(s)) != 0 {
			all = append(all, s)
		}
	}
	return all
}

func (w *twin) needs(step int) (met, lost bool) {
	s := &w.plan.Steps[step]
	met = true
	for k, n := range s.Needs {
		takes := meaning(s.When, k)
		ends := w.ends(n)
		met = met && ends != nil
		for _, i := range ends {
			ok := slices.Contains(takes, w.ended[i])
			if w.passed[i] {
				ok = slices.Contains(takes, good) || slices.Contains(takes, skip)
			}
			lost = lost || !ok
		}
	}
	return met && !lost, lost
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

// running are the steps and instances that are ready and have not ended, in order.
func (w *twin) running() []int {
	var list []int
	for i := range w.next {
		if _, over := w.ended[i]; w.ready[i] && !over && w.instances[i] == nil {
			list = append(list, i)
		}
	}
	return list
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
			s := Step{Job: i, AllowFailure: rapid.IntRange(0, 4).Draw(t, "allow") == 0}
			if rapid.IntRange(0, 4).Draw(t, "each") == 0 {
				s.ForEach = &ForEach{}
			}
			for _, to := range needs[k] {
				s.Needs = append(s.Needs, first+to)
			}
			s.When = drawConditions(t, len(s.Needs))
			p.Jobs[i].Steps = append(p.Jobs[i].Steps, len(p.Steps))
			p.Steps = append(p.Steps, s)
		}
		p.Jobs[i].Needs = jobNeeds[i]
		p.Jobs[i].When = drawConditions(t, len(jobNeeds[i]))
	}
	return p
}

// drawConditions draws conditions, or nil: then every one is OnSucceeded.
func drawConditions(t *rapid.T, n int) []Condition {
	if n == 0 || rapid.Bool().Draw(t, "plain") {
		return nil
	}
	list := make([]Condition, n)
	for i := range list {
		list[i] = rapid.OneOf(rapid.SampledFrom([]Condition{OnSucceeded, Always}), rapid.Custom(func(t *rapid.T) Condition {
			return Condition(rapid.IntRange(1, int(Always)).Draw(t, "ends"))
		})).Draw(t, "condition")
	}
	return list
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

// player does the same to a progress and to its twin.
type player struct {
	w     *twin
	g     *Progress
	check func(what string, want, got Change)
}

// draw does something to both: mostly it ends what is ready, at times anything with any status.
func (p *player) draw(t *rapid.T) {
	running := p.w.running()
	step := rapid.IntRange(0, p.w.next-1).Draw(t, "any step")
	if len(running) > 0 && rapid.IntRange(0, 9).Draw(t, "any") > 0 {
		step = rapid.SampledFrom(running).Draw(t, "step")
	}
	if p.w.next < 60 && slices.Contains(running, step) && step < len(p.w.plan.Steps) && p.w.plan.Steps[step].ForEach != nil &&
		rapid.IntRange(0, 4).Draw(t, "expand") > 0 {
		n := rapid.IntRange(0, 4).Draw(t, "instances")
		p.check(fmt.Sprintf("expand %d into %d", step, n), p.w.expand(step, n), p.g.Expand(step, n))
		return
	}
	switch rapid.IntRange(0, 30).Draw(t, "what") {
	case 0, 1, 2:
		p.check(fmt.Sprintf("pass %d", step), p.w.pass(step), p.g.Pass(step))
	case 3:
		begun := map[int]bool{}
		for _, i := range running {
			template := i < len(p.w.plan.Steps) && p.w.plan.Steps[i].ForEach != nil
			begun[i] = !template && rapid.Bool().Draw(t, "begun")
		}
		is := func(i int) bool { return begun[i] }
		p.check("cancel", p.w.cancel(is), p.g.Cancel(is))
	default:
		s := rapid.SampledFrom([]messages.StepStatus{good, good, good, good, good, good, bad, bad, gone, skip, messages.StepRunning}).Draw(t, "status")
		p.check(fmt.Sprintf("end %d as %s", step, s), p.w.end(step, s), p.g.End(step, s))
	}
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
		play := player{w: newTwin(p), g: NewProgress(p)}
		play.check = func(what string, want, got Change) { play.compare(t, what, want, got) }
		play.check("begin", play.w.work(), play.g.Begin())
		for range 3 * len(p.Steps) {
			play.draw(t)
		}
	})
}

// compare fails where a change or what can be asked differs from the twin's.
func (p *player) compare(t *rapid.T, what string, want, got Change) {
	if diff := sameChange(want, got); diff != "" {
		t.Fatalf("%s (-twin +progress):\n%s", what, diff)
	}
	checkOrder(t, p.w.plan, got)
	for i := range p.w.plan.Jobs {
		if got, want := p.g.JobStatus(i), p.w.jobStatus(i); got != want {
			t.Fatalf("%s: job %d is %s, the twin says %s", what, i, got, want)
		}
	}
	for i := range p.w.next {
		if got, want := p.g.StepStatus(i), p.w.ended[i]; got != want {
			t.Fatalf("%s: step %d is %q, the twin says %q", what, i, got, want)
		}
	}
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
			for _, i := range slices.Concat(c.Ready, c.Skipped, c.Cancelled) {
				if seen[i] && !slices.Contains(c.Cancelled, i) {
					t.Fatalf("step %d comes twice", i)
				}
				seen[i] = true
				running = slices.DeleteFunc(running, func(k int) bool { return k == i })
			}
			running = append(running, c.Ready...)
			if c.RunEnded {
				runEnds++
			}
		}
		take(g.Begin())
		cancelled := false
		for len(running) > 0 {
			if runEnds > 0 {
				t.Fatalf("the run has ended while %v run", running)
			}
			if !cancelled && rapid.IntRange(0, 20).Draw(t, "cancel") == 0 {
				cancelled = true
				take(g.Cancel(func(int) bool { return false }))
				for _, i := range running {
					if !p.CleansUp(g.Template(i)) {
						t.Fatalf("step %d goes on in a cancelled run and does not clean up", i)
					}
				}
				continue
			}
			k := rapid.IntRange(0, len(running)-1).Draw(t, "next")
			step := running[k]
			running = slices.Delete(running, k, k+1)
			if step < len(p.Steps) && p.Steps[step].ForEach != nil {
				take(g.Expand(step, rapid.IntRange(0, 3).Draw(t, "instances")))
				continue
			}
			take(g.End(step, rapid.SampledFrom([]messages.StepStatus{good, good, good, bad, gone}).Draw(t, "status")))
		}
		for i := range p.Steps {
			if !seen[i] {
				t.Fatalf("step %d never came up", i)
			}
		}
		if runEnds != 1 {
			t.Fatalf("the run ended %d times", runEnds)
		}
	})
}

func TestResumeProgress_IsTheProgressThatWasPlayed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		play := player{w: newTwin(p), g: NewProgress(p)}
		derived := map[int]messages.StepStatus{} // skips and cancels that follow from other things
		play.check = func(what string, want, got Change) {
			play.compare(t, what, want, got)
			for _, i := range got.Skipped {
				derived[i] = skip
			}
			for _, i := range got.Cancelled {
				derived[i] = gone
			}
		}
		play.check("begin", play.w.work(), play.g.Begin())
		for range rapid.IntRange(0, 2*len(p.Steps)).Draw(t, "ends") {
			play.draw(t)
		}

		// The crash lost the records of some steps that never began. Templates that are expanded have none.
		w := play.w
		past := Past{Ended: maps.Clone(w.ended), Passed: maps.Clone(w.passed), Expansions: w.expanded, Cancelled: w.cancelled}
		var skipped, cancelled, ended []int
		for i := range w.next {
			s, ok := derived[i]
			switch {
			case ok && s == skip && w.cancelled && !cleansUp(p.Jobs[p.Steps[i].Job].When):
				// Nothing tells any more whether it was skipped before the cancel or is cancelled by it.
			case ok && rapid.Bool().Draw(t, "lost"):
				delete(past.Ended, i)
				if s == skip {
					skipped = append(skipped, i)
				} else {
					cancelled = append(cancelled, i)
				}
			case w.instances[i] != nil:
				delete(past.Ended, i)
				if w.ended[i] != "" {
					ended = append(ended, i)
				}
			}
		}
		running := w.running()
		past.Begun = map[int]bool{}
		for _, i := range running {
			past.Begun[i] = true
		}
		for i := range p.Jobs {
			past.Started = append(past.Started, w.started[i])
		}
		g, c := ResumeProgress(p, past)
		checkOrder(t, p, c)
		var jobsEnded []JobEnd
		for i := range p.Jobs {
			if s, over := w.over[i]; over {
				jobsEnded = append(jobsEnded, JobEnd{i, s})
			} else if w.started[i] != slices.Contains(c.JobsStarted, i) {
				t.Fatalf("jobs started %v, job %d is %s", c.JobsStarted, i, w.jobStatus(i))
			}
		}
		want := Change{
			Ready: running, Skipped: skipped, Cancelled: cancelled, TemplatesEnded: ended, JobsEnded: jobsEnded, JobsStarted: c.JobsStarted,
			RunEnded: w.runOver, RunStatus: c.RunStatus,
		}
		play.g = g
		play.compare(t, "resume", want, c)

		// From here on nobody can tell it from the one that was played.
		for range 2 * len(p.Steps) {
			play.draw(t)
		}
	})
}
