package badgerstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swampd/swampd/persistence"
)

const (
	sentinelFile = "store.json"
	outputDir    = "output"
	blobsDir     = "blobs"
	journalDir   = "journal"
)

// sentinel says that there is a store, and which. Badger cannot say it: it takes lost files for an empty store.
type sentinel struct {
	Format     int    `json:"format"`
	StoreID    string `json:"storeId"`
	Generation uint64 `json:"generation"`
}

// readSentinel returns nil where there is none.
func readSentinel(dir string) (*sentinel, error) {
	data, err := os.ReadFile(filepath.Join(dir, sentinelFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("data directory %s cannot be read: %w", dir, err)
	}
	// The format first, by itself: a newer file may have another shape.
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &format); err != nil || format.Format < 1 {
		return nil, &persistence.DamagedError{Dir: dir, What: sentinelFile + " cannot be read", Next: whatToDoIfDamaged}
	}
	if format.Format > persistence.FormatVersion {
		return nil, &persistence.NewerFormatError{Dir: dir, Found: format.Format, Known: persistence.FormatVersion}
	}
	var s sentinel
	if err := json.Unmarshal(data, &s); err != nil || s.StoreID == "" || s.Generation == 0 {
		return nil, &persistence.DamagedError{Dir: dir, What: sentinelFile + " cannot be read", Next: whatToDoIfDamaged}
	}
	return &s, nil
}

func writeSentinel(dir string, s sentinel) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", sentinelFile, err)
	}
	return writeFileDurably(dir, sentinelFile, append(data, '\n'))
}

// writeFileDurably replaces a file by rename, so that it is there as a whole or not at all.
func writeFileDurably(dir, name string, data []byte) (err error) {
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}
