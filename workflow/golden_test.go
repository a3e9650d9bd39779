package workflow

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of this package anew")

// golden compares got with a file, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// sources reads the YAML files of a folder.
func sources(tb testing.TB, folder string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no sources in %s: %v", folder, err)
	}
	all := make(map[string][]byte, len(files))
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		all[file] = src
	}
	return all
}

func TestParse_ValidSourcesBecomeThePlansOfTheirGoldenFiles(t *testing.T) {
	t.Parallel()
	for file, src := range sources(t, "valid") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p, err := parse(filepath.Base(file), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetIndent("", "  ")
			enc.SetEscapeHTML(false)
			if err := enc.Encode(p); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", b.String())
		})
	}
}

func TestParse_InvalidSourcesGetTheDiagnosesOfTheirGoldenFiles(t *testing.T) {
	t.Parallel()
	for file, src := range sources(t, "invalid") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p, err := parse(filepath.Base(file), src, nil)
			var found Diagnoses
			if !errors.As(err, &found) || p != nil {
				t.Fatalf("want no plan and diagnoses, got %v and %v", p, err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", found.Detail())
		})
	}
}
