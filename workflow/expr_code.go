package workflow

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// code is one expression that was understood. Templates share those of equal text and place; it is never changed.
type code struct {
	text string
	refs []reference
	// path goes on from the one reference of an expression that is nothing but names and indices, such as
	// inputs.list[0].name. Most are, and they are read and evaluated without the help of CEL, for which env is set.
	path []any
	env  *cel.Env
	ast  *cel.Ast
	made atomic.Pointer[cel.Program]
	kind *cel.Type
}

// fault is something wrong inside an expression.
type fault struct {
	at   int // in the expression, in bytes
	text string
}

// seg is one step of a chain of names: .name, ['name'] or [1].
type seg struct {
	name    string
	index   int64
	isIndex bool
	at      int
}

// chain is a name with what follows it.
type chain struct {
	root string
	at   int
	segs []seg
}

// compiler makes the code of one expression.
type compiler struct {
	site   *site
	plan   *Plan
	env    func() (*cel.Env, error)
	code   *code
	src    string
	info   *ast.SourceInfo
	faults []fault
	slots  [slotTypes]int
	host   bool // the expression asks the host
}

func (x *compiler) fault(at int, format string, args ...any) {
	x.faults = append(x.faults, fault{at, fmt.Sprintf(format, args...)})
}

// compile fills the code of an expression, or returns what is wrong with it.
func (x *compiler) compile(text string) (*code, []fault) {
	x.src = text
	x.code = &code{text: text}
	if c, ok := pathOf(text); ok && x.isRoot(c.root) {
		if done := x.compilePath(c); done {
			return x.code, x.faults
		}
		x.faults, x.code.refs, x.slots = nil, nil, [slotTypes]int{}
	}
	env, err := x.env()
	if err != nil {
		x.fault(0, "expressions are not available: %v", err)
		return nil, x.faults
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		for _, e := range issues.Errors()[:1] {
			x.fault(x.offset(e.Location.Line(), e.Location.Column()), "%s", syntaxSentence(e.Message))
		}
		return nil, x.faults
	}
	x.info = parsed.NativeRep().SourceInfo()
	x.walk(parsed.NativeRep().Expr(), nil)
	if len(x.faults) > 0 {
		return nil, x.faults
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		for _, e := range issues.Errors() {
			x.fault(x.offset(e.Location.Line(), e.Location.Column()), "%s", checkSentence(e.Message))
		}
		return nil, x.faults
	}
	x.code.env, x.code.ast, x.code.kind = env, checked, checked.OutputType()
	return x.code, nil
}

// compilePath makes the code of a path, and tells whether that was possible or is wrong for good.
func (x *compiler) compilePath(c chain) bool {
	r, used := x.resolve(c)
	if len(x.faults) > 0 {
		return true
	}
	rest := c.segs[used:]
	if len(rest) > 0 && r.typ != slotAny && r.typ != slotMap && !(r.typ == slotList && rest[0].isIndex) {
		return false // CEL says what is wrong
	}
	x.code.refs, x.code.kind = []reference{r}, r.typ.cel()
	for _, s := range rest {
		x.code.kind = cel.DynType
		if s.isIndex {
			x.code.path = append(x.code.path, s.index)
		} else {
			x.code.path = append(x.code.path, s.name)
		}
	}
	return true
}

// pathOf reads an expression that is a chain of names and nothing else.
func pathOf(s string) (c chain, ok bool) {
	p := len(s) - len(strings.TrimLeft(s, " \t\n"))
	end := len(strings.TrimRight(s, " \t\n"))
	word := func() string {
		from := p
		for p < end && (letterOrDigit(s[p]) || s[p] == '_') {
			p++
		}
		if from < p && s[from] >= '0' && s[from] <= '9' {
			return ""
		}
		return s[from:p]
	}
	c.at = p
	if c.root = word(); c.root == "" {
		return c, false
	}
	for p < end {
		switch s[p] {
		case '.':
			p++
			at := p
			name := word()
			if name == "" || reservedWord(name) {
				return c, false
			}
			c.segs = append(c.segs, seg{name: name, at: at})
		case '[':
			n := strings.IndexByte(s[p:end], ']')
			if n < 0 {
				return c, false
			}
			g, ok := indexOf(s[p+1 : p+n])
			if !ok {
				return c, false
			}
			g.at = p + 1
			c.segs = append(c.segs, g)
			p += n + 1
		default:
			return c, false
		}
	}
	return c, true
}

