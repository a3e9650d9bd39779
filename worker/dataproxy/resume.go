package dataproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var errChanged = errors.New("what is read changed while it was read")

// resumable makes the body of an answer go on where it broke off, if it can be said where that is: its length and a strong
// tag are known.
func (e *exchange) resumable(resp *http.Response) {
	tag := resp.Header.Get("Etag")
	if e.req.Method != http.MethodGet || resp.ContentLength <= 0 || !strings.HasPrefix(tag, `"`) {
		return
	}
	start := int64(0)
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		first, _, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok {
			return // several ranges in one
		}
		start = first
	default:
		return
	}
	resp.Body = &resumedBody{e: e, body: resp.Body, tag: tag, next: start, end: start + resp.ContentLength}
}

// resumedBody is a body of known length. One goroutine reads it.
type resumedBody struct {
	e         *exchange
	body      io.ReadCloser // nil: it broke off
	tag       string
	next, end int64 // offsets in the artifact
}

// Read implements io.Reader. It ends with io.EOF only when all of it has come.
func (b *resumedBody) Read(p []byte) (int, error) {
	for b.next < b.end {
		if b.body == nil {
			if err := b.resume(); err != nil {
				return 0, err
			}
		}
		if left := b.end - b.next; int64(len(p)) > left {
			p = p[:left]
		}
		n, err := b.body.Read(p)
		b.next += int64(n)
		if err != nil {
			_ = b.body.Close()
			b.body = nil
		}
		if n > 0 {
			b.e.since, b.e.tries = time.Time{}, 0
			return n, nil
		}
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (b *resumedBody) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}

// resume asks for the rest.
func (b *resumedBody) resume() error {
	ask := *b.e
	ask.header = b.e.header.Clone()
	for _, name := range []string{"If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since"} {
		ask.header.Del(name)
	}
	ask.header.Set("Range", fmt.Sprintf("bytes=%d-%d", b.next, b.end-1))
	ask.header.Set("If-Match", b.tag)
	version := tagVersion(b.tag)
	if version != "" {
		ask.target = pinned(ask.target, version)
	}
	resp, err := ask.persist()
	if err == nil && resp.StatusCode == http.StatusPreconditionFailed && version != "" {
		// The tag of a version that is still open is that of the length that was read. Its beginning stays as it is.
		_ = resp.Body.Close()
		ask.header.Del("If-Match")
		resp, err = ask.persist()
	}
	b.e.since, b.e.patience, b.e.tries = ask.since, ask.patience, ask.tries
	if err != nil {
		return err
	}
	if err := b.check(resp); err != nil {
		_ = resp.Body.Close()
		return err
	}
	b.body = resp.Body
	return nil
}

// check tells whether an answer is the rest that was asked for.
func (b *resumedBody) check(resp *http.Response) error {
	tag := resp.Header.Get("Etag")
	first, last, ok := contentRange(resp.Header.Get("Content-Range"))
	switch {
	case resp.StatusCode == http.StatusPreconditionFailed || resp.StatusCode == http.StatusOK:
		return errChanged
	case resp.StatusCode != http.StatusPartialContent:
		return fmt.Errorf("go on after %d bytes: the answer is %s", b.next, resp.Status)
	case tag != b.tag && (tagVersion(tag) == "" || tagVersion(tag) != tagVersion(b.tag)):
		return errChanged
	case !ok || first != b.next || last != b.end-1:
		return errors.New("go on after a break: the answer is another part")
	}
	return nil
}

// tagVersion is the version in a tag of an artifact, "3-<digest>".
func tagVersion(tag string) string {
	version, _, ok := strings.Cut(strings.TrimPrefix(tag, `"`), "-")
	if n, err := strconv.ParseUint(version, 10, 32); !ok || err != nil || n == 0 {
		return ""
	}
	return version
}

// pinned asks for one version.
func pinned(u *url.URL, version string) *url.URL {
	to := *u
	query := to.Query()
	query.Set("version", version)
	to.RawQuery = query.Encode()
	return &to
}

// contentRange reads "bytes first-last/size".
func contentRange(text string) (first, last int64, ok bool) {
	text, ok = strings.CutPrefix(text, "bytes ")
	span, _, slash := strings.Cut(text, "/")
	a, b, dash := strings.Cut(span, "-")
	first, errFirst := strconv.ParseInt(a, 10, 64)
	last, errLast := strconv.ParseInt(b, 10, 64)
	return first, last, ok && slash && dash && errFirst == nil && errLast == nil
}
