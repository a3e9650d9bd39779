package testkit_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/swampd/swampd/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios print anew")

func TestScenarios(t *testing.T) {
	t.Parallel()
	testkit.Scenarios(t, "testdata/*.txt", *rewrite)
}

// What a scenario prints does not depend on the scheduler.
func TestScenarios_ComeOutTheSameEachTime(t *testing.T) {
	t.Parallel()
	const source = `
worker w1 slots=3
submit r1
  name: n
  jobs: [{name: main, steps: [{name: a, run: w}, {name: b, run: w}, {name: c, run: w}]}]
submit r2
  name: n
  jobs: [{name: main, steps: [{name: a, run: w}, {name: b, run: w}, {name: c, run: w}]}]
worker w2 slots=3
do w1 succeed a
do w2 succeed b
trace
story r1
story r2
`
	first := testkit.PlayScenario(t, "same", source)
	if strings.Count(first, "\n") < 60 {
		t.Errorf("it prints too little:\n%s", first)
	}
	for range 20 {
		if again := testkit.PlayScenario(t, "same", source); again != first {
			t.Fatalf("first\n%s\nand then\n%s", first, again)
		}
	}
}
