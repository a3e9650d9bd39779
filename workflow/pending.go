package workflow

import (
	"github.com/google/cel-go/cel"
)

// want is what the place of an expression takes.
type want uint8

const (
	wantAny      want = iota
	wantVariable      // a text that env cannot go into
	wantName          // the same
	wantBool
	wantItems // a list or a map, which is there before any item
	wantMap
	wantScript
	wantEnd // evaluated when the run has ended
)

// pending is a template of which the expressions are not understood yet.
type pending struct {
	template *Template
	node     *node
	level    level
	job      int
	step     int
	what     string
	want     want
	raw      bool // the whole value is the expression, without marks around it
}

// template keeps a value that holds expressions, for compileAll. It is nil if there are none.
func (d *decoder) template(n *node, what string) *Template { return d.templateOf(n, what, wantAny) }

func (d *decoder) templateOf(n *node, what string, w want) *Template {
	if n.kind != scalar || !hasExpr(n.text) {
		return nil
	}
	parts, at, wrong := pieces(n.text)
	if wrong != "" {
		d.found.add(locate(d.src, n, countExprs(n.text[:at]), 0, 0)-len(exprOpen), "%s", wrong)
		return nil
	}
	return d.keep(n, parts, what, w)
}

func (d *decoder) keep(n *node, parts []part, what string, w want) *Template {
	d.uses(featureExprs, n.at)
	t := &Template{parts: parts}
	d.pending = append(d.pending, pending{template: t, node: n, level: d.level, job: d.atJob, step: d.atStep, what: what, want: w})
	return t
}

func countExprs(s string) int {
	n := 0
	for i := 0; i+len(exprOpen) <= len(s); i++ {
		if s[i:i+len(exprOpen)] == exprOpen {
			n++
		}
	}
	return n
}

// expression reads a value that has to be one expression.
func (d *decoder) expression(n *node, what string, w want) *Template {
	text, ok := d.text(n, what)
	if !ok {
		return nil
	}
	if !hasExpr(text) {
		d.found.add(n.at, "%s is one expression: write %s … %s", what, exprOpen, exprClose)
		return nil
	}
	t := d.templateOf(n, what, w)
	if t != nil && t.single() == nil {
		d.found.add(n.at, "%s is one expression and nothing else", what)
		return nil
	}
	return t
}

// compileAll understands all expressions of the file.
func (d *decoder) compileAll() {
	d.plan.index()
	c := codes{made: map[codeKey]*code{}}
	for i := range d.pending {
		d.compile(&d.pending[i], &c)
	}
	d.pending = nil
}

// codes are what the expressions of a file share.
type codes struct {
	made map[codeKey]*code
	env  *cel.Env
	err  error
}

// codeKey tells apart what makes expressions of equal text differ.
type codeKey struct {
	text, item    string
	level         level
	noEnv, noData bool
}

func (c *codes) environment() (*cel.Env, error) {
	if c.env == nil && c.err == nil {
		c.env, c.err = newExprEnv()
	}
	return c.env, c.err
}

func (d *decoder) compile(p *pending, shared *codes) {
	at := d.siteOf(p)
	nth := 0
	for i := range p.template.parts {
		part := &p.template.parts[i]
		if part.code == nil {
			continue
		}
		key := codeKey{part.code.text, at.item, at.level, at.noEnv != "", at.noData}
		if made := shared.made[key]; made != nil {
			part.code = made
		} else {
			x := compiler{site: &at, plan: d.plan, env: shared.environment}
			made, faults := x.compile(part.code.text)
			for _, f := range faults {
				d.found.add(d.placeOf(p, nth, part.at, f.at), "in the expression: %s", f.text)
			}
			if made == nil || len(faults) > 0 {
				nth++
				continue
			}
			part.code = made
			if made.anywhere() && !x.host {
				shared.made[key] = made
			}
		}
		d.fits(p, part.code, nth, part.at)
		nth++
	}
}

// placeOf is where in the source an offset of an expression stands.
func (d *decoder) placeOf(p *pending, nth, start, offset int) int {
	if p.raw {
		return locateRaw(d.src, p.node, offset)
	}
	return locate(d.src, p.node, nth, start, start+offset)
}

// siteOf says what the expressions of a template may refer to.
func (d *decoder) siteOf(p *pending) site {
	at := site{level: p.level, job: p.job, step: p.step, what: p.what}
	if p.level == inStep && p.want != wantItems {
		if f := d.plan.Steps[p.step].ForEach; f != nil {
			at.item = f.Item
		}
	}
	switch {
	case p.want == wantEnd:
		at.level, at.job, at.ended, at.noEnv = inJob, -1, true, "it belongs to steps"
	case p.level != inStep:
		at.noEnv = "it belongs to steps"
	case p.want == wantVariable:
		at.noEnv = "it is made of them"
	case p.want == wantItems || p.want == wantName:
		at.noEnv = "it belongs to the instances"
	}
	return at
}

// anywhere tells whether the code means the same wherever it stands.
func (c *code) anywhere() bool {
	for i := range c.refs {
		switch c.refs[i].kind {
		case refInput, refInputs, refRun, refItem:
		default:
			return false
		}
	}
	return true
}

// fits checks that an expression gives what its place takes, as far as that is known.
func (d *decoder) fits(p *pending, c *code, nth, start int) {
	kind := c.kind.Kind()
	if kind == cel.DynKind || kind == cel.AnyKind {
		d.warnScript(p, c, nth, start)
		return
	}
	bad := ""
	switch p.want {
	case wantBool:
		if kind != cel.BoolKind && kind != cel.StringKind {
			bad = "true or false"
		}
	case wantItems:
		switch kind {
		case cel.ListKind, cel.MapKind:
		case cel.StringKind:
			d.found.add(d.placeOf(p, nth, start, 0), "%s is a list or a map: fromJSON makes one of a text", p.what)
			return
		default:
			bad = "a list or a map"
		}
	case wantMap:
		if kind != cel.MapKind {
			bad = "a map"
		}
	default:
		d.warnScript(p, c, nth, start)
	}
	if bad != "" {
		d.found.add(d.placeOf(p, nth, start, 0), "%s is %s, and this expression gives %s", p.what, bad, plainTypes(c.kind.String()))
	}
}

// warnScript warns of a text from outside that is pasted into a script, where it is code.
func (d *decoder) warnScript(p *pending, c *code, nth, start int) {
	if p.want != wantScript {
		return
	}
	for i := range c.refs {
		r := &c.refs[i]
		name := ""
		switch {
		case r.typ == slotInt || r.typ == slotDouble || r.typ == slotBool || r.typ == slotNullInt || r.typ == slotNullDouble || r.typ == slotNullBool:
		case r.kind == refInput || r.kind == refInputs:
			name = "an input"
		case r.kind == refOutput || r.kind == refOutputs || r.kind == refInstances:
			name = "an output"
		case r.kind == refItem:
			name = "an item"
		case r.kind == refVariable || r.kind == refEnv:
			name = "a variable"
		}
		if name != "" {
			d.warned.add(d.placeOf(p, nth, start, 0), "%s that is pasted into a script is run as code: give it to the script in 'env' and write \"$NAME\" there", name)
			return
		}
	}
}
