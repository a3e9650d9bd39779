package workflow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

func TestProgress_UnmetIsWhatHasNotEnded(t *testing.T) {
	t.Parallel()
	plan := &workflow.Plan{
		Jobs: []workflow.Job{{Name: "a", Steps: []int{0, 1}}, {Name: "b", Steps: []int{2}, Needs: []int{0}}},
		Steps: []workflow.Step{
			{Name: "x", Job: 0}, {Name: "y", Job: 0, Needs: []int{0}}, {Name: "z", Job: 1},
		},
	}
	g := workflow.NewProgress(plan)
	g.Begin()
	want := func(step int, needs ...workflow.Need) {
		t.Helper()
		if diff := cmp.Diff(needs, g.Unmet(step)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
	}
	onStep := workflow.Need{Step: 0, Job: 0, When: workflow.OnSucceeded}
	onJob := workflow.Need{Step: -1, Job: 0, When: workflow.OnSucceeded}
	want(0)
	want(1, onStep)
	want(2, onJob)
	g.End(0, messages.StepSucceeded)
	want(1)
	want(2, onJob)
	g.End(1, messages.StepSucceeded)
	want(2)
}
