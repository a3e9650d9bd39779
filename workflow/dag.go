package workflow

import (
	"slices"

	"github.com/swampd/swampd/messages"
)

// Progress is the DAG of one run: which steps have ended, and what follows from it. It is not safe for concurrent
// use. The end of a step costs what its dependants cost, however many steps the run has.
//
// A job starts when all jobs that it needs have ended and every condition holds, and a step is ready when its job has
// started and the same is true of the steps that it needs. As soon as one condition does not hold, what has it is
// skipped, and that is an end too: conditions of others may hold because of it. Steps beside it go on.
//
// A step with a forEach is a template. When it is ready it is expanded into instances, which have ordinals of their own,
// above those of the plan's steps. It ends when all of them have ended, and a condition on it holds if it holds for each
// of them.
//
// In a run that is cancelled nothing starts but what cleans up; see Cancel.
type Progress struct {
	plan      *Plan
	ended     []messages.StepStatus // of the steps; empty for one that has not ended
	outcomes  []outcome             // of the steps that have ended
	waits     []int                 // needs of a step that have not ended yet
	users     edges                 // the steps that need a step
	jobs      []jobProgress
	jobUsers  edges
	jobsLeft  int
	runFailed bool
	queue     []int // steps whose end is not told to their dependants yet
	cancelled bool
	instances []instance
	templates map[int]*template // those that are expanded
}

type jobProgress struct {
	started   bool
	status    messages.StepStatus // empty until the job has ended
	waits     int                 // needs that have not ended yet
	left      int                 // steps that have not ended
	failed    int
	cancelled int
	skipped   int
}

// Change is what follows from the beginning of a run or the end of a step.
type Change struct {
	// Ready steps may be dispatched now, or expanded if they are templates. Skipped ones never will, because a condition
	// does not hold, and Cancelled ones because the run is cancelled. All are ordinals in ascending order.
	Ready, Skipped, Cancelled []int
	// TemplatesEnded are templates whose instances have all ended, in ascending order.
	TemplatesEnded []int
	// JobsStarted are indices of jobs in ascending order.
	JobsStarted []int
	// JobsEnded is in the order in which one end led to the next.
	JobsEnded []JobEnd
	// RunEnded tells that every job has ended; then RunStatus is succeeded or failed. Whether a run that ended so was
	// cancelled is the decision of the run.
	RunEnded  bool
	RunStatus messages.RunStatus
}

// JobEnd is the end of one job: failed if a step failed that may not, else cancelled if one was cancelled, else skipped if
// all were skipped, else succeeded.
type JobEnd struct {
	Job    int
	Status messages.StepStatus
}

// NewProgress returns the progress of a run that has not begun.
func NewProgress(p *Plan) *Progress {
	g := &Progress{
		plan:     p,
		ended:    make([]messages.StepStatus, len(p.Steps)),
		outcomes: make([]outcome, len(p.Steps)),
		waits:    make([]int, len(p.Steps)),
		jobs:     make([]jobProgress, len(p.Jobs)),
		jobsLeft: len(p.Jobs),
		users:    reversed(len(p.Steps), func(i int) ([]int, []Condition) { return p.Steps[i].Needs, p.Steps[i].When }),
		jobUsers: reversed(len(p.Jobs), func(i int) ([]int, []Condition) { return p.Jobs[i].Needs, p.Jobs[i].When }),
	}
	for i := range p.Steps {
		g.waits[i] = len(p.Steps[i].Needs)
	}
	for i := range p.Jobs {
		g.jobs[i].waits = len(p.Jobs[i].Needs)
		g.jobs[i].left = len(p.Jobs[i].Steps)
	}
	return g
}

// Begin starts the jobs that need no other and returns what is ready.
func (g *Progress) Begin() Change {
	var c Change
	g.begin(&c)
	g.settle(&c)
	return c
}

// End notes that a step has ended as succeeded, failed, cancelled or skipped. The first end of a step counts: another
// one, and a status that is no end, change nothing and return the empty Change. So does the end of a template that is
// expanded: it ends with its instances.
func (g *Progress) End(step int, s messages.StepStatus) Change {
	var c Change
	if g.note(step, s, outcomeOf(s), &c) {
		g.settle(&c)
	}
	return c
}

// Pass notes that a step is skipped because there is nothing to do: its guard says that it is done. What depends on its
// success goes on.
func (g *Progress) Pass(step int) Change {
	var c Change
	if g.note(step, messages.StepSkipped, passed, &c) {
		g.settle(&c)
	}
	return c
}

// JobStatus is pending, running or the status with which the job has ended.
func (g *Progress) JobStatus(job int) messages.StepStatus {
	switch j := &g.jobs[job]; {
	case j.status != "":
		return j.status
	case j.started:
		return messages.StepRunning
	default:
		return messages.StepPending
	}
}

// StepStatus is the status with which a step, a template or an instance has ended, or empty.
func (g *Progress) StepStatus(step int) messages.StepStatus {
	if k := step - len(g.ended); k >= 0 {
		return g.instances[k].status
	}
	return g.ended[step]
}

func (g *Progress) begin(c *Change) {
	for i := range g.jobs {
		if g.jobs[i].waits == 0 && g.jobs[i].status == "" {
			g.start(i, c)
		}
	}
	if len(g.jobs) == 0 {
		g.endRun(c)
	}
}

// start starts a job. One whose steps have all ended before, or that has none, ends with it.
func (g *Progress) start(job int, c *Change) {
	j := &g.jobs[job]
	j.started = true
	c.JobsStarted = append(c.JobsStarted, job)
	for _, i := range g.plan.Jobs[job].Steps {
		if g.waits[i] == 0 && g.ended[i] == "" {
			g.ready(i, c)
		}
	}
	if len(g.plan.Jobs[job].Steps) == 0 {
		g.endJob(job, messages.StepSucceeded, c)
	}
}

