package workflow

import (
	"github.com/swampd/swampd/messages"
)

const (
	maxSourceSize = 1 << 20
	maxSteps      = 100_000
)

// Parse reads a workflow. File is only a name for diagnoses. The error is a Diagnoses and holds everything that is
// wrong; where the text itself cannot be read, as much as could be found until there. The time that Parse takes is
// linear in the size of the source, whatever it holds, and a source above 1 MiB is refused unread.
func Parse(file string, src []byte) (*Plan, error) { return parse(file, src, notRun()) }

// parse is Parse with a list of what is refused although the language has it.
func parse(file string, src []byte, refused []feature) (*Plan, error) {
	var found findings
	if len(src) > maxSourceSize {
		found.add(0, "the file has %d bytes: a workflow has at most %d", len(src), maxSourceSize)
		return nil, Diagnoses(found.diagnoses(file, ""))
	}
	text, ok := checkBytes(string(src), &found)
	if !ok {
		return nil, Diagnoses(found.diagnoses(file, text))
	}
	d := decoder{found: &found, plan: &Plan{}, src: text, level: inWorkflow}
	if n := read(text, &found); n != nil {
		d.workflow(n)
		d.compileAll()
		d.refuse(refused)
	}
	if len(found.list) > 0 {
		return nil, Diagnoses(found.diagnoses(file, text))
	}
	d.plan.Warnings = d.warned.diagnoses(file, text)
	return d.plan, nil
}

// decoder makes a plan of a document.
type decoder struct {
	found    *findings
	warned   findings
	plan     *Plan
	src      string
	ordinals []int // 0, 1, 2, …: the jobs take theirs from it
	// Dependencies and names are kept until all names are known.
	jobDeps, stepDeps []dependency
	jobNames          names
	stepNames         []names // by job
	used              []use
	// Expressions are kept until all that they may refer to is known; these say where the reader is.
	pending []pending
	level   level
	atJob   int
	atStep  int
}

// names tells where a name stands.
type names map[string]int

func (d *decoder) workflow(n *node) {
	if n.null() {
		d.found.add(0, "the file is empty: a workflow has at least 'name' and 'jobs'")
		return
	}
	if !d.is(n, mapping, "a workflow") {
		return
	}
	own := settings{queueTimeoutAt: -1}
	var jobs *node
	named := false
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case "name":
			named = true
			d.plan.Name = d.name(e)
		case "jobs":
			jobs = e.value
		case "inputs":
			d.inputList(e)
		case "outputs":
			d.outputs(e)
		default:
			if !d.setting(e, &own, inWorkflow) {
				d.unknown(e, inWorkflow)
			}
		}
	}
	if !named {
		d.found.add(n.at, "a workflow needs a 'name'")
	}
	d.plan.Concurrency, d.plan.Group = own.concurrency, own.group
	scope := own.within(inherited{lost: messages.LostRequeue}, WorkflowAffinity)
	if jobs == nil {
		d.found.add(n.at, "a workflow needs 'jobs'")
	} else if d.is(jobs, list, "'jobs'") {
		d.jobList(jobs, scope)
	}
	d.warnUnplaced(&own, d.plan.Steps)
}

func (d *decoder) jobList(n *node, scope inherited) {
	if len(n.items) == 0 {
		d.found.add(n.at, "a workflow needs at least one job")
	}
	steps := countSteps(n)
	if steps > maxSteps {
		d.found.add(n.at, "the workflow has %d steps: at most %d", steps, maxSteps)
		return
	}
	d.jobNames = make(names, len(n.items))
	d.stepNames = make([]names, 0, len(n.items))
	d.plan.Jobs = make([]Job, 0, len(n.items))
	d.plan.Steps = make([]Step, 0, steps)
	d.ordinals = make([]int, steps)
	for i := range d.ordinals {
		d.ordinals[i] = i
	}
	for _, item := range n.items {
		if d.is(item, mapping, "a job") {
			d.job(item, scope)
		}
	}
	d.link()
}

// countSteps counts what stands in the 'steps' of the jobs, before anything is made of it.
func countSteps(jobs *node) int {
	n := 0
	for _, job := range jobs.items {
		for i := range job.entries {
			if job.entries[i].key == "steps" {
				n += len(job.entries[i].value.items)
			}
		}
	}
	return n
}

