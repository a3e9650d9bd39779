package workflow

import (
	"cmp"
	"slices"

	"github.com/swampd/swampd/messages"
)

// Progress is the DAG of one run: which steps have ended, and what follows from it. It is not safe for concurrent
// use. The end of a step costs what its dependants cost, however many steps the run has.
//
// A job starts when all jobs that it needs have succeeded, and a step is ready when its job has started and all steps
// that it needs have succeeded. What needs something that ended in another way is skipped at once, and so is what
// needs that. Steps beside it go on.
type Progress struct {
	plan      *Plan
	ended     []messages.StepStatus // of the steps; empty for one that has not ended
	waits     []int                 // needs of a step that have not succeeded yet
	users     edges                 // the steps that need a step
	jobs      []jobProgress
	jobUsers  edges
	jobsLeft  int
	runFailed bool
	queue     []int // steps whose end is not told to their dependants yet
}

type jobProgress struct {
	started   bool
	status    messages.StepStatus // empty until the job has ended
	waits     int                 // needs that have not succeeded yet
	left      int                 // steps that have not ended
	failed    int
	cancelled int
	skipped   int
}

// Change is what follows from the beginning of a run or the end of a step.
type Change struct {
	// Ready steps may be dispatched now; Skipped ones never will. Both are ordinals in ascending order.
	Ready, Skipped []int
	// JobsStarted are indices of jobs in ascending order.
	JobsStarted []int
	// JobsEnded is in the order in which one end led to the next.
	JobsEnded []JobEnd
	// RunEnded tells that every job has ended; then RunStatus is succeeded or failed. Whether a run that ended so was
	// cancelled is the decision of the run.
	RunEnded  bool
	RunStatus messages.RunStatus
}

// JobEnd is the end of one job: failed if a step failed, else cancelled if one was cancelled, else skipped if all
// were skipped, else succeeded.
type JobEnd struct {
	Job    int
	Status messages.StepStatus
}

// NewProgress returns the progress of a run that has not begun.
func NewProgress(p *Plan) *Progress {
	g := &Progress{
		plan:     p,
		ended:    make([]messages.StepStatus, len(p.Steps)),
		waits:    make([]int, len(p.Steps)),
		jobs:     make([]jobProgress, len(p.Jobs)),
		jobsLeft: len(p.Jobs),
		users:    reversed(len(p.Steps), func(i int) []int { return p.Steps[i].Needs }),
		jobUsers: reversed(len(p.Jobs), func(i int) []int { return p.Jobs[i].Needs }),
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

// ResumeProgress returns the progress of a run whose ended steps are known from its records, by ordinal, and what
// Begin and the ends since then came to: every step that is ready or to be skipped now and has not ended in the
// records, and every job that has started or ended. Of a job that is over it counts as started if the jobs that it
// needs succeeded. A step that has begun and has not ended is in Ready.
func ResumeProgress(p *Plan, ended map[int]messages.StepStatus) (*Progress, Change) {
	g := NewProgress(p)
	// All ends are noted before any is followed up, so that no step is skipped that has ended in its own way; and those
	// of a job after those of the jobs that it needs, so that it is seen to start before it is seen to end.
	order := g.jobOrder()
	for _, job := range order {
		for _, i := range p.Jobs[job].Steps {
			if s, ok := ended[i]; ok {
				g.note(i, s)
			}
		}
	}
	c := g.Begin()
	// A job may be over in the records while a job that it needs is over only now.
	rank := make([]int, len(order))
	for k, job := range order {
		rank[job] = k
	}
	slices.SortFunc(c.JobsEnded, func(a, b JobEnd) int { return cmp.Compare(rank[a.Job], rank[b.Job]) })
	return g, c
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
		for _, i := range g.jobUsers.of(order[k]) {
			if waits[i]--; waits[i] == 0 {
				order = append(order, i)
			}
		}
	}
	return order
}

// End notes that a step has ended as succeeded, failed, cancelled or skipped. The first end of a step counts: another
// one, and a status that is no end, change nothing and return the empty Change.
func (g *Progress) End(step int, s messages.StepStatus) Change {
	var c Change
	if g.note(step, s) {
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

func (g *Progress) begin(c *Change) {
	for i := range g.jobs {
		if g.jobs[i].waits == 0 {
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
			c.Ready = append(c.Ready, i)
		}
	}
	if len(g.plan.Jobs[job].Steps) == 0 {
		g.endJob(job, messages.StepSucceeded, c)
	}
}

// note keeps the end of a step and tells whether it is news. What follows from it is for settle.
func (g *Progress) note(step int, s messages.StepStatus) bool {
	if g.ended[step] != "" || !s.Ended() {
		return false
	}
	g.ended[step] = s
	j := &g.jobs[g.plan.Steps[step].Job]
	j.left--
	switch s {
	case messages.StepFailed:
		j.failed++
	case messages.StepCancelled:
		j.cancelled++
	case messages.StepSkipped:
		j.skipped++
	default: // it succeeded: the job does not count those
	}
	g.queue = append(g.queue, step)
	return true
}

// settle follows every noted end to what it makes ready, skips or ends.
func (g *Progress) settle(c *Change) {
	for k := 0; k < len(g.queue); k++ {
		step := g.queue[k]
		job := g.plan.Steps[step].Job
		for _, i := range g.users.of(step) {
			switch {
			case g.ended[step] != messages.StepSucceeded:
				g.skip(i, c)
			default:
				g.waits[i]--
				if g.waits[i] == 0 && g.ended[i] == "" && g.jobs[job].started {
					c.Ready = append(c.Ready, i)
				}
			}
		}
		if j := &g.jobs[job]; j.left == 0 && j.status == "" {
			g.endJob(job, j.outcome(len(g.plan.Jobs[job].Steps)), c)
		}
	}
	g.queue = g.queue[:0]
	slices.Sort(c.Ready)
	slices.Sort(c.Skipped)
	slices.Sort(c.JobsStarted)
}

func (g *Progress) skip(step int, c *Change) {
	if g.note(step, messages.StepSkipped) {
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
	for _, i := range g.jobUsers.of(job) {
		switch {
		case g.jobs[i].status != "":
		case s != messages.StepSucceeded:
			g.skipJob(i, c)
		default:
			g.jobs[i].waits--
			if g.jobs[i].waits == 0 {
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
}

func (e *edges) of(i int) []int { return e.to[e.from[i]:e.from[i+1]] }

// reversed turns "needs" into "is needed by"; what needs a node is in ascending order.
func reversed(n int, needs func(int) []int) edges {
	e := edges{from: make([]int, n+1)}
	total := 0
	for i := range n {
		for _, to := range needs(i) {
			e.from[to+1]++
		}
		total += len(needs(i))
	}
	for i := range n {
		e.from[i+1] += e.from[i]
	}
	e.to = make([]int, total)
	next := slices.Clone(e.from)
	for i := range n {
		for _, to := range needs(i) {
			e.to[next[to]] = i
			next[to]++
		}
	}
	return e
}
