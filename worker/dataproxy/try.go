package dataproxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// wholeBytes bounds the answer to a write or a question.
const wholeBytes = 8 << 20

// try sends the request once.
func (e *exchange) try(credential string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(e.req.Context())
	w := newWatchdog(e.f.cfg.Stall, cancel)
	out := (&http.Request{
		Method: e.req.Method, URL: e.target, Header: e.header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if credential != "" {
		out.Header.Set("Authorization", "Bearer "+credential)
	}
	if e.body != nil && e.body.size > 0 {
		out.Body, out.ContentLength = io.NopCloser(watchedReader{e.body.reader(), w}), e.body.size
	}
	resp, err := e.f.cfg.Transport.RoundTrip(out)
	w.rest()
	if err != nil {
		if stalled := context.Cause(ctx); errors.Is(stalled, errStalled) {
			err = stalled
		}
		w.end()
		return nil, err
	}
	resp.Body = &watchedBody{resp.Body, w}
	return resp, nil
}

// watchdog ends a try that moves nothing. Time in which nobody waits for the other side does not count.
type watchdog struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func newWatchdog(after time.Duration, cancel context.CancelCauseFunc) *watchdog {
	return &watchdog{after, time.AfterFunc(after, func() { cancel(fmt.Errorf("%w (%v)", errStalled, after)) }), cancel}
}

func (w *watchdog) moved() { w.timer.Reset(w.after) }
func (w *watchdog) rest()  { w.timer.Stop() }

// end lets go of everything that the try holds.
func (w *watchdog) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// watchedReader is what is sent: each piece that is asked for shows that the one before went.
type watchedReader struct {
	r io.Reader
	w *watchdog
}

func (r watchedReader) Read(p []byte) (int, error) {
	r.w.moved()
	return r.r.Read(p)
}

// watchedBody is what comes.
type watchedBody struct {
	io.ReadCloser
	w *watchdog
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.w.moved()
	defer b.w.rest()
	return b.ReadCloser.Read(p)
}

func (b *watchedBody) Close() error {
	b.w.end()
	return b.ReadCloser.Close()
}

// readWhole reads an answer to its end.
func readWhole(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, wholeBytes+1))
	_ = resp.Body.Close()
	if err == nil && len(data) > wholeBytes {
		err = fmt.Errorf("the answer is longer than %d bytes", wholeBytes)
	}
	return data, err
}

// newRequestID is a request id that nobody else has.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: the process ends instead
	return hex.EncodeToString(b[:])
}
