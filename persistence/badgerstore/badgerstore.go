package badgerstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/swampd/swampd/persistence"
)

// Config says where the store is.
type Config struct {
	// Dir is the data directory. It is made, with mode 0700, if it is not there. Required.
	Dir string
	// Logger gets warnings of the journal and of Badger. Default: none.
	Logger *slog.Logger
	// Marks are the free space below which commits are refused. Default: [DefaultMarks].
	Marks Marks
	// Ballast is how many bytes a file takes up that is given up when little space is left (see [Marks]); below 0: none.
	// Default: what the ends of all that runs may need above Marks.Hard.
	Ballast int64
	// FreeSpace returns the bytes that an unprivileged process may still write below dir. Default: the file system's word.
	FreeSpace func(dir string) (uint64, error)
	// OpenLogs is how many logs of output are kept open at once. Default: 256.
	OpenLogs int
	// Now is the clock of the records. Default: time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Marks == (Marks{}) {
		c.Marks = DefaultMarks()
	}
	if c.Ballast == 0 {
		c.Ballast = int64(c.Marks.Hard) + endings
	}
	if c.FreeSpace == nil {
		c.FreeSpace = freeSpace
	}
	if c.OpenLogs == 0 {
		c.OpenLogs = 256
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("no data directory")
	case c.Marks.Hard > c.Marks.Data || c.Marks.Data > c.Marks.NewWork:
		return errors.New("the marks of free space are not in order")
	case c.OpenLogs < 1:
		return errors.New("no open logs allowed")
	}
	return nil
}

// Store is a journal in a directory.
type Store struct {
	*persistence.Store
	dir    string
	engine *engine
	lock   *lock
}

const whatToDoIfDamaged = "restore a backup, or move the directory away to start with an empty one"

// Open opens the store in the directory, and makes one where there is none. Its errors of a known kind are
// *persistence.LockedError, *persistence.NewerFormatError and *persistence.DamagedError; then the store is as it was.
// One that wraps persistence.ErrNoSpace says that there is too little free space to open it safely.
func Open(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := makeDir(config.Dir); err != nil {
		return nil, err
	}
	// Before the lock, which changes the directory: a newer store stays as it is.
	if _, err := readSentinel(config.Dir); err != nil {
		return nil, err
	}
	l, err := acquireLock(config.Dir)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(config)
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	s.lock = l
	return s, nil
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made: %w: choose another --data-dir", dir, err)
	}
	return nil
}

func openLocked(config Config) (_ *Store, err error) {
	dir := config.Dir
	known, err := readSentinel(dir)
	if err != nil {
		return nil, err
	}
	space := newSpace(config)
	defer func() {
		if err != nil {
			space.close()
		}
	}()
	if now := space.report(); now.Free < now.Hard {
		return nil, fmt.Errorf("data directory %s: %w: %d MiB free, %d MiB needed: make room", dir, persistence.ErrNoSpace, now.Free>>20, now.Hard>>20)
	}
	h, err := openHead(dir, known != nil)
	if err != nil {
		return nil, err
	}
	var db *engine
	defer func() {
		if err == nil {
			return
		}
		if db != nil {
			err = errors.Join(err, db.abandon())
		} else {
			err = errors.Join(err, h.file.Close())
		}
	}()
	if err = checkFiles(dir, known != nil, h.last); err != nil {
		return nil, err
	}
	rescued, err := rescueLogs(dir, h.last)
	if err != nil {
		return nil, err
	}
	if err = dropEmptyLogs(dir); err != nil {
		return nil, err
	}
	if err = h.begin(); err != nil {
		return nil, err
	}
	if db, err = openEngine(config, h, space); err != nil {
		return nil, err
	}
	identity, err := db.identify(dir, known, rescued)
	if err != nil {
		return nil, err
	}
	output, err := openOutputLogs(filepath.Join(dir, outputDir), config.OpenLogs, config.Logger)
	if err != nil {
		return nil, err
	}
	bodies, err := openBlobs(dir)
	if err != nil {
		return nil, err
	}
	s, err := persistence.NewStore(persistence.StoreConfig{
		Engine: db, Output: output, Blobs: bodies, StoreID: identity.StoreID, Generation: identity.Generation,
		Logger: config.Logger, Now: config.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	if known == nil {
		if err = writeSentinel(dir, identity); err != nil {
			err = errors.Join(err, s.Close())
			db = nil // closed with the store
			return nil, err
		}
	}
	if err = dropRescued(dir); err != nil {
		err = errors.Join(err, s.Close())
		db = nil
		return nil, err
	}
	return &Store{Store: s, dir: dir, engine: db}, nil
}

// Close closes the store and gives the directory free.
func (s *Store) Close() error { return errors.Join(s.Store.Close(), s.lock.release()) }

// identify compares what Badger found with what stands beside it.
func (e *engine) identify(dir string, known *sentinel, rescued string) (sentinel, error) {
	damaged := func(format string, args ...any) error {
		next := whatToDoIfDamaged
		if rescued != "" {
			next += "; the logs as they were are in " + rescued
		}
		return &persistence.DamagedError{Dir: dir, What: fmt.Sprintf(format, args...), Next: next}
	}
	meta, err := persistence.ReadMeta(e)
	var decode *persistence.DecodeError
	switch {
	case errors.As(err, &decode):
		return sentinel{}, damaged("its own description does not decode: %s", decode.What)
	case err != nil:
		return sentinel{}, err
	}
	if known == nil {
		// A process that died while it made the store leaves boots without a single commit.
		if meta.Head.Number != meta.Epoch {
			return sentinel{}, damaged("%s is missing beside a store that is in use", sentinelFile)
		}
		if meta.StoreID == "" {
			return sentinel{Format: persistence.FormatVersion, StoreID: newStoreID(), Generation: 1}, nil
		}
		return sentinel{Format: meta.Format, StoreID: meta.StoreID, Generation: meta.Generation}, nil
	}
	last := e.head.last.head
	switch {
	case meta.Format > persistence.FormatVersion:
		return sentinel{}, &persistence.NewerFormatError{Dir: dir, Found: meta.Format, Known: persistence.FormatVersion}
	case meta.StoreID == "":
		return sentinel{}, damaged("the journal is empty, and it was not")
	case meta.StoreID != known.StoreID:
		return sentinel{}, damaged("the journal is that of another store (%s, not %s)", meta.StoreID, known.StoreID)
	case meta.Generation != known.Generation:
		return sentinel{}, damaged("the journal is of generation %d, not %d", meta.Generation, known.Generation)
	case meta.Head.Number < last.Number:
		return sentinel{}, damaged("its last commits are missing: it ends with number %d, and there was %d", meta.Head.Number, last.Number)
	case meta.Head.Number == last.Number && meta.Head.Hash != last.Hash:
		return sentinel{}, damaged("commit %d is not the one that was written", last.Number)
	}
	return *known, nil
}

func newStoreID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails: the process ends instead
	return hex.EncodeToString(id[:])
}
