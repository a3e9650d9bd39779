package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestStepEnv_IsExactlyWhatItIsSaidToBe(t *testing.T) {
	t.Parallel()
	path := os.Getenv("PATH")
	e := newTestExecutor(t, func(c *ExecutorConfig) {
		c.BaseEnv = []string{
			"PATH=" + path, "HOME=/home/w", "USER=w", "LANG=C.UTF-8", "LC_ALL=C", "LC_TIME=de_DE", "TZ=Asia/Tokyo",
			// None of these may reach a step.
			"TMOUT=2", "BASH_ENV=/tmp/evil", "ENV=/tmp/evil", "LD_PRELOAD=", "IFS=x", "SHELLOPTS=xtrace", "TMPDIR=/elsewhere",
			"SWAMP_WORKER_TOKEN=top.secret", "SWAMP_SERVER_TOKEN=secret", "SWAMP_ORCHESTRATOR_URL=http://x", "LOGNAME=w",
			"SSH_AUTH_SOCK=/tmp/agent", "GOMAXPROCS=7", "=C:=C:\\", "broken",
		}
	})
	// Not the environment that a shell passes on, but the one that it was given.
	task := shellTask(`cat /proc/$$/environ | tr '\0' '\n'`)
	task.Env = []string{
		"A=shipped", "B=workflow", "A=step", "EMPTY=", "WITH=a=b", "TZ=UTC", "MULTI=one\ntwo",
		"SWAMP_RUN_ID=forged", "SWAMP_OUTPUT=/dev/null", "SWAMP_WORKER_TOKEN=forged", "SWAMPED=forged",
	}
	got, out := e.run(t, task)
	if got.Status != OutcomeSucceeded {
		t.Fatalf("outcome %+v: %s", got, out.text())
	}
	scratch := filepath.Join(e.cacheDir, "scratch", task.DispatchID)
	want := []string{
		"PATH=" + path, "HOME=/home/w", "USER=w", "LANG=C.UTF-8", "LC_ALL=C", "LC_TIME=de_DE", "TZ=UTC",
		"TMPDIR=" + filepath.Join(scratch, ".swamp-tmp"),
		"A=step", "B=workflow", "EMPTY=", "WITH=a=b", "MULTI=one", "two",
		"SWAMP_RUN_ID=run-1", "SWAMP_WORKFLOW=flow", "SWAMP_JOB=job", "SWAMP_STEP=step", "SWAMP_ATTEMPT=1",
		"SWAMP_DISPATCH_ID=" + task.DispatchID, "SWAMP_STEP_KEY=key-1", "SWAMP_WORKER=w1",
		"SWAMP_OUTPUT=" + filepath.Join(scratch, ".swamp-output"),
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(out.text(), "\n"), "\n")); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestStepEnv_WhatIsNoVariableIsRefused(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "A", "=b", "A=\x00"} {
		if env, err := stepEnv(nil, Task{Env: []string{entry}}, scratch{}); err == nil {
			t.Errorf("%q became %q", entry, env)
		}
	}
}

func TestStep_FindsNoCredentialInItsKeeper(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "environ")
	w := startWorker(t, "tr '\\0' '\\n' </proc/$PPID/environ >"+file+"; echo up; cat /proc/$$/environ >>"+file+"; echo end", 0)
	w.out.waitFor(t, "outcome \"succeeded \"")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keeper, _, _ := strings.Cut(string(data), "\n")
	if keeper != "GOMAXPROCS=4" {
		t.Errorf("the keeper's environment begins with %q", keeper)
	}
	if strings.Contains(string(data), "top-secret") || strings.Contains(string(data), "SWAMP_WORKER_TOKEN") {
		t.Errorf("the token is in %q", data)
	}
}

func TestStep_HasNoDescriptorsButItsThree(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	// A library in the worker's process might open such a one: it survives an exec.
	leaked, err := unix.Dup(int(os.Stdin.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	got, out := e.run(t, shellTask(`ls -l /proc/self/fd | awk 'NR>1{print $(NF-2), $NF}'`))
	if got.Status != OutcomeSucceeded {
		t.Fatalf("outcome %+v", got)
	}
	lines := strings.Split(strings.TrimSpace(out.text()), "\n")
	slices.Sort(lines)
	// Standard output of ls is the pipe to awk; 3 is the folder that it lists.
	if len(lines) != 4 || lines[0] != "0 /dev/null" || !strings.HasPrefix(lines[2], "2 pipe:") || !strings.HasPrefix(lines[3], "3 /proc/") {
		t.Errorf("descriptors %q", lines)
	}
}

func TestStep_SignalsAreAtTheirDefault_ThoughTheWorkerIgnoresSome(t *testing.T) {
	t.Parallel()
	w := startWorker(t, `grep -E '^Sig(Blk|Ign)' /proc/self/status`, 0, ignoreVariable+"=yes")
	text := w.out.waitFor(t, "outcome \"succeeded \"")
	var blocked, ignored string
	if _, err := fmt.Sscanf(text, "SigBlk:\t%s\nSigIgn:\t%s\n", &blocked, &ignored); err != nil {
		t.Fatal(err)
	}
	if strings.Trim(blocked+ignored, "0") != "" {
		t.Errorf("blocked %s, ignored %s", blocked, ignored)
	}
}
