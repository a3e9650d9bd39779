package worker

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// relayPatience bounds the wait for the end of the pipes after the step is gone. Only somebody outside of the step who
// has them open can make it last.
const relayPatience = 2 * time.Second

// relay takes a step's output from two pipes to the worker in frames.
type relay struct {
	streams [2]*os.File
	done    sync.WaitGroup

	mu     sync.Mutex
	report io.Writer
	deaf   bool // the worker is gone, or the step's output is over: read on, but tell nobody
}

// newRelay returns the relay and the ends of its pipes that the step gets, which the caller closes.
func newRelay(report io.Writer) (r *relay, stdout, stderr *os.File, err error) {
	r = &relay{report: report}
	if r.streams[0], stdout, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	if r.streams[1], stderr, err = os.Pipe(); err != nil {
		return nil, nil, nil, errors.Join(err, r.streams[0].Close(), stdout.Close())
	}
	return r, stdout, stderr, nil
}

func (r *relay) start() {
	for i, kind := range [2]frameKind{frameStdout, frameStderr} {
		r.done.Go(func() { r.run(r.streams[i], kind) })
	}
}

// finish returns when everything is relayed that the step has written. Nothing of the step may be left.
func (r *relay) finish() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(relayPatience):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = true
}

func (r *relay) run(f *os.File, kind frameKind) {
	buf := make([]byte, frameHeaderBytes+relayBytes)
	for {
		n, err := f.Read(buf[frameHeaderBytes:])
		if n > 0 {
			putHeader(buf, kind, n)
			r.pass(buf[:frameHeaderBytes+n])
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) pass(frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf {
		return
	}
	_, err := r.report.Write(frame)
	r.deaf = err != nil
}
