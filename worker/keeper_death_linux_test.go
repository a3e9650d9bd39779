package worker

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workerProcess is this test's binary that plays a worker with one step.
type workerProcess struct {
	cmd    *exec.Cmd
	out    *recorder
	mark   string
	cache  string
	waited chan struct{}
}

func startWorker(t *testing.T, script string, grace time.Duration, more ...string) *workerProcess {
	t.Helper()
	w := &workerProcess{
		cmd:    exec.Command("/proc/self/exe"),
		out:    newRecorder(),
		mark:   "mark-" + rand.Text(),
		cache:  t.TempDir(),
		waited: make(chan struct{}),
	}
	// The worker's own variables do not reach the step, so that the mark travels in the script.
	script = "export " + markVariable + "=" + w.mark + "; exec bash -c \"$(cat <<'SCRIPT'\n" + script + "\nSCRIPT\n)\" " + w.mark
	w.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		roleVariable + "=worker",
		cacheVariable + "=" + w.cache,
		dispatchPlayed + "=d-" + rand.Text(),
		scriptVariable + "=" + script,
		graceVariable + "=" + grace.String(),
		"SWAMP_WORKER_TOKEN=top-secret",
	}, more...)
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.waited)
		buf := make([]byte, 4096)
		for {
			n, err := stdout.Read(buf)
			_ = w.out.Write(Stdout, buf[:n])
			if err != nil {
				_ = w.cmd.Wait()
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.waited
	})
	return w
}

func TestKeeper_AKilledWorkerTakesItsStepsWithIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
		grace  time.Duration
		left   string // what the step's trap wrote into $FILE
	}{
		{"a plain step", "echo up; sleep 4000", time.Hour, ""},
		{"a step with a trap has its grace", "trap 'echo bye >$FILE; exit' TERM; echo up; sleep 4000 & wait", time.Hour, "bye\n"},
		{"a step that ignores TERM", "trap '' TERM; echo up; sleep 4000; sleep 4000", 200 * time.Millisecond, ""},
		{"a step that floods its output", "while :; do echo up; done", time.Hour, ""},
		{"a step with children everywhere", "setsid sleep 4000 & (setsid sleep 4000 &); sleep 4000 & echo up; sleep 4000", time.Hour, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "file")
			w := startWorker(t, "FILE="+file+"\n"+tt.script, tt.grace)
			w.out.waitFor(t, "up")
			if err := w.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			// This is what a new worker process does.
			if err := WaitForKeepers(t.Context(), w.cache); err != nil {
				t.Fatal(err)
			}
			assertNothingLeft(t, w.mark)
			if data, _ := os.ReadFile(file); string(data) != tt.left {
				t.Errorf("the step left %q", data)
			}
			if left, err := os.ReadDir(filepath.Join(w.cache, "scratch")); err != nil || len(left) > 0 {
				t.Errorf("scratch folders are left: %v, %v", left, err)
			}
		})
	}
}

func TestKeeper_AStoppedWorkerLosesItsSteps_AtTheFence(t *testing.T) {
	t.Parallel()
	w := startWorker(t, "trap 'echo bye >$FILE; exit' TERM; echo up; sleep 4000 & wait", time.Minute, fenceVariable+"=2s")
	w.out.waitFor(t, "up")
	if err := w.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the step is dead", func() bool {
		// The worker itself carries the mark in its own environment.
		return len(marked(t, w.mark)) == 1
	})
	if err := w.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.out.waitFor(t, "outcome \"failed killed because the worker was out of reach for too long\"")
}

func TestKeeper_AFenceThatMovesOnKillsNothing(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	task, mark := markedTask("echo up; cat " + gate + "; echo end; sleep 4000")
	e.fence.set(Fence{TermAt: FenceClock() + time.Hour, KillAt: FenceClock() + 2*time.Hour})
	r := e.start(t, task)
	r.out.waitFor(t, "up")
	e.fence.set(Fence{})
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	r.out.waitFor(t, "end")
	e.fence.set(Fence{TermAt: FenceClock(), KillAt: FenceClock()})
	if got := r.end(t); got.Code != CodeWorkerLost || got.Signal != "KILL" {
		t.Errorf("outcome %+v", got)
	}
	assertNothingLeft(t, mark)
}

func TestKeeper_AKilledKeeperTakesItsStepWithIt(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task, mark := markedTask("setsid sleep 4000 & (setsid sleep 4000 &); env -i sleep 4000 $TEST_MARK & echo up; sleep 4000")
	r := e.start(t, task)
	r.out.waitFor(t, "up")
	keeper := keeperOf(t, task.DispatchID)
	if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t); got.Status != OutcomeFailed || got.Code != CodeInternal || got.Error != "the keeper of the step died" {
		t.Errorf("outcome %+v", got)
	}
	assertNothingLeft(t, mark)
}

func TestKeeper_WorkerAndKeeperKilledTogether(t *testing.T) {
	t.Parallel()
	w := startWorker(t, "setsid sleep 4000 & echo up; sleep 4000", time.Hour)
	w.out.waitFor(t, "up")
	keeper := keeperBelow(t, w.cmd.Process.Pid)
	if err := errors.Join(w.cmd.Process.Signal(unix.SIGSTOP), unix.Kill(keeper, unix.SIGKILL), w.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	if err := WaitForKeepers(t.Context(), w.cache); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, w.mark)
}

func keeperOf(t *testing.T, dispatch string) int {
	t.Helper()
	for _, p := range processTable() {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if p.parent == os.Getpid() && bytes.Contains(args, []byte("\x00"+KeeperArg+"\x00"+dispatch+"\x00")) {
			return p.pid
		}
	}
	t.Fatal("no keeper")
	return 0
}

func keeperBelow(t *testing.T, pid int) int {
	t.Helper()
	children, ok := childrenOf(pid)
	if !ok || len(children) != 1 {
		t.Fatalf("children of the worker: %v, %v", children, ok)
	}
	return children[0]
}
