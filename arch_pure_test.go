package swampd_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pureImports are the packages from outside that a machine may use, by itself or through its neighbours: none of them
// reaches a file, a socket, another goroutine or anything random. Of package time what impureTime lists is excepted.
func pureImports() []string {
	return []string{
		"bytes", "cmp", "container/heap", "crypto/sha256", "crypto/subtle", "encoding/hex", "errors", "fmt", "iter", "maps",
		"math", "math/bits", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
		"google.golang.org/protobuf/proto", "google.golang.org/protobuf/types/known/timestamppb",
		"google.golang.org/protobuf/types/known/structpb",
	}
}

// pureModules are the packages of this module that a machine may import.
func pureModules() []string { return []string{modulePath + "/messages", modulePath + "/workflow"} }

// impureTime are the functions that read a clock, start a timer, or read the zone of the machine.
func impureTime() []string {
	return []string{
		"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick",
		"time.Sleep", "time.LoadLocation", "timestamppb.Now",
	}
}

// isMachine tells whether a file holds a machine.
func isMachine(file string) bool { return strings.HasSuffix(file, "_state.go") }

// machinesArePure checks R8: same input, same output. A machine imports from a short list, reads no clock, starts
// nothing and waits for nothing. What it uses of this module is followed to its declaration and held to the same, as no
// import would show that a machine calls an impure neighbour.
func machinesArePure(t *testing.T, tree tree) {
	packages := map[string][]sourceFile{}
	for _, f := range tree.files {
		if !f.test {
			packages[f.dir] = append(packages[f.dir], f)
		}
	}
	src := newSources(tree.fset, packages)
	check := newPurity(src)
	for _, f := range tree.files {
		if !f.test && isMachine(f.path) {
			src.check(f.dir)
			check.machine(f.syntax)
		}
	}
	for _, fault := range check.faults {
		t.Errorf("R8: %s", fault)
	}
}

// purity collects what breaks R8.
type purity struct {
	src    *sources
	seen   map[types.Object]bool
	faults []string
}

func newPurity(src *sources) *purity { return &purity{src: src, seen: map[types.Object]bool{}} }

// machine checks a whole file, and what it uses.
func (p *purity) machine(file *ast.File) {
	allowed := append(pureImports(), pureModules()...)
	for _, spec := range file.Imports {
		if imported := strings.Trim(spec.Path.Value, `"`); !slices.Contains(allowed, imported) {
			p.fault(spec, "", "a machine may import only %s, not %s", strings.Join(allowed, ", "), imported)
		}
	}
	for _, d := range file.Decls {
		p.follow(d, "", true)
	}
}

// follow checks a piece of syntax. user is where a machine uses it, or empty in the machine itself. Names of packages
// are checked where code may run: a type that only mentions one, or that holds a channel for somebody else, is data.
func (p *purity) follow(root ast.Node, user string, runs bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			p.fault(n, user, "a machine starts no goroutine: return an effect")
		case *ast.SelectStmt:
			p.fault(n, user, "a machine waits for nothing: what it waits for comes as a command")
			return false
		case *ast.SendStmt:
			p.fault(n, user, "a machine sends nothing: return an effect")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				p.fault(n, user, "a machine receives nothing: what it waits for comes as a command")
			}
		case *ast.ChanType:
			if runs {
				p.fault(n, user, "a machine holds no channel: its state is a value")
			}
		case *ast.CallExpr:
			if field, ok := n.Fun.(*ast.SelectorExpr); ok {
				if v, ok := p.src.info.Uses[field.Sel].(*types.Var); ok && v.IsField() {
					p.fault(n, user, "a machine calls no function that its state carries (%s): same state, same answer", field.Sel.Name)
				}
			}
		case *ast.SelectorExpr:
			p.selector(n, user, runs)
		case *ast.Ident:
			p.use(n, user)
		}
		return true
	})
}

