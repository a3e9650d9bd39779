package worker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestDescendants_BothWaysFindTheSame(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task, _ := markedTask("sleep 4000 & setsid bash -c 'sleep 4000 & sleep 4000' & (setsid sleep 4000 &); echo up; sleep 4000")
	r := e.start(t, task)
	r.out.waitFor(t, "up")
	keeper := keeperOf(t, task.DispatchID)
	sorted := func(found []process) []process {
		slices.SortFunc(found, func(a, b process) int { return cmp.Compare(a.pid, b.pid) })
		return found
	}
	// The tree grows until all of its shells have started what they start.
	eventually(t, "both see the whole tree", func() bool {
		fast, slow := sorted(must(childrenBelow(keeper))), sorted(descendantsOf(keeper, processTable()))
		return len(fast) >= 6 && gocmp.Equal(fast, slow, gocmp.AllowUnexported(process{}))
	})
	for _, p := range must(childrenBelow(keeper)) {
		// It has none for a moment while it becomes another program.
		eventually(t, "each has the mark of its dispatch", func() bool { return carriesDispatch(p.pid, task.DispatchID) })
		if carriesDispatch(p.pid, task.DispatchID[:len(task.DispatchID)-1]) {
			t.Errorf("%+v has the mark of another dispatch", p)
		}
	}
	if carriesDispatch(keeper, task.DispatchID) || carriesDispatch(os.Getpid(), task.DispatchID) {
		t.Error("the mark is on a process that is no part of the step")
	}
}

func TestReadProcess_OfAProgramWithAStrangeName(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task := shellTask(`cp /bin/sleep 'x) Z 1 (y'; './x) Z 1 (y' 4000 & echo "pid $!"; wait`)
	r := e.start(t, task)
	text := r.out.waitFor(t, "\n")
	var pid int
	if _, err := fmt.Sscanf(text, "pid %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs under its strange name", func() bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && strings.Contains(string(data), "x) Z 1 (y")
	})
	p, err := readProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	shell, err := readProcess(p.parent)
	if err != nil {
		t.Fatal(err)
	}
	if want := (process{pid: pid, parent: shell.pid, group: shell.pid, session: shell.pid}); p != want {
		t.Errorf("read %+v, want %+v", p, want)
	}
}

func TestMachineFault_TellsTheMachineFromTheStep(t *testing.T) {
	t.Parallel()
	for _, err := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC} {
		if !machineFault(fmt.Errorf("fork: %w", err)) {
			t.Errorf("%v is the step's", err)
		}
	}
	for _, err := range []error{syscall.ENOENT, syscall.EACCES, syscall.E2BIG, syscall.ENOEXEC, errors.New("other")} {
		if machineFault(err) {
			t.Errorf("%v is the machine's", err)
		}
	}
}

func TestOutcome_OfRareReports(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		report keeperReport
		want   Outcome
	}{
		{
			name:   "the machine could not start it",
			report: keeperReport{starting: true, result: &keeperResult{startError: "start /bin/bash: resource temporarily unavailable", workerFault: true}},
			want: Outcome{
				Status: OutcomeWorkerCannotStart, Code: CodeWorkerCannotStart, Error: "start /bin/bash: resource temporarily unavailable",
			},
		},
		{
			name:   "something could not be killed",
			report: keeperReport{starting: true, pid: 1, result: &keeperResult{reason: stopCancelled, left: true}},
			want: Outcome{
				Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled; not everything that it started could be killed",
			},
		},
		{
			name:   "something of a success could not be killed",
			report: keeperReport{starting: true, pid: 1, result: &keeperResult{left: true}},
			want:   Outcome{Status: OutcomeSucceeded},
		},
		{
			name:   "the keeper died while it started the step",
			report: keeperReport{starting: true, err: errors.New("it closed its pipe")},
			want:   Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "the keeper of the step died"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			if diff := gocmp.Diff(tt.want, e.outcome(Task{DispatchID: "d"}, tt.report)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}
