package badgerstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// indexStep is how much of a log lies between two entries of its index: what a read from an offset has to skip at most.
const indexStep = 64 << 10

// place says where a chunk's frame begins.
type place struct {
	offset uint64
	at     int64
}

// logFile is the output log of one dispatch.
type logFile struct {
	path     string
	dispatch string
	logger   *slog.Logger

	// Of the set that it belongs to, guarded by that one's lock.
	users    int
	released bool
	gone     bool // removed: it belongs to the set no more

	write sync.Mutex // held while the file is opened or appended to

	mu    sync.Mutex // guards what follows, which describes durable frames only
	file  *os.File   // nil: not open yet
	size  int64
	end   uint64 // offset behind the last byte
	index []place
	whole bool // nothing stands behind size
}

// open opens the log and reads it through once, for its end and its index. A log that is not there is made if asked for,
// and otherwise os.ErrNotExist. The caller holds write.
func (l *logFile) open(create bool) error {
	if l.opened() {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) && create {
		if f, err = l.create(); err != nil {
			return fmt.Errorf("make output log: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("open output log: %w", err)
	}
	opened := logFile{}
	if err := opened.load(f); err != nil {
		return errors.Join(fmt.Errorf("read output log: %w", err), f.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, l.size, l.end, l.index, l.whole = f, opened.size, opened.end, opened.index, opened.whole
	return nil
}

func (l *logFile) opened() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file != nil
}

// create makes the file, and its name durable.
func (l *logFile) create() (*os.File, error) {
	dir := filepath.Dir(l.path)
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	case !errors.Is(err, os.ErrExist):
		return nil, err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// load reads frames up to the first that is not whole.
func (l *logFile) load(f *os.File) error {
	frames := newFrameReader(f)
	for {
		chunk, size, err := frames.next()
		switch {
		case errors.Is(err, io.EOF):
			l.whole = true
			return nil
		case errors.Is(err, errTorn), err == nil && chunk.Offset < l.end:
			return nil
		case err != nil:
			return err
		}
		l.add(chunk.Offset, len(chunk.Data), size)
	}
}

// add describes a frame at the end of the log.
func (l *logFile) add(offset uint64, data int, size int64) {
	if n := len(l.index); n == 0 || l.size-l.index[n-1].at >= indexStep {
		l.index = append(l.index, place{offset: offset, at: l.size})
	}
	l.size += size
	l.end = offset + uint64(data)
}

// append implements persistence.OutputLog.Append.
func (l *logFile) append(chunks []persistence.Chunk, bound uint64) (grew bool, err error) {
	l.write.Lock()
	defer l.write.Unlock()
	if err := l.open(true); err != nil {
		if isDiskFull(err) {
			return false, fmt.Errorf("%w: %w", persistence.ErrNoSpace, err)
		}
		return false, err
	}
	if !l.whole {
		if err := l.cut(); err != nil {
			return false, err
		}
	}
	frames, buf := cutToFrames(chunks, l.end)
	if len(frames) == 0 {
		return false, nil
	}
	if last := frames[len(frames)-1]; last.offset+uint64(last.data) > bound {
		return false, fmt.Errorf("%w: output beyond %d bytes", persistence.ErrNoSpace, bound)
	}
	if _, err := l.file.WriteAt(buf, l.size); err != nil {
		if !isDiskFull(err) {
			return false, fmt.Errorf("write output log: %w", err)
		}
		// What was written of it must not be taken for output later.
		if terr := l.file.Truncate(l.size); terr != nil {
			return false, fmt.Errorf("write output log: %w", errors.Join(err, terr))
		}
		return false, fmt.Errorf("%w: %w", persistence.ErrNoSpace, err)
	}
	if err := l.file.Sync(); err != nil {
		return false, fmt.Errorf("sync output log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range frames {
		l.add(f.offset, f.data, f.size)
	}
	return true, nil
}

// cut removes what stands behind the last whole frame: its writer died before anybody was told that it is durable.
func (l *logFile) cut() error {
	info, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("cut output log: %w", err)
	}
	l.logger.Warn("torn end of an output log cut off", messages.KeyDispatch, l.dispatch, messages.KeyCount, info.Size()-l.size)
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("cut output log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("cut output log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = true
	return nil
}

// framed is a frame that is about to be written.
type framed struct {
	offset uint64
	data   int
	size   int64
}

// cutToFrames encodes what lies above end.
func cutToFrames(chunks []persistence.Chunk, end uint64) (frames []framed, buf []byte) {
	for _, chunk := range chunks {
		chunk, ok := persistence.CutChunk(chunk, end)
		for ok {
			piece := chunk
			piece.Data = chunk.Data[:min(len(chunk.Data), frameData)]
			before := len(buf)
			buf = appendFrame(buf, piece)
			frames = append(frames, framed{offset: piece.Offset, data: len(piece.Data), size: int64(len(buf) - before)})
			end = piece.Offset + uint64(len(piece.Data))
			chunk, ok = persistence.CutChunk(chunk, end)
		}
	}
	return frames, buf
}

// read implements persistence.OutputLog.Read.
func (l *logFile) read(from uint64, limit int) ([]persistence.Chunk, error) {
	if !l.opened() {
		l.write.Lock()
		err := l.open(false)
		l.write.Unlock()
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	file, size, end, index := l.file, l.size, l.end, l.index
	l.mu.Unlock()
	if from >= end {
		return nil, nil
	}
	at := int64(0)
	if i := sort.Search(len(index), func(i int) bool { return index[i].offset > from }); i > 0 {
		at = index[i-1].at
	}
	frames := newFrameReader(io.NewSectionReader(file, at, size-at))
	var chunks []persistence.Chunk
	for got := 0; got < limit; {
		chunk, _, err := frames.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("output log of %q at byte %d: %w", l.dispatch, at, err)
		}
		if chunk, ok := persistence.CutChunk(chunk, from); ok {
			chunk.Data = bytes.Clone(chunk.Data)
			chunks = append(chunks, chunk)
			got += len(chunk.Data)
		}
	}
	return chunks, nil
}

// close closes the file; the next use opens it again.
func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file, l.index = nil, nil
	return err
}
