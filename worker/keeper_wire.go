package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// A worker and a keeper talk over two pipes in frames: one byte of kind, four of length (big endian), the payload.
// Both ends are the same program, so there are no versions. Strings are bytes of any kind, since an environment is.
type frameKind byte

const (
	// From the worker. The first frame is the spec.
	frameSpec   frameKind = 'S'
	frameCancel frameKind = 'C'
	frameKill   frameKind = 'K'
	frameFence  frameKind = 'F'
	// From the keeper.
	frameStarting frameKind = 'A' // from here on the step may have run
	frameStarted  frameKind = 'B' // it runs; holds the process id
	frameStdout   frameKind = 'O'
	frameStderr   frameKind = 'E'
	frameResult   frameKind = 'R' // the last one
)

const (
	frameHeaderBytes = 5
	// maxFrameBytes bounds a frame's payload. The kernel allows less for an environment.
	maxFrameBytes = 16 << 20
	// relayBytes is the size of a piece of output.
	relayBytes = 32 << 10
)

// keeperSpec is what a keeper has to know to run one step.
type keeperSpec struct {
	dispatch string
	lock     string // path of the keepers' lock
	dir      string
	argv     []string // argv[0] is an absolute path
	env      []string
	timeout  time.Duration
	grace    time.Duration
	fence    Fence
}

// keeperResult is how a keeper's step ended.
type keeperResult struct {
	startError  string // nothing was started, and why; the rest is empty then, except workerFault
	workerFault bool   // the reason is the machine's, not the step's
	reason      stopReason
	exit        exitStatus
	left        bool // something could not be killed
}

func putHeader(buf []byte, kind frameKind, size int) {
	buf[0] = byte(kind)
	binary.BigEndian.PutUint32(buf[1:], uint32(size)) //nolint:gosec // bounded by maxFrameBytes
}

func writeFrame(w io.Writer, kind frameKind, payload []byte) error {
	if len(payload) > maxFrameBytes {
		return fmt.Errorf("frame of %d bytes is too large", len(payload))
	}
	buf := make([]byte, frameHeaderBytes+len(payload))
	putHeader(buf, kind, len(payload))
	copy(buf[frameHeaderBytes:], payload)
	_, err := w.Write(buf)
	return err
}

// readFrame reads one frame into buf, which it grows and returns as the payload. The error is io.EOF only between
// two frames.
func readFrame(r io.Reader, buf []byte) (frameKind, []byte, error) {
	var header [frameHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, buf, err
	}
	size := int(binary.BigEndian.Uint32(header[1:]))
	if size > maxFrameBytes {
		return 0, buf, fmt.Errorf("frame of %d bytes is too large", size)
	}
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, buf, fmt.Errorf("read frame: %w", err)
	}
	return frameKind(header[0]), buf, nil
}

type wireWriter []byte

func (w *wireWriter) int(v int64)  { *w = binary.AppendVarint(*w, v) }
func (w *wireWriter) str(s string) { w.int(int64(len(s))); *w = append(*w, s...) }
func (w *wireWriter) list(l []string) {
	w.int(int64(len(l)))
	for _, s := range l {
		w.str(s)
	}
}

func (w *wireWriter) bool(b bool) {
	v := int64(0)
	if b {
		v = 1
	}
	w.int(v)
}

// wireReader reads what a wireWriter wrote; after an error everything reads as zero.
type wireReader struct {
	rest []byte
	err  error
}

var errWire = errors.New("malformed frame")

func (r *wireReader) int() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// size is an int that cannot be more than the bytes that are left: each thing takes one at least.
func (r *wireReader) size() int {
	v := r.int()
	if v < 0 || v > int64(len(r.rest)) {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *wireReader) fail() { r.rest, r.err = nil, errWire }

func (r *wireReader) str() string {
	n := r.size()
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *wireReader) list() []string {
	n := r.size()
	l := make([]string, 0, n)
	for range n {
		l = append(l, r.str())
	}
	return l
}

func (r *wireReader) bool() bool { return r.int() != 0 }

func (r *wireReader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail()
	}
	return r.err
}

func (f Fence) encode() []byte {
	var w wireWriter
	w.int(int64(f.TermAt))
	w.int(int64(f.KillAt))
	return w
}

func decodeFence(p []byte) (Fence, error) {
	r := wireReader{rest: p}
	f := Fence{TermAt: time.Duration(r.int()), KillAt: time.Duration(r.int())}
	return f, r.end()
}

func (s keeperSpec) encode() []byte {
	var w wireWriter
	w.str(s.dispatch)
	w.str(s.lock)
	w.str(s.dir)
	w.list(s.argv)
	w.list(s.env)
	w.int(int64(s.timeout))
	w.int(int64(s.grace))
	w.int(int64(s.fence.TermAt))
	w.int(int64(s.fence.KillAt))
	return w
}

func decodeSpec(p []byte) (keeperSpec, error) {
	r := wireReader{rest: p}
	s := keeperSpec{dispatch: r.str(), lock: r.str(), dir: r.str(), argv: r.list(), env: r.list()}
	s.timeout, s.grace = time.Duration(r.int()), time.Duration(r.int())
	s.fence = Fence{TermAt: time.Duration(r.int()), KillAt: time.Duration(r.int())}
	if r.err == nil && len(s.argv) == 0 {
		return keeperSpec{}, errWire
	}
	return s, r.end()
}

func (k keeperResult) encode() []byte {
	var w wireWriter
	w.str(k.startError)
	w.bool(k.workerFault)
	w.str(string(k.reason))
	w.int(int64(k.exit.code))
	w.str(k.exit.signal)
	w.bool(k.left)
	return w
}

func decodeResult(p []byte) (keeperResult, error) {
	r := wireReader{rest: p}
	k := keeperResult{startError: r.str(), workerFault: r.bool(), reason: stopReason(r.str())}
	k.exit = exitStatus{code: int(r.int()), signal: r.str()}
	k.left = r.bool()
	return k, r.end()
}

func encodePID(pid int) []byte {
	var w wireWriter
	w.int(int64(pid))
	return w
}

func decodePID(p []byte) (int, error) {
	r := wireReader{rest: p}
	pid := int(r.int())
	return pid, r.end()
}
