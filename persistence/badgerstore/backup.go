package badgerstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/swampd/swampd/persistence"
)

const (
	// restoreSuffix names the folder beside the data directory in which a store is restored, and restoreMark the file that
	// says that it is one.
	restoreSuffix = ".restoring"
	restoreMark   = "restoring"
)

// RestoreConfig says what is to be restored, and where.
type RestoreConfig struct {
	// From is the backup, which is read twice. Required.
	From io.ReadSeeker
	// Dir is the data directory. It is made; where there is one already it has to be empty. Required.
	Dir string
	// Logger gets warnings of Badger. Default: none.
	Logger *slog.Logger
	// Marks and FreeSpace are as in [Config].
	Marks     Marks
	FreeSpace func(dir string) (uint64, error)
}

// NotEmptyError says that there is something in the directory that a store was to be restored into.
type NotEmptyError struct {
	Dir string
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("data directory %s is not empty: restore into a new one, and move it into place", e.Dir)
}

// Restore makes a store in the directory from a backup. The backup is read to its end and checked before anything is
// written; the store is made in a folder beside the directory, which takes its name when it is whole and durable. So the
// directory has a whole store or none, also after a crash; what a crash leaves beside it is removed by the next Restore.
// Errors of a known kind are *persistence.BackupError, *NotEmptyError, *persistence.LockedError where another process
// restores into the same directory, and those that wrap persistence.ErrNoSpace.
func Restore(config RestoreConfig) (_ persistence.BackupInfo, err error) {
	if config.From == nil || config.Dir == "" {
		return persistence.BackupInfo{}, errors.New("restore: no backup or no directory")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return persistence.BackupInfo{}, fmt.Errorf("restore: %w", err)
	}
	info, err := persistence.ReadBackup(config.From, nil)
	if err != nil {
		return persistence.BackupInfo{}, err
	}
	if _, err := config.From.Seek(0, io.SeekStart); err != nil {
		return persistence.BackupInfo{}, fmt.Errorf("read the backup again: %w", err)
	}
	if err := isFree(dir); err != nil {
		return persistence.BackupInfo{}, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return persistence.BackupInfo{}, fmt.Errorf("make the parent of data directory %s: %w", dir, err)
	}
	temp := dir + restoreSuffix
	l, err := workshop(temp)
	if err != nil {
		return persistence.BackupInfo{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
		err = errors.Join(err, l.release())
	}()
	if err := fill(temp, config, info); err != nil {
		return persistence.BackupInfo{}, err
	}
	return info, moveIn(temp, dir)
}

// isFree tells whether nothing is where the store is to be.
func isFree(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory %s cannot be read: %w", dir, err)
	case len(entries) > 0:
		return &NotEmptyError{Dir: dir}
	}
	return nil
}

// workshop makes an empty folder for a restore, or empties the one of a restore that died.
func workshop(temp string) (_ *lock, err error) {
	if err := os.Mkdir(temp, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make folder %s: %w", temp, err)
	}
	entries, err := os.ReadDir(temp)
	if err != nil {
		return nil, fmt.Errorf("look into folder %s: %w", temp, err)
	}
	mark := filepath.Join(temp, restoreMark)
	if _, err := os.Stat(mark); err != nil && len(entries) > 0 {
		return nil, fmt.Errorf("folder %s is in the way, and of no earlier restore: move it away", temp)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, fmt.Errorf("write to folder %s: %w", temp, err)
	}
	l, err := acquireLock(temp)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != restoreMark && name != lockFile {
			if err := os.RemoveAll(filepath.Join(temp, name)); err != nil {
				return nil, errors.Join(fmt.Errorf("empty folder %s: %w", temp, err), l.release())
			}
		}
	}
	return l, nil
}

// fill makes the store in the folder. The sentinel comes last.
func fill(temp string, config RestoreConfig, info persistence.BackupInfo) (err error) {
	c := Config{Dir: temp, Logger: config.Logger, Marks: config.Marks, FreeSpace: config.FreeSpace, Ballast: -1}.withDefaults()
	s := newSpace(c)
	// Badger dies where there is no space. What it holds is a little more than what the backup does.
	needed := s.marks.Hard + info.Bytes + (info.Bytes-info.InBodies)/2
	if now := s.report(); now.Free < needed {
		return fmt.Errorf("data directory %s: %w: %d MiB free, %d MiB needed: make room",
			config.Dir, persistence.ErrNoSpace, now.Free>>20, needed>>20)
	}
	h, err := openHead(temp, false)
	if err != nil {
		return err
	}
	db, err := openEngine(c, h, s)
	if err != nil {
		return errors.Join(err, h.file.Close())
	}
	output, err := openOutputLogs(filepath.Join(temp, outputDir), c.OpenLogs, c.Logger)
	if err != nil {
		return errors.Join(err, db.abandon())
	}
	bodies, err := openBlobs(temp)
	if err != nil {
		return errors.Join(err, output.Close(), db.abandon())
	}
	if _, err := persistence.RestoreBackup(config.From, db, output, bodies); err != nil {
		return errors.Join(err, output.Close(), bodies.Close(), db.abandon())
	}
	if err := errors.Join(output.Close(), bodies.Close(), db.Close()); err != nil {
		return fmt.Errorf("close the restored store: %w", err)
	}
	return writeSentinel(temp, sentinel{Format: info.Format, StoreID: info.StoreID, Generation: info.Generation + 1})
}

// moveIn gives the folder its name.
func moveIn(temp, dir string) error {
	err := os.Rename(temp, dir)
	if err != nil && os.Remove(dir) == nil { // some systems rename over no folder, be it as empty as it may
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return fmt.Errorf("move the restored store to %s: %w: restore into a new directory on the same file system, and below a mount point", dir, err)
	}
	if err := os.Remove(filepath.Join(dir, restoreMark)); err != nil {
		return fmt.Errorf("finish the restore into %s: %w", dir, err)
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}
