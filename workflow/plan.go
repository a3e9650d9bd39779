package workflow

import (
	"time"

	"github.com/swampd/swampd/messages"
)

// PlanVersion is the meaning that Parse gives to a source. It is stored with each run, next to the source, so that a
// later program can tell whether it reads an unfinished run as the one that accepted it did.
const PlanVersion = 1

// Plan is a workflow that was understood: every name is resolved, every inherited value is in its place. It is
// shared between the parts of a run and never changed; so are the labels, arguments and environments in it.
type Plan struct {
	// Name is what the workflow calls itself.
	Name string
	// Jobs are in file order.
	Jobs []Job
	// Steps holds the steps of all jobs in file order. A step's index in it is its ordinal.
	Steps []Step
	// Warnings are about what is legal and probably not meant, in file order.
	Warnings []Diagnosis

	ordinals map[stepName]int // of all steps; nil in a plan that was not parsed
}

// stepName is what tells the steps of a plan apart.
type stepName struct{ job, step string }

// Ordinal finds a step by the names of its job and its own.
func (p *Plan) Ordinal(job, step string) (ordinal int, ok bool) {
	if p.ordinals != nil {
		ordinal, ok = p.ordinals[stepName{job, step}]
		return ordinal, ok
	}
	for i := range p.Steps {
		if p.Steps[i].Name == step && p.Jobs[p.Steps[i].Job].Name == job {
			return i, true
		}
	}
	return 0, false
}

// index makes Ordinal fast: a plan is asked for each of its steps, of which it may have many.
func (p *Plan) index() {
	p.ordinals = make(map[stepName]int, len(p.Steps))
	for i := range p.Steps {
		p.ordinals[stepName{p.Jobs[p.Steps[i].Job].Name, p.Steps[i].Name}] = i
	}
}

// Job is a group of steps that starts when the jobs that it needs have ended as its conditions say.
type Job struct {
	Name string
	// Needs holds indices into Plan.Jobs, ascending, each once.
	Needs []int
	// When holds the condition of each need; nil if all of them are OnSucceeded.
	When []Condition
	// Steps holds the ordinals of the job's steps, ascending.
	Steps []int
}

// Step is one call of a method of a model.
type Step struct {
	Name string
	// Job is an index into Plan.Jobs.
	Job int
	// Needs holds ordinals of steps of the same job, ascending, each once.
	Needs []int
	// When holds the condition of each need; nil if all of them are OnSucceeded.
	When []Condition
	// AllowFailure lets the job succeed although this step fails. The step itself has failed, for those that depend on it.
	AllowFailure bool
	// ForEach makes the step a template; nil if it is an ordinary step.
	ForEach *ForEach
	// Model and Method say what is called. A `run:` script is command/shell and run.
	Model, Method string
	// Args are in the order of their names. A `run:` script has one, called run.
	Args []Arg
	// Placement is what the step requires of a worker after inheritance.
	Placement messages.Placement
	// QueueTimeout is how long the step may wait for a worker, from the innermost of step, job and workflow that says.
	// Nil leaves it to the orchestrator; 0 waits for ever.
	QueueTimeout *time.Duration
	// Timeout is how long one attempt may run; 0 sets no limit.
	Timeout time.Duration
	// Env holds the variables of workflow, job and step, the innermost winning name by name, in the order of names.
	Env messages.Labels
	// OnWorkerLost comes from the innermost that says; the default is to wait again.
	OnWorkerLost messages.OnWorkerLost
}

// Arg is one argument of a method, its value as the file writes it.
type Arg struct {
	Name, Value string
}

// ForEach says what a template is expanded over.
type ForEach struct {
	// Item is the name under which an instance finds its item, as self.<item>.
	Item string
}