// selector checks what is taken from a package of somebody else.
func (p *purity) selector(n *ast.SelectorExpr, user string, runs bool) {
	from, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	name, ok := p.src.info.Uses[from].(*types.PkgName)
	if !ok {
		return
	}
	imported := name.Imported().Path()
	if strings.HasPrefix(imported, modulePath+"/") {
		return // followed to the declaration
	}
	if slices.Contains(impureTime(), path.Base(imported)+"."+n.Sel.Name) {
		p.fault(n, user, "a machine is told the time, it does not call %s.%s", path.Base(imported), n.Sel.Name)
	}
	if user != "" && runs && !slices.Contains(pureImports(), imported) {
		p.fault(n, user, "a machine may not reach %s.%s", imported, n.Sel.Name)
	}
}

// use follows a name to its declaration in this module, once.
func (p *purity) use(n *ast.Ident, user string) {
	used := p.src.info.Uses[n]
	if f, ok := used.(*types.Func); ok {
		used = f.Origin()
	}
	d, ok := p.src.declared[used]
	if !ok || p.seen[used] || isMachine(p.src.fset.Position(used.Pos()).Filename) {
		return
	}
	p.seen[used] = true
	if user == "" {
		user = p.where(n)
	}
	_, isType := d.(*ast.TypeSpec)
	p.follow(d, user, !isType)
}

func (p *purity) where(n ast.Node) string {
	at := p.src.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.ToSlash(at.Filename), at.Line)
}

func (p *purity) fault(n ast.Node, user, format string, args ...any) {
	fault := p.where(n) + ": " + fmt.Sprintf(format, args...)
	if user != "" {
		fault += " (used by " + user + ")"
	}
	p.faults = append(p.faults, fault)
}

// typedImports are the packages of the standard library that hand through what they are given, so that without their
// types a method called on the result would not be recognised.
func typedImports() []string {
	return []string{"cmp", "container/heap", "errors", "iter", "maps", "slices", "sort"}
}

// sources type-checks the packages of this tree, and typedImports. Every other import is an empty stub: names from
// there stay unknown, which R8 does not mind.
type sources struct {
	fset     *token.FileSet
	packages map[string][]sourceFile
	checked  map[string]*types.Package
	info     *types.Info
	declared map[types.Object]ast.Node // functions, methods, types, constants and variables of packages that are no stub
	std      types.Importer
}

func newSources(fset *token.FileSet, packages map[string][]sourceFile) *sources {
	return &sources{
		fset:     fset,
		packages: packages,
		checked:  map[string]*types.Package{},
		info:     &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		declared: map[types.Object]ast.Node{},
		std:      importer.ForCompiler(fset, "source", nil),
	}
}

// Import implements [types.Importer].
func (s *sources) Import(importPath string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(importPath, modulePath+"/"); ours {
		return s.check(dir), nil
	}
	if slices.Contains(typedImports(), importPath) {
		return s.std.Import(importPath)
	}
	stub := types.NewPackage(importPath, path.Base(importPath))
	stub.MarkComplete()
	return stub, nil
}

// check type-checks the package of one folder, once, as it is built on this system.
func (s *sources) check(dir string) *types.Package {
	if done, ok := s.checked[dir]; ok {
		return done
	}
	var syntax []*ast.File
	for _, f := range s.packages[dir] {
		if here, err := build.Default.MatchFile(filepath.FromSlash(dir), path.Base(f.path)); err == nil && here {
			syntax = append(syntax, f.syntax)
		}
	}
	s.checked[dir] = s.checkFiles(modulePath+"/"+dir, syntax)
	return s.checked[dir]
}

// checkFiles type-checks files and notes what they declare. Errors of type are expected, because of the stubs.
func (s *sources) checkFiles(pkgPath string, syntax []*ast.File) *types.Package {
	conf := types.Config{Importer: s, Error: func(error) {}}
	pkg, _ := conf.Check(pkgPath, s.fset, syntax, s.info)
	for _, file := range syntax {
		if ast.IsGenerated(file) {
			continue // what protoc-gen-go writes is data with accessors
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				s.declared[s.info.Defs[d.Name]] = d
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						s.declared[s.info.Defs[spec.Name]] = spec
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							s.declared[s.info.Defs[name]] = spec
						}
					}
				}
			}
		}
	}
	delete(s.declared, nil)
	return pkg
}

