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

// pureImports are the packages that a machine may import: none of them reaches a file, a socket, another goroutine or
// anything random. Of package time it may not use what impureTime lists.
func pureImports(file string) []string {
	pure := []string{
		"cmp", "container/heap", "errors", "fmt", "iter", "maps", "math", "slices", "sort", "strconv", "strings", "time",
		modulePath + "/messages", modulePath + "/workflow",
	}
	if path.Base(file) == effectsFile {
		pure = append(pure, modulePath+"/persistence") // an effect may be a commit
	}
	return pure
}

// impureTime are the functions of package time that read a clock, start a timer, or read the zone of the machine.
func impureTime() []string {
	return []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep", "LoadLocation"}
}

// effectsFile holds the closed set of effects of a package: data that its machines return.
const effectsFile = "effects.go"

// isMachine tells whether a file is held to R8.
func isMachine(file string) bool {
	return strings.HasSuffix(file, "_state.go") || path.Base(filepath.ToSlash(file)) == effectsFile
}

// TestArchitecture_MachinesArePure checks R8: same input, same output. A machine imports from a short list, reads no
// clock, starts nothing and waits for nothing; and it uses nothing of its own package that is not held to the same,
// as no import would show that it calls an impure neighbour.
func TestArchitecture_MachinesArePure(t *testing.T) {
	t.Parallel()
	fset, files := readTree(t)
	packages := map[string][]sourceFile{}
	for _, f := range files {
		if !f.test {
			packages[f.dir] = append(packages[f.dir], f)
		}
	}
	sources := newSources(fset, packages)
	for dir, members := range packages {
		if !slices.ContainsFunc(members, func(f sourceFile) bool { return strings.HasSuffix(f.path, "_state.go") }) {
			continue
		}
		checked := sources.check(dir)
		for _, f := range members {
			if isMachine(f.path) {
				for _, fault := range impurities(fset, f.syntax, checked) {
					t.Errorf("R8: %s", fault)
				}
			}
		}
	}
}

// impurities lists what breaks R8 in one file of a package that has been checked.
func impurities(fset *token.FileSet, file *ast.File, in checkedPackage) []string {
	var faults []string
	fault := func(n ast.Node, format string, args ...any) {
		p := fset.Position(n.Pos())
		faults = append(faults, fmt.Sprintf("%s:%d: ", filepath.ToSlash(p.Filename), p.Line)+fmt.Sprintf(format, args...))
	}
	allowed := pureImports(fset.Position(file.Pos()).Filename)
	for _, spec := range file.Imports {
		if p := strings.Trim(spec.Path.Value, `"`); !slices.Contains(allowed, p) {
			fault(spec, "a machine may import only %s, not %s", strings.Join(allowed, ", "), p)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			fault(n, "a machine starts no goroutine: return an effect")
		case *ast.SelectStmt:
			fault(n, "a machine waits for nothing: what it waits for comes as a command")
		case *ast.SendStmt:
			fault(n, "a machine sends nothing: return an effect")
		case *ast.ChanType:
			fault(n, "a machine holds no channel: its state is a value")
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok {
				imported, ok := in.info.Uses[from].(*types.PkgName)
				if ok && imported.Imported().Path() == "time" && slices.Contains(impureTime(), n.Sel.Name) {
					fault(n, "a machine is told the time, it does not call time.%s", n.Sel.Name)
				}
			}
		case *ast.Ident:
			used := in.info.Uses[n]
			if used == nil || used.Pkg() != in.types {
				return true
			}
			if _, isImport := used.(*types.PkgName); isImport {
				return true
			}
			if home := fset.Position(used.Pos()).Filename; !isMachine(home) {
				fault(n, "a machine may not use %s of %s: declare it in a *_state.go, or in %s if it is an effect",
					n.Name, filepath.ToSlash(home), effectsFile)
			}
		}
		return true
	})
	return faults
}

// checkedPackage is a type-checked package and what its names stand for.
type checkedPackage struct {
	types *types.Package
	info  *types.Info
}

// sources type-checks the packages of this tree, and of the standard library those that machines use. Every other
// import is an empty stub: names from there stay unknown, which R8 does not mind.
type sources struct {
	fset     *token.FileSet
	packages map[string][]sourceFile
	checked  map[string]checkedPackage
	std      types.Importer
}

func newSources(fset *token.FileSet, packages map[string][]sourceFile) *sources {
	return &sources{
		fset:     fset,
		packages: packages,
		checked:  map[string]checkedPackage{},
		std:      importer.ForCompiler(fset, "source", nil),
	}
}

