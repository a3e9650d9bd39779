package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/swampd/swampd/persistence"
)

const manifestFile = badger.ManifestFilename

// checkFiles looks at Badger's files before Badger does, which would take a cut MANIFEST for a shorter history and delete
// the tables that it does not name, and would panic at a cut table. It changes nothing.
//
// Tables that the MANIFEST does not name are no damage by themselves: a process that dies while it writes one leaves it,
// and what it holds is still in a log or in other tables. So the mark in the head file decides how much of a MANIFEST
// there has to be.
func checkFiles(dir string, inUse bool, last mark) error {
	journal := filepath.Join(dir, journalDir)
	damaged := func(format string, args ...any) error {
		return &persistence.DamagedError{Dir: dir, What: fmt.Sprintf(format, args...), Next: whatToDoIfDamaged}
	}
	tables, err := filepath.Glob(filepath.Join(escapeGlob(journal), "*.sst"))
	if err != nil {
		return fmt.Errorf("list the tables of the journal: %w", err)
	}
	slices.Sort(tables)
	data, err := os.ReadFile(filepath.Join(journal, manifestFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if inUse {
			return damaged("%s is missing", filepath.Join(journalDir, manifestFile))
		}
		if len(tables) > 0 {
			return damaged("there are tables without a %s", manifestFile)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the manifest of the journal: %w", err)
	}
	size := uint64(len(data))
	manifest, whole, err := replayManifest(filepath.Join(journal, manifestFile))
	if err != nil {
		return damaged("%s cannot be read: %v", manifestFile, err)
	}
	switch {
	case size < last.manifestSize || uint64(whole) < last.manifestSize:
		return damaged("%s ends too early: %d of %d bytes", manifestFile, min(size, uint64(whole)), last.manifestSize)
	case castagnoli(data[:last.manifestSize]) != last.manifestSum:
		return damaged("%s is not the one that was written", manifestFile)
	case last.clean && size != last.manifestSize:
		return damaged("%s has changed since the store was closed", manifestFile)
	}
	var check tableCheck
	for id := range manifest.Tables {
		path := table.NewFilename(id, journal)
		switch err := check.check(path); {
		case errors.Is(err, os.ErrNotExist):
			return damaged("table %s is missing", filepath.Base(path))
		case err != nil:
			return damaged("table %s: %v", filepath.Base(path), err)
		}
	}
	if last.clean {
		for _, path := range tables {
			id, ok := table.ParseFileID(path)
			if _, named := manifest.Tables[id]; !ok || !named {
				return damaged("%s does not name table %s", manifestFile, filepath.Base(path))
			}
		}
	}
	return nil
}

func replayManifest(path string) (_ badger.Manifest, whole int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return badger.Manifest{}, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return badger.ReplayManifestFile(f, 0, badger.DefaultOptions(""))
}

// escapeGlob keeps a directory's name from being read as a pattern.
func escapeGlob(path string) string {
	var escaped []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			if os.PathSeparator == '/' {
				escaped = append(escaped, '\\')
			}
		}
		escaped = append(escaped, path[i])
	}
	return string(escaped)
}
