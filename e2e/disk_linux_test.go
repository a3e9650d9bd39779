//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onSmallDisk puts the data directory of a fleet on a file system of its own with that many MiB.
func (f *fleet) onSmallDisk(mib int) {
	f.t.Helper()
	root := f.path("disk")
	if err := os.Mkdir(root, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		f.t.Skipf("no small file system can be mounted here: %v", err)
	}
	f.t.Cleanup(func() { // after the fleet's end, which is registered later
		if err := syscall.Unmount(root, 0); err != nil {
			f.t.Errorf("unmount: %v", err)
		}
	})
	f.t.Cleanup(f.end)
	f.data = f.path("disk", "data")
}

// fillDisk has somebody else leave no more than that many MiB free.
func (f *fleet) fillDisk(mib uint64) {
	f.t.Helper()
	root := f.path("disk")
	var stat syscall.Statfs_t
	if err := syscall.Statfs(root, &stat); err != nil {
		f.t.Fatal(err)
	}
	out, err := os.OpenFile(f.path("disk", "others"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	for free := stat.Bavail * uint64(stat.Bsize); free > mib<<20; {
		n, err := out.Write(piece[:min(uint64(len(piece)), free-mib<<20)])
		if free -= uint64(n); err != nil {
			if errors.Is(err, syscall.ENOSPC) && mib == 0 {
				break
			}
			f.t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// ballast is how much is kept in reserve, in MiB.
func (f *fleet) ballast() int64 {
	f.t.Helper()
	info, err := os.Stat(f.path("disk", "data", "ballast"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return info.Size() >> 20
}

// refusedForSpace wants a new run to be refused in one line, as soon as the orchestrator has looked at the disk again.
func (f *fleet) refusedForSpace(placed string) {
	f.t.Helper()
	file := f.write(flow(step("no", "true", placed)))
	eventually(f.t, 10*time.Second, "a new run is refused", func() error {
		p := f.client("workflow", "run", file, "--detach")
		if code := p.wait(30 * time.Second); code != 1 {
			return fmt.Errorf("it exits %d: %s", code, p.text())
		}
		if len(p.stderr()) != 1 || !strings.Contains(p.text(), "short of space") {
			f.t.Fatalf("it says: %s", p.text())
		}
		return nil
	})
}

// The disk fills in two steps, the second one to its last byte, while one step runs, one waits for it and one waits for a
// worker. Nothing that anybody was told is lost, what can end ends, and what waits goes on by itself when there is space.
func TestDiskFull_NothingAcknowledgedIsLostAndServiceResumes(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	f.onSmallDisk(700)
	f.start()
	f.worker("w1", "--label", "pool=a", "--concurrency", "2")
	gates := []*ledger{newLedger(f), newLedger(f)}
	const placed = `labels: {pool: a}`
	chain := f.detach(flow(step("first", gates[0].gate(), placed), step("second", "echo second", placed, "dependsOn: [first]")))
	single := f.detach(flow(step("only", gates[1].gate(), placed)))
	waits := f.detach(flow(step("never", "true", "labels: {pool: none}")))
	gates[0].started(t, "first", 1, 20*time.Second)
	gates[1].started(t, "only", 1, 20*time.Second)
	f.queueHas(1, 20*time.Second)
	eventually(t, 20*time.Second, "a reserve is kept", func() error {
		if n := f.ballast(); n < 100 {
			return fmt.Errorf("it has %d MiB", n)
		}
		return nil
	})

	f.fillDisk(300) // below the first mark
	f.refusedForSpace(placed)
	gates[0].open(t)
	f.stepIs(chain, "first", "succeeded", 20*time.Second)
	holds(t, 2*time.Second, "the second step waits for space", func() error {
		if got := f.show(chain).step("second").Status; got != "pending" && got != "" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})

	f.fillDisk(0) // to the last byte
	f.swamp("run", "cancel", waits)
	f.ends(waits, 20*time.Second, "cancelled")
	gates[1].open(t)
	f.ends(single, 20*time.Second, "succeeded")
	if n := f.ballast(); n != 0 {
		t.Errorf("on a full disk %d MiB are kept in reserve", n)
	}
	if got := f.show(chain).Status; got != "running" {
		t.Errorf("the run that waits for space is %s", got)
	}

	f.restart() // kill -9, and start on the full disk
	for id, want := range map[string]string{waits: "cancelled", single: "succeeded", chain: "running"} {
		if got := f.show(id).Status; got != want {
			t.Errorf("after a restart %s is %s, want %s", id, got, want)
		}
	}
	if got := f.show(chain).step("first").Status; got != "succeeded" {
		t.Errorf("the first step is %s, want succeeded", got)
	}
	f.refusedForSpace(placed)

	if err := os.Remove(f.path("disk", "others")); err != nil {
		t.Fatal(err)
	}
	f.ends(chain, 40*time.Second, "succeeded")
	f.ends(f.detach(flow(step("again", "true", placed))), 20*time.Second, "succeeded")
	eventually(t, 20*time.Second, "a reserve is kept again", func() error {
		if n := f.ballast(); n < 100 {
			return fmt.Errorf("it has %d MiB", n)
		}
		return nil
	})
	var books struct{ Count int }
	f.json(&books, "doctor", "books")
	if books.Count != 0 {
		t.Errorf("the books disagree at %d places", books.Count)
	}
	gates[0].check(t, map[string]int{"first": 1})
	gates[1].check(t, map[string]int{"only": 1})
}

// What is kept in reserve is there for a start, too; without it swampd says what it needs, and is not worse off for it.
func TestDiskFull_AStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	f.onSmallDisk(700)
	f.start()
	run := f.detach(flow(step("never", "true", "labels: {pool: none}")))
	eventually(t, 20*time.Second, "a reserve is kept", func() error {
		if f.ballast() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	f.crash()
	f.fillDisk(0)
	f.start()
	f.swamp("run", "cancel", run)
	f.ends(run, 20*time.Second, "cancelled")
	f.stop()

	f.fillDisk(0) // the reserve is gone now
	p := f.launchSwampd()
	p.exits(30*time.Second, 1)
	if said := strings.Join(p.stderr(), "\n"); !strings.Contains(said, "make room") {
		t.Errorf("swampd does not say what to do: %s", said)
	}
	if err := os.Remove(f.path("disk", "others")); err != nil {
		t.Fatal(err)
	}
	f.start()
	if got := f.show(run).Status; got != "cancelled" {
		t.Errorf("the run is %s, want cancelled", got)
	}
}
