package workflow

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse_RefusesEveryFeatureThatThisVersionDoesNotRun(t *testing.T) {
	t.Parallel()
	all := ""
	for file, src := range sources(t, "valid") {
		_, err := Parse(file, src)
		all += fmt.Sprintln(err)
	}
	for _, f := range notRun() {
		if want := fmt.Sprintf("this version does not run workflows with %s yet", f); !strings.Contains(all, want) {
			t.Errorf("no valid source is refused for %s: %s", f, all)
		}
	}
}

func TestParse_RefusesAFeatureAtItsPlace(t *testing.T) {
	t.Parallel()
	src := "name: x\njobs: [{name: j, steps: [{name: a, run: echo}, {name: b, run: echo, dependsOn: [{step: a, condition: failed}]}]}]"
	if _, err := parse("f", []byte(src), nil); err != nil {
		t.Fatal(err)
	}
	_, err := parse("f", []byte(src), []feature{featureGuard, featureConditions})
	if want := "f:2:102: this version does not run workflows with conditions other than 'succeeded' yet"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
