package workflow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// site is the place of an expression: what stands there, and what it may refer to.
type site struct {
	level     level // inWorkflow, inJob or inStep
	job, step int   // as far as the level goes
	what      string
	item      string // the name of the item of forEach, or empty
	noEnv     string // why env is not available; empty if it is
	noData    bool   // data.latest and workers.connected are not available
	ended     bool   // all jobs have ended
}

// refKind is what an expression refers to.
type refKind uint8

const (
	refInput refKind = iota
	refInputs
	refStatus
	refOutput
	refOutputs
	refInstances
	refJob
	refItem
	refRun
	refVariable
	refEnv
)

// reference is one value that an expression refers to.
type reference struct {
	kind refKind
	typ  slotType
	name string // of an input, an output, a variable or a field of the run
	step int    // an ordinal, or the index of a job
	slot string
}

func (r *reference) same(o *reference) bool {
	return r.kind == o.kind && r.name == o.name && r.step == o.step
}

// roots are the names that an expression may begin with at the site, in the order in which people are told of them.
func (x *compiler) roots() []string {
	all := []string{"inputs", "run", "jobs", "steps", "self", "env", "data", "workers"}
	return slices.DeleteFunc(all, func(name string) bool { return !x.isRoot(name) })
}

func (x *compiler) isRoot(name string) bool {
	switch name {
	case "inputs", "run":
		return true
	case "jobs":
		return x.site.level != inWorkflow
	case "steps":
		return x.site.level == inStep
	case "self":
		return x.site.item != ""
	case "env":
		return x.site.noEnv == ""
	case "data", "workers":
		return !x.site.noData
	}
	return false
}

// resolve finds what a chain refers to, and how many of its steps name it. Where it is wrong it reports it and the type is
// slotTypes.
func (x *compiler) resolve(c chain) (reference, int) {
	none := reference{typ: slotTypes}
	if !x.isRoot(c.root) {
		x.unknownRoot(c)
		return none, 0
	}
	switch c.root {
	case "inputs":
		return x.resolveInput(c)
	case "run":
		return x.resolveRun(c)
	case "env":
		return x.resolveEnv(c)
	case "self":
		if len(c.segs) == 0 || c.segs[0].name != x.site.item {
			x.fault(c.at, "an item is self.%s here", x.site.item)
			return none, 0
		}
		return reference{kind: refItem, typ: slotAny}, 1
	case "steps":
		return x.resolveStep(c, x.site.job, c.segs, 0)
	case "jobs":
		return x.resolveJob(c)
	case "data":
		x.fault(c.at, "data is asked with data.latest('name')")
	case "workers":
		x.fault(c.at, "the fleet is asked with workers.connected()")
	}
	return none, 0
}

// unknownRoot says what is wrong with a name that means nothing at the site.
func (x *compiler) unknownRoot(c chain) {
	switch {
	case c.root == "self":
		x.fault(c.at, "self is the item of a step with forEach, and %s has none", x.site.what)
	case c.root == "env" && x.site.noEnv != "":
		x.fault(c.at, "env is not available in %s: %s", x.site.what, x.site.noEnv)
	case c.root == "steps" || c.root == "jobs" || c.root == "data" || c.root == "workers":
		x.fault(c.at, "%s is not available in %s", c.root, x.site.what)
	case c.root == "matrix" || c.root == "github" || c.root == "secrets" || c.root == "needs" || c.root == "vars":
		x.fault(c.at, "there is no %s in expressions here: there are %s", quote(c.root), strings.Join(x.roots(), ", "))
	default:
		hint := didYouMean(c.root, x.roots())
		if hint == "" {
			hint = ": an expression begins with " + oneOf(x.roots()) + ", and texts stand in quotes"
		}
		x.fault(c.at, "there is no %s%s", quote(c.root), hint)
	}
}

// missing reports a name that is not among those that there are.
func (x *compiler) missing(g seg, what string, names []string) {
	if g.isIndex {
		x.fault(g.at, "%s is named, not numbered", what)
		return
	}
	for _, n := range names {
		if strings.HasPrefix(n, g.name+"-") {
			x.fault(g.at, "there is no %s %s: a name with a dash stands in brackets, as in ['%s']", what, quote(g.name), n)
			return
		}
	}
	hint := didYouMean(g.name, names)
	if hint == "" && len(names) == 0 {
		hint = ": there is none"
	} else if hint == "" && len(names) <= 10 {
		hint = ": there is " + strings.Join(names, ", ")
	}
	x.fault(g.at, "there is no %s %s%s", what, quote(g.name), hint)
}

