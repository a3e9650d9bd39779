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
	// Inputs are in file order.
	Inputs []Input
	// Outputs are what a workflow that runs this one gets of it, in file order.
	Outputs []Output
	// Concurrency is how many steps of a run are under way at once, 0 for any number, and Group the group that its runs
	// belong to.
	Concurrency int
	Group       *Group
	// Warnings are about what is legal and probably not meant, in file order.
	Warnings []Diagnosis

	ordinals map[stepName]int // of all steps; nil in a plan that was not parsed
}

// Output is one value that a workflow gives to the one that runs it.
type Output struct {
	Name  string
	Value *Template
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
	// Concurrency is how many of the job's steps run at once, 0 for any number, and Group the group that the job as a
	// whole belongs to.
	Concurrency int
	Group       *Group
}

// Step is one call of a method of a model, or another task.
type Step struct {
	Name string
	// Job is an index into Plan.Jobs.
	Job int
	// Needs holds ordinals of steps of the same job, ascending, each once.
	Needs []int
	// When holds the condition of each need; nil if all of them are OnSucceeded.
	When []Condition
	// Model and Method say what is called. A `run:` script is command/shell and run. Both are empty in tasks that no worker
	// runs.
	Model, Method string
	// Args are in the order of their names. A `run:` script has one, called run.
	Args []Arg
	// Task is set in a step that is no call of a method.
	Task *Task
	// Placement is what the step requires of a worker after inheritance.
	Placement messages.Placement
	// Preference is what it would like, after inheritance; nil if it has no wishes.
	Preference *Preference
	// QueueTimeout is how long the step may wait for a worker, from the innermost of step, job and workflow that says.
	// Nil leaves it to the orchestrator; 0 waits for ever.
	QueueTimeout *time.Duration
	// Timeout is how long one attempt may run; 0 sets no limit.
	Timeout time.Duration
	// Env holds the variables of workflow, job and step, the innermost winning name by name, in the order of names.
	Env messages.Labels
	// OnWorkerLost comes from the innermost that says; the default is to wait again.
	OnWorkerLost messages.OnWorkerLost
	// Controls is nil in a step that has none.
	Controls *Controls
	// AllowFailure lets the job succeed although this step fails. The step itself has failed, for those that depend on it.
	AllowFailure bool
	// ForEach makes the step a template; nil if it is an ordinary step.
	ForEach *ForEach
	// Exprs holds what is evaluated before the step starts; nil if nothing is. See Plan.Resolve.
	Exprs *Exprs
}

// Arg is one argument of a method.
type Arg struct {
	Name string
	// Value is what the file writes, or the JSON of a value that is no text.
	Value string
	// JSON tells that Value is JSON.
	JSON bool
}

// Group is a concurrency group: what belongs to one of the same name runs Limit at a time, in all runs together; the rest
// waits in order.
type Group struct {
	Name  string
	Limit int
	expr  *Template
}

// Preference is how to choose among the workers that match.
type Preference struct {
	// Affinity puts all steps of a scope on one worker.
	Affinity Affinity
	// Prefer lists labels with weights: a worker counts the weights of those that it has.
	Prefer []Preferred
	// Spread is the key of a label over whose values steps are spread evenly, or empty.
	Spread string
	// Priority is a head start in waiting time; below zero it lets others pass.
	Priority time.Duration
}

// Affinity is the scope of which all steps run on one worker.
type Affinity string

// The scopes of an affinity. A template's instances are one.
const (
	NoAffinity       Affinity = ""
	WorkflowAffinity Affinity = "workflow"
	JobAffinity      Affinity = "job"
	StepAffinity     Affinity = "step"
)

// Preferred is a label that a worker should have.
type Preferred struct {
	Key, Value string
	Weight     int
}

// Controls says how one step is run.
type Controls struct {
	// Retry is nil for a step that is tried once.
	Retry *Retry
	// Stop is how a process is stopped; nil leaves it to the defaults.
	Stop *Stop
	// WorkingDir is where a script runs; empty for the dispatch's scratch folder. A path that is not absolute is one below
	// that.
	WorkingDir string
	// Shell runs the script; empty for the default.
	Shell string
	// Concurrency is how many instances of a template run at once, 0 for any number, and Group the group that the step
	// belongs to.
	Concurrency int
	Group       *Group
}

// Stop is how a process is stopped: the signal first, and after the grace it is killed.
type Stop struct {
	Signal string
	Grace  time.Duration
}

// Task is what a step does that calls no method of a model. One of its fields is set.
type Task struct {
	Workflow *Nested
	Approval *Approval
	Assert   *Assert
}

// Nested runs another workflow; Step.Args are its inputs.
type Nested struct {
	// File is a path from the folder of the file that names it, with slashes.
	File string
}

// Approval waits for a person.
type Approval struct {
	Prompt string
	// Timeout is how long it waits; 0 for ever.
	Timeout time.Duration
}

// Assert fails the step unless an expression is true.
type Assert struct {
	Message  string
	Severity Severity
}

// Severity is how bad it is that an assertion does not hold.
type Severity string

// The severities of assertions.
const (
	LowSeverity    Severity = "low"
	MediumSeverity Severity = "medium"
	HighSeverity   Severity = "high"
)

// ForEach says what a template is expanded over.
type ForEach struct {
	// Item is the name under which an instance finds its item, as self.<item>.
	Item string
	in   *shape
	name *Template // of the step's name; nil if it has no expression
}

// MarshalText is for people.
func (f *ForEach) MarshalText() ([]byte, error) { return []byte(f.Item + " in " + f.in.String()), nil }

// Exprs are the expressions of a step. They stand beside what they give values to, nil where there is none.
type Exprs struct {
	Args       []*shape  // of Step.Args; nil if none of them has any
	AllArgs    *Template // gives all arguments
	Env        []*Template
	Target     *Template
	Labels     []*Template
	WorkingDir *Template
	Group      *Template
	Guard      *Template
	Prompt     *Template
	Assert     *Template
	Message    *Template
}
