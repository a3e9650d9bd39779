package workflow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/swampd/swampd/messages"
)

// empty tells whether nothing is evaluated.
func (x *Exprs) empty() bool {
	return x.Args == nil && x.AllArgs == nil && x.Env == nil && x.Target == nil && x.Labels == nil && x.WorkingDir == nil &&
		x.Group == nil && x.Guard == nil && x.Prompt == nil && x.Assert == nil && x.Message == nil
}

// Resolve returns a step with the values of its expressions in place, or the step of the plan itself if it has none. What
// all of them refer to is known when the step is ready: no earlier, and for an instance only with its item. The step of
// the plan is not changed, and the one that is returned shares what no expression is in. Guard and Assert are not values of
// a step; see Guarded and Asserts.
func (p *Plan) Resolve(step int, scope Scope) (*Step, error) {
	s := &p.Steps[step]
	x := s.Exprs
	if x == nil {
		return s, nil
	}
	if err := scope.enter(p, s); err != nil {
		return nil, err
	}
	out := *s
	out.Exprs = nil
	if x.Env != nil {
		out.Env = slices.Clone(s.Env)
		for i := range out.Env {
			out.Env[i].Value = scope.env[out.Env[i].Key]
		}
	}
	var wrong error
	text := func(t *Template, to *string, what string, check func(string) bool) {
		if t == nil || wrong != nil {
			return
		}
		v, err := t.text(&scope)
		switch {
		case err != nil:
			wrong = fmt.Errorf("%s: %w", what, err)
		case !check(v):
			wrong = fmt.Errorf("%s: %s is not valid there", what, quote(v))
		default:
			*to = v
		}
	}
	text(x.Target, &out.Placement.Target, "target", isTarget)
	if x.Labels != nil {
		out.Placement.Labels = slices.Clone(s.Placement.Labels)
		for i, t := range x.Labels {
			l := &out.Placement.Labels[i]
			text(t, &l.Value, "label "+l.Key, func(v string) bool { return len(v) <= maxLabelValue && isPrintable(v) })
		}
	}
	if s.Controls != nil {
		c := *s.Controls
		out.Controls = &c
		text(x.WorkingDir, &c.WorkingDir, "workingDir", func(v string) bool { return v != "" && strings.IndexByte(v, 0) < 0 })
		if g := c.Group; x.Group != nil {
			group := Group{Limit: g.Limit}
			text(x.Group, &group.Name, "concurrency group", isGroupName)
			c.Group = &group
		}
	}
	if s.Task != nil {
		t := *s.Task
		out.Task = &t
		if t.Approval != nil {
			a := *t.Approval
			t.Approval = &a
			text(x.Prompt, &a.Prompt, "prompt", func(string) bool { return true })
		}
		if t.Assert != nil {
			a := *t.Assert
			t.Assert = &a
			text(x.Message, &a.Message, "message", func(string) bool { return true })
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	if err := scope.args(s, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func isGroupName(s string) bool {
	return strings.TrimSpace(s) != "" && len(s) <= 1024 && isPrintable(s)
}

// enter puts the variables of a step into the scope.
func (s *Scope) enter(p *Plan, step *Step) error {
	s.plan = p
	s.env = make(map[string]string, len(step.Env))
	for i, v := range step.Env {
		s.env[v.Key] = v.Value
		if step.Exprs == nil || exprAt(step.Exprs.Env, i) == nil {
			continue
		}
		text, err := step.Exprs.Env[i].text(s)
		if err == nil && strings.IndexByte(text, 0) >= 0 {
			err = errors.New("the value holds a NUL")
		}
		if err != nil {
			return fmt.Errorf("env %s: %w", v.Key, err)
		}
		s.env[v.Key] = text
	}
	return nil
}

// args fills in the arguments.
func (s *Scope) args(step, out *Step) error {
	x := step.Exprs
	if x.AllArgs != nil {
		v, err := x.AllArgs.value(s)
		if err != nil {
			return fmt.Errorf("inputs: %w", err)
		}
		m, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("inputs: the expression gives %s, not a map", typeName(v))
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			a, err := argOf(name, m[name])
			if err != nil {
				return err
			}
			out.Args = append(out.Args, a)
		}
		return nil
	}
	if x.Args == nil {
		return nil
	}
	out.Args = slices.Clone(step.Args)
	for i, v := range x.Args {
		if v == nil {
			continue
		}
		value, err := v.eval(s)
		if err != nil {
			return fmt.Errorf("input %s: %w", out.Args[i].Name, err)
		}
		if out.Args[i], err = argOf(out.Args[i].Name, value); err != nil {
			return err
		}
	}
	return nil
}

// argOf is an argument of a value.
func argOf(name string, v any) (Arg, error) {
	text, err := textOf(v)
	if err == nil && len(text) > maxValueBytes {
		err = fmt.Errorf("the value is longer than %d bytes", maxValueBytes)
	}
	if err != nil {
		return Arg{}, fmt.Errorf("input %s: %w", name, err)
	}
	_, plain := v.(string)
	return Arg{Name: name, Value: text, JSON: !plain && v != nil}, nil
}

// Guarded tells whether the guard of a step says that it is done already. A step without one is not.
func (p *Plan) Guarded(step int, scope Scope) (bool, error) {
	s := &p.Steps[step]
	if s.Exprs == nil || s.Exprs.Guard == nil {
		return false, nil
	}
	return scope.truth(p, s, s.Exprs.Guard, "guard")
}

// Asserts tells whether the expression of an assert is true.
func (p *Plan) Asserts(step int, scope Scope) (bool, error) {
	s := &p.Steps[step]
	return scope.truth(p, s, s.Exprs.Assert, "expr")
}

// truth is a boolean, or the text of one: outputs are texts.
func (s *Scope) truth(p *Plan, step *Step, t *Template, what string) (bool, error) {
	if err := s.enter(p, step); err != nil {
		return false, err
	}
	v, err := t.value(s)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	switch v {
	case true, "true":
		return true, nil
	case false, "false":
		return false, nil
	}
	return false, fmt.Errorf("%s: the expression gives %s, not true or false", what, shortJSON(v))
}

// ResolveGroup is the name of a concurrency group of the workflow or of a job; Resolve does that of a step.
func (p *Plan) ResolveGroup(g *Group, scope Scope) (string, error) {
	if g.expr == nil {
		return g.Name, nil
	}
	scope.plan = p
	name, err := g.expr.text(&scope)
	if err != nil {
		return "", fmt.Errorf("concurrency group: %w", err)
	}
	if !isGroupName(name) {
		return "", fmt.Errorf("concurrency group: %s is not valid there", quote(name))
	}
	return name, nil
}

// ResolveOutputs are the outputs of the workflow, once every job has ended.
func (p *Plan) ResolveOutputs(scope Scope) (messages.Labels, error) {
	scope.plan = p
	outputs := make(map[string]string, len(p.Outputs))
	for _, o := range p.Outputs {
		text, err := o.Value.text(&scope)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		outputs[o.Name] = text
	}
	return messages.LabelsOf(outputs), nil
}
