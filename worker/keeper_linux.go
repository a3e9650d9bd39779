package worker

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// FenceClock reads the clock of a Fence. It goes on while the machine sleeps.
func FenceClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The clock is as old as Linux 2.6.39; without it nothing here would be true.
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}

// ownProgram is the program of this process, also when its file was replaced or deleted since: the link is followed
// by the child, whose program is still its parent's at that moment.
func ownProgram() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// adoptOrphans makes this process the parent of every descendant whose own parent ends. From then on nothing below
// can get away, and "no child" means "no descendant".
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

func stepAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
}

// closeInheritedOnExec keeps descriptors from the step that the worker's process let slip into the keeper.
func closeInheritedOnExec() {
	if unix.CloseRange(lockDescriptor, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= lockDescriptor {
			unix.CloseOnExec(fd)
		}
	}
}

// nothingElsewhere tells whether nothing of the step is left when no child is.
func (t *processTree) nothingElsewhere() bool { return true }

// descendants returns everything below the keeper. It asks the kernel for the children of each process, which takes
// microseconds, so that it can win against something that forks and exits in a circle; where the kernel does not
// offer that, it reads the whole table.
func (t *processTree) descendants() []process {
	found, ok := childrenBelow(os.Getpid())
	if ok {
		return found
	}
	return descendantsOf(os.Getpid(), processTable())
}

func childrenBelow(root int) (found []process, ok bool) {
	for next := []int{root}; len(next) > 0; next = next[1:] {
		children, supported := childrenOf(next[0])
		if !supported {
			return nil, false
		}
		for _, pid := range children {
			if p, err := readProcess(pid); err == nil {
				found = append(found, p)
				next = append(next, pid)
			}
		}
	}
	return found, true
}

// childrenOf returns the children of all threads of pid. A process that is gone has none.
func childrenOf(pid int) (children []int, supported bool) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := readNumbers(tasks)
	if err != nil {
		return nil, true
	}
	for _, thread := range threads {
		data, err := os.ReadFile(fmt.Sprintf("%s/%d/children", tasks, thread))
		if err != nil {
			if _, gone := os.Stat(fmt.Sprintf("%s/%d", tasks, thread)); gone != nil {
				continue
			}
			return nil, false
		}
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, true
}

// processTable returns every process that /proc shows.
func processTable() []process {
	pids, err := readNumbers("/proc")
	if err != nil {
		return nil
	}
	table := make([]process, 0, len(pids))
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			table = append(table, p)
		}
	}
	return table
}

// readNumbers returns the names in a folder that are numbers.
func readNumbers(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

func readProcess(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name in brackets, which may hold spaces and brackets itself.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 18 {
		return process{}, fmt.Errorf("malformed /proc/%d/stat", pid)
	}
	// A zombie with threads is a process whose first thread has ended.
	p := process{pid: pid, dead: (fields[0] == "Z" || fields[0] == "X") && fields[17] <= "1"}
	for i, to := range []*int{&p.parent, &p.group, &p.session} {
		if *to, err = strconv.Atoi(fields[i+1]); err != nil {
			return process{}, fmt.Errorf("malformed /proc/%d/stat: %w", pid, err)
		}
	}
	return p, nil
}

// carriesDispatch tells whether the process was started with the environment of the dispatch.
func carriesDispatch(pid int, dispatch string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	mark := []byte("\x00" + dispatchVariable + "=" + dispatch + "\x00")
	data = append(append([]byte{0}, data...), 0)
	return bytes.Contains(data, mark)
}
