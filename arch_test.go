package swampd_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The rules of this file are explained in docs/rules.md. They read the source itself rather than the import graph of
// the system that the test runs on, so that a file for another system is held to them too.

const modulePath = "github.com/swampd/swampd"

// sourceFile is one Go file of the module.
type sourceFile struct {
	path      string // from the root of the module, with slashes
	dir       string // the folder, which names the package; "." is the root
	test      bool
	generated bool
	lines     int
	syntax    *ast.File
}

// imports returns what the file imports, in order of appearance.
func (f sourceFile) imports() []string {
	paths := make([]string, 0, len(f.syntax.Imports))
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has already refused such a file
		}
		paths = append(paths, p)
	}
	return paths
}

// tree is the source of the module.
type tree struct {
	fset  *token.FileSet
	files []sourceFile
}

// readTree parses every Go file of the module, for every system.
func readTree(t *testing.T) tree {
	t.Helper()
	var files []sourceFile
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		files = append(files, sourceFile{
			path:      slashed,
			dir:       path.Dir(slashed),
			test:      strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax),
			lines:     strings.Count(string(src), "\n"),
			syntax:    syntax,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("read the source of the module: %v", err)
	}
	return tree{fset, files}
}

// under tells whether dir is the folder top or stands in it.
func under(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// underAny tells whether dir is one of tops or stands in one of them.
func underAny(dir string, tops []string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return under(dir, top) })
}

// layer says what the packages in one folder may import of this module.
type layer struct {
	rule string
	top  string // the folder; an entry below it, if it has one, goes before
	// may lists folders whose own package may be imported; "x/..." also allows what stands in x.
	may []string
}

// layers is the direction of the arrows. The longest matching top decides; a folder without an entry is an error, so
// that a new package is placed on purpose.
func layers() []layer {
	everything := []string{
		"messages", "workflow/...", "persistence/...", "actors/...", "worker/...", "gateway/...", "testkit/...",
	}
	product := []string{
		"messages", "workflow/...", "persistence", "persistence/badgerstore", "persistence/memstore",
		"persistence/blobs", "actors/...", "worker/...", "gateway/...",
	}
	return []layer{
		{"R1", "messages", nil},
		{"R2", "workflow", []string{"messages", "workflow/..."}},
		{"R2", "persistence", []string{"messages"}},
		{"R2", "persistence/badgerstore", []string{"messages", "persistence", "persistence/blobs"}},
		{"R2", "persistence/memstore", []string{"messages", "persistence"}},
		{"R2", "persistence/blobs", []string{"messages", "persistence"}},
		{"R2", "persistence/journaltest", []string{"messages", "persistence"}},
		{"R3", "actors", []string{"messages", "workflow", "persistence", "actors/..."}},
		{"R4", "worker", []string{"messages", "worker/..."}},
		{"R5", "gateway", []string{"messages", "actors", "persistence", "gateway/..."}},
		{"R7", "testkit", everything},
		{"R7", "examples", everything},
		{"R7", "e2e", everything},
		{"R7", "cmd", []string{"cmd/internal/..."}},
		{"R7", "cmd/swamp-worker", []string{"cmd/internal/cli"}},
		{"R7", "cmd/internal", append(product, "cmd/internal/...")},
		{"R7", "cmd/internal/cli", []string{"messages", "workflow/...", "persistence", "worker/...", "cmd/internal/daemon"}},
		{"R7", "cmd/internal/daemon", []string{"messages", "persistence"}},
	}
}

// layerOf finds the entry for a folder.
func layerOf(dir string) (layer, bool) {
	var found layer
	ok := false
	for _, l := range layers() {
		if under(dir, l.top) && len(l.top) > len(found.top) {
			found, ok = l, true
		}
	}
	return found, ok
}

// allows tells whether the layer may import the package of a folder of this module.
func (l layer) allows(dir string) bool {
	return slices.ContainsFunc(l.may, func(m string) bool {
		if top, whole := strings.CutSuffix(m, "/..."); whole {
			return under(dir, top)
		}
		return dir == m
	})
}

// confinement says where an import from outside may stand.
type confinement struct {
	rule    string
	imports []string // these, and what stands below them
	only    []string // folders
	why     string
}