// ready reports a step, or of a template that is expanded already the instances that have not ended.
func (g *Progress) ready(step int, c *Change) {
	t := g.templates[step]
	if t == nil {
		c.Ready = append(c.Ready, step)
		return
	}
	for i := t.first; i < t.first+t.count; i++ {
		if g.instances[i-len(g.ended)].status == "" {
			c.Ready = append(c.Ready, i)
		}
	}
}

// note keeps the end of a step and tells whether it is news. What follows from it is for settle.
func (g *Progress) note(step int, s messages.StepStatus, o outcome, c *Change) bool {
	if step >= len(g.ended) {
		return g.noteInstance(step, s, o, c)
	}
	if g.templates[step] != nil {
		return false
	}
	return g.noteStep(step, s, o)
}

func (g *Progress) noteStep(step int, s messages.StepStatus, o outcome) bool {
	if g.ended[step] != "" || !s.Ended() {
		return false
	}
	g.ended[step], g.outcomes[step] = s, o
	j := &g.jobs[g.plan.Steps[step].Job]
	j.left--
	switch {
	case s == messages.StepFailed && !g.plan.Steps[step].AllowFailure:
		j.failed++
	case s == messages.StepCancelled:
		j.cancelled++
	case s == messages.StepSkipped && o&passed == 0:
		j.skipped++
	default: // it succeeded, or what it came to is as good for its job
	}
	g.queue = append(g.queue, step)
	return true
}

// settle follows every noted end to what it makes ready, skips or ends.
func (g *Progress) settle(c *Change) {
	for k := 0; k < len(g.queue); k++ {
		step := g.queue[k]
		job := g.plan.Steps[step].Job
		users, conditions := g.users.of(step)
		for n, i := range users {
			if !conditions[n].holds(g.outcomes[step]) {
				g.skip(i, c)
				continue
			}
			g.waits[i]--
			if g.waits[i] == 0 && g.ended[i] == "" && g.jobs[job].started {
				g.ready(i, c)
			}
		}
		if j := &g.jobs[job]; j.left == 0 && j.status == "" {
			g.endJob(job, j.outcome(len(g.plan.Jobs[job].Steps)), c)
		}
	}
	g.queue = g.queue[:0]
	slices.Sort(c.Ready)
	slices.Sort(c.Skipped)
	slices.Sort(c.Cancelled)
	slices.Sort(c.TemplatesEnded)
	slices.Sort(c.JobsStarted)
}

func (g *Progress) skip(step int, c *Change) {
	if g.note(step, messages.StepSkipped, outcome(OnSkipped), c) {
		c.Skipped = append(c.Skipped, step)
	}
}

func (j *jobProgress) outcome(steps int) messages.StepStatus {
	switch {
	case j.failed > 0:
		return messages.StepFailed
	case j.cancelled > 0:
		return messages.StepCancelled
	case j.skipped == steps:
		return messages.StepSkipped
	default:
		return messages.StepSucceeded
	}
}

// endJob ends a job, and starts or skips those that need it.
func (g *Progress) endJob(job int, s messages.StepStatus, c *Change) {
	g.jobs[job].status = s
	c.JobsEnded = append(c.JobsEnded, JobEnd{job, s})
	if s == messages.StepFailed || s == messages.StepCancelled {
		g.runFailed = true
	}
	g.jobsLeft--
	if g.jobsLeft == 0 {
		g.endRun(c)
	}
	users, conditions := g.jobUsers.of(job)
	for n, i := range users {
		switch {
		case g.jobs[i].status != "":
		case !conditions[n].holds(outcomeOf(s)):
			g.skipJob(i, c)
		default:
			g.jobs[i].waits--
			over := g.cancelled && g.jobs[i].left == 0 && len(g.plan.Jobs[i].Steps) > 0 // nothing of it was left to start
			if g.jobs[i].waits == 0 && !over {
				g.start(i, c)
			}
		}
	}
}

// skipJob skips the steps of a job; the job ends with the last of them, in settle.
func (g *Progress) skipJob(job int, c *Change) {
	for _, i := range g.plan.Jobs[job].Steps {
		g.skip(i, c)
	}
	if len(g.plan.Jobs[job].Steps) == 0 {
		g.endJob(job, messages.StepSkipped, c)
	}
}

func (g *Progress) endRun(c *Change) {
	c.RunEnded, c.RunStatus = true, messages.RunSucceeded
	if g.runFailed {
		c.RunStatus = messages.RunFailed
	}
}

// edges are the arrows of a graph against their direction, in two slices instead of one for each node.
type edges struct {
	from []int // where the arrows of a node begin in to, with one more at the end
	to   []int
	when []Condition // of each arrow
}

func (e *edges) of(i int) ([]int, []Condition) {
	return e.to[e.from[i]:e.from[i+1]], e.when[e.from[i]:e.from[i+1]]
}

// reversed turns "needs" into "is needed by"; what needs a node is in ascending order.
func reversed(n int, needs func(int) ([]int, []Condition)) edges {
	e := edges{from: make([]int, n+1)}
	total := 0
	for i := range n {
		list, _ := needs(i)
		for _, to := range list {
			e.from[to+1]++
		}
		total += len(list)
	}
	for i := range n {
		e.from[i+1] += e.from[i]
	}
	e.to, e.when = make([]int, total), make([]Condition, total)
	next := slices.Clone(e.from)
	for i := range n {
		list, conditions := needs(i)
		for k, to := range list {
			e.to[next[to]], e.when[next[to]] = i, when(conditions, k)
			next[to]++
		}
	}
	return e
}
