//go:build linux || darwin

package worker

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestShell_Outcomes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
		change func(*Task)
		want   Outcome
		output string
	}{
		{
			name:   "a script that ends with 0 succeeds",
			script: "echo hello",
			want:   Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{}},
			output: "hello\n",
		},
		{
			name:   "an exit code is named",
			script: "exit 7",
			want:   Outcome{Status: OutcomeFailed, ExitCode: 7, Code: CodeExitNonzero, Error: "exit status 7"},
		},
		{
			name:   "the script ends at its first failing line",
			script: "echo one\nfalse\necho two",
			want:   Outcome{Status: OutcomeFailed, ExitCode: 1, Code: CodeExitNonzero, Error: "exit status 1"},
			output: "one\n",
		},
		{
			name:   "a failing part of a pipeline fails it",
			script: "false | cat\necho two",
			want:   Outcome{Status: OutcomeFailed, ExitCode: 1, Code: CodeExitNonzero, Error: "exit status 1"},
		},
		{
			name:   "a signal is named",
			script: "kill -KILL $$",
			want: Outcome{
				Status: OutcomeFailed, ExitCode: 137, Signal: "KILL", Code: CodeExitNonzero, Error: "killed by signal KILL",
			},
		},
		{
			name:   "a crash is named",
			script: "ulimit -c 0; kill -SEGV $$",
			want: Outcome{
				Status: OutcomeFailed, ExitCode: 139, Signal: "SEGV", Code: CodeExitNonzero, Error: "killed by signal SEGV",
			},
		},
		{
			name:   "a TERM that the step gave itself is no cancel",
			script: "kill $$; sleep 60",
			want: Outcome{
				Status: OutcomeFailed, ExitCode: 143, Signal: "TERM", Code: CodeExitNonzero, Error: "killed by signal TERM",
			},
		},
		{
			name:   "standard input is empty",
			script: "cat; echo end",
			want:   Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{}},
			output: "end\n",
		},
		{
			name:   "an empty script succeeds",
			script: "",
			want:   Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{}},
		},
		{
			name:   "outputs are returned",
			script: "echo a=1 >>$SWAMP_OUTPUT; printf 'b<<X\\nl1\\nl2\\nX\\n' >>$SWAMP_OUTPUT",
			want:   Outcome{Status: OutcomeSucceeded, Outputs: map[string]string{"a": "1", "b": "l1\nl2"}},
		},
		{
			name:   "a line of outputs that means nothing fails the step",
			script: "echo a=1 >>$SWAMP_OUTPUT; echo nonsense >>$SWAMP_OUTPUT",
			want: Outcome{
				Status: OutcomeFailed, Code: CodeInternal,
				Error: "line 2 of $SWAMP_OUTPUT is neither name=value nor name<<WORD",
			},
		},
		{
			name:   "a failing step has no outputs",
			script: "echo a=1 >>$SWAMP_OUTPUT; exit 1",
			want:   Outcome{Status: OutcomeFailed, ExitCode: 1, Code: CodeExitNonzero, Error: "exit status 1"},
		},
		{
			name:   "a value of outputs that is too large fails the step",
			script: "(printf 'a='; head -c 65537 /dev/zero | tr '\\0' x) >>$SWAMP_OUTPUT",
			want: Outcome{
				Status: OutcomeFailed, Code: CodeOutputTooLarge, Error: "line 1 of $SWAMP_OUTPUT: the value of output 'a' holds more than 65536 bytes",
			},
		},
		{
			name:   "outputs that are too large as a whole fail the step",
			script: "head -c 2000000 /dev/zero >>$SWAMP_OUTPUT",
			want: Outcome{
				Status: OutcomeFailed, Code: CodeOutputTooLarge, Error: "$SWAMP_OUTPUT holds more than 1048576 bytes",
			},
		},
		{
			name:   "outputs that became a pipe do not hang the worker",
			script: "rm $SWAMP_OUTPUT; mkfifo $SWAMP_OUTPUT",
			want:   Outcome{Status: OutcomeFailed, Code: CodeInternal, Error: "$SWAMP_OUTPUT is no regular file any more"},
		},
		{
			name:   "outputs that were removed are no outputs",
			script: "rm $SWAMP_OUTPUT",
			want:   Outcome{Status: OutcomeSucceeded},
		},
		{
			name:   "an unknown model cannot start",
			change: func(task *Task) { task.Model = "acme/rocket" },
			want:   Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: "this worker has no model 'acme/rocket'"},
		},
		{
			name:   "an unknown method cannot start",
			change: func(task *Task) { task.Method = "fly" },
			want:   Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: "model 'command/shell' has no method 'fly'"},
		},
		{
			name:   "a missing script cannot start",
			change: func(task *Task) { task.Args = nil },
			want:   Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: "model 'command/shell' needs the argument 'run'"},
		},
		{
			name:   "a broken variable cannot start",
			change: func(task *Task) { task.Env = []string{"A=b\x00c"} },
			want:   Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart, Error: `environment variable "A" contains a NUL byte`},
		},
		{
			name:   "an environment that the kernel refuses cannot start",
			change: func(task *Task) { task.Env = []string{"A=" + strings.Repeat("x", 8<<20)} },
			want:   Outcome{Status: OutcomeCannotStart, Code: CodeCannotStart},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			task := shellTask(tt.script)
			if tt.change != nil {
				tt.change(&task)
			}
			got, out := e.run(t, task)
			ignore := cmpopts.IgnoreFields(Outcome{}, "StartedAt")
			if strings.Contains(tt.name, "kernel refuses") {
				if !strings.Contains(got.Error, "argument list too long") {
					t.Errorf("error is %q", got.Error)
				}
				got.Error = ""
			}
			if diff := cmp.Diff(tt.want, got, ignore); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if got.StartedAt.IsZero() != strings.Contains(tt.name, "cannot start") {
				t.Errorf("started at %v", got.StartedAt)
			}
			if diff := cmp.Diff(tt.output, out.text()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			left, err := filepath.Glob(filepath.Join(e.cacheDir, "scratch", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("scratch folders are left: %v %v", left, err)
			}
		})
	}
}

