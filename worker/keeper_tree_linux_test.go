package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// markVariable marks the processes of one test. It is not the mark that the product itself looks for.
const markVariable = "TEST_MARK"

func markedTask(script string) (task Task, mark string) {
	mark = "mark-" + rand.Text()
	task = shellTask(script)
	task.Env = []string{markVariable + "=" + mark}
	return task, mark
}

// marked returns the processes that have mark in their environment or their arguments, zombies excepted, which have
// neither.
func marked(t testing.TB, mark string) []string {
	t.Helper()
	pids, err := readNumbers("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(args, []byte(mark)) || bytes.Contains(env, []byte(mark)) {
			found = append(found, fmt.Sprintf("%d %q", pid, args))
		}
	}
	return found
}

func assertNothingLeft(t testing.TB, mark string) {
	t.Helper()
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestKeeper_NothingOfAStepIsLeft(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
		output string // waited for before the step is ended by a cancel; empty: it ends by itself
	}{
		{name: "a child in the background", script: "sleep 4000 & echo up"},
		{name: "a child in a session of its own", script: "setsid sleep 4000 & echo up"},
		{name: "a daemon that forked twice", script: "(setsid bash -c 'sleep 4000 & sleep 4000' &) ; echo up"},
		{name: "a child without any environment", script: "env -i sleep 4000 $TEST_MARK & echo up"},
		{name: "a child that ignores TERM", script: "(trap '' TERM HUP INT; sleep 4000; sleep 4000) & echo up"},
		{name: "a child that is stopped", script: "sleep 4000 & kill -STOP $!; echo up"},
		{
			name: "many generations",
			script: `n=${1:-0}; for i in 1 2 3; do (setsid bash -c 'sleep 4000 & setsid sleep 4000 & sleep 4000' &); done; echo up
`,
		},
		{
			name:   "on cancel too: a child in a session of its own",
			script: "setsid sleep 4000 & echo up; sleep 4000",
			output: "up",
		},
		{
			name:   "on cancel too: a daemon that forked twice and ignores TERM",
			script: "(setsid bash -c 'trap \"\" TERM; echo daemon; sleep 4000; sleep 4000' &) ; sleep 4000",
			output: "daemon",
		},
		{
			name:   "on cancel too: a stopped main process",
			script: "echo up; kill -STOP $$",
			output: "up",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			task, mark := markedTask(tt.script)
			task.KillGrace = 300 * time.Millisecond
			r := e.start(t, task)
			want := OutcomeSucceeded
			if tt.output != "" {
				r.out.waitFor(t, tt.output)
				r.stop(ErrCancelled)
				want = OutcomeCancelled
			}
			if got := r.end(t); got.Status != want {
				t.Errorf("outcome %+v", got)
			}
			assertNothingLeft(t, mark)
		})
	}
}

func TestKeeper_ChildrenThatForkWhileTheyAreKilled(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
	}{
		{"in one session", `f() { while :; do sleep 0.01 & done; }; f & f & echo up; sleep 4000`},
		{"one hop after another, each in a session of its own", `
cat >run.sh <<'END'
setsid bash "$0" &
END
bash run.sh; echo up; sleep 4000`},
		{"two hops at once, until the limit of processes stops them", `
ulimit -u 2000 || true
cat >run.sh <<'END'
exec 2>/dev/null
n=$(ls /proc | grep -c '^[0-9]')
setsid bash "$0" &
[ $n -lt 400 ] && setsid bash "$0" &
exit 0
END
bash run.sh; echo up; sleep 4000`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newTestExecutor(t)
			task, mark := markedTask(tt.script)
			task.KillGrace = -1
			r := e.start(t, task)
			r.out.waitFor(t, "up")
			r.stop(ErrCancelled)
			if got := r.end(t); got.Status != OutcomeCancelled || strings.Contains(got.Error, "could be killed") {
				t.Errorf("outcome %+v", got)
			}
			assertNothingLeft(t, mark)
		})
	}
}

