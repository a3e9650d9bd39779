package workflow

// Need is what something waits for: the end of a step, or where Step is below 0 that of a job, as the condition wants it.
type Need struct {
	Step, Job int
	When      Condition
}

// Unmet returns what a step that has not begun still waits for, jobs first. It is empty for one that is ready, and what has
// ended otherwise than a condition wants is not among it: the step is skipped at once then.
func (g *Progress) Unmet(step int) []Need {
	var needs []Need
	s := &g.plan.Steps[step]
	job := &g.plan.Jobs[s.Job]
	for k, need := range job.Needs {
		if g.jobs[need].status == "" {
			needs = append(needs, Need{Step: -1, Job: need, When: when(job.When, k)})
		}
	}
	for k, need := range s.Needs {
		if g.ended[need] == "" {
			needs = append(needs, Need{Step: need, Job: s.Job, When: when(s.When, k)})
		}
	}
	return needs
}
