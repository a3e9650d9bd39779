package badgerstore

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/swampd/swampd/persistence"
)

// outputLogs is the set of output logs, of which it keeps those open that were used last.
type outputLogs struct {
	dir    string
	keep   int
	logger *slog.Logger

	mu     sync.Mutex
	byName map[string]*list.Element
	recent *list.List // of *logFile, the last used in front
	closed bool
}

var _ persistence.OutputLog = (*outputLogs)(nil)

func openOutputLogs(dir string, keep int, logger *slog.Logger) (*outputLogs, error) {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	case !errors.Is(err, os.ErrExist):
		return nil, fmt.Errorf("make the folder of output logs: %w", err)
	}
	return &outputLogs{dir: dir, keep: keep, logger: logger, byName: map[string]*list.Element{}, recent: list.New()}, nil
}

// Append implements persistence.OutputLog.
func (o *outputLogs) Append(dispatch string, chunks []persistence.Chunk, bound uint64) (bool, error) {
	l, err := o.acquire(dispatch)
	if err != nil {
		return false, err
	}
	grew, err := l.append(chunks, bound)
	return grew, errors.Join(err, o.giveBack(l))
}

// Read implements persistence.OutputLog.
func (o *outputLogs) Read(dispatch string, from uint64, limit int) ([]persistence.Chunk, error) {
	l, err := o.acquire(dispatch)
	if err != nil {
		return nil, err
	}
	chunks, err := l.read(from, limit)
	return chunks, errors.Join(err, o.giveBack(l))
}

// Release implements persistence.OutputLog.
func (o *outputLogs) Release(dispatch string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.byName[dispatch]
	if !ok {
		return nil
	}
	l := e.Value.(*logFile)
	if l.users > 0 {
		l.released = true // the last user closes it
		return nil
	}
	return o.drop(e)
}

// Close implements persistence.OutputLog.
func (o *outputLogs) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var err error
	for e := o.recent.Front(); e != nil; e = o.recent.Front() {
		err = errors.Join(err, o.drop(e))
	}
	return err
}

// acquire returns the log of a dispatch, which stays until it is given back.
func (o *outputLogs) acquire(dispatch string) (*logFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, persistence.ErrClosed
	}
	e, ok := o.byName[dispatch]
	if ok {
		o.recent.MoveToFront(e)
	} else {
		e = o.recent.PushFront(&logFile{path: o.path(dispatch), dispatch: dispatch, logger: o.logger})
		o.byName[dispatch] = e
	}
	l := e.Value.(*logFile)
	l.users++
	l.released = false
	return l, nil
}

// giveBack ends a use. It closes what was released meanwhile, what was only asked for and is not there, and the logs that
// were not used for longest.
func (o *outputLogs) giveBack(l *logFile) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.users--
	var err error
	switch {
	case l.users > 0:
	case l.gone:
		err = l.close()
	case l.released || !l.opened():
		err = o.drop(o.byName[l.dispatch])
	}
	for e := o.recent.Back(); e != nil && o.recent.Len() > o.keep; {
		before := e.Prev()
		if e.Value.(*logFile).users == 0 {
			err = errors.Join(err, o.drop(e))
		}
		e = before
	}
	return err
}

func (o *outputLogs) drop(e *list.Element) error {
	l := o.recent.Remove(e).(*logFile)
	delete(o.byName, l.dispatch)
	if err := l.close(); err != nil {
		return fmt.Errorf("close output log: %w", err)
	}
	return nil
}

// path is <2 hex>/<name>.log. The name is the dispatch with all but plain characters percent-encoded, or a digest of it
// where that would be too long for a file name.
func (o *outputLogs) path(dispatch string) string {
	sum := sha256.Sum256([]byte(dispatch))
	name := escapeName(dispatch)
	if len(name) > 200 {
		name = "sha256%" + hex.EncodeToString(sum[:]) // no escaped name looks like this
	}
	return filepath.Join(o.dir, hex.EncodeToString(sum[:1]), name+logSuffix)
}

func escapeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '_', c == '.':
			b.WriteByte(c)
		default: // capitals too: some file systems do not tell them from small letters
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