// indexOf reads a plain index: a name in quotes or a number.
func indexOf(s string) (seg, bool) {
	if len(s) > 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] && !strings.ContainsAny(s[1:len(s)-1], "'\"\\\n") {
		return seg{name: s[1 : len(s)-1]}, true
	}
	if s == "" || len(s) > 9 {
		return seg{}, false
	}
	n := int64(0)
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' || i == 0 && s[i] == '0' && len(s) > 1 {
			return seg{}, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return seg{index: n, isIndex: true}, true
}

func reservedWord(s string) bool {
	switch s {
	case "true", "false", "null", "in":
		return true
	}
	return false
}

// offset is the place of a line, from 1, and a column, in characters from 0, in the expression.
func (x *compiler) offset(line, column int) int {
	pos := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(x.src[pos:], '\n')
		if i < 0 {
			break
		}
		pos += i + 1
	}
	for ; column > 0 && pos < len(x.src); column-- {
		_, size := utf8.DecodeRuneInString(x.src[pos:])
		pos += size
	}
	return pos
}

func (x *compiler) at(e ast.Expr) int {
	l := x.info.GetStartLocation(e.ID())
	return x.offset(l.Line(), l.Column())
}

// walk replaces what refers to values by slots. Bound are the variables of macros around.
func (x *compiler) walk(e ast.Expr, bound []string) {
	switch e.Kind() {
	case ast.IdentKind, ast.SelectKind:
		if c, nodes, ok := x.chain(e, bound); ok {
			x.replace(c, nodes)
			return
		}
		if e.Kind() == ast.SelectKind {
			x.walk(e.AsSelect().Operand(), bound)
		}
	case ast.CallKind:
		if c, nodes, ok := x.chain(e, bound); ok {
			x.replace(c, nodes)
			return
		}
		x.call(e, bound)
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			x.walk(item, bound)
		}
	case ast.MapKind:
		for _, item := range e.AsMap().Entries() {
			x.walk(item.AsMapEntry().Key(), bound)
			x.walk(item.AsMapEntry().Value(), bound)
		}
	case ast.StructKind:
		x.fault(x.at(e), "an expression cannot make a %s", quote(e.AsStruct().TypeName()))
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		x.walk(c.IterRange(), bound)
		x.walk(c.AccuInit(), bound)
		inner := append(append([]string(nil), bound...), c.IterVar(), c.AccuVar())
		if c.HasIterVar2() {
			inner = append(inner, c.IterVar2())
		}
		x.walk(c.LoopCondition(), inner)
		x.walk(c.LoopStep(), inner)
		x.walk(c.Result(), inner)
	default: // a literal
	}
}

// call goes into a call, or replaces one of the host's.
func (x *compiler) call(e ast.Expr, bound []string) {
	call := e.AsCall()
	if call.IsMemberFunction() {
		if t := call.Target(); t.Kind() == ast.IdentKind && !contains(bound, t.AsIdent()) && (t.AsIdent() == "data" || t.AsIdent() == "workers") {
			x.hostCall(e, t.AsIdent()+"."+call.FunctionName(), bound)
			return
		}
		x.walk(call.Target(), bound)
	}
	for _, a := range call.Args() {
		x.walk(a, bound)
	}
}

func (x *compiler) hostCall(e ast.Expr, name string, bound []string) {
	inside := map[string]string{"data.latest": callLatest, "workers.connected": callWorkers}[name]
	if inside == "" {
		x.fault(x.at(e), "there is no function %s%s", quote(name), didYouMean(name, functionNames()))
		return
	}
	args := e.AsCall().Args()
	for _, a := range args {
		x.walk(a, bound)
	}
	x.host = true
	fac := ast.NewExprFactory()
	host := fac.NewIdent(ast.MaxID(ast.NewAST(e, x.info))+100_000, hostVariable)
	e.SetKindCase(fac.NewCall(e.ID(), inside, append([]ast.Expr{host}, args...)...))
}

