package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// spoolLimit is what the output of one step may take on disk. Beyond it the step's pipe blocks.
	spoolLimit = 256 << 20
	// A spool consists of that many files when it is full: each is deleted as soon as it was read.
	spoolFiles = 32
	// spoolHeader is what a record has before its bytes: the stream, the time in Unix nanoseconds, how many bytes.
	spoolHeader = 1 + 8 + 4
	// spoolRead is how much is read at once: a record and more.
	spoolRead = 64 << 10
)

var (
	// errSpoolFull is the answer to a write that would pass the limit.
	errSpoolFull = errors.New("the spool is full")
	// errSpoolClosed is the answer of a spool that was given up.
	errSpoolClosed = errors.New("the spool is closed")
	// errSpoolTorn says that what is read is not what was written.
	errSpoolTorn = errors.New("the spool is damaged")
)

func spoolRoot(cacheDir string) string { return filepath.Join(cacheDir, "spool") }

// sweepSpools removes what an earlier process left. The machine must be locked.
func sweepSpools(cacheDir string) error {
	if err := os.RemoveAll(spoolRoot(cacheDir)); err != nil {
		return fmt.Errorf("remove old spools: %w", err)
	}
	return nil
}

// spool is a queue of output on disk, of one dispatch. It is in files that are written at the end and read from the
// beginning, and that are there only as long as something is in them. Nothing is synced: it does not outlive the
// process. One goroutine may put while another takes.
type spool struct {
	base  string // the path of its files, without their numbers
	limit int64
	each  int64 // how large a file gets

	mu     sync.Mutex
	closed bool
	files  []spoolFile // the oldest first; the last is written to
	made   int         // how many there were
	size   int64       // of all files
	unread int         // records
	read   int64       // how far the first file was taken
	ahead  []byte      // what was read of it beyond that; a part of buf
	buf    []byte
	in     []byte // the record that is being written
	out    []byte // what take has returned
}

// spoolFile is one of the files. Only the first and the last are open.
type spoolFile struct {
	path string
	file *os.File // nil: not open
	size int64
}

func newSpool(base string, limit int64) *spool {
	return &spool{base: base, limit: limit, each: max(limit/spoolFiles, 1)}
}

// put appends bytes of a stream that came at a time. On an error nothing was appended; but for errSpoolFull and
// errSpoolClosed it is about the disk, and may pass.
func (s *spool) put(stream Stream, at time.Time, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record := int64(spoolHeader + len(p))
	switch {
	case s.closed:
		return errSpoolClosed
	case s.size+record > s.limit:
		return errSpoolFull
	}
	last, err := s.toWrite()
	if err != nil {
		return err
	}
	s.in = append(s.in[:0], streamByte(stream))
	s.in = binary.BigEndian.AppendUint64(s.in, uint64(at.UnixNano()))
	s.in = binary.BigEndian.AppendUint32(s.in, uint32(len(p)))
	s.in = append(s.in, p...)
	// A part that was written before an error is written over by the next.
	if _, err := last.file.WriteAt(s.in, last.size); err != nil {
		return fmt.Errorf("write spool: %w", err)
	}
	last.size += record
	s.size += record
	s.unread++
	return nil
}

// toWrite returns the last file, or a new one where there is none or it has its size.
func (s *spool) toWrite() (*spoolFile, error) {
	if n := len(s.files); n > 0 && s.files[n-1].size < s.each {
		return &s.files[n-1], nil
	}
	path := fmt.Sprintf("%s-%d", s.base, s.made)
	f, err := createSpoolFile(path)
	if err != nil {
		return nil, fmt.Errorf("make spool: %w", err)
	}
	s.made++
	if n := len(s.files); n > 1 {
		s.files[n-1].close()
	}
	s.files = append(s.files, spoolFile{path: path, file: f})
	return &s.files[len(s.files)-1], nil
}

func createSpoolFile(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	f, err := os.OpenFile(path, flags, 0o600)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags, 0o600)
}

func (f *spoolFile) close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

