//go:build linux || darwin

package worker

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// drainBytes bounds what is read from a pipe after its step is gone. A pipe holds no more than this, unless somebody
// outside of the step has it open and goes on writing.
const drainBytes = 1 << 20

// relay takes a step's output from two pipes to the worker in frames. One goroutine reads both, woken by the kernel
// for whichever has something, so that the streams keep their order as long as the reader keeps up.
type relay struct {
	report  io.Writer
	streams [2]*os.File
	wake    [2]*os.File // closing the second one says that the step is gone
	done    chan struct{}
	buf     []byte
	deaf    bool // the worker is gone: read on, so that the step is not stuck in a write
}

// newRelay returns the relay and the ends of its pipes that the step gets, which the caller closes.
func newRelay(report io.Writer) (r *relay, stdout, stderr *os.File, err error) {
	r = &relay{report: report, done: make(chan struct{}), buf: make([]byte, frameHeaderBytes+relayBytes)}
	var ends [3][2]*os.File
	for i := range ends {
		if ends[i][0], ends[i][1], err = rawPipe(); err != nil {
			return nil, nil, nil, err
		}
	}
	r.streams = [2]*os.File{ends[0][0], ends[1][0]}
	r.wake = ends[2]
	return r, ends[0][1], ends[1][1], nil
}

// rawPipe returns a pipe that the runtime does not poll. Only the reading end does not block.
func rawPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	r, w = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, os.NewSyscallError("set pipe nonblocking", err)
	}
	return r, w, nil
}

func (r *relay) start() { go r.run() }

// finish returns when everything is relayed that the step has written. Nothing of the step may be left.
func (r *relay) finish() {
	_ = r.wake[1].Close()
	<-r.done
}

func (r *relay) run() {
	defer close(r.done)
	kinds := [2]frameKind{frameStdout, frameStderr}
	fds := make([]unix.PollFd, 3)
	for i, f := range [3]*os.File{r.streams[0], r.streams[1], r.wake[0]} {
		fds[i] = unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLIN} //nolint:gosec // a descriptor
	}
	for fds[0].Fd >= 0 || fds[1].Fd >= 0 {
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		last := fds[2].Revents != 0
		for i, kind := range kinds {
			if fds[i].Fd < 0 || (fds[i].Revents == 0 && !last) {
				continue
			}
			n, end := r.pass(int(fds[i].Fd), kind)
			for total := n; last && !end && n > 0 && total < drainBytes; total += n {
				n, end = r.pass(int(fds[i].Fd), kind)
			}
			if end || last {
				fds[i].Fd = -1
			}
		}
	}
}

// pass relays one piece; end is true when there will never be more.
func (r *relay) pass(fd int, kind frameKind) (n int, end bool) {
	n, err := unix.Read(fd, r.buf[frameHeaderBytes:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, r.buf[frameHeaderBytes:])
	}
	if errors.Is(err, unix.EAGAIN) {
		return 0, false
	}
	if err != nil || n == 0 {
		return 0, true
	}
	if !r.deaf {
		putHeader(r.buf, kind, n)
		_, err := r.report.Write(r.buf[:frameHeaderBytes+n])
		r.deaf = err != nil
	}
	return n, false
}