func TestKeeper_AnOrphanThatHoldsThePipe_DoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	// The descriptor goes to a process that is no descendant: this one.
	dir := t.TempDir()
	task, mark := markedTask("echo $$ >" + dir + "/pid.tmp; mv " + dir + "/pid.tmp " + dir + "/pid; cat " + dir + "/gate; echo end")
	if err := unix.Mkfifo(filepath.Join(dir, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := e.start(t, task)
	var pid int
	eventually(t, "the step tells its number", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(data), &pid)
		return err == nil
	})
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(dir, "gate"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t); got.Status != OutcomeSucceeded {
		t.Errorf("outcome %+v", got)
	}
	if got := r.out.text(); got != "go\nend\n" {
		t.Errorf("output %q", got)
	}
	assertNothingLeft(t, mark)
}

func TestKeeper_AChildThatFinishesTheOutput_GetsToDoSo(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	got, out := e.run(t, shellTask("exec > >(while read -r l; do echo \"seen $l\"; done); for i in 1 2 3; do echo $i; done"))
	if got.Status != OutcomeSucceeded || out.text() != "seen 1\nseen 2\nseen 3\n" {
		t.Errorf("outcome %+v, output %q", got, out.text())
	}
}

func TestKeeper_Stops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		script  string
		timeout time.Duration
		grace   time.Duration
		stop    error // after "up"
		kill    bool  // after "term"
		want    Outcome
		output  string
	}{
		{
			name:    "a timeout runs the trap, whose output arrives",
			script:  "trap 'echo bye; exit 3' TERM; echo up; sleep 4000 & wait",
			timeout: time.Second,
			want:    Outcome{Status: OutcomeTimeout, Code: CodeTimeout, ExitCode: 3, Error: "timed out after 1s"},
			output:  "up\nbye\n",
		},
		{
			name:   "a cancel runs the trap, whose output arrives",
			script: "trap 'echo bye; exit 3' TERM; echo up; sleep 4000 & wait",
			stop:   ErrCancelled,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 3, Error: "cancelled"},
			output: "up\nbye\n",
		},
		{
			name:   "a trap that ends with 0 is a cancelled step all the same",
			script: "trap 'exit 0' TERM; echo up; sleep 4000 & wait",
			stop:   ErrCancelled,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled"},
			output: "up\n",
		},
		{
			name:   "a child in the foreground gets the grace though its shell is gone",
			grace:  5 * time.Second,
			script: "bash -c 'trap \"sleep 0.5; echo clean; exit\" TERM; echo up; sleep 4000 & wait'",
			stop:   ErrCancelled,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 143, Signal: "TERM", Error: "cancelled"},
			output: "up\nclean\n",
		},
		{
			name:   "a step that ignores TERM is killed after the grace",
			script: "trap '' TERM; echo up; sleep 4000; sleep 4000",
			grace:  200 * time.Millisecond,
			stop:   ErrCancelled,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 137, Signal: "KILL", Error: "cancelled"},
			output: "up\n",
		},
		{
			name:    "a timeout that is ignored is a timeout still",
			script:  "trap '' TERM; echo up; sleep 4000; sleep 4000",
			grace:   200 * time.Millisecond,
			timeout: 1500 * time.Millisecond,
			want:    Outcome{Status: OutcomeTimeout, Code: CodeTimeout, ExitCode: 137, Signal: "KILL", Error: "timed out after 1.5s"},
			output:  "up\n",
		},
		{
			name:   "a kill gives no grace",
			script: "trap 'echo bye' TERM; echo up; while :; do sleep 0.1; done",
			grace:  time.Hour,
			stop:   ErrKilled,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 137, Signal: "KILL", Error: "killed"},
			output: "up\n",
		},
		{
			name:   "a kill ends the grace of a cancel",
			script: "trap 'echo term' TERM; echo up; while :; do sleep 4000 & wait || true; done",
			grace:  time.Hour,
			stop:   ErrCancelled,
			kill:   true,
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 137, Signal: "KILL", Error: "cancelled"},
			output: "up\nterm\n",
		},
		{
			name:   "any other cause is a cancel",
			script: "trap 'echo bye; exit 3' TERM; echo up; sleep 4000 & wait",
			stop:   errors.New("the program ends"),
			want:   Outcome{Status: OutcomeCancelled, Code: CodeCancelled, ExitCode: 3, Error: "cancelled"},
			output: "up\nbye\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			task, mark := markedTask(tt.script)
			task.Timeout, task.KillGrace = tt.timeout, tt.grace
			kill := make(chan struct{})
			task.Kill = kill
			r := e.start(t, task)
			r.out.waitFor(t, "up")
			if tt.stop != nil {
				r.stop(tt.stop)
			}
			if tt.kill {
				r.out.waitFor(t, "term")
				close(kill)
			}
			got := r.end(t)
			got.StartedAt = time.Time{}
			if got.Status != tt.want.Status || got.Code != tt.want.Code || got.Error != tt.want.Error ||
				got.ExitCode != tt.want.ExitCode || got.Signal != tt.want.Signal {
				t.Errorf("outcome %+v, want %+v", got, tt.want)
			}
			if r.out.text() != tt.output {
				t.Errorf("output %q", r.out.text())
			}
			assertNothingLeft(t, mark)
		})
	}
}

