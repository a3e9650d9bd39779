package workflow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/swampd/swampd/messages"
)

// maxCost bounds the work of one evaluation: some 10 for each item that an expression looks at, and 1 for ten characters.
const maxCost = 2_000_000

// Host answers what an expression asks of the world. What it returns are values of the language.
type Host interface {
	// Latest is the content of a named artifact; version 0 is the newest.
	Latest(name string, version int64) (any, error)
	// Connected lists the workers that are connected and have the labels, as maps with name, labels, platform and arch.
	Connected(labels map[string]string) ([]any, error)
}

// StepResult is what a step or an instance came to.
type StepResult struct {
	Status  messages.StepStatus
	Outputs map[string]string
}

// Results tells what the steps and jobs of a run came to.
type Results interface {
	// Step is the result of a step of the plan; of a template the status that its instances make together.
	Step(ordinal int) StepResult
	// Instances are those of the instances of a template, by their names.
	Instances(ordinal int) map[string]StepResult
	// Job is the status of a job.
	Job(job int) messages.StepStatus
}

// Scope is where the expressions of one step of one run find their values. All of what is not given is missing: an
// expression that needs it fails with a sentence.
type Scope struct {
	// Inputs are those that ResolveInputs made.
	Inputs map[string]any
	RunID  string
	// StartedAt is when the run began.
	StartedAt time.Time
	// Results are those of the run so far.
	Results Results
	// Item is what self.<item> is in an instance.
	Item any
	Host Host

	plan *Plan
	env  map[string]string
}

// EvalError is an expression that could not be evaluated.
type EvalError struct {
	Expr string // as the file writes it
	Text string
}

// Error names the expression and what is wrong.
func (e *EvalError) Error() string {
	return fmt.Sprintf("%s%s%s: %s", exprOpen, shortExpr(e.Expr), exprClose, e.Text)
}

func shortExpr(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}

// value is that of a template: of a single expression as it is, else a text.
func (t *Template) value(s *Scope) (any, error) {
	if c := t.single(); c != nil {
		return c.eval(s)
	}
	text, err := t.text(s)
	return text, err
}

// text is the value of a template as a text.
func (t *Template) text(s *Scope) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.code != nil {
			v, err := p.code.eval(s)
			if err != nil {
				return "", err
			}
			if text, err = textOf(v); err != nil {
				return "", &EvalError{p.code.text, err.Error()}
			}
		}
		if b.Len()+len(text) > maxValueBytes {
			return "", fmt.Errorf("the text is longer than %d bytes", maxValueBytes)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// eval evaluates an expression.
func (c *code) eval(s *Scope) (any, error) {
	if c.env == nil {
		v, err := s.resolve(&c.refs[0])
		for _, step := range c.path {
			if err != nil {
				break
			}
			v, err = walk(v, step)
		}
		if err != nil {
			return nil, &EvalError{c.text, err.Error()}
		}
		return v, nil
	}
	program, err := c.program()
	if err != nil {
		return nil, &EvalError{c.text, err.Error()}
	}
	out, _, err := program.Eval(&activation{c, s})
	if err != nil {
		return nil, &EvalError{c.text, evalSentence(err)}
	}
	v, err := nativeOf(out)
	if err != nil {
		return nil, &EvalError{c.text, err.Error()}
	}
	return v, nil
}

// program is made once: the instances of a template share it.
func (c *code) program() (cel.Program, error) {
	if p := c.made.Load(); p != nil {
		return *p, nil
	}
	p, err := c.env.Program(c.ast, cel.CostLimit(maxCost), cel.CostTracking(sizes{}))
	if err != nil {
		return nil, fmt.Errorf("plan the expression: %w", err)
	}
	c.made.Store(&p)
	return p, nil
}

// evalSentence puts what the evaluator says into our words.
func evalSentence(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "actual cost limit exceeded"):
		return fmt.Sprintf("the evaluation was given up: it costs more than %d", maxCost)
	case strings.HasPrefix(text, "no such key: "):
		return "there is no key " + quote(strings.TrimPrefix(text, "no such key: "))
	}
	return printable(text)
}