func confinements() []confinement {
	edges := []string{"gateway", "worker", "testkit", "cmd", "e2e", "examples"}
	tests := []string{"testkit", "persistence/journaltest"}
	return []confinement{
		{
			"R3", []string{"github.com/asynkron/protoactor-go"}, []string{"actors", "testkit"},
			"the actor library is a detail of actors; others use what actors exports",
		},
		{
			"R6", []string{"github.com/dgraph-io/badger"}, []string{"persistence/badgerstore"},
			"the store is an engine behind persistence.Journal",
		},
		{
			"R6", []string{"net/http", "github.com/coder/websocket"}, edges,
			"the network ends at the edges; inside, a connection is an interface",
		},
		{
			"R6", []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "flag"}, []string{"cmd", "e2e"},
			"flags are parsed in cmd and become a typed Config",
		},
		{
			"R6", []string{"github.com/goccy/go-yaml"}, []string{"workflow", "cmd/internal/cli"},
			"the YAML language is workflow's",
		},
		{
			"R6", []string{"github.com/google/cel-go"}, []string{"workflow", "actors"},
			"expressions are evaluated by what bounds them: those of a file in workflow, queries of data in actors",
		},
		{
			"R7", []string{"testing", "github.com/google/go-cmp", "pgregory.net/rapid", "go.uber.org/goleak"}, tests,
			"what only tests need stays out of the binaries",
		},
	}
}

// TestArchitecture holds the source to the rules. Each failure names its rule and what is allowed.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	read := readTree(t)
	rules := []struct {
		name  string
		check func(*testing.T, tree)
	}{
		{"imports point down", importsPointDown},
		{"outside imports are confined", outsideImportsAreConfined},
		{"machines are pure", machinesArePure},
		{"files are small", filesAreSmall},
		{"packages are described", packagesAreDescribed},
		{"tests do not sleep", testsDoNotSleep},
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			rule.check(t, read)
		})
	}
}

// importsPointDown checks R1 to R5 and R7: what each package may import of this module.
func importsPointDown(t *testing.T, tree tree) {
	for _, f := range tree.files {
		if f.test || f.dir == "." {
			continue
		}
		l, ok := layerOf(f.dir)
		if !ok {
			t.Errorf("%s: the folder %s has no place in the layers: give it one in arch_test.go and in docs/rules.md", f.path, f.dir)
			continue
		}
		for _, imported := range f.imports() {
			dir, ours := strings.CutPrefix(imported, modulePath+"/")
			if ours && !l.allows(dir) {
				t.Errorf("%s: %s lets %s import only %s of this module, not %s",
					f.path, l.rule, l.top, orNothing(l.may), dir)
			}
		}
	}
}

// outsideImportsAreConfined checks R3, R6 and R7: where an import from outside may stand.
func outsideImportsAreConfined(t *testing.T, tree tree) {
	for _, f := range tree.files {
		if f.test {
			continue
		}
		for _, imported := range f.imports() {
			for _, c := range confinements() {
				if underAny(imported, c.imports) && !underAny(f.dir, c.only) {
					t.Errorf("%s: %s allows %s only in %s: %s", f.path, c.rule, imported, orNothing(c.only), c.why)
				}
			}
			// The rest of the library brings a cluster, and with it gRPC.
			if sub, ok := strings.CutPrefix(imported, "github.com/asynkron/protoactor-go/"); ok && sub != "actor" {
				t.Errorf("%s: R3 allows only the package actor of protoactor-go, not %s", f.path, sub)
			}
		}
	}
}

// filesAreSmall keeps a file at one job. It speaks up at 500 lines and fails at 800.
func filesAreSmall(t *testing.T, tree tree) {
	const speakUp, limit = 500, 800
	for _, f := range tree.files {
		switch {
		case f.generated:
		case f.lines > limit:
			t.Errorf("%s has %d lines, the limit is %d: split it by job", f.path, f.lines, limit)
		case f.lines > speakUp:
			t.Logf("%s has %d lines, more than %d: does it do one job?", f.path, f.lines, speakUp)
		}
	}
}

