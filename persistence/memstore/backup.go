package memstore

import (
	"fmt"
	"io"

	"github.com/swampd/swampd/persistence"
)

// Restore returns what a backup holds, of whatever engine it is.
func Restore(r io.Reader) (Snapshot, error) {
	e, o, b := newEngine(Options{}, Snapshot{}), newOutputLog(Snapshot{}), newBlobStore(Snapshot{})
	if _, err := persistence.RestoreBackup(r, e, o, b); err != nil {
		return Snapshot{}, fmt.Errorf("restore a backup into memory: %w", err)
	}
	root, _ := e.snapshot(false)
	return Snapshot{root: root, output: o.snapshot(false), blobs: b.snapshot(false)}, nil
}
