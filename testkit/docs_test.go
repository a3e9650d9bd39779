package testkit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/swampd/swampd/testkit"
)

// The page for users shows code that a test runs, and scenarios that hold.
func TestDocs_WhatThePageShowsIsTested(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/testkit.md")
	if err != nil {
		t.Fatal(err)
	}
	var tested strings.Builder
	for _, file := range []string{"../examples/embedding/nightly_test.go", "example_test.go", "moves_test.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tested.WriteString(squeezed(string(source)))
	}
	kinds := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		kinds[block[1]]++
		switch block[1] {
		case "go":
			if !strings.Contains(tested.String(), squeezed(block[2])) {
				t.Errorf("no test has this code of the page:\n%s", block[2])
			}
		case "scenario":
			if got := testkit.PlayScenario(t, "docs/testkit.md", block[2]); strings.TrimSpace(got) != strings.TrimSpace(block[2]) {
				t.Errorf("the scenario of the page comes out as\n%s", got)
			}
		}
	}
	if kinds["go"] < 4 || kinds["scenario"] < 1 {
		t.Errorf("the page shows %v", kinds)
	}
}

// squeezed is a text without what only lays it out.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }
