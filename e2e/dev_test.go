//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nothingLeft wants no process and no file of a command that has ended.
func nothingLeft(t *testing.T, f *fleet) {
	t.Helper()
	if left := footprint(f.dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if left, err := filepath.Glob(f.path("home", "tmp", "*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestDev_RunsTheExampleAndLeavesNothing(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	example, err := filepath.Abs("../examples/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dev := f.launch("swamp", startOptions{}, "dev", example)
	dev.exits(60*time.Second, 0)
	said := strings.Join(append(dev.stdout(), dev.stderr()...), "\n")
	for _, part := range []string{
		"waiting for a worker matching labels tier=split", "(tier=count) enrolled", "(tier=split) enrolled", "split/write: running on", "run succeeded in",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("it does not say %q: %s", part, said)
		}
	}
	nothingLeft(t, f)
	if left, err := filepath.Glob("/tmp/swamp-fleet/*"); err != nil || len(left) > 0 {
		for _, name := range left {
			if strings.Contains(said, filepath.Base(name)) {
				t.Errorf("the example leaves %s", name)
			}
		}
	}
}

func TestDev_OfAWorkflowThatFailsIs1AndKeepsItsLogs(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	dev := f.launch("swamp", startOptions{}, "dev", f.write(flow(step("one", "exit 3", "labels: {pool: a}"))))
	dev.exits(60*time.Second, 1)
	if left := footprint(f.dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	kept, err := filepath.Glob(f.path("home", "tmp", "*", "dev", "swampd.log"))
	if err != nil || len(kept) != 1 || !strings.Contains(dev.text(), "is kept") {
		t.Errorf("kept is %v, %v: %s", kept, err, dev.text())
	}
}

func TestDev_WithoutAFileItServesUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		f := idleFleet(t)
		dev := f.launch("swamp", startOptions{}, "dev", "--workers", "2")
		// The line that it prints is what a shell needs to use it.
		var env []string
		for _, word := range strings.Fields(dev.line(20*time.Second, "export ")) {
			if strings.Contains(word, "=") {
				env = append(env, word)
			}
		}
		dev.line(20*time.Second, "worker dev-1 enrolled")
		dev.line(20*time.Second, "worker dev-2 enrolled")
		run := f.launch("swamp", startOptions{env: env}, "workflow", "run", f.write(flow(step("one", "echo hello"))))
		run.exits(30*time.Second, 0)
		dev.signal(s)
		dev.exits(30*time.Second, 0)
		nothingLeft(t, f)
	}
}

func TestDev_KilledItsWorkersEndToo(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	dev := f.launch("swamp", startOptions{}, "dev", f.write(flow(step("one", "touch $HOME/begun; sleep 600", "labels: {pool: a}"))))
	eventually(t, 30*time.Second, "the step runs", func() error {
		_, err := os.Stat(f.path("home", "begun"))
		return err
	})
	dev.kill()
	eventually(t, 20*time.Second, "the workers end, and what they ran", func() error {
		if left := footprint(f.dir); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}
