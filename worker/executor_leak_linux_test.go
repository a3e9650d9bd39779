package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestExecutor_ManySteps_LeaveNothingBehind does not run beside other tests, since it counts what the process has.
func TestExecutor_ManySteps_LeaveNothingBehind(t *testing.T) {
	e := newTestExecutor(t)
	const atOnce = 8
	steps := 500
	if raceDetector {
		steps = 80
	}
	run := func(n int) {
		var all sync.WaitGroup
		tasks := make(chan Task)
		for range atOnce {
			all.Go(func() {
				for task := range tasks {
					want, started := OutcomeSucceeded, func() {}
					ctx, cancel := context.WithCancelCause(t.Context())
					switch {
					case strings.Contains(task.Args["run"], "exit 1"):
						want = OutcomeFailed
					case strings.Contains(task.Args["run"], "4000"):
						want, started = OutcomeCancelled, func() { cancel(ErrCancelled) }
					}
					if o := e.Run(ctx, task, started, newRecorder()); o.Status != want {
						t.Errorf("outcome %+v", o)
					}
					cancel(nil)
				}
			})
		}
		for i := range n {
			tasks <- shellTask([]string{
				"echo hello", "exit 1", "(setsid bash -c 'exit 0' &)", "sleep 0 & wait",
				"sleep 4000 & setsid sleep 4000 & sleep 4000",
			}[i%5])
		}
		close(tasks)
		all.Wait()
	}
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds), runtime.NumGoroutine()
	}
	run(2 * atOnce) // what the runtime opens once
	fds, goroutines := count()
	run(steps)
	eventually(t, "goroutines are where they were", func() bool {
		_, now := count()
		return now <= goroutines
	})
	if now, _ := count(); now > fds {
		t.Errorf("%d descriptors became %d", fds, now)
	}
	if children := must(childrenOf(os.Getpid())); len(children) > 0 {
		t.Errorf("children are left: %v", children)
	}
	if left, err := filepath.Glob(filepath.Join(e.cacheDir, "scratch", "*")); err != nil || len(left) > 0 {
		t.Errorf("scratch folders are left: %v %v", left, err)
	}
}

func TestKeeper_IsSmall(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task := shellTask("echo up; sleep 4000")
	r := e.start(t, task)
	r.out.waitFor(t, "up")
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", keeperOf(t, task.DispatchID)))
	if err != nil {
		t.Fatal(err)
	}
	var anon int
	for line := range strings.Lines(string(data)) {
		if n, err := fmt.Sscanf(line, "RssAnon: %d kB", &anon); n == 1 && err == nil {
			break
		}
	}
	// The rest of what is resident are pages of the program, which all keepers share. The race detector needs more.
	if anon == 0 || anon > 32<<10 {
		t.Errorf("a keeper has %d KiB of its own", anon)
	}
	t.Logf("a keeper has %d KiB of its own", anon)
}
