package workflow

import "github.com/swampd/swampd/messages"

// Unmet returns what keeps a step that has not begun from being ready: the steps and the jobs that it needs and that have
// not succeeded, as ordinals and indices. Both are empty for one that is ready.
func (g *Progress) Unmet(step int) (steps, jobs []int) {
	s := &g.plan.Steps[step]
	for _, need := range s.Needs {
		if g.ended[need] != messages.StepSucceeded {
			steps = append(steps, need)
		}
	}
	for _, need := range g.plan.Jobs[s.Job].Needs {
		if g.jobs[need].status != messages.StepSucceeded {
			jobs = append(jobs, need)
		}
	}
	return steps, jobs
}