func (x *compiler) resolveInput(c chain) (reference, int) {
	if len(c.segs) == 0 {
		return reference{kind: refInputs, typ: slotMap}, 0
	}
	g := c.segs[0]
	for i := range x.plan.Inputs {
		if in := &x.plan.Inputs[i]; in.Name == g.name && !g.isIndex {
			return reference{kind: refInput, name: g.name, typ: in.slot()}, 1
		}
	}
	names := make([]string, len(x.plan.Inputs))
	for i := range x.plan.Inputs {
		names[i] = x.plan.Inputs[i].Name
	}
	x.missing(g, "input", names)
	return reference{typ: slotTypes}, 0
}

// slot is the type that expressions know the input by.
func (i *Input) slot() slotType {
	null := i.optional()
	pick := func(plain, nullable slotType) slotType {
		if null {
			return nullable
		}
		return plain
	}
	switch i.Type {
	case StringInput:
		return pick(slotString, slotNullString)
	case IntegerInput:
		return pick(slotInt, slotNullInt)
	case NumberInput:
		return pick(slotDouble, slotNullDouble)
	case BooleanInput:
		return pick(slotBool, slotNullBool)
	case ArrayInput:
		return pick(slotList, slotAny)
	case ObjectInput:
		return pick(slotMap, slotAny)
	default:
		return slotAny
	}
}

func (x *compiler) resolveRun(c chain) (reference, int) {
	fields := []string{"id", "workflowName", "startedAt"}
	if len(c.segs) > 0 && slices.Contains(fields, c.segs[0].name) {
		return reference{kind: refRun, name: c.segs[0].name, typ: slotString}, 1
	}
	if len(c.segs) == 0 {
		x.fault(c.at, "write run.%s", strings.Join(fields, ", run."))
	} else {
		x.missing(c.segs[0], "field of run", fields)
	}
	return reference{typ: slotTypes}, 0
}

func (x *compiler) resolveEnv(c chain) (reference, int) {
	if len(c.segs) == 0 {
		return reference{kind: refEnv, typ: slotStrings}, 0
	}
	env := x.plan.Steps[x.site.step].Env
	if _, ok := env.Get(c.segs[0].name); ok && !c.segs[0].isIndex {
		return reference{kind: refVariable, name: c.segs[0].name, typ: slotString}, 1
	}
	names := make([]string, len(env))
	for i := range env {
		names[i] = env[i].Key
	}
	x.missing(c.segs[0], "variable", names)
	return reference{typ: slotTypes}, 0
}

// resolveStep resolves NAME.outputs.KEY and NAME.status of a step of a job; skipped is how many steps of the chain came
// before.
func (x *compiler) resolveStep(c chain, job int, segs []seg, skipped int) (reference, int) {
	none := reference{typ: slotTypes}
	if len(segs) == 0 {
		x.fault(c.at, "write steps.NAME.outputs.KEY or steps.NAME.status")
		return none, 0
	}
	g := segs[0]
	own := job == x.site.job && skipped == 0
	step, ok := x.plan.Ordinal(x.plan.Jobs[job].Name, g.name)
	switch {
	case !ok || g.isIndex:
		names := make([]string, len(x.plan.Jobs[job].Steps))
		for i, o := range x.plan.Jobs[job].Steps {
			names[i] = x.plan.Steps[o].Name
		}
		x.missing(g, "step", names)
		return none, 0
	case own && step == x.site.step:
		x.fault(g.at, "%s refers to its own step %s, which has not run by then", x.site.what, quote(g.name))
		return none, 0
	case own && !x.plan.stepNeeds(x.site.step, step):
		x.fault(g.at, "step %s does not depend on %s, which may not have run by then: add it to 'dependsOn'",
			quote(x.plan.Steps[x.site.step].Name), quote(g.name))
		return none, 0
	case len(segs) == 1 || segs[1].isIndex || segs[1].name != "outputs" && segs[1].name != "status":
		at := g.at
		if len(segs) > 1 {
			at = segs[1].at
		}
		x.fault(at, "a step has 'outputs' and 'status'")
		return none, 0
	}
	template := x.plan.Steps[step].ForEach != nil
	switch {
	case segs[1].name == "status":
		return reference{kind: refStatus, step: step, typ: slotString}, skipped + 2
	case template:
		return reference{kind: refInstances, step: step, typ: slotInstances}, skipped + 2
	case len(segs) > 2 && !segs[2].isIndex:
		return reference{kind: refOutput, step: step, name: segs[2].name, typ: slotString}, skipped + 3
	default:
		return reference{kind: refOutputs, step: step, typ: slotStrings}, skipped + 2
	}
}