// packagesAreDescribed wants the package comment of a library in its doc.go and that of a command in
// doc.go or main.go.
func packagesAreDescribed(t *testing.T, tree tree) {
	described := map[string]bool{} // folder, for each folder that has more than tests
	for _, f := range tree.files {
		if f.test {
			continue
		}
		name, where := f.syntax.Name.Name, path.Base(f.path)
		opening, places := "Package "+name+" ", []string{"doc.go"}
		if name == "main" {
			opening, places = "Command "+path.Base(f.dir)+" ", []string{"doc.go", "main.go"}
		}
		ok := slices.Contains(places, where) && strings.HasPrefix(f.syntax.Doc.Text(), opening)
		described[f.dir] = described[f.dir] || ok
	}
	for dir, ok := range described {
		if !ok {
			t.Errorf("%s has no package comment: write doc.go with what it is, what it imports and who may import it, "+
				"beginning \"Package %s …\" (a command: \"Command %s …\", in main.go or doc.go)", dir, path.Base(dir), path.Base(dir))
		}
	}
}

// testsDoNotSleep refuses a sleep in a test outside of virtual time: it is either too short on a slow
// machine or too long on every other. The tests of whole processes poll with a deadline and are excepted; files that
// import testing/synctest or testkit, whose bubbles are virtual time, may sleep there.
func testsDoNotSleep(t *testing.T, tree tree) {
	for _, f := range tree.files {
		if !f.test || under(f.dir, "e2e") || slices.Contains(f.imports(), "testing/synctest") ||
			slices.Contains(f.imports(), "github.com/swampd/swampd/testkit") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s: wait for the thing itself (a channel, a probe), or test in a synctest bubble", tree.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// TestArchitecture_DependenciesHaveAReason wants each direct dependency of go.mod on the page that says why it is there.
func TestArchitecture_DependenciesHaveAReason(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	direct := 0
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") || strings.Contains(line, "// indirect") {
			continue
		}
		direct++
		if !strings.Contains(string(page), "`"+fields[0]+"`") {
			t.Errorf("go.mod requires %s, and docs/dependencies.md does not say why", fields[0])
		}
	}
	if direct == 0 {
		t.Error("no direct dependency was read from go.mod")
	}
}

// TestArchitecture_RulesCatchWhatTheyForbid tries the rules themselves, as a rule with a slip in it passes everything.
func TestArchitecture_RulesCatchWhatTheyForbid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		from, to string
		want     bool
	}{
		{"workflow", "messages", true},
		{"messages", "workflow", false},
		{"persistence", "persistence/badgerstore", false},
		{"persistence/badgerstore", "persistence", true},
		{"persistence/memstore", "persistence/badgerstore", false},
		{"actors", "persistence", true},
		{"actors", "persistence/badgerstore", false},
		{"actors", "gateway", false},
		{"worker", "messages", true},
		{"worker", "gateway", false},
		{"worker", "actors", false},
		{"gateway", "actors", true},
		{"gateway", "worker", false},
		{"gateway", "testkit", false},
		{"cmd/swampd", "cmd/internal/cli", true},
		{"cmd/swampd", "actors", false},
		{"cmd/swampd", "cmd/internal/engine", true},
		{"cmd/swamp-worker", "cmd/internal/cli", true},
		{"cmd/swamp-worker", "cmd/internal/engine", false},
		{"cmd/internal/cli", "worker", true},
		{"cmd/internal/cli", "gateway", false},
		{"cmd/internal/cli", "cmd/internal/engine", false},
		{"cmd/internal/engine", "gateway", true},
		{"cmd/internal/engine", "persistence/badgerstore", true},
		{"cmd/internal/engine", "persistence/journaltest", false},
		{"cmd/internal/cli", "testkit", false},
		{"testkit", "persistence/journaltest", true},
		{"testkit", "cmd/internal/cli", false},
		{"e2e/bench", "testkit", true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s imports %s is %t", tt.from, tt.to, tt.want), func(t *testing.T) {
			t.Parallel()
			l, ok := layerOf(tt.from)
			if !ok {
				t.Fatalf("%s has no layer", tt.from)
			}
			if got := l.allows(tt.to); got != tt.want {
				t.Errorf("allowed: %t", got)
			}
		})
	}
}

// orNothing joins a list for a sentence.
func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
