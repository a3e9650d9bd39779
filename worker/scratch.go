package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// scratch is the folder of one dispatch. It is the step's working directory, and empty as far as a shell pattern can
// see: the names of what the product keeps there start with a dot.
type scratch struct {
	dir    string // CacheDir/scratch/<dispatch>
	script string // the script of "run:"
	output string // $SWAMP_OUTPUT
	tmp    string // $TMPDIR
	data   string // $SWAMP_DATA_URL; empty: the worker has no way to data
}

func scratchRoot(cacheDir string) string { return filepath.Join(cacheDir, "scratch") }

// makeScratch creates the folder with the script in it. What an earlier process left under the same name is removed
// first. On an error nothing is left behind.
func makeScratch(cacheDir, dispatchID, script string) (scratch, error) {
	if !pathElement(dispatchID) {
		return scratch{}, fmt.Errorf("scratch folder: dispatch id %q is no file name", dispatchID)
	}
	dir := filepath.Join(scratchRoot(cacheDir), dispatchID)
	s := scratch{
		dir:    dir,
		script: filepath.Join(dir, scriptName),
		output: filepath.Join(dir, ".swamp-output"),
		tmp:    filepath.Join(dir, ".swamp-tmp"),
	}
	if err := s.make(script); err != nil {
		return scratch{}, errors.Join(fmt.Errorf("scratch folder: %w", err), s.remove())
	}
	return s, nil
}

func (s scratch) make(script string) error {
	err := os.Mkdir(s.dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(s.dir), 0o700); err == nil {
			err = os.Mkdir(s.dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		if err = s.remove(); err == nil {
			err = os.Mkdir(s.dir, 0o700)
		}
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.tmp, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(s.script, []byte(script), 0o700); err != nil {
		return err
	}
	return os.WriteFile(s.output, nil, 0o600)
}

// remove deletes the folder and all in it, folders that the step made unwritable included.
func (s scratch) remove() error {
	if os.RemoveAll(s.dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			// Before the folder is read: WalkDir reads it after this call, and tells of a failure in a second one.
			_ = os.Chmod(path, 0o700) //nolint:gosec // a folder needs its execute bit
		}
		if err != nil {
			return filepath.SkipDir
		}
		return nil
	})
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove scratch folder: %w", err)
	}
	return nil
}

// pathElement tells whether name can be a file's name that stays inside its folder.
func pathElement(name string) bool {
	return filepath.IsLocal(name) && name != "." && len(name) <= 200 && !strings.ContainsAny(name, "/\\\x00")
}