// TestArchitecture_ImpuritiesAreFound tries R8 on a small package that breaks it in every way.
func TestArchitecture_ImpuritiesAreFound(t *testing.T) {
	t.Parallel()
	const neighbour = `package p

import (
	"os"
	"time"

	"example.com/store"
)

type actor struct{ clock func() time.Time; db *store.DB; wake chan int }

func (a *actor) now() time.Time { return a.clock() }
func (a *actor) give() { select { case a.wake <- 1: default: } }
func pure(n int) int { return n + one }
func host() string { return name() }
func name() string { s, _ := os.Hostname(); return s }
func open() { store.Open() }
func later() { go host() }

const one = 1

type queue[T any] struct{ items []T }

func (q *queue[T]) push(v T) { q.items = append(q.items, v) }
func (q *queue[T]) stamp() time.Time { return time.Now() }
`
	tests := []struct {
		name    string
		machine string
		want    []string // a part of each fault, in order
	}{
		{"values in and values out", `import ("time"; "slices")
type state struct{ at time.Time; all []int }
func step(s state, now time.Time) (state, []string) { s.at = now; s.all = slices.Clone(s.all); return s, nil }`, nil},
		{"a method of time that is no clock", `import "time"
func step(now time.Time) time.Time { return now.Add(time.Second) }`, nil},
		{"a neighbour that is as pure", `func step() int { return pure(one) }`, nil},
		{"a generic neighbour that is as pure", `func step(q *queue[int]) { q.push(1) }`, nil},
		{"a handle that is only passed on", `type effect struct{ to *actor }
func step(a *actor) effect { return effect{to: a} }`, nil},
		{"the clock", `import "time"
func step() time.Time { return time.Now() }`, []string{"p_state.go:3: a machine is told the time, it does not call time.Now"}},
		{"a timer under another name", `import clock "time"
func step() { clock.AfterFunc(1, nil) }`, []string{"does not call time.AfterFunc"}},
		{"an import", `import "os"
func step() { os.Exit(1) }`, []string{"not os"}},
		{"the journal", `import "github.com/swampd/swampd/persistence"
func step(persistence.Commit) {}`, []string{"not github.com/swampd/swampd/persistence"}},
		{"a goroutine", `func step() { go step() }`, []string{"starts no goroutine"}},
		{"a channel", `func step(c chan int) { c <- 1; <-c }`, []string{"holds no channel", "sends nothing", "receives nothing"}},
		{"a select", `func step() { select {} }`, []string{"waits for nothing"}},
		{"a function that the state carries", `type state struct{ f func() int }
func step(s state) int { return s.f() }`, []string{"calls no function that its state carries (f)"}},
		{"a neighbour's neighbour that asks the system", `func step() string { return host() }`,
			[]string{"neighbour.go:16: a machine may not reach os.Hostname (used by p_state.go:2)"}},
		{"a neighbour that opens a store", `func step() { open() }`, []string{"may not reach example.com/store.Open"}},
		{"a neighbour that starts a goroutine", `func step() { later() }`, []string{"starts no goroutine", "may not reach os.Hostname"}},
		{"a method that sends", `func step(a *actor) { a.give() }`, []string{"waits for nothing"}},
		{"a method that reads a clock, through a library", `import "slices"
func step() { for _, a := range slices.Clone(all()) { a.now() } }
func all() []*actor { return nil }`, []string{"calls no function that its state carries (clock)"}},
		{"a generic method that reads a clock", `func step(q *queue[int]) { q.stamp() }`, []string{"does not call time.Now (used by"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fset := token.NewFileSet()
			var syntax []*ast.File
			for _, f := range []struct{ name, src string }{
				{"neighbour.go", neighbour}, {"p_state.go", "package p\n" + tt.machine},
			} {
				parsed, err := parser.ParseFile(fset, f.name, f.src, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				syntax = append(syntax, parsed)
			}
			src := newSources(fset, nil)
			src.checkFiles("p", syntax)
			check := newPurity(src)
			check.machine(syntax[1])
			if len(check.faults) != len(tt.want) {
				t.Fatalf("found %q, want %d faults", check.faults, len(tt.want))
			}
			for i, part := range tt.want {
				if !strings.Contains(check.faults[i], part) {
					t.Errorf("fault %d is %q, want %q in it", i, check.faults[i], part)
				}
			}
		})
	}
}
