package messages_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// constants are the values of all constants of a type (or, for "", of all untyped ones) in a file of this package, so
// that a list of them in the code cannot miss one.
func constants(t *testing.T, file, typeName string) []string {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, d := range syntax.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, s := range gen.Specs {
			spec := s.(*ast.ValueSpec)
			name := ""
			if id, ok := spec.Type.(*ast.Ident); ok {
				name = id.Name
			}
			if name != typeName {
				continue
			}
			for _, v := range spec.Values {
				value, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %q", file, typeName)
	}
	return values
}

// words turns a list of words of any type into sorted strings.
func words[S ~string](lists ...[]S) []string {
	var all []string
	for _, list := range lists {
		for _, w := range list {
			all = append(all, string(w))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestLists_HoldEveryConstantOfTheirType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, typeName string
		listed         []string
	}{
		{"codes.go", "Code", words(messages.AllRequestCodes(), messages.AllStepCodes())},
		{"states.go", "RunStatus", words(messages.AllRunStatuses())},
		{"states.go", "StepStatus", words(messages.AllStepStatuses())},
		{"states.go", "PendingState", words(messages.AllPendingStates())},
		{"states.go", "LeaseState", words(messages.AllLeaseStates())},
		{"states.go", "TokenState", words(messages.AllTokenStates())},
		{"states.go", "WorkerIntent", words(messages.AllWorkerIntents())},
		{"states.go", "WorkerHealth", words(messages.AllWorkerHealths())},
		{"verbs.go", "Verb", words(messages.AllVerbs())},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(words(constants(t, tt.file, tt.typeName)), tt.listed); diff != "" {
			t.Errorf("constants of type %s in %s (-declared +listed):\n%s", tt.typeName, tt.file, diff)
		}
	}
}
