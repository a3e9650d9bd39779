package badgerstore

import (
	"path/filepath"

	"github.com/swampd/swampd/persistence/blobs"
)

// openBlobs opens the bodies of the store in a directory.
func openBlobs(dir string) (*blobs.Store, error) {
	return blobs.New(blobs.Config{Dir: filepath.Join(dir, blobsDir), SyncDir: syncDir, DiskFull: isDiskFull})
}
