package workflow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/messages"
)

const (
	good = messages.StepSucceeded
	bad  = messages.StepFailed
	gone = messages.StepCancelled
	skip = messages.StepSkipped
)

// planOf builds a plan from lines such as "job a: s1 s2<s1 s3<s1,s2" and "job b<a: t".
func planOf(tb testing.TB, lines ...string) *Plan {
	tb.Helper()
	var b strings.Builder
	b.WriteString("name: test\njobs:\n")
	list := func(s string) (name, needs string) {
		name, needs, _ = strings.Cut(s, "<")
		return name, "[" + needs + "]"
	}
	for _, line := range lines {
		head, steps, _ := strings.Cut(strings.TrimPrefix(line, "job "), ":")
		name, needs := list(head)
		fmt.Fprintf(&b, "- name: %s\n  dependsOn: %s\n  steps:\n", name, needs)
		for _, s := range strings.Fields(steps) {
			name, needs := list(s)
			fmt.Fprintf(&b, "  - {name: %s, dependsOn: %s, run: echo}\n", name, needs)
		}
	}
	p, err := parse("plan", []byte(b.String()), nil)
	if err != nil {
		tb.Fatalf("%v in\n%s", err, b.String())
	}
	return p
}

func TestProgress_FollowsTheSemanticsOfSucceededConditions(t *testing.T) {
	t.Parallel()
	type end struct {
		step   int
		status messages.StepStatus
		want   Change
	}
	tests := []struct {
		name  string
		plan  []string
		begin Change
		ends  []end
		jobs  []messages.StepStatus
	}{
		{
			name:  "a chain goes step by step",
			plan:  []string{"job a: x y<x z<y"},
			begin: Change{Ready: []int{0}, JobsStarted: []int{0}},
			ends: []end{
				{0, good, Change{Ready: []int{1}}},
				{1, good, Change{Ready: []int{2}}},
				{2, good, Change{JobsEnded: []JobEnd{{0, good}}, RunEnded: true, RunStatus: messages.RunSucceeded}},
			},
			jobs: []messages.StepStatus{good},
		},
		{
			name:  "a chain that is written backwards goes by its needs",
			plan:  []string{"job a: z<y y<x x"},
			begin: Change{Ready: []int{2}, JobsStarted: []int{0}},
			ends: []end{
				{2, good, Change{Ready: []int{1}}},
				{1, good, Change{Ready: []int{0}}},
			},
			jobs: []messages.StepStatus{messages.StepRunning},
		},
		{
			name:  "steps without needs start together and a join waits for all",
			plan:  []string{"job a: x y z<x,y"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0}},
			ends: []end{
				{1, good, Change{}},
				{0, good, Change{Ready: []int{2}}},
			},
			jobs: []messages.StepStatus{messages.StepRunning},
		},
		{
			name:  "a failure skips what needs it at once and siblings go on",
			plan:  []string{"job a: x y x2<x x3<x2 y2<y"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0}},
			ends: []end{
				{0, bad, Change{Skipped: []int{2, 3}}},
				{1, good, Change{Ready: []int{4}}},
				{4, good, Change{JobsEnded: []JobEnd{{0, bad}}, RunEnded: true, RunStatus: messages.RunFailed}},
			},
			jobs: []messages.StepStatus{bad},
		},
		{
			name:  "a join is skipped once, by the first need that fails",
			plan:  []string{"job a: x y z<x,y"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0}},
			ends: []end{
				{0, bad, Change{Skipped: []int{2}}},
				{1, bad, Change{JobsEnded: []JobEnd{{0, bad}}, RunEnded: true, RunStatus: messages.RunFailed}},
			},
			jobs: []messages.StepStatus{bad},
		},
		{
			name:  "jobs without needs start together and a job waits for all its needs",
			plan:  []string{"job a: x", "job b: x", "job c<a,b: x y<x"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0, 1}},
			ends: []end{
				{1, good, Change{JobsEnded: []JobEnd{{1, good}}}},
				{0, good, Change{JobsEnded: []JobEnd{{0, good}}, JobsStarted: []int{2}, Ready: []int{2}}},
			},
			jobs: []messages.StepStatus{good, good, messages.StepRunning},
		},
		{
			name:  "a job whose need failed is skipped with all its steps, and so is the next",
			plan:  []string{"job c<b: x", "job b<a: x y<x", "job a: x", "job d: x"},
			begin: Change{Ready: []int{3, 4}, JobsStarted: []int{2, 3}},
			ends: []end{
				{3, bad, Change{Skipped: []int{0, 1, 2}, JobsEnded: []JobEnd{{2, bad}, {1, skip}, {0, skip}}}},
				{4, good, Change{JobsEnded: []JobEnd{{3, good}}, RunEnded: true, RunStatus: messages.RunFailed}},
			},
			jobs: []messages.StepStatus{skip, skip, bad, good},
		},
		{
			name:  "a cancelled step skips what needs it and its job is cancelled",
			plan:  []string{"job a: x y<x", "job b<a: x"},
			begin: Change{Ready: []int{0}, JobsStarted: []int{0}},
			ends: []end{
				{0, gone, Change{
					Skipped: []int{1, 2}, JobsEnded: []JobEnd{{0, gone}, {1, skip}},
					RunEnded: true, RunStatus: messages.RunFailed,
				}},
			},
			jobs: []messages.StepStatus{gone, skip},
		},
		{
			name:  "failed wins over cancelled in a job",
			plan:  []string{"job a: x y"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0}},
			ends: []end{
				{0, gone, Change{}},
				{1, bad, Change{JobsEnded: []JobEnd{{0, bad}}, RunEnded: true, RunStatus: messages.RunFailed}},
			},
			jobs: []messages.StepStatus{bad},
		},
		{
			name:  "a step that is skipped from outside does not fail its job",
			plan:  []string{"job a: x y", "job b<a: x"},
			begin: Change{Ready: []int{0, 1}, JobsStarted: []int{0}},
			ends: []end{
				{0, skip, Change{}},
				{1, good, Change{JobsEnded: []JobEnd{{0, good}}, JobsStarted: []int{1}, Ready: []int{2}}},
			},
			jobs: []messages.StepStatus{good, messages.StepRunning},
		},
		{
			name:  "a job of which every step is skipped is skipped, and the run has not failed",
			plan:  []string{"job a: x", "job b<a: x"},
			begin: Change{Ready: []int{0}, JobsStarted: []int{0}},
			ends: []end{
				{0, skip, Change{
					Skipped: []int{1}, JobsEnded: []JobEnd{{0, skip}, {1, skip}},
					RunEnded: true, RunStatus: messages.RunSucceeded,
				}},
			},
			jobs: []messages.StepStatus{skip, skip},
		},
		{
			name:  "steps may end before their job starts, and their job then never does",
			plan:  []string{"job a: x", "job b<a: x y"},
			begin: Change{Ready: []int{0}, JobsStarted: []int{0}},
			ends: []end{
				{1, gone, Change{}},
				{2, gone, Change{JobsEnded: []JobEnd{{1, gone}}}},
				{0, good, Change{JobsEnded: []JobEnd{{0, good}}, RunEnded: true, RunStatus: messages.RunFailed}},
			},
			jobs: []messages.StepStatus{good, gone},
		},
		{
			name:  "only the first end of a step counts, and what is no end changes nothing",
			plan:  []string{"job a: x y<x z"},
			begin: Change{Ready: []int{0, 2}, JobsStarted: []int{0}},
			ends: []end{
				{0, messages.StepRunning, Change{}},
				{0, "", Change{}},
				{0, good, Change{Ready: []int{1}}},
				{0, good, Change{}},
				{0, bad, Change{}},
				{1, bad, Change{}},
				{1, good, Change{}},
				{2, good, Change{JobsEnded: []JobEnd{{0, bad}}, RunEnded: true, RunStatus: messages.RunFailed}},
				{2, bad, Change{}},
			},
			jobs: []messages.StepStatus{bad},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := planOf(t, tt.plan...)
			g := NewProgress(p)
			for i := range p.Jobs {
				if s := g.JobStatus(i); s != messages.StepPending {
					t.Errorf("job %d is %s before the run begins", i, s)
				}
			}
			if diff := cmp.Diff(tt.begin, g.Begin(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("begin (-want +got):\n%s", diff)
			}
			for i, e := range tt.ends {
				if diff := cmp.Diff(e.want, g.End(e.step, e.status), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("end %d, step %d %s (-want +got):\n%s", i, e.step, e.status, diff)
				}
			}
			for i, want := range tt.jobs {
				if got := g.JobStatus(i); got != want {
					t.Errorf("job %d is %s, not %s", i, got, want)
				}
			}
		})
	}
}

