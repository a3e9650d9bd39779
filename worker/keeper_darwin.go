package worker

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// FenceClock reads the clock of a Fence. It goes on while the machine sleeps.
func FenceClock() time.Duration {
	var ts unix.Timespec
	// On this system the monotonic clock counts sleep.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("read CLOCK_MONOTONIC: %v", err))
	}
	return time.Duration(ts.Nano())
}

func ownProgram() (string, error) { return os.Executable() }

// adoptOrphans does nothing: orphans go to launchd. They are found by their group and by the dispatch's mark in their
// environment.
func adoptOrphans() error { return nil }

func stepAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// closeInheritedOnExec keeps descriptors from the step that the worker's process let slip into the keeper.
func closeInheritedOnExec() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		var fd int
		if _, err := fmt.Sscanf(name, "%d", &fd); err == nil && fd >= lockDescriptor {
			unix.CloseOnExec(fd)
		}
	}
}

// nothingElsewhere tells whether nothing of the step is left when no child is.
func (t *processTree) nothingElsewhere() bool { return len(t.descendants()) == 0 }

// descendants returns the processes below the keeper and the orphans that still show where they come from.
func (t *processTree) descendants() []process {
	table := processTable()
	found := descendantsOf(os.Getpid(), table)
	seen := make(map[int]bool, len(found))
	for _, p := range found {
		seen[p.pid] = true
	}
	for _, p := range table {
		if !seen[p.pid] && p.pid != os.Getpid() && p.parent == 1 &&
			(p.group == t.pid || carriesDispatch(p.pid, t.dispatch)) {
			found = append(found, p)
		}
	}
	return found
}

// zombie is the state of a process that has ended and was not reaped.
const zombie = 5

func processTable() []process {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	table := make([]process, 0, len(infos))
	for _, info := range infos {
		if info.Proc.P_stat != zombie {
			table = append(table, process{
				pid:    int(info.Proc.P_pid),
				parent: int(info.Eproc.Ppid),
				group:  int(info.Eproc.Pgid),
			})
		}
	}
	return table
}

// carriesDispatch tells whether the process was started with the environment of the dispatch.
func carriesDispatch(pid int, dispatch string) bool {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return false
	}
	return bytes.Contains(data, []byte("\x00"+dispatchVariable+"="+dispatch+"\x00"))
}