func TestShell_EveryByteArrives_OfAStepThatExitsAtOnce(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	const size = 2 << 20
	for range 4 {
		got, out := e.run(t, shellTask(fmt.Sprintf(
			"head -c %d /dev/zero | tr '\\0' o & head -c %d /dev/zero | tr '\\0' e >&2; wait", size, size)))
		if got.Status != OutcomeSucceeded {
			t.Fatalf("outcome: %+v", got)
		}
		if n := bytes.Count(out.of(Stdout), []byte("o")); n != size {
			t.Errorf("%d bytes of stdout", n)
		}
		if n := bytes.Count(out.of(Stderr), []byte("e")); n != size {
			t.Errorf("%d bytes of stderr", n)
		}
	}
}

func TestShell_BytesArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	file := filepath.Join(t.TempDir(), "bytes")
	data := make([]byte, 256*1000)
	for i := range data {
		data[i] = byte(i*i>>3 + i)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, out := e.run(t, shellTask("cat "+file))
	if got.Status != OutcomeSucceeded {
		t.Fatalf("outcome: %+v", got)
	}
	if sha256.Sum256(out.of(Stdout)) != sha256.Sum256(data) {
		t.Error("the bytes have changed")
	}
}

func TestShell_APartOfALineArrivesWhileTheStepRuns(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	gate := filepath.Join(t.TempDir(), "gate")
	r := e.start(t, shellTask("mkfifo "+gate+"; printf dot; cat "+gate+"; printf end"))
	receive(t, "started", r.started)
	r.out.waitFor(t, "dot")
	if err := os.WriteFile(gate, []byte("!"), 0); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t); got.Status != OutcomeSucceeded {
		t.Fatalf("outcome: %+v", got)
	}
	if got := r.out.text(); got != "dot!end" {
		t.Errorf("output %q", got)
	}
}

