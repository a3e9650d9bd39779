//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A found is a process as /proc shows it.
type found struct {
	pid, parent int
	zombie      bool
	command     string
}

func (f found) String() string {
	return fmt.Sprintf("%d (child of %d): %s", f.pid, f.parent, f.command)
}

// readFound reads one process; a process that is gone is no error.
func readFound(pid int) (found, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return found{}, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	parent, _ := strconv.Atoi(string(fields[1]))
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return found{pid, parent, string(fields[0]) == "Z" || string(fields[0]) == "X", strings.ReplaceAll(string(command), "\x00", " ")}, true
}

// allProcesses lists the processes of this machine.
func allProcesses() []found {
	var list []found
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if p, ok := readFound(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// footprint lists the living processes that belong to a folder: whose environment, arguments, working directory or open
// files name it. A process that left its parents and its session still has those.
func footprint(dir string) []found {
	return slices.DeleteFunc(allProcesses(), func(p found) bool { return p.zombie || !p.belongs(dir) })
}

func (f found) belongs(dir string) bool {
	proc := fmt.Sprintf("/proc/%d/", f.pid)
	environ, _ := os.ReadFile(proc + "environ")
	if bytes.Contains(environ, []byte(dir)) || strings.Contains(f.command, dir) {
		return true
	}
	links, _ := filepath.Glob(proc + "fd/*")
	return slices.ContainsFunc(append(links, proc+"cwd"), func(link string) bool {
		target, _ := os.Readlink(link)
		return strings.HasPrefix(target, dir)
	})
}

// below lists what descends from a process, zombies too.
func below(pid int) []found {
	all := allProcesses()
	var list []found
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range all {
			if p.parent == next[0] {
				list, next = append(list, p), append(next, p.pid)
			}
		}
	}
	return list
}

// living tells which of the processes live.
func living(pids ...int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		p, ok := readFound(pid)
		return !ok || p.zombie
	})
}

// descriptors counts what a process has open.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatalf("count descriptors: %v", err)
	}
	return len(entries)
}

// statusNumber reads a number from /proc/PID/status, such as VmRSS in KiB or Threads.
func statusNumber(t testing.TB, pid int, key string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("read the status of a process: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(line, ":"); name == key {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatalf("read %s: %v", key, err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of process %d", key, pid)
	return 0
}