// Import implements [types.Importer].
func (s *sources) Import(importPath string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(importPath, modulePath+"/"); ours {
		return s.check(dir).types, nil
	}
	if slices.Contains(pureImports(""), importPath) {
		return s.std.Import(importPath)
	}
	stub := types.NewPackage(importPath, path.Base(importPath))
	stub.MarkComplete()
	return stub, nil
}

// check type-checks the package of one folder, once. Errors of type are expected, because of the stubs.
func (s *sources) check(dir string) checkedPackage {
	if done, ok := s.checked[dir]; ok {
		return done
	}
	var syntax []*ast.File
	for _, f := range s.packages[dir] {
		if here, err := build.Default.MatchFile(filepath.FromSlash(dir), path.Base(f.path)); err == nil && here {
			syntax = append(syntax, f.syntax)
		}
	}
	done := checkedPackage{info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	conf := types.Config{Importer: s, Error: func(error) {}, FakeImportC: true}
	done.types, _ = conf.Check(modulePath+"/"+dir, s.fset, syntax, done.info)
	s.checked[dir] = done
	return done
}

// TestArchitecture_ImpuritiesAreFound tries R8 on a small package that breaks it in every way.
func TestArchitecture_ImpuritiesAreFound(t *testing.T) {
	t.Parallel()
	const neighbour = `package p
import "time"
type actor struct{ clock func() time.Time }
func (a *actor) now() time.Time { return a.clock() }
func helper() int { return 1 }
var counter int
type Shared struct{ Field int }
`
	const effects = `package p
import "github.com/swampd/swampd/persistence"
type effect struct{ commit persistence.Commit }
`
	tests := []struct {
		name    string
		machine string
		want    []string // a part of each fault, in order
	}{
		{"values in and values out", `import ("time"; "slices")
type state struct{ at time.Time; all []int }
func step(s state, now time.Time) (state, []effect) { s.at = now; s.all = slices.Clone(s.all); return s, []effect{{}} }`, nil},
		{"a method of time that is no clock", `import "time"
func step(now time.Time) time.Time { return now.Add(time.Second) }`, nil},
		{"the clock", `import "time"
func step() time.Time { return time.Now() }`, []string{"does not call time.Now"}},
		{"a timer under another name", `import clock "time"
func step() { clock.AfterFunc(1, nil) }`, []string{"does not call time.AfterFunc"}},
		{"an import", `import "os"
func step() { os.Exit(1) }`, []string{"not os"}},
		{"the journal", `import "github.com/swampd/swampd/persistence"
func step(persistence.Commit) {}`, []string{"not github.com/swampd/swampd/persistence"}},
		{"a goroutine", `func step() { go step() }`, []string{"starts no goroutine"}},
		{"a channel", `func step(c chan int) { c <- 1 }`, []string{"holds no channel", "sends nothing"}},
		{"a select", `func step() { select {} }`, []string{"waits for nothing"}},
		{"a function of a neighbour", `func step() int { return helper() }`, []string{"helper of neighbour.go"}},
		{"a variable of a neighbour", `func step() int { return counter }`, []string{"counter of neighbour.go"}},
		{"a type of a neighbour", `func step(a *actor) {}`, []string{"actor of neighbour.go"}},
		{"a method of a neighbour through a library", `import "slices"
func step() { for _, a := range slices.Clone(all()) { a.now() } }
func all() []*actor { return nil }`, []string{"now of neighbour.go", "actor of neighbour.go"}},
		{"a field of a neighbour", `func step(s Shared) int { return s.Field }`, []string{"Shared of neighbour.go", "Field of neighbour.go"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fset := token.NewFileSet()
			var syntax []*ast.File
			for _, f := range []struct{ name, src string }{
				{"neighbour.go", neighbour}, {effectsFile, effects}, {"p_state.go", "package p\n" + tt.machine},
			} {
				parsed, err := parser.ParseFile(fset, f.name, f.src, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				syntax = append(syntax, parsed)
			}
			in := checkedPackage{info: &types.Info{Uses: map[*ast.Ident]types.Object{}}}
			conf := types.Config{Importer: newSources(fset, nil), Error: func(error) {}}
			in.types, _ = conf.Check("p", fset, syntax, in.info)
			if faults := impurities(fset, syntax[1], in); len(faults) > 0 {
				t.Errorf("effects.go is pure, found %q", faults)
			}
			got := impurities(fset, syntax[2], in)
			if len(got) != len(tt.want) {
				t.Fatalf("found %q, want %d faults", got, len(tt.want))
			}
			for i, part := range tt.want {
				if !strings.Contains(got[i], part) {
					t.Errorf("fault %d is %q, want %q in it", i, got[i], part)
				}
			}
		})
	}
}
