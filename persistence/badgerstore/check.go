package badgerstore

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/swampd/swampd/persistence"
)

// checkPrefix begins the name of the folder that a check works in.
const checkPrefix = ".check-"

// Report is what [Check] has found.
type Report struct {
	persistence.CheckReport
	OutputLogs  int
	OutputBytes uint64
	// Torn are the logs that end in the middle of a write, which nobody was told is durable: a process that is killed leaves
	// them, and the next append cuts them off.
	Torn int
	// BodyFiles are the bodies that are files, BodyBytes what they hold. Orphans are those that no record names, and what else
	// was left unfinished: a process that is killed leaves them, and the next one removes them.
	BodyFiles int
	BodyBytes uint64
	Orphans   int
}

// NoStoreError says that there is no store in the directory.
type NoStoreError struct {
	Dir string
}

func (e *NoStoreError) Error() string {
	return fmt.Sprintf("data directory %s holds no store: name the one that swampd was started with, by --data-dir", e.Dir)
}

// Check looks at every byte of the store in a directory that no process has open, and changes nothing in it: Badger, which
// repairs what it opens, gets a copy of its logs, and links to its tables, in a folder that is removed again. Its errors
// are those of [Open], and *NoStoreError; what stands in the report is wrong with a store that can be opened.
func Check(config Config) (_ Report, err error) {
	config = config.withDefaults()
	config.Ballast = -1 // nothing in the directory changes
	if err := config.validate(); err != nil {
		return Report{}, fmt.Errorf("check the journal: %w", err)
	}
	dir := config.Dir
	known, err := readSentinel(dir)
	if err != nil {
		return Report{}, err
	}
	if known == nil {
		if _, err := os.Stat(filepath.Join(dir, journalDir)); err == nil {
			return Report{}, &persistence.DamagedError{Dir: dir, What: sentinelFile + " is missing beside a journal", Next: whatToDoIfDamaged}
		}
		return Report{}, &NoStoreError{Dir: dir}
	}
	l, err := acquireLock(dir)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	h, err := openHead(dir, true)
	if err != nil {
		return Report{}, err
	}
	last := h.last
	if err := h.file.Close(); err != nil {
		return Report{}, fmt.Errorf("close %s: %w", headFile, err)
	}
	if err := checkFiles(dir, true, last); err != nil {
		return Report{}, err
	}
	// Badger dies where there is no space for its copy.
	if now := newSpace(config).report(); now.Free < now.Hard {
		return Report{}, fmt.Errorf("data directory %s: %w: %d MiB free, %d MiB needed: make room", dir, persistence.ErrNoSpace, now.Free>>20, now.Hard>>20)
	}
	report, err := checkCopy(config, known)
	if err != nil {
		return Report{}, err
	}
	return report, errors.Join(report.checkOutput(dir, config.Logger), report.checkBodies(dir))
}

// checkCopy looks at the records, in a copy of the journal.
func checkCopy(config Config, known *sentinel) (_ Report, err error) {
	if err := sweepChecks(config.Dir); err != nil {
		return Report{}, err
	}
	temp, err := os.MkdirTemp(config.Dir, checkPrefix+"*")
	if err != nil {
		return Report{}, fmt.Errorf("make a folder to check the journal in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := copyJournal(config.Dir, temp); err != nil {
		return Report{}, fmt.Errorf("copy the journal's logs: %w", err)
	}
	if err := dropEmptyLogs(temp); err != nil {
		return Report{}, err
	}
	h, err := openHead(temp, true)
	if err != nil {
		return Report{}, err
	}
	copied := config
	copied.Dir = temp
	db, err := openEngine(copied, h, newSpace(copied))
	if err != nil {
		err = errors.Join(err, h.file.Close())
		if damaged, ok := errors.AsType[*persistence.DamagedError](err); ok {
			damaged.Dir = config.Dir
		}
		return Report{}, err
	}
	defer func() { err = errors.Join(err, db.abandon()) }()
	if _, err := db.identify(config.Dir, known, ""); err != nil {
		return Report{}, err
	}
	records, err := persistence.CheckStore(db)
	return Report{CheckReport: records}, err
}

// sweepChecks removes what checks that were killed have left.
func sweepChecks(dir string) error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(dir), checkPrefix+"*"))
	for _, folder := range left {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	if err != nil {
		return fmt.Errorf("remove the folder of an earlier check: %w", err)
	}
	return nil
}

// copyJournal makes a journal in to that shares nothing with the one in from but its tables, which never change.
func copyJournal(from, to string) error {
	if err := copyFile(filepath.Join(from, headFile), filepath.Join(to, headFile)); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(to, journalDir), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(from, journalDir))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := filepath.Join(from, journalDir, entry.Name()), filepath.Join(to, journalDir, entry.Name())
		if filepath.Ext(source) == ".sst" && os.Link(source, target) == nil {
			continue
		}
		if err := copyFile(source, target); err != nil {
			return err
		}
	}
	return nil
}

// checkOutput reads every log of output through.
func (r *Report) checkOutput(dir string, logger *slog.Logger) error {
	logs := outputLogs{dir: filepath.Join(dir, outputDir)}
	err := logs.walk(func(path, dispatch string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		read := logFile{logger: logger}
		if err := errors.Join(read.load(f), f.Close()); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		r.OutputLogs++
		r.OutputBytes += read.end
		if !read.whole {
			r.Torn++
		}
		if want := r.Acknowledged[dispatch]; read.end < want {
			r.Find("output of dispatch %q ends after %d bytes, and %d were acknowledged", dispatch, read.end, want)
		}
		delete(r.Acknowledged, dispatch)
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("check the output: %w", err)
	}
	for _, dispatch := range slices.Sorted(maps.Keys(r.Acknowledged)) {
		if want := r.Acknowledged[dispatch]; want > 0 {
			r.Find("output of dispatch %q is missing, and %d bytes were acknowledged", dispatch, want)
		}
	}
	return nil
}
