//go:build linux || darwin

package worker

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shieldKeeper catches every signal that would end the keeper. A keeper that is asked to leave, say by a service
// manager that signals all of its service, stays until its step is gone: the worker decides when that is. And signals
// that the worker was started with as ignored are back at their default in the step, where a shell could not trap them
// otherwise; the runtime does the same for the rest. The list is short because each one takes the runtime several
// switches of threads.
func shieldKeeper() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	unix.CloseOnExec(lockDescriptor)
}

// lockDescriptor is the keeper's lock, see holdKeeperLock.
const lockDescriptor = 3

// processTree is everything that a step has started: its main process, in a session of its own, and whatever
// descends from that.
type processTree struct {
	dispatch string
	pid      int // the main process, its group and its session
	reaped   bool
	signals  chan os.Signal
	start0   time.Time
}

func newProcessTree(dispatch string) (*processTree, error) {
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	t := &processTree{dispatch: dispatch, signals: make(chan os.Signal, 1), start0: time.Now()}
	signal.Notify(t.signals, unix.SIGCHLD)
	return t, nil
}

// start starts the main process. It must be called on the thread that stays locked to the keeper's main goroutine.
func (t *processTree) start(spec keeperSpec, stdout, stderr *os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	closeInheritedOnExec()
	t.pid, err = syscall.ForkExec(spec.argv[0], spec.argv, &syscall.ProcAttr{
		Dir:   spec.dir,
		Env:   spec.env,
		Files: []uintptr{null.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   stepAttributes(),
	})
	return t.pid, err
}

// changed receives when a child may have ended.
func (t *processTree) changed() <-chan os.Signal { return t.signals }

// reap waits for every child that has ended. exited is true in the one call that finds the main process among them;
// empty when nothing of the step is left.
func (t *processTree) reap() (exit exitStatus, exited, empty bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return exit, exited, t.reaped && t.nothingElsewhere()
		case pid == 0:
			return exit, exited, false
		case pid == t.pid:
			t.reaped, exited = true, true
			exit = exitStatusOf(status)
		}
	}
}

func exitStatusOf(status unix.WaitStatus) exitStatus {
	if !status.Signaled() {
		return exitStatus{code: status.ExitStatus()}
	}
	name := strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
	if name == "" {
		name = fmt.Sprint(int(status.Signal()))
	}
	return exitStatus{code: 128 + int(status.Signal()), signal: name}
}

// terminate asks the step to end: TERM to its group, and to everything that has left the group. A stopped process is
// continued so that it can answer.
func (t *processTree) terminate() {
	strays := t.descendants()
	if !t.reaped {
		// As long as it is not reaped its number cannot belong to anything else.
		_ = unix.Kill(-t.pid, unix.SIGTERM)
		_ = unix.Kill(-t.pid, unix.SIGCONT)
	}
	for _, p := range strays {
		if p.group != t.pid {
			_ = unix.Kill(p.pid, unix.SIGTERM)
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
}

// kill is one round of KILL over everything that is there now. What was forked while it ran is found by the next.
func (t *processTree) kill() {
	if !t.reaped {
		_ = unix.Kill(-t.pid, unix.SIGKILL)
	}
	killed := map[int]bool{unix.Getpgrp(): true}
	for _, p := range t.descendants() {
		_ = unix.Kill(p.pid, unix.SIGKILL)
		// A group dies as a whole, with what a member is forking at this moment.
		if !killed[p.group] && p.group > 1 {
			killed[p.group] = true
			_ = unix.Kill(-p.group, unix.SIGKILL)
		}
	}
}

func (t *processTree) now() moment {
	return moment{mono: time.Since(t.start0), boot: FenceClock()}
}

// process is one line of the kernel's table.
type process struct {
	pid, parent, group, session int

	dead bool // it has ended, and only its parent does not know
}

// descendantsOf returns what is below root in the table.
func descendantsOf(root int, table []process) []process {
	children := make(map[int][]process)
	for _, p := range table {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if !seen[p.pid] {
				seen[p.pid] = true
				found = append(found, p)
				next = append(next, p.pid)
			}
		}
	}
	return found
}

// machineFault tells whether a process could not be started for reasons of the machine rather than of the step.
func machineFault(err error) bool {
	for _, fault := range []error{
		unix.EAGAIN, unix.ENOMEM, unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.EIO, unix.EDQUOT,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}