func TestKeeper_ACancelBeforeTheStart_StartsNothing(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(ErrCancelled)
	got := e.Run(ctx, shellTask("echo up"), func() { t.Error("started") }, newRecorder())
	if got.Status != OutcomeCancelled || !got.StartedAt.IsZero() {
		t.Errorf("outcome %+v", got)
	}
}

func TestKeeper_StopsWorkWhileTheOutputBlocks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		timeout time.Duration
		stop    error
		want    string
	}{
		{"a timeout", 2 * time.Second, nil, OutcomeTimeout},
		{"a cancel", 0, ErrCancelled, OutcomeCancelled},
		{"a kill", 0, ErrKilled, OutcomeCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			task, mark := markedTask("while :; do echo yes; done")
			task.Timeout, task.KillGrace = tt.timeout, 100*time.Millisecond
			out := newDam()
			r := e.startWith(t, task, out)
			receive(t, "the first output", out.entered)
			if tt.stop != nil {
				r.stop(tt.stop)
			}
			eventually(t, "the step is dead", func() bool { return len(marked(t, mark)) == 0 })
			select {
			case got := <-r.outcome:
				t.Errorf("ended before its output was taken: %+v", got)
			default:
			}
			close(out.open)
			if got := r.end(t); got.Status != tt.want {
				t.Errorf("outcome %+v", got)
			}
		})
	}
}

func TestKeeper_BlockedOutputHoldsTheStep(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	file := filepath.Join(t.TempDir(), "file")
	out := newDam()
	r := e.startWith(t, shellTask("head -c 20000000 /dev/zero; echo done >"+file), out)
	receive(t, "the first output", out.entered)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("20 MB went into nowhere: %v", err)
	}
	close(out.open)
	if got := r.end(t); got.Status != OutcomeSucceeded {
		t.Errorf("outcome %+v", got)
	}
	if n := len(out.of(Stdout)); n != 20000000 {
		t.Errorf("%d bytes", n)
	}
}

func TestKeeper_SignalsToTheWorkersGroup_DoNotReachTheStep(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	task, _ := markedTask("trap 'echo signal' TERM INT HUP; echo up; cat " + gate + "; echo end")
	r := e.start(t, task)
	r.out.waitFor(t, "up")
	keeper, err := readProcess(keeperOf(t, task.DispatchID))
	if err != nil {
		t.Fatal(err)
	}
	if keeper.group == unix.Getpgrp() || keeper.session == os.Getpid() || keeper.session != keeper.pid {
		t.Errorf("the keeper is in the worker's group or session: %+v", keeper)
	}
	for _, p := range must(childrenBelow(keeper.pid)) {
		if p.session == keeper.session || p.group == keeper.group {
			t.Errorf("the step is in the keeper's session: %+v", p)
		}
	}
	// A service manager that signals everything must not part the keeper from its step.
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1} {
		if err := unix.Kill(keeper.pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t); got.Status != OutcomeSucceeded || r.out.text() != "up\nend\n" {
		t.Errorf("outcome %+v, output %q", got, r.out.text())
	}
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("not supported here")
	}
	return v
}