func (d *decoder) job(n *node, scope inherited) {
	own := settings{queueTimeoutAt: -1}
	var steps *node
	named := false
	index := len(d.plan.Jobs)
	d.level, d.atJob = inJob, index
	d.plan.Jobs = append(d.plan.Jobs, Job{})
	d.stepNames = append(d.stepNames, nil)
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case "name":
			named = true
			name := d.name(e)
			d.plan.Jobs[index].Name = name
			d.unique(d.jobNames, name, index, e, "job")
		case "steps":
			steps = e.value
		case "dependsOn":
			d.jobDeps = d.dependsOn(e, "job", index, d.jobDeps)
		default:
			if !d.setting(e, &own, inJob) {
				d.unknown(e, inJob)
			}
		}
	}
	if !named {
		d.found.add(n.at, "a job needs a 'name'")
	}
	first := len(d.plan.Steps)
	if steps == nil {
		d.found.add(n.at, "a job needs 'steps'")
	} else if d.is(steps, list, "'steps'") {
		d.stepList(steps, index, own.within(scope, JobAffinity))
	}
	d.plan.Jobs[index].Concurrency, d.plan.Jobs[index].Group = own.concurrency, own.group
	last := len(d.plan.Steps)
	d.plan.Jobs[index].Steps = d.ordinals[first:last:last]
	d.warnUnplaced(&own, d.plan.Steps[first:])
}

func (d *decoder) stepList(n *node, job int, scope inherited) {
	if len(n.items) == 0 {
		d.found.add(n.at, "a job needs at least one step")
	}
	seen := make(names, len(n.items))
	d.stepNames[job] = seen
	for _, item := range n.items {
		if d.is(item, mapping, "a step") {
			d.step(item, job, scope, seen)
		}
	}
}

func (d *decoder) step(n *node, job int, scope inherited, seen names) {
	own := settings{queueTimeoutAt: -1}
	s, x := Step{Job: job}, Exprs{}
	index := len(d.plan.Steps)
	d.level, d.atJob, d.atStep = inStep, job, index
	var name, run, task *entry
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case "name":
			name = e
		case "run":
			run = e
		case "task":
			task = e
		case "dependsOn":
			d.stepDeps = d.dependsOn(e, "step", index, d.stepDeps)
		case "forEach":
			s.ForEach = d.forEach(e)
		default:
			if !d.control(e, &s, &x) && !d.setting(e, &own, inStep) {
				d.unknown(e, inStep)
			}
		}
	}
	if name == nil {
		d.found.add(n.at, "a step needs a 'name'")
	} else if s.ForEach == nil {
		s.Name = d.name(name)
		d.unique(seen, s.Name, index, name, "step")
	} else {
		s.Name = d.nameOrTemplate(name)
		s.ForEach.name = d.templateOf(name.value, "the name of a step", wantName)
		d.unique(seen, s.Name, index, name, "step")
	}
	d.call(&s, &x, n, run, task)
	d.placeControls(&s, &x, &own, n)
	d.plan.Steps = append(d.plan.Steps, s)
	own.within(scope, StepAffinity).apply(&d.plan.Steps[index], &x)
	if !x.empty() {
		d.plan.Steps[index].Exprs = &x
	}
	d.warnUnplaced(&own, d.plan.Steps[index:])
}

// placeControls checks what belongs together in a step.
func (d *decoder) placeControls(s *Step, x *Exprs, own *settings, n *node) {
	if own.concurrency > 0 || own.group != nil {
		if s.Controls == nil {
			s.Controls = &Controls{}
		}
		s.Controls.Concurrency, s.Controls.Group = own.concurrency, own.group
		if own.group != nil {
			x.Group = own.group.expr
		}
	}
	c := s.Controls
	switch {
	case c == nil:
	case c.Concurrency > 0 && s.ForEach == nil:
		d.found.add(n.at, "'concurrency' of a step is that of its 'forEach', and it has none")
	case (c.Shell != "" || c.WorkingDir != "") && s.Model != shellModel && (s.Model != "" || s.Task != nil):
		d.found.add(n.at, "'shell' and 'workingDir' belong to a step with 'run'")
	case c.Retry != nil && s.Task != nil && s.Task.Workflow == nil:
		d.found.add(n.at, "'retry' belongs to a step that a worker runs")
	}
}

// unique notes a name and reports one that another has.
func (d *decoder) unique(seen names, name string, index int, e *entry, what string) {
	if name == "" {
		return // reported
	}
	if _, ok := seen[name]; ok {
		d.found.add(e.value.at, "a second %s named %s", what, quote(name))
		return
	}
	seen[name] = index
}