// chain takes a node for a chain of names that begins with a name that nothing around it binds. Nodes are the one of the
// name and those of the steps.
func (x *compiler) chain(e ast.Expr, bound []string) (c chain, nodes []ast.Expr, ok bool) {
	var segs []seg
	for {
		nodes = append(nodes, e)
		switch e.Kind() {
		case ast.IdentKind:
			name := strings.TrimPrefix(e.AsIdent(), ".")
			if contains(bound, name) || name == hostVariable {
				return c, nil, false
			}
			c.root, c.at = name, x.at(e)
			for i := len(segs) - 1; i >= 0; i-- {
				c.segs = append(c.segs, segs[i])
			}
			for i, k := 0, len(nodes)-1; i < k; i, k = i+1, k-1 {
				nodes[i], nodes[k] = nodes[k], nodes[i]
			}
			return c, nodes, true
		case ast.SelectKind:
			if e.AsSelect().IsTestOnly() {
				return c, nil, false
			}
			segs = append(segs, seg{name: e.AsSelect().FieldName(), at: x.at(e) + 1})
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || call.IsMemberFunction() || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
				return c, nil, false
			}
			at := x.at(call.Args()[1])
			switch v := call.Args()[1].AsLiteral().(type) {
			case types.String:
				segs = append(segs, seg{name: string(v), at: at})
			case types.Int:
				segs = append(segs, seg{index: int64(v), isIndex: true, at: at})
			default:
				return c, nil, false
			}
			e = call.Args()[0]
		default:
			return c, nil, false
		}
	}
}

// replace puts a slot where a chain refers to a value; what of the chain goes into the value stays.
func (x *compiler) replace(c chain, nodes []ast.Expr) {
	r, used := x.resolve(c)
	if r.typ == slotTypes { // reported
		return
	}
	for i := range x.code.refs {
		if x.code.refs[i].same(&r) {
			r.slot = x.code.refs[i].slot
		}
	}
	if r.slot == "" {
		n := x.slots[r.typ]
		if n == maxSlots {
			x.fault(c.at, "an expression refers to at most %d values of one type", maxSlots)
			return
		}
		x.slots[r.typ]++
		r.slot = slotName(r.typ, n)
		x.code.refs = append(x.code.refs, r)
	}
	nodes[used].SetKindCase(ast.NewExprFactory().NewIdent(nodes[used].ID(), r.slot))
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// syntaxSentence is what the parser says, without the list of all that it would have taken.
func syntaxSentence(s string) string {
	s = strings.TrimPrefix(s, "Syntax error: ")
	if i := strings.Index(s, " expecting {"); i >= 0 {
		s = s[:i]
	}
	s = strings.ReplaceAll(s, "<EOF>", "the end")
	return "this is no expression: " + printable(strings.ReplaceAll(s, "\n", " "))
}

// checkSentence is what the checker says, in our words.
func checkSentence(s string) string {
	if name, ok := strings.CutPrefix(s, "undeclared reference to '"); ok {
		name, _, _ = strings.Cut(name, "'")
		return "there is no function " + quote(name) + didYouMean(name, functionNames())
	}
	if rest, ok := strings.CutPrefix(s, "found no matching overload for '"); ok {
		name, with, _ := strings.Cut(rest, "' applied to '")
		with = strings.TrimSuffix(with, "'")
		return fmt.Sprintf("'%s' does not take %s", operatorOf(name), printable(plainTypes(strings.Replace(with, "(host, ", "(", 1))))
	}
	return printable(plainTypes(s))
}

// plainTypes writes the types of the checker as people do.
func plainTypes(s string) string {
	return strings.NewReplacer("wrapper(string)", "string or null", "wrapper(int)", "integer or null",
		"wrapper(double)", "number or null", "wrapper(bool)", "boolean or null", "uint", "uint", "map(string, dyn)", "object", "list(dyn)", "array", "double", "number", "int", "integer", "bool", "boolean").Replace(s)
}

// operatorOf is an operator or function as it is written.
func operatorOf(name string) string {
	if op, ok := operators.FindReverse(name); ok && op != "" {
		return op
	}
	switch name {
	case operators.Index:
		return "[]"
	case operators.Conditional:
		return "? :"
	case callLatest:
		return "data.latest"
	case callWorkers:
		return "workers.connected"
	}
	return name
}

// didYouMean is the end of a sentence about a word that is not known.
func didYouMean(word string, words []string) string {
	if near, ok := nearest(word, words); ok {
		return ": did you mean " + quote(near) + "?"
	}
	return ""
}
