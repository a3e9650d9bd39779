package workflow

import "strings"

// The built-in model behind `run:`.
const (
	shellModel  = "command/shell"
	shellMethod = "run"
	shellScript = "run" // its one argument
)

// call fills in what the step calls.
func (d *decoder) call(s *Step, n *node, run, task *entry) {
	switch {
	case run != nil && task != nil:
		second := run
		if task.at > run.at {
			second = task
		}
		d.found.add(second.at, "a step has either 'run' or 'task', not both")
	case run != nil:
		if script, ok := d.script(run); ok {
			s.Model, s.Method, s.Args = shellModel, shellMethod, []Arg{{shellScript, script}}
		}
	case task != nil:
		if d.is(task.value, mapping, "'task'") {
			d.task(s, task.value)
		}
	default:
		d.found.add(n.at, "a step needs 'run' or 'task'")
	}
}

func (d *decoder) script(e *entry) (string, bool) {
	s, ok := d.text(e.value, quote(e.key))
	if ok && strings.TrimSpace(s) == "" {
		d.found.add(e.value.at, "%s is empty", quote(e.key))
		return "", false
	}
	return s, ok
}

func (d *decoder) task(s *Step, n *node) {
	var typ, model, method, inputs *entry
	var others []*entry
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case "type":
			typ = e
		case "modelType":
			model = e
		case "methodName":
			method = e
		case "inputs":
			inputs = e
		default:
			others = append(others, e)
		}
	}
	if typ == nil {
		d.found.add(n.at, "a task needs a 'type': model_method")
	} else if !d.taskType(typ.value) {
		return // the other keys may belong to that type
	}
	for _, e := range others {
		d.unknown(e, inTask)
	}
	if model == nil {
		d.found.add(n.at, "a model_method needs a 'modelType'")
	} else {
		s.Model = d.name(model)
	}
	if method == nil {
		d.found.add(n.at, "a model_method needs a 'methodName'")
	} else {
		s.Method = d.name(method)
	}
	if inputs != nil {
		s.Args = d.inputs(inputs)
	}
	if s.Model == shellModel {
		d.shell(n, method, inputs)
	}
}

func (d *decoder) taskType(n *node) bool {
	if n.kind == scalar {
		switch n.text {
		case "workflow", "manual_approval", "assert":
			d.found.add(n.at, "tasks of type '%s' are not supported by this version", n.text)
			return false
		}
	}
	_, ok := d.word(n, "'type'", "model_method")
	return ok
}

func (d *decoder) inputs(e *entry) []Arg {
	pairs, _ := d.pairs(e, d.argument)
	if len(pairs) == 0 {
		return nil
	}
	args := make([]Arg, len(pairs))
	for i, p := range pairs {
		args[i] = Arg{p.Key, p.Value}
	}
	return args
}

// shell checks a task that calls the model behind `run:` by its name.
func (d *decoder) shell(n *node, method, inputs *entry) {
	if method != nil {
		d.word(method.value, "the method of "+shellModel, shellMethod)
	}
	var script *entry
	if inputs != nil {
		for i := range inputs.value.entries {
			e := &inputs.value.entries[i]
			if e.key == shellScript {
				script = e
			} else {
				d.found.add(e.at, "%s takes the input '%s' only, not %s", shellModel, shellScript, quote(e.key))
			}
		}
	}
	switch {
	case script == nil:
		d.found.add(n.at, "%s needs the input '%s'", shellModel, shellScript)
	case script.value.kind == scalar && !script.value.null():
		d.script(script)
	}
}