// walk takes one step into a value.
func walk(v, step any) (any, error) {
	switch in := v.(type) {
	case map[string]any:
		if key, ok := step.(string); ok {
			if value, ok := in[key]; ok {
				return value, nil
			}
			return nil, fmt.Errorf("there is no key %s", quote(key))
		}
	case []any:
		if i, ok := step.(int64); ok {
			if i < 0 || i >= int64(len(in)) {
				return nil, fmt.Errorf("index out of bounds: %d", i)
			}
			return in[i], nil
		}
	}
	text, _ := textOf(step)
	return nil, fmt.Errorf("%s has no %s", typeName(v), quote(text))
}

// activation gives an expression its slots.
type activation struct {
	code  *code
	scope *Scope
}

// ResolveName is the value of a slot; one that cannot be had is an error as its value.
func (a *activation) ResolveName(name string) (any, bool) {
	if name == hostVariable {
		return hostVal{host: a.scope.Host}, true
	}
	for i := range a.code.refs {
		if r := &a.code.refs[i]; r.slot == name {
			v, err := a.scope.resolve(r)
			if err != nil {
				return types.NewErr("%s", err.Error()), true
			}
			return v, true
		}
	}
	return nil, false
}

// Parent is none.
func (*activation) Parent() interpreter.Activation { return nil }

// sizes charges for what the evaluator itself takes for cheap: a value that is made of others costs its whole size, so that
// no value grows beyond what is allowed by doubling what it holds.
type sizes struct{}

// CallCost is the cost of one call, or nil where the evaluator's own is right.
func (sizes) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := uint64(0)
	switch {
	case function == "_+_" && strings.Contains(overload, "list"):
		cost = 1 + 10*weight(args[len(args)-1], maxCost/10)
	case function == "toJSON", function == "fromJSON", function == "join", function == "split", function == "replace",
		function == "lowerAscii", function == "upperAscii", function == "trim":
		cost = 1 + weight(result, maxCost)
		for _, a := range args {
			cost += weight(a, maxCost)
		}
	default:
		return nil
	}
	return &cost
}

// weight counts what a value holds, deeply, up to a limit.
func weight(v ref.Val, limit uint64) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case types.String:
		n += uint64(len(v)) / 10
	case types.Bytes:
		n += uint64(len(v)) / 10
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && n < limit; {
			key := it.Next()
			value, _ := v.Find(key)
			n += weight(key, limit-n) + weight(value, limit-min(n, limit))
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && n < limit; {
			n += weight(it.Next(), limit-n)
		}
	}
	return n
}

// nativeOf is a value of the evaluator as one of the language.
func nativeOf(v ref.Val) (any, error) {
	left := budget{bytes: maxValueBytes, items: maxValueItems}
	return left.native(v, 0)
}

// budget is what a value may still hold.
type budget struct{ bytes, items int }

func (b *budget) take(bytes int) error {
	b.items--
	b.bytes -= bytes
	switch {
	case b.bytes < 0:
		return fmt.Errorf("the value is longer than %d bytes", maxValueBytes)
	case b.items < 0:
		return fmt.Errorf("the value holds more than %d items", maxValueItems)
	}
	return nil
}

func (b *budget) native(v ref.Val, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("the value is nested more than %d levels deep", maxValueDepth)
	}
	if err := b.take(1); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case types.Null, nil:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if uint64(v) > 1<<63-1 {
			return nil, errors.New("the number is too large")
		}
		return int64(v), nil
	case types.Double:
		return finite(float64(v))
	case types.String:
		return string(v), b.take(len(v))
	case types.Bytes:
		return string(v), b.take(len(v))
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.Duration.String(), nil
	case traits.Mapper:
		return b.nativeMap(v, depth)
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := b.native(it.Next(), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case *types.Err:
		return nil, v
	default:
		return nil, fmt.Errorf("a value of the type %s cannot be the result of an expression", v.Type().TypeName())
	}
}

func finite(f float64) (any, error) {
	if f != f || f > maxFinite || f < -maxFinite {
		return nil, errors.New("the number is not finite")
	}
	return f, nil
}

const maxFinite = 1.7976931348623157e308

func (b *budget) nativeMap(v traits.Mapper, depth int) (any, error) {
	m := make(map[string]any)
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := b.native(key, depth+1)
		if err != nil {
			return nil, err
		}
		text, err := textOf(name)
		if err != nil {
			return nil, err
		}
		value, _ := v.Find(key)
		if m[text], err = b.native(value, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}