// take removes and returns the next bytes, at most limit of them and all of one stream, with the time of their first.
// They are valid until the next call. io.EOF says that there are none; any other error, that what is left is lost.
func (s *spool) take(limit int) (stream Stream, at time.Time, p []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "", at, nil, errSpoolClosed
	case s.unread == 0:
		return "", at, nil, io.EOF
	}
	s.out = s.out[:0]
	for s.unread > 0 && len(s.out) < limit {
		record, err := s.record()
		if err != nil {
			return "", at, nil, err
		}
		from := streamOf(record[0])
		if len(s.out) == 0 {
			stream, at = from, time.Unix(0, int64(binary.BigEndian.Uint64(record[1:])))
		} else if from != stream {
			break
		}
		data := record[spoolHeader:]
		n := min(len(data), limit-len(s.out))
		s.out = append(s.out, data[:n]...)
		if n < len(data) {
			s.keep(record, n)
			break
		}
		s.consumed(len(record))
	}
	s.shed()
	return stream, at, s.out, nil
}

// record returns the next record.
func (s *spool) record() ([]byte, error) {
	if s.read >= s.files[0].size {
		s.drop()
	}
	header, err := s.peek(spoolHeader)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[9:])
	if n == 0 || n > chunkBytes || streamOf(header[0]) == "" {
		return nil, errSpoolTorn
	}
	return s.peek(spoolHeader + int(n))
}

// peek returns the next n bytes of the first file.
func (s *spool) peek(n int) ([]byte, error) {
	if len(s.ahead) >= n {
		return s.ahead[:n], nil
	}
	first := &s.files[0]
	if first.file == nil {
		f, err := os.Open(first.path)
		if err != nil {
			return nil, fmt.Errorf("open spool: %w", err)
		}
		first.file = f
	}
	if s.buf == nil {
		s.buf = make([]byte, spoolRead)
	}
	have := copy(s.buf, s.ahead)
	size := int(min(spoolRead, first.size-s.read))
	if size < n {
		return nil, errSpoolTorn
	}
	if _, err := first.file.ReadAt(s.buf[have:size], s.read+int64(have)); err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	s.ahead = s.buf[:size]
	return s.ahead[:n], nil
}

// keep leaves the rest of a record, of which n bytes were taken, to be the next one. In ahead, which holds all of it, the
// header is put before the rest, where there is room now.
func (s *spool) keep(record []byte, n int) {
	rest := len(record) - spoolHeader - n
	header := [spoolHeader]byte(record[:spoolHeader])
	binary.BigEndian.PutUint32(header[9:], uint32(rest))
	copy(record[n:], header[:])
	s.ahead = s.ahead[n:]
	s.read += int64(n)
}

// consumed goes on to the next record.
func (s *spool) consumed(n int) {
	s.ahead = s.ahead[n:]
	s.read += int64(n)
	s.unread--
}

// drop deletes the first file.
func (s *spool) drop() {
	first := &s.files[0]
	first.close()
	_ = os.Remove(first.path) // if it stays, the next process removes it
	s.size -= first.size
	s.files = append(s.files[:0], s.files[1:]...)
	s.read, s.ahead = 0, nil
}

// shed deletes what is read to its end.
func (s *spool) shed() {
	for len(s.files) > 0 && s.read >= s.files[0].size {
		s.drop()
	}
}

// close gives up what is there.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for len(s.files) > 0 {
		s.drop()
	}
	s.unread, s.buf, s.in, s.out = 0, nil, nil, nil
}

// relax gives memory back that only a spool in use needs, if it is none.
func (s *spool) relax() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == 0 {
		s.buf, s.in, s.out = nil, nil, nil
	}
}

func streamByte(s Stream) byte {
	if s == Stderr {
		return 2
	}
	return 1
}

// streamOf is empty where the byte names no stream.
func streamOf(b byte) Stream {
	switch b {
	case 1:
		return Stdout
	case 2:
		return Stderr
	default:
		return ""
	}
}