func TestProgress_APlanWithoutJobsOrStepsEndsToo(t *testing.T) {
	t.Parallel()
	want := Change{RunEnded: true, RunStatus: messages.RunSucceeded}
	if diff := cmp.Diff(want, NewProgress(&Plan{}).Begin(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("no jobs (-want +got):\n%s", diff)
	}
	p := &Plan{
		Jobs:  []Job{{Steps: []int{0}}, {Needs: []int{0}}, {Needs: []int{1}}},
		Steps: []Step{{Job: 0}},
	}
	for status, last := range map[messages.StepStatus]messages.StepStatus{good: good, bad: skip} {
		g := NewProgress(p)
		g.Begin()
		if c := g.End(0, status); !c.RunEnded || len(c.JobsEnded) != 3 || g.JobStatus(1) != last || g.JobStatus(2) != last {
			t.Errorf("empty jobs after one that %s: %+v", status, c)
		}
	}
}

func TestResumeProgress_ReportsWhatHasNoRecord(t *testing.T) {
	t.Parallel()
	forwards := []string{"job a: x y<x", "job b<a: x y<x", "job c<b: x"}
	backwards := []string{"job c<b: x", "job b<a: x", "job a: x"}
	tests := []struct {
		name  string
		plan  []string
		ended map[int]messages.StepStatus
		want  Change
		jobs  []messages.StepStatus
	}{
		{
			name: "nothing has ended",
			plan: forwards,
			want: Change{Ready: []int{0}, JobsStarted: []int{0}},
			jobs: []messages.StepStatus{messages.StepRunning, messages.StepPending, messages.StepPending},
		},
		{
			name:  "a step succeeded and what it made ready was not written",
			plan:  forwards,
			ended: map[int]messages.StepStatus{0: good},
			want:  Change{Ready: []int{1}, JobsStarted: []int{0}},
			jobs:  []messages.StepStatus{messages.StepRunning, messages.StepPending, messages.StepPending},
		},
		{
			name:  "a job is over and the next one has not begun",
			plan:  forwards,
			ended: map[int]messages.StepStatus{0: good, 1: good},
			want:  Change{Ready: []int{2}, JobsStarted: []int{0, 1}, JobsEnded: []JobEnd{{0, good}}},
			jobs:  []messages.StepStatus{good, messages.StepRunning, messages.StepPending},
		},
		{
			name:  "some of the skips that follow a failure were written",
			plan:  forwards,
			ended: map[int]messages.StepStatus{0: bad, 1: skip, 3: skip},
			want: Change{
				Skipped: []int{2, 4}, JobsStarted: []int{0}, JobsEnded: []JobEnd{{0, bad}, {1, skip}, {2, skip}},
				RunEnded: true, RunStatus: messages.RunFailed,
			},
			jobs: []messages.StepStatus{bad, skip, skip},
		},
		{
			name:  "a step was cancelled before its turn and stays cancelled when its need fails",
			plan:  forwards,
			ended: map[int]messages.StepStatus{0: bad, 1: gone},
			want: Change{
				Skipped: []int{2, 3, 4}, JobsStarted: []int{0}, JobsEnded: []JobEnd{{0, bad}, {1, skip}, {2, skip}},
				RunEnded: true, RunStatus: messages.RunFailed,
			},
			jobs: []messages.StepStatus{bad, skip, skip},
		},
		{
			name:  "everything is over",
			plan:  forwards,
			ended: map[int]messages.StepStatus{0: good, 1: good, 2: good, 3: good, 4: good},
			want: Change{
				JobsStarted: []int{0, 1, 2}, JobsEnded: []JobEnd{{0, good}, {1, good}, {2, good}},
				RunEnded: true, RunStatus: messages.RunSucceeded,
			},
			jobs: []messages.StepStatus{good, good, good},
		},
		{
			name:  "jobs that stand in the file before those that they need start before they end",
			plan:  backwards,
			ended: map[int]messages.StepStatus{0: good, 1: good, 2: good},
			want: Change{
				JobsStarted: []int{0, 1, 2}, JobsEnded: []JobEnd{{2, good}, {1, good}, {0, good}},
				RunEnded: true, RunStatus: messages.RunSucceeded,
			},
			jobs: []messages.StepStatus{good, good, good},
		},
		{
			name:  "a job that is over in the records ends after the job that it needs, which is over only now",
			plan:  backwards,
			ended: map[int]messages.StepStatus{0: skip, 2: bad},
			want: Change{
				Skipped: []int{1}, JobsStarted: []int{2}, JobsEnded: []JobEnd{{2, bad}, {1, skip}, {0, skip}},
				RunEnded: true, RunStatus: messages.RunFailed,
			},
			jobs: []messages.StepStatus{skip, skip, bad},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, got := ResumeProgress(planOf(t, tt.plan...), Past{Ended: tt.ended})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, want := range tt.jobs {
				if got := g.JobStatus(i); got != want {
					t.Errorf("job %d is %s, not %s", i, got, want)
				}
			}
		})
	}
}
