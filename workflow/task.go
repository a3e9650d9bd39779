package workflow

import (
	"slices"
	"strings"
)

// The built-in model behind `run:`.
const (
	shellModel  = "command/shell"
	shellMethod = "run"
	shellScript = "run" // its one argument
)

// call fills in what the step calls.
func (d *decoder) call(s *Step, x *Exprs, n *node, run, task *entry) {
	switch {
	case run != nil && task != nil:
		second := run
		if task.at > run.at {
			second = task
		}
		d.found.add(second.at, "a step has either 'run' or 'task', not both")
	case run != nil:
		if script, ok := d.script(run); ok {
			s.Model, s.Method, s.Args = shellModel, shellMethod, []Arg{{Name: shellScript, Value: script}}
			if t := d.templateOf(run.value, "'run'", wantScript); t != nil {
				x.Args = []*shape{{expr: t}}
			}
		}
	case task != nil:
		if d.is(task.value, mapping, "'task'") {
			d.task(s, x, task.value)
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

// taskKinds are the types of tasks with the keys that they take.
func taskKinds() map[string]level {
	return map[string]level{"model_method": inTask, "workflow": inNested, "manual_approval": inApproval, "assert": inAssert}
}

func taskTypes() []string { return []string{"model_method", "workflow", "manual_approval", "assert"} }

func (d *decoder) task(s *Step, x *Exprs, n *node) {
	entries := make(map[string]*entry, len(n.entries))
	for i := range n.entries {
		entries[n.entries[i].key] = &n.entries[i]
	}
	kind := "model_method"
	if typ := entries["type"]; typ == nil {
		d.found.add(n.at, "a task needs a 'type': %s", oneOf(taskTypes()))
	} else {
		var ok bool
		if kind, ok = d.word(typ.value, "'type'", taskTypes()...); !ok {
			return // the other keys may belong to that type
		}
	}
	l := taskKinds()[kind]
	keys := l.keys()
	for i := range n.entries {
		if e := &n.entries[i]; !contains(keys, e.key) {
			d.unknown(e, l)
		}
	}
	switch l {
	case inNested:
		d.nested(s, x, n, entries)
	case inApproval:
		d.approval(s, x, n, entries)
	case inAssert:
		d.assert(s, x, n, entries)
	default:
		d.modelMethod(s, x, n, entries)
	}
}

func (d *decoder) modelMethod(s *Step, x *Exprs, n *node, entries map[string]*entry) {
	model, method, inputs := entries["modelType"], entries["methodName"], entries["inputs"]
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
	shell := s.Model == shellModel
	if inputs != nil {
		w := wantAny
		if shell {
			w = wantScript
		}
		d.args(s, x, inputs, w)
	}
	if shell {
		d.shell(n, method, inputs)
	}
}

// args reads the arguments of a method, or an expression that gives them.
func (d *decoder) args(s *Step, x *Exprs, e *entry, w want) {
	if e.value.kind == scalar && hasExpr(e.value.text) {
		x.AllArgs = d.expression(e.value, "'inputs'", wantMap)
		return
	}
	if !d.is(e.value, mapping, quote(e.key)) {
		return
	}
	entries := slices.Clone(e.value.entries)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	for i := range entries {
		a := &entries[i]
		if a.value.kind == broken || !d.isName(a.at, a.key, "the name of the input") {
			continue
		}
		if a.value.kind == scalar && !d.isPair(a, "input") {
			continue
		}
		d.arg(s, x, a, w)
	}
}

func (d *decoder) arg(s *Step, x *Exprs, e *entry, w want) {
	v := d.shape(e.value, "an input", w)
	arg := Arg{Name: e.key, Value: e.value.text}
	if e.value.kind != scalar {
		d.uses(featureArgs, e.at)
		arg.Value, arg.JSON = v.String(), true
	}
	s.Args = append(s.Args, arg)
	switch {
	case v.dynamic():
		for len(x.Args) < len(s.Args)-1 {
			x.Args = append(x.Args, nil)
		}
		x.Args = append(x.Args, v)
	case x.Args != nil:
		x.Args = append(x.Args, nil)
	}
}

func (d *decoder) nested(s *Step, x *Exprs, n *node, entries map[string]*entry) {
	d.uses(featureNested, n.at)
	s.Task = &Task{Workflow: &Nested{}}
	if file := entries["file"]; file == nil {
		d.found.add(n.at, "a workflow task needs a 'file'")
	} else if text, ok := d.text(file.value, "'file'"); ok {
		if wrong := nestedPath(text); wrong != "" {
			d.found.add(file.value.at, "the file %s: %s", quote(text), wrong)
		}
		s.Task.Workflow.File = text
	}
	if inputs := entries["inputs"]; inputs != nil {
		d.args(s, x, inputs, wantAny)
	}
}

// nestedPath tells what is wrong with the path of a nested workflow.
func nestedPath(s string) string {
	switch {
	case strings.TrimSpace(s) == "" || len(s) > 1024 || !isPrintable(s):
		return "it must be a printable path of at most 1024 bytes"
	case hasExpr(s):
		return "which workflow runs must be known beforehand, so it holds no expressions"
	case s[0] == '/' || strings.ContainsAny(s, "\\:"):
		return "it must be a path from the folder of this file, with slashes"
	}
	return ""
}

func (d *decoder) approval(s *Step, x *Exprs, n *node, entries map[string]*entry) {
	d.uses(featureApproval, n.at)
	s.Task = &Task{Approval: &Approval{}}
	if prompt := entries["prompt"]; prompt == nil {
		d.found.add(n.at, "a manual_approval needs a 'prompt'")
	} else if text, ok := d.script(prompt); ok {
		s.Task.Approval.Prompt, x.Prompt = text, d.template(prompt.value, "'prompt'")
	}
	if timeout := entries["timeout"]; timeout != nil {
		s.Task.Approval.Timeout, _ = d.seconds(timeout)
	}
}

func (d *decoder) assert(s *Step, x *Exprs, n *node, entries map[string]*entry) {
	d.uses(featureAssert, n.at)
	a := &Assert{Severity: HighSeverity}
	s.Task = &Task{Assert: a}
	if expr := entries["expr"]; expr == nil {
		d.found.add(n.at, "an assert needs an 'expr'")
	} else if text, ok := d.script(expr); ok {
		switch {
		case strings.HasPrefix(strings.TrimSpace(text), exprOpen):
			x.Assert = d.expression(expr.value, "'expr'", wantBool)
		case len(text) > maxExpr:
			d.found.add(expr.value.at, "'expr' is longer than %d bytes", maxExpr)
		default:
			x.Assert = d.keep(expr.value, []part{{code: &code{text: text}}}, "'expr'", wantBool)
			d.pending[len(d.pending)-1].raw = true
		}
	}
	if message := entries["message"]; message != nil {
		a.Message, _ = d.script(message)
		x.Message = d.template(message.value, "'message'")
	}
	if severity := entries["severity"]; severity != nil {
		word, _ := d.word(severity.value, "'severity'", string(LowSeverity), string(MediumSeverity), string(HighSeverity))
		a.Severity = Severity(word)
	}
}

// shell checks a task that calls the model behind `run:` by its name.
func (d *decoder) shell(n *node, method, inputs *entry) {
	if method != nil {
		d.word(method.value, "the method of "+shellModel, shellMethod)
	}
	var script *entry
	if inputs != nil {
		if inputs.value.kind == scalar {
			return // an expression gives them
		}
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
	case script.value.kind != broken && script.value.kind != scalar:
		d.found.add(script.value.at, "the input '%s' must be a text, but is %s", shellScript, describe(script.value))
	}
}

// forEach reads what a template is expanded over.
func (d *decoder) forEach(e *entry) *ForEach {
	d.uses(featureForEach, e.at)
	f := &ForEach{Item: "item"}
	if !d.is(e.value, mapping, "'forEach'") {
		return f
	}
	var in *entry
	named := false
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "item":
			named = true
			if text, ok := d.text(k.value, "'item'"); ok {
				if !isInputName(text) || strings.Contains(text, "-") {
					d.found.add(k.value.at, "'item' is a name of letters, digits and _, not %s", quote(text))
				}
				f.Item = text
			}
		case "in":
			in = k
		default:
			d.unknown(k, inForEach)
		}
	}
	if !named {
		d.found.add(e.value.at, "'forEach' needs an 'item': the name by which self.NAME is the item")
	}
	switch {
	case in == nil:
		d.found.add(e.value.at, "'forEach' needs 'in': a list, a map, or an expression that gives one")
	case in.value.kind == scalar && in.value.null():
		d.found.add(in.value.at, "'in' is empty: write [] for no items")
	case in.value.kind == scalar && !hasExpr(in.value.text):
		d.found.add(in.value.at, "'in' is a list, a map, or an expression that gives one, not %s", describe(in.value))
	case in.value.kind == scalar:
		f.in = &shape{expr: d.expression(in.value, "'in'", wantItems)}
	default:
		f.in = d.shape(in.value, "'in'", wantItems)
	}
	return f
}

// outputs reads what a workflow gives to the one that runs it.
func (d *decoder) outputs(e *entry) {
	d.uses(featureOutputs, e.at)
	if !d.is(e.value, mapping, quote(e.key)) {
		return
	}
	for i := range e.value.entries {
		o := &e.value.entries[i]
		if !isInputName(o.key) {
			d.found.add(o.at, "the output %s: a name has 1 to 63 letters, digits, _ and -, and begins with a letter or _", quote(o.key))
			continue
		}
		text, ok := d.text(o.value, "the output "+quote(o.key))
		if !ok {
			continue
		}
		t := d.templateOf(o.value, "an output", wantEnd)
		if t == nil {
			t = &Template{parts: []part{{text: text}}}
		}
		d.plan.Outputs = append(d.plan.Outputs, Output{o.key, t})
	}
}
