package cli

import (
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// runView is what a person wants to know of a run, built up from its events.
type runView struct {
	id, workflow string
	status       string
	err          string
	started      time.Time // of the orchestrator's clock, as every time here
	ended        time.Time
	jobs         []*jobView
	// index finds jobs and steps by their names.
	index map[[2]string]*stepView
	named map[string]*jobView
	// skew is how far this machine's clock is ahead of the orchestrator's, including the way of the news.
	skew    time.Duration
	skewSet bool
}

type jobView struct {
	name   string
	status string
	steps  []*stepView
}

// stepView is one step. since is when its status began.
type stepView struct {
	job, name   string
	status      string
	since       time.Time
	took        time.Duration // of the last attempt, once it has ended
	dispatched  time.Time
	requirement string
	why         string
	worker      string
	attempt     int32
	lost        string // the worker that was lost last, while the step waits again
	err, code   string
}

// seedPlan fills in what a workflow file says: the steps that nothing has happened to yet.
func (v *runView) seedPlan(plan *workflow.Plan) {
	v.workflow = plan.Name
	for i := range plan.Jobs {
		job := v.job(plan.Jobs[i].Name)
		for _, ordinal := range plan.Jobs[i].Steps {
			v.step(job.name, plan.Steps[ordinal].Name)
		}
	}
}

// seedRun fills in the names of what the orchestrator knows; how it is comes in events.
func (v *runView) seedRun(run *messages.RunItem) {
	v.id, v.workflow = run.GetRunId(), run.GetWorkflowName()
	for _, job := range run.GetJobs() {
		v.job(job.GetName())
		for _, step := range job.GetSteps() {
			v.step(job.GetName(), step.GetName())
		}
	}
}

func (v *runView) job(name string) *jobView {
	if job := v.named[name]; job != nil {
		return job
	}
	if v.named == nil {
		v.named, v.index = map[string]*jobView{}, map[[2]string]*stepView{}
	}
	job := &jobView{name: name, status: string(messages.StepPending)}
	v.jobs, v.named[name] = append(v.jobs, job), job
	return job
}

func (v *runView) step(jobName, name string) *stepView {
	key := [2]string{jobName, name}
	if step := v.index[key]; step != nil {
		return step
	}
	job := v.job(jobName)
	step := &stepView{job: jobName, name: name, status: string(messages.StepPending)}
	job.steps, v.index[key] = append(job.steps, step), step
	return step
}

// apply takes an event that arrived at now, by this machine's clock.
func (v *runView) apply(e *messages.RunEvent, now time.Time) {
	at := messages.GoTime(e.GetAt())
	if d := now.Sub(at); !v.skewSet || d < v.skew {
		v.skew, v.skewSet = d, true
	}
	v.id = e.GetRunId()
	switch e.GetKind() {
	case messages.EventRunStarted:
		v.workflow, v.status, v.started = e.GetWorkflowName(), string(messages.RunRunning), at
	case messages.EventRunSuspended:
		v.status = string(messages.RunSuspended)
	case messages.EventRunResumed:
		v.status = string(messages.RunRunning)
	case messages.EventRunSucceeded:
		v.status, v.ended = string(messages.RunSucceeded), at
	case messages.EventRunFailed:
		v.status, v.ended, v.err = string(messages.RunFailed), at, e.GetError()
	case messages.EventRunCancelled:
		v.status, v.ended = string(messages.RunCancelled), at
	case messages.EventJobStarted:
		v.job(e.GetJob()).status = string(messages.StepRunning)
	case messages.EventJobSucceeded:
		v.job(e.GetJob()).status = string(messages.StepSucceeded)
	case messages.EventJobFailed:
		v.job(e.GetJob()).status = string(messages.StepFailed)
	case messages.EventJobSkipped:
		v.job(e.GetJob()).status = string(messages.StepSkipped)
	case messages.EventJobCancelled:
		v.job(e.GetJob()).status = string(messages.StepCancelled)
	case messages.EventStepOutput:
	default:
		if e.GetStep() != "" {
			v.step(e.GetJob(), e.GetStep()).apply(e, at)
		}
	}
}

func (s *stepView) apply(e *messages.RunEvent, at time.Time) {
	switch e.GetKind() {
	case messages.EventStepQueued:
		s.status, s.since = string(messages.StepQueued), at
		s.requirement, s.why, s.worker = e.GetRequirement(), e.GetWhy(), ""
	case messages.EventStepDispatched:
		s.status, s.since, s.dispatched = string(messages.StepRunning), at, at
		s.worker, s.attempt, s.lost = e.GetWorker(), e.GetAttempt(), ""
	case messages.EventStepWorkerLost:
		s.lost = e.GetWorker()
	case messages.EventStepWaitingApproval:
		s.status, s.since = string(messages.StepWaitingApproval), at
	case messages.EventStepSucceeded:
		s.end(messages.StepSucceeded, at)
	case messages.EventStepFailed:
		s.end(messages.StepFailed, at)
		s.err, s.code = e.GetError(), e.GetCode()
	case messages.EventStepSkipped:
		s.end(messages.StepSkipped, at)
	case messages.EventStepCancelled:
		s.end(messages.StepCancelled, at)
		s.err, s.code = e.GetError(), e.GetCode()
	}
}

func (s *stepView) end(status messages.StepStatus, at time.Time) {
	s.status, s.since = string(status), at
	if !s.dispatched.IsZero() {
		s.took = at.Sub(s.dispatched)
	}
}

// counts counts the steps by status.
func (v *runView) counts() map[string]int {
	n := map[string]int{}
	for _, job := range v.jobs {
		for _, step := range job.steps {
			n[step.status]++
		}
	}
	return n
}

// clock is the orchestrator's time at now.
func (v *runView) clock(now time.Time) time.Time { return now.Add(-v.skew) }
