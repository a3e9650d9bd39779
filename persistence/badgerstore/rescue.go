package badgerstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const rescueDir = "rescued"

// rescueLogs copies Badger's logs aside where the store was not closed: Badger cuts a damaged one at the damage as it
// opens it, and what stood behind would be gone before anybody could say that it is missing. It returns the folder of the
// copies, or nothing where none were needed.
func rescueLogs(dir string, last mark) (folder string, err error) {
	if last.clean {
		return "", nil
	}
	folder = filepath.Join(dir, rescueDir)
	if _, err := os.Stat(folder); err == nil {
		return folder, nil // copies of the first look at the damage, and better than any later ones
	}
	logs, err := filepath.Glob(filepath.Join(escapeGlob(dir), journalDir, "*.mem"))
	if err != nil || len(logs) == 0 {
		return "", err
	}
	if err := copyFiles(logs, folder); err != nil {
		return "", fmt.Errorf("copy the journal's logs: %w", err)
	}
	return folder, nil
}

// copyFiles copies files to a new folder, which is there with all of them or not at all.
func copyFiles(files []string, folder string) (err error) {
	unfinished := folder + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil { // of a process that died
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(unfinished))
		}
	}()
	for _, file := range files {
		if err := copyFile(file, filepath.Join(unfinished, filepath.Base(file))); err != nil {
			return err
		}
	}
	return os.Rename(unfinished, folder)
}

// dropEmptyLogs removes logs without a byte: a process leaves one if it dies as it makes it, and Badger refuses to open
// beside it, with its goroutines left running. What was lost of a log that is not new is found out by the head file.
func dropEmptyLogs(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, journalDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the journal's logs: %w", err)
	}
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); ext != ".mem" && ext != ".vlog" {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.Size() == 0 {
			err = os.Remove(filepath.Join(dir, journalDir, entry.Name()))
		}
		if err != nil {
			return fmt.Errorf("remove an empty log: %w", err)
		}
	}
	return nil
}

// dropRescued removes the copies, once nothing was found missing.
func dropRescued(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, rescueDir)); err != nil {
		return fmt.Errorf("remove the copies of the journal's logs: %w", err)
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
