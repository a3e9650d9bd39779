package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/swampd/swampd/persistence"
)

const logSuffix = ".log"

// List implements persistence.OutputLog.
func (o *outputLogs) List() ([]string, error) {
	var dispatches []string
	err := o.walk(func(_, dispatch string) error {
		dispatches = append(dispatches, dispatch)
		return nil
	})
	slices.Sort(dispatches)
	return dispatches, err
}

// walk calls fn for each log, and passes over files that are none.
func (o *outputLogs) walk(fn func(path, dispatch string) error) error {
	folders, err := os.ReadDir(o.dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(o.dir, folder.Name()))
		if err != nil {
			return err
		}
		for _, file := range files {
			name, isLog := strings.CutSuffix(file.Name(), logSuffix)
			dispatch, ok := unescapeName(name)
			path := filepath.Join(o.dir, folder.Name(), file.Name())
			if !isLog || !ok || o.path(dispatch) != path {
				continue
			}
			if err := fn(path, dispatch); err != nil {
				return err
			}
		}
	}
	return nil
}

// unescapeName undoes escapeName. The digest of a long name cannot be undone.
func unescapeName(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(c))
		i += 2
	}
	return string(b), true
}

// Remove implements persistence.OutputLog. Whoever reads the log just now keeps its file until he has finished.
func (o *outputLogs) Remove(dispatch string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return persistence.ErrClosed
	}
	if err := os.Remove(o.path(dispatch)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove output log: %w", err)
	}
	e, known := o.byName[dispatch]
	if !known {
		return nil
	}
	l := e.Value.(*logFile)
	if l.users == 0 {
		return o.drop(e)
	}
	l.gone = true
	o.recent.Remove(e)
	delete(o.byName, dispatch)
	return nil
}

// keyFiller is written over and over to fill a memtable, and removed again.
const keyFiller = "m/filler"

// Times of a wait for Badger, which writes memtables out in the background and tells nobody.
const (
	flushLook  = 10 * time.Millisecond
	flushLimit = 10 * time.Second
)

// flushes is how often the memtable is written out at most. Tables that all stand in the first level are taken for compacted
// by Badger, until there are more of them than this.
const flushes = 6

// Compact has Badger forget what was deleted, which it does only where a removal meets what it removes in the lowest level.
// By itself Badger moves there what newer tables push down, and the last removals wait in memory for a memtable of them: a
// store that has become quiet would keep the rest for ever.
func (e *engine) Compact() error {
	if now := e.space.report(); now.Free < now.Data {
		return nil // it writes before it removes
	}
	for range flushes {
		if err := e.flush(); err != nil {
			return fmt.Errorf("write the memtable out: %w", err)
		}
		if err := e.db.Flatten(1); err != nil {
			return err
		}
		if e.db.Levels()[0].NumTables == 0 {
			break
		}
	}
	return nil
}

// flush fills the memtable up, so that Badger writes it out, and waits until that has been done.
func (e *engine) flush() error {
	filler := make([]byte, int(e.db.MaxBatchSize())/2)
	var first uint64 // the version of the first filler: what is older is in the same memtable or an older one
	for written := 0; written < memTableSize; written += len(filler) {
		if err := e.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte(keyFiller), filler) }); err != nil {
			return err
		}
		if first > 0 {
			continue
		}
		err := e.db.View(func(txn *badger.Txn) error {
			item, err := txn.Get([]byte(keyFiller))
			if err == nil {
				first = item.Version()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	// The first write into the next memtable.
	if err := e.db.Update(func(txn *badger.Txn) error { return txn.Delete([]byte(keyFiller)) }); err != nil {
		return err
	}
	look := time.NewTicker(flushLook)
	defer look.Stop()
	for end := time.Now().Add(flushLimit); e.newest() < first && time.Now().Before(end); {
		<-look.C
	}
	return nil
}

// newest is the newest version that is in a table.
func (e *engine) newest() (newest uint64) {
	for _, t := range e.db.Tables() {
		newest = max(newest, t.MaxVersion)
	}
	return newest
}