// resolveJob resolves jobs.NAME.status and jobs.NAME.steps.….
func (x *compiler) resolveJob(c chain) (reference, int) {
	none := reference{typ: slotTypes}
	if len(c.segs) == 0 {
		x.fault(c.at, "write jobs.NAME.status or jobs.NAME.steps.STEP.outputs.KEY")
		return none, 0
	}
	g := c.segs[0]
	job := slices.IndexFunc(x.plan.Jobs, func(j Job) bool { return j.Name == g.name })
	switch {
	case job < 0 || g.isIndex:
		names := make([]string, len(x.plan.Jobs))
		for i := range x.plan.Jobs {
			names[i] = x.plan.Jobs[i].Name
		}
		x.missing(g, "job", names)
	case x.site.ended && len(c.segs) > 1 && c.segs[1].name == "status":
		return reference{kind: refJob, step: job, typ: slotString}, 2
	case x.site.ended && len(c.segs) > 2 && c.segs[1].name == "steps":
		return x.resolveStep(c, job, c.segs[2:], 2)
	case x.site.ended:
		x.fault(g.at, "a job has 'status' and 'steps'")
	case job == x.site.job:
		x.fault(g.at, "%s refers to its own job %s, which has not ended by then", x.site.what, quote(g.name))
	case !x.plan.jobNeeds(x.site.job, job):
		x.fault(g.at, "job %s does not depend on %s, which may not have run by then: add it to 'dependsOn'",
			quote(x.plan.Jobs[x.site.job].Name), quote(g.name))
	case len(c.segs) > 1 && c.segs[1].name == "status":
		return reference{kind: refJob, step: job, typ: slotString}, 2
	case len(c.segs) > 2 && c.segs[1].name == "steps":
		return x.resolveStep(c, job, c.segs[2:], 2)
	default:
		x.fault(g.at, "a job has 'status' and 'steps'")
	}
	return none, 0
}

// stepNeeds tells whether a step needs another of its job, directly or through others.
func (p *Plan) stepNeeds(from, to int) bool {
	return reaches(from, to, func(i int) []int { return p.Steps[i].Needs })
}

func (p *Plan) jobNeeds(from, to int) bool {
	return reaches(from, to, func(i int) []int { return p.Jobs[i].Needs })
}

func reaches(from, to int, needs func(int) []int) bool {
	if _, ok := slices.BinarySearch(needs(from), to); ok {
		return true
	}
	seen := map[int]bool{from: true}
	for stack := []int{from}; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, n := range needs(i) {
			if n == to {
				return true
			}
			if !seen[n] {
				seen[n] = true
				stack = append(stack, n)
			}
		}
	}
	return false
}

// resolve is the value of a reference.
func (s *Scope) resolve(r *reference) (any, error) {
	switch r.kind {
	case refInput:
		return s.Inputs[r.name], nil
	case refInputs:
		if s.Inputs == nil {
			return map[string]any{}, nil
		}
		return s.Inputs, nil
	case refItem:
		return s.Item, nil
	case refVariable:
		return s.env[r.name], nil
	case refEnv:
		return anyMap(s.env), nil
	case refRun:
		switch r.name {
		case "id":
			return s.RunID, nil
		case "workflowName":
			return s.plan.Name, nil
		default:
			return s.StartedAt.UTC().Format(time.RFC3339), nil
		}
	case refJob:
		if s.Results == nil {
			return nil, errors.New("the jobs of the run are not known here")
		}
		return string(s.Results.Job(r.step)), nil
	case refInstances:
		if s.Results == nil {
			return nil, errors.New("the steps of the run are not known here")
		}
		all := map[string]any{}
		for name, result := range s.Results.Instances(r.step) {
			all[name] = anyMap(result.Outputs)
		}
		return all, nil
	default:
		return s.resolveStep(r)
	}
}

func (s *Scope) resolveStep(r *reference) (any, error) {
	if s.Results == nil {
		return nil, errors.New("the steps of the run are not known here")
	}
	result := s.Results.Step(r.step)
	switch r.kind {
	case refStatus:
		return string(result.Status), nil
	case refOutputs:
		return anyMap(result.Outputs), nil
	default:
		v, ok := result.Outputs[r.name]
		if ok {
			return v, nil
		}
		has := "it has no outputs"
		if len(result.Outputs) > 0 {
			has = "it has " + strings.Join(slices.Sorted(maps.Keys(result.Outputs)), ", ")
		}
		return nil, fmt.Errorf("the step %s, which is %s, has no output %s: %s",
			quote(s.plan.Steps[r.step].Name), result.Status, quote(r.name), has)
	}
}

func anyMap(m map[string]string) map[string]any {
	all := make(map[string]any, len(m))
	for k, v := range m {
		all[k] = v
	}
	return all
}
