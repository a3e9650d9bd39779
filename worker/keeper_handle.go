package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// keeperHandle is the worker's end of one keeper.
type keeperHandle struct {
	cmd     *exec.Cmd
	control *os.File // frames to the keeper; its end of file tells the keeper that the worker is gone
	report  *os.File // frames from the keeper
	stderr  *headBuffer
}

// launchKeeper starts a keeper. The keeper gets no environment but what tunes its runtime, so that no descendant finds
// a credential in an ancestor's, and holds lock for as long as it lives.
func launchKeeper(command []string, dispatch string, lock *os.File) (*keeperHandle, error) {
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = controlR.Close() }()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, controlW.Close())
	}
	defer func() { _ = reportW.Close() }()
	k := &keeperHandle{control: controlW, report: reportR, stderr: &headBuffer{}}
	// The dispatch is for people who read a list of processes.
	k.cmd = exec.Command(command[0], append(append([]string{}, command[1:]...), dispatch)...)
	// One thread can hang in each pipe while others serve timers and signals.
	k.cmd.Env = []string{"GOMAXPROCS=4"}
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = controlR, reportW, k.stderr
	detachKeeper(k.cmd, lock)
	if err := k.cmd.Start(); err != nil {
		return nil, errors.Join(err, controlW.Close(), reportR.Close())
	}
	return k, nil
}

// steer sends the spec, and then what ctx and the task's Kill and Fence ask for, until done is closed or the keeper is
// gone. Closing k.control ends a write that hangs.
func (k *keeperHandle) steer(ctx context.Context, t Task, spec keeperSpec, done <-chan struct{}) {
	fences := t.Fence
	if fences == nil {
		fences = newFenceBoard().get
	}
	fence, moved := fences()
	spec.fence = fence
	kill := t.Kill
	if writeFrame(k.control, frameSpec, spec.encode()) != nil {
		return
	}
	cancelled := ctx.Done()
	for {
		var err error
		select {
		case <-done:
			return
		case <-cancelled:
			cancelled = nil
			kind := frameCancel
			if errors.Is(context.Cause(ctx), ErrKilled) {
				kind = frameKill
			}
			err = writeFrame(k.control, kind, nil)
		case <-kill:
			kill = nil
			err = writeFrame(k.control, frameKill, nil)
		case <-moved:
			fence, moved = fences()
			err = writeFrame(k.control, frameFence, fence.encode())
		}
		if err != nil {
			return
		}
	}
}

// keeperReport is what a worker learned from a keeper until it ended.
type keeperReport struct {
	starting bool // the step may have run
	pid      int  // its main process, or 0
	result   *keeperResult
	err      error // why there is no result
}

// read takes the keeper's frames until its result or its death. started is called when the step has begun. When out
// fails, the first error goes to outFailed, and what comes after is thrown away.
func (k *keeperHandle) read(started func(), out Output, outFailed func(error)) keeperReport {
	var rep keeperReport
	var buf []byte
	frames := bufio.NewReaderSize(k.report, 2*relayBytes)
	deliver := func(stream Stream, p []byte) {
		if out == nil {
			return
		}
		if err := out.Write(stream, p); err != nil {
			out = nil
			outFailed(err)
		}
	}
	for {
		var kind frameKind
		var err error
		kind, buf, err = readFrame(frames, buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it closed its pipe")
			}
			rep.err = err
			return rep
		}
		switch kind {
		case frameStarting:
			rep.starting = true
		case frameStarted:
			if rep.pid, err = decodePID(buf); err != nil {
				rep.err = err
				return rep
			}
			started()
		case frameStdout:
			deliver(Stdout, buf)
		case frameStderr:
			deliver(Stderr, buf)
		case frameResult:
			result, err := decodeResult(buf)
			if err != nil {
				rep.err = err
				return rep
			}
			rep.result = &result
			return rep
		default:
			rep.err = fmt.Errorf("unknown frame %q", kind)
			return rep
		}
	}
}

// headBuffer is a writer that keeps the first bytes that it gets: where a Go program crashed stands at the beginning.
type headBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *headBuffer) Write(p []byte) (int, error) {
	const most = 4 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p[:min(len(p), most-len(b.text))]...)
	return len(p), nil
}

func (b *headBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
