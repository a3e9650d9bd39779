package dataproxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/swampd/swampd/messages"
)

const (
	// memoryBytes is what the body of a write may take in memory. What is larger goes to a file as it comes.
	memoryBytes = 256 << 10
	// askBytes bounds the body of a question.
	askBytes = 1 << 20
	// contentDigest is the header, or trailer, with the digest of a body (RFC 9530).
	contentDigest = "Content-Digest"
)

// body is the whole body of a request, which can be sent any number of times.
type body struct {
	memory []byte
	file   *os.File // nil: it is in memory
	own    bool     // the file is ours, and is removed
	start  int64    // in the file
	size   int64
	digest [sha256.Size]byte
}

// FileBody is the body of a write that is a file already: a Forwarder reads it as often as it takes, and does not copy it.
type FileBody struct {
	*io.SectionReader
	file        *os.File
	start, size int64
}

// NewFileBody returns what is in a file from where it stands to its present end. The file stays the caller's, and has to
// stay open until the request is answered.
func NewFileBody(file *os.File) (*FileBody, error) {
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := max(info.Size()-start, 0)
	return &FileBody{io.NewSectionReader(file, start, size), file, start, size}, nil
}

// Close implements io.Closer. It does nothing.
func (*FileBody) Close() error { return nil }

// reader returns it from its beginning.
func (b *body) reader() io.Reader {
	if b.file != nil {
		return io.NewSectionReader(b.file, b.start, b.size)
	}
	return bytes.NewReader(b.memory)
}

// free removes its file.
func (b *body) free() {
	if b.file == nil || !b.own {
		return
	}
	_ = b.file.Close()
	_ = os.Remove(b.file.Name()) // where an open file can be removed, it was
}

// contentDigest is the value of its header.
func (b *body) contentDigest() string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(b.digest[:]) + ":"
}

// spool takes the body of a write to its end. It costs no more memory than memoryBytes.
func spool(r *http.Request, dir string) (_ *body, fault *messages.Fault) {
	b := &body{}
	sum := sha256.New()
	defer func() {
		if fault != nil {
			b.free()
		}
	}()
	if r.Body == nil || r.Body == http.NoBody {
		copy(b.digest[:], sum.Sum(nil))
		return b, checkDigest(r, b)
	}
	if file, ok := r.Body.(*FileBody); ok {
		b.file, b.start, b.size = file.file, file.start, file.size
		if _, err := io.Copy(sum, b.reader()); err != nil {
			return nil, broken(err)
		}
		copy(b.digest[:], sum.Sum(nil))
		return b, checkDigest(r, b)
	}
	source := io.TeeReader(r.Body, sum)
	var head bytes.Buffer
	n, err := io.CopyN(&head, source, memoryBytes)
	b.size = n
	switch {
	case errors.Is(err, io.EOF):
		b.memory = head.Bytes()
	case err != nil:
		return nil, broken(err)
	default:
		if err := b.toFile(dir, head.Bytes(), source); err != nil {
			var from *readError
			if errors.As(err, &from) {
				return nil, broken(from.err)
			}
			return nil, spoolFault(err)
		}
	}
	copy(b.digest[:], sum.Sum(nil))
	return b, checkDigest(r, b)
}

// readError is that of the step's end, not of the file.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

type markedReader struct{ r io.Reader }

func (m markedReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

// toFile goes on in a file, which no other process finds where an open file can be removed.
func (b *body) toFile(dir string, head []byte, rest io.Reader) error {
	file, err := os.CreateTemp(dir, "body-*")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			file, err = os.CreateTemp(dir, "body-*")
		}
	}
	if err != nil {
		return err
	}
	b.file, b.own = file, true
	_ = os.Remove(file.Name()) // else free removes it
	if _, err := file.Write(head); err != nil {
		return err
	}
	// Not by io.Copy, which would hand the file to the reader's own way of copying.
	n, err := io.CopyBuffer(struct{ io.Writer }{file}, markedReader{rest}, make([]byte, 64<<10))
	b.size += n
	return err
}

func broken(err error) *messages.Fault {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return messages.Faultf(messages.CodeInvalid, "the body ended before all of it had come")
	}
	return messages.Faultf(messages.CodeInvalid, "the body cannot be read: %v", err)
}

func spoolFault(err error) *messages.Fault {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return messages.Faultf(messages.CodeNoSpace, "the worker has no space for the body")
	}
	return messages.Faultf(messages.CodeUnavailable, "the worker cannot keep the body: %v", err)
}

// checkDigest compares a body with the digest that its writer announced, before it or behind it.
func checkDigest(r *http.Request, b *body) *messages.Fault {
	for _, values := range [][]string{r.Header.Values(contentDigest), r.Trailer.Values(contentDigest)} {
		for member := range strings.SplitSeq(strings.Join(values, ","), ",") {
			algorithm, value, ok := strings.Cut(strings.TrimSpace(member), "=")
			if !ok || algorithm != "sha-256" {
				continue // whoever checks by another one does it elsewhere
			}
			value, _, _ = strings.Cut(value, ";")
			if fmt.Sprintf("sha-256=%s", value) != b.contentDigest() {
				return messages.Faultf(messages.CodeDigestMismatch, "the body that came is not the one that its Content-Digest announced")
			}
		}
	}
	return nil
}

// readQuestion takes a short body.
func readQuestion(r *http.Request) (*body, *messages.Fault) {
	if r.Body == nil {
		return &body{}, nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, askBytes+1))
	switch {
	case err != nil:
		return nil, broken(err)
	case len(data) > askBytes:
		return nil, messages.Faultf(messages.CodeFrameTooLarge, "the body of a question is at most %d bytes", askBytes)
	}
	return &body{memory: data, size: int64(len(data)), digest: sha256.Sum256(data)}, nil
}
