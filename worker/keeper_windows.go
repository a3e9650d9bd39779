package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// FenceClock reads the clock of a Fence. It goes on while the machine sleeps.
func FenceClock() time.Duration { return windows.DurationSinceBoot() }

func ownProgram() (string, error) { return os.Executable() }

func shieldKeeper() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) }

// processTree is everything that a step has started. The keeper itself is in the job object: what it starts is born
// there, and when the keeper dies the last handle is closed and the kernel ends all of it.
type processTree struct {
	job    windows.Handle
	pid    int
	start0 time.Time

	ended   chan exitStatus // how the main process ended
	signals chan struct{}   // receives after ended has it
	reaped  bool
}

func newProcessTree(string) (*processTree, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return nil, fmt.Errorf("limit job object: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return nil, fmt.Errorf("enter job object: %w", err)
	}
	return &processTree{job: job, start0: time.Now(), ended: make(chan exitStatus, 1), signals: make(chan struct{}, 1)}, nil
}

func (t *processTree) start(spec keeperSpec, stdout, stderr *os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	p, err := os.StartProcess(spec.argv[0], spec.argv, &os.ProcAttr{
		Dir:   spec.dir,
		Env:   spec.env,
		Files: []*os.File{null, stdout, stderr},
		Sys:   &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		return 0, err
	}
	t.pid = p.Pid
	go func() {
		state, err := p.Wait()
		exit := exitStatus{code: 1}
		if err == nil {
			exit.code = state.ExitCode()
		}
		t.ended <- exit
		t.signals <- struct{}{}
	}()
	return t.pid, nil
}

// changed receives when the main process has ended; of others the system tells nothing.
func (t *processTree) changed() <-chan struct{} { return t.signals }

func (t *processTree) reap() (exit exitStatus, exited, empty bool) {
	if !t.reaped {
		select {
		case exit = <-t.ended:
			t.reaped, exited = true, true
		default:
			return exit, false, false
		}
	}
	pids, err := t.members()
	return exit, exited, err == nil && len(pids) == 0
}

// terminate sends a break to the step's group. Without a console there is no such thing, and the grace passes unused.
func (t *processTree) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(t.pid))
}

// kill is one round over everything that is in the job now. The state machine repeats it until nothing is left.
func (t *processTree) kill() {
	pids, err := t.members()
	if err != nil {
		fmt.Fprintln(os.Stderr, "keeper: list job object:", err)
		return
	}
	for _, pid := range pids {
		if err := t.killMember(pid); err != nil {
			fmt.Fprintf(os.Stderr, "keeper: end process %d: %v\n", pid, err)
		}
	}
}

func (t *processTree) killMember(pid uint32) error {
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil // it is gone
	}
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	// The number may belong to another process by now.
	var inside int32
	isInJob := windows.NewLazySystemDLL("kernel32.dll").NewProc("IsProcessInJob")
	if ok, _, err := isInJob.Call(uintptr(h), uintptr(t.job), uintptr(unsafe.Pointer(&inside))); ok == 0 {
		return err
	}
	if inside == 0 {
		return nil
	}
	return windows.TerminateProcess(h, 128+9)
}

// members returns the processes in the job, without the keeper.
func (t *processTree) members() ([]uint32, error) {
	type processIDList struct {
		assigned, listed uint32
		ids              [1]uintptr
	}
	const header = unsafe.Offsetof(processIDList{}.ids)
	for n := 64; ; n *= 2 {
		buf := make([]uintptr, int(header/unsafe.Sizeof(uintptr(0)))+n)
		size := uint32(len(buf)) * uint32(unsafe.Sizeof(uintptr(0)))
		err := windows.QueryInformationJobObject(t.job, windows.JobObjectBasicProcessIdList,
			uintptr(unsafe.Pointer(&buf[0])), size, nil)
		if errors.Is(err, windows.ERROR_MORE_DATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list := (*processIDList)(unsafe.Pointer(&buf[0]))
		var pids []uint32
		for _, id := range unsafe.Slice(&list.ids[0], list.listed) {
			if pid := uint32(id); pid != windows.GetCurrentProcessId() {
				pids = append(pids, pid)
			}
		}
		return pids, nil
	}
}

func (t *processTree) now() moment {
	return moment{mono: time.Since(t.start0), boot: FenceClock()}
}

// machineFault tells whether a process could not be started for reasons of the machine rather than of the step.
func machineFault(err error) bool {
	for _, fault := range []error{
		windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY, windows.ERROR_NO_SYSTEM_RESOURCES,
		windows.ERROR_COMMITMENT_LIMIT, windows.ERROR_DISK_FULL, windows.ERROR_TOO_MANY_OPEN_FILES,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// killStrays has nothing to do: with the keeper the job object went, and with that the step.
func killStrays(context.Context, string, int) error { return nil }
