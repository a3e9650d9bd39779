package workflow

import (
	"cmp"
	"slices"

	"github.com/swampd/swampd/messages"
)

// CleansUp tells whether a step also runs in a cancelled run: it, or its job, depends on something with the condition
// always.
func (p *Plan) CleansUp(step int) bool {
	s := &p.Steps[step]
	return cleansUp(s.When) || cleansUp(p.Jobs[s.Job].When)
}

// Cancel notes that the run is cancelled. What has begun is left to the caller; begun tells it of steps that have not
// ended. Of the rest only what cleans up goes on: steps with the condition always in jobs that have started, and all
// steps of jobs with that condition, as far as their other conditions hold. Everything else has ended as cancelled, and a
// job that has not started and does not clean up never will.
func (g *Progress) Cancel(begun func(step int) bool) Change {
	var c Change
	g.cancel(begun, &c)
	g.settle(&c)
	return c
}

func (g *Progress) cancel(begun func(step int) bool, c *Change) {
	g.cancelled = true
	for job := range g.jobs {
		if !g.jobs[job].started && !cleansUp(g.plan.Jobs[job].When) {
			for _, i := range g.plan.Jobs[job].Steps {
				g.noteCancelled(i, c)
			}
		}
	}
	for i := range g.plan.Steps {
		if t := g.templates[i]; t != nil {
			continue // as its instances
		}
		if !g.plan.CleansUp(i) && !begun(i) {
			g.noteCancelled(i, c)
		}
	}
	for k := range g.instances {
		if i := len(g.ended) + k; !g.plan.CleansUp(g.instances[k].template) && !begun(i) {
			g.noteCancelled(i, c)
		}
	}
}

func (g *Progress) noteCancelled(step int, c *Change) {
	if g.note(step, messages.StepCancelled, outcome(onCancelled), c) {
		c.Cancelled = append(c.Cancelled, step)
	}
}

// Past is what the records of a run tell of it.
type Past struct {
	// Ended holds the steps and instances that have ended, by ordinal, and Passed those of them that were skipped because
	// there was nothing to do.
	Ended  map[int]messages.StepStatus
	Passed map[int]bool
	// Expansions are the templates that were expanded, in that order.
	Expansions []Expansion
	// Cancelled tells that the run is cancelled. Then Started tells of each job whether it had started before, and Begun which steps
	// have a record that is not ended. What has no record and does not clean up is cancelled.
	Cancelled bool
	Started   []bool
	Begun     map[int]bool
}

// Expansion is one expansion of a template.
type Expansion struct{ Step, Count int }

// ResumeProgress returns the progress of a run of which the records are known, and what Begin and the ends since then
// came to: every step that is ready or to be skipped now and has not ended in the records, and every job that has
// started or ended. Of a job that is over it counts as started if the conditions on the jobs that it needs held, unless
// the run is cancelled. A step that has begun and has not ended is in Ready.
func ResumeProgress(p *Plan, past Past) (*Progress, Change) {
	g := NewProgress(p)
	var c Change
	instances := make(map[int][]int, len(past.Expansions))
	for _, e := range past.Expansions {
		if e.Count == 0 {
			continue // its end is in the records, or follows when it is expanded again
		}
		for k := range e.Count {
			instances[e.Step] = append(instances[e.Step], g.NextInstance()+k)
		}
		g.expand(e.Step, e.Count)
	}
	// All ends are noted before any is followed up, so that no step is skipped that has ended in its own way; and those
	// of a job after those of the jobs that it needs, so that it is seen to start before it is seen to end.
	order := g.jobOrder()
	for _, job := range order {
		for _, i := range p.Jobs[job].Steps {
			g.recall(i, &past, &c)
			for _, k := range instances[i] {
				g.recall(k, &past, &c)
			}
		}
	}
	if past.Cancelled {
		for job := range g.jobs {
			g.jobs[job].started = past.Started[job] // for cancel alone: begin finds out by itself
		}
		g.cancel(func(step int) bool { return past.Begun[step] }, &c)
		for job := range g.jobs {
			g.jobs[job].started = false
		}
	}
	g.begin(&c)
	g.settle(&c)
	// A job may be over in the records while a job that it needs is over only now.
	rank := make([]int, len(order))
	for k, job := range order {
		rank[job] = k
	}
	slices.SortFunc(c.JobsEnded, func(a, b JobEnd) int { return cmp.Compare(rank[a.Job], rank[b.Job]) })
	return g, c
}

// recall notes an end that the records have.
func (g *Progress) recall(step int, past *Past, c *Change) {
	s, ok := past.Ended[step]
	switch {
	case !ok:
	case past.Passed[step]:
		g.note(step, messages.StepSkipped, passed, c)
	default:
		g.note(step, s, outcomeOf(s), c)
	}
}

// jobOrder lists the jobs so that each comes after those that it needs.
func (g *Progress) jobOrder() []int {
	order := make([]int, 0, len(g.jobs))
	waits := make([]int, len(g.jobs))
	for i := range g.jobs {
		if waits[i] = g.jobs[i].waits; waits[i] == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		users, _ := g.jobUsers.of(order[k])
		for _, i := range users {
			if waits[i]--; waits[i] == 0 {
				order = append(order, i)
			}
		}
	}
	return order
}