func TestShell_StreamsKeepTheirOrder_WhenTheStepTakesItsTime(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	// A process that ends between two lines gives the reader time; a builtin gives it none.
	_, out := e.run(t, shellTask("for i in 1 2 3 4 5 6 7 8 9; do /bin/echo o$i; sleep 0.05; /bin/echo e$i >&2; sleep 0.05; done"))
	var want strings.Builder
	for i := range 9 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i+1, i+1)
	}
	if diff := cmp.Diff(want.String(), out.text()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestShell_AScriptMayBeLargerThanAnArgument(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	var script strings.Builder
	for script.Len() < 300<<10 {
		script.WriteString(": a line that does nothing\n")
	}
	script.WriteString("echo done")
	got, out := e.run(t, shellTask(script.String()))
	if got.Status != OutcomeSucceeded || out.text() != "done\n" {
		t.Errorf("outcome %+v, output %q", got, out.text())
	}
}

func TestShell_ScratchFolder(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task := shellTask(`ls; pwd; stat -c %a . "$0" "$TMPDIR"; mktemp >/dev/null; mkdir -p a/b; touch a/b/c; chmod 500 a/b a; chmod 000 a/b`)
	got, out := e.run(t, task)
	if got.Status != OutcomeSucceeded {
		t.Fatalf("outcome %+v: %s", got, out.text())
	}
	dir := filepath.Join(e.cacheDir, "scratch", task.DispatchID)
	if diff := cmp.Diff(dir+"\n700\n700\n700\n", out.text()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v; log: %s", err, e.log)
	}
}

func TestShell_WorkerCannotStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		setup func(t *testing.T, e *testExecutor, task *Task)
		error string
	}{
		{
			name: "a cache directory that is a file",
			setup: func(t *testing.T, e *testExecutor, _ *Task) {
				e.cfg.CacheDir = filepath.Join(e.cacheDir, "file")
				if err := os.WriteFile(e.cfg.CacheDir, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			error: "lock for the keeper",
		},
		{
			name: "a scratch folder that cannot be made",
			setup: func(t *testing.T, e *testExecutor, _ *Task) {
				if err := os.WriteFile(filepath.Join(e.cacheDir, "scratch"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			error: "scratch folder: ",
		},
		{
			name:  "a dispatch id that leads out of the scratch folder",
			setup: func(_ *testing.T, _ *testExecutor, task *Task) { task.DispatchID = "../up" },
			error: `scratch folder: dispatch id "../up" is no file name`,
		},
		{
			name: "a keeper that does not exist",
			setup: func(_ *testing.T, e *testExecutor, _ *Task) {
				e.cfg.KeeperCommand = []string{"/nonexistent/keeper"}
			},
			error: "start keeper: ",
		},
		{
			name:  "a keeper that ends before it starts anything",
			setup: func(_ *testing.T, e *testExecutor, _ *Task) { e.cfg.KeeperCommand = []string{"/bin/false"} },
			error: "the keeper died before it started anything",
		},
		{
			name: "a keeper that does not speak as one",
			setup: func(_ *testing.T, e *testExecutor, _ *Task) {
				e.cfg.KeeperCommand = []string{"/bin/echo", "hello world"}
			},
			error: "the keeper died before it started anything",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newTestExecutor(t)
			task := shellTask("echo hello")
			tt.setup(t, e, &task)
			got, out := e.run(t, task)
			if got.Status != OutcomeWorkerCannotStart || got.Code != CodeWorkerCannotStart || !strings.Contains(got.Error, tt.error) {
				t.Errorf("outcome %+v", got)
			}
			if !got.StartedAt.IsZero() || out.text() != "" {
				t.Errorf("started at %v, output %q", got.StartedAt, out.text())
			}
		})
	}
}

func TestShell_WithoutBashItIsSh_AndWithoutAnyItCannotStart(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	e := newTestExecutor(t, func(c *ExecutorConfig) { c.BaseEnv = []string{"PATH=" + bin} })
	got, _ := e.run(t, shellTask("echo hello"))
	if got.Status != OutcomeCannotStart || got.Error != "no such program in "+bin+": bash, sh" {
		t.Errorf("without a shell: %+v", got)
	}
	if err := os.Symlink("/bin/sh", filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	got, out := e.run(t, shellTask("echo $0 one\nfalse\necho two"))
	if got.Error != "exit status 1" || !strings.HasSuffix(out.text(), "/.swamp-script one\n") {
		t.Errorf("with sh: %+v, %q", got, out.text())
	}
}

func TestShell_AnOutputThatFails_DoesNotHoldTheStep(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	file := filepath.Join(t.TempDir(), "file")
	r := e.startWith(t, shellTask("head -c 1000000 /dev/zero; echo done >"+file), failingOutput{})
	if got := r.end(t); got.Status != OutcomeSucceeded {
		t.Errorf("outcome %+v", got)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "done\n" {
		t.Errorf("the step did not go on: %q %v", data, err)
	}
	if !strings.Contains(e.log.String(), errSinkFull.Error()) {
		t.Errorf("the log says nothing: %q", e.log)
	}
}

type failingOutput struct{}

func (failingOutput) Write(Stream, []byte) error { return errSinkFull }

func TestShell_TimeoutSentence(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1500 * time.Millisecond: "timed out after 1.5s",
		90 * time.Second:        "timed out after 90s",
		90 * time.Minute:        "timed out after 5400s",
		100 * time.Millisecond:  "timed out after 0.1s",
	} {
		if got := timedOut(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
