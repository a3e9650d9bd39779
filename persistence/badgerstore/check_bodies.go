package badgerstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/blobs"
)

// checkBodies reads every body through that a record names, and counts the others.
func (r *Report) checkBodies(dir string) error {
	bodies, err := openBlobs(dir)
	if err != nil {
		return err
	}
	named := make(map[string]struct{}, len(r.Bodies))
	for _, ref := range r.Bodies {
		if _, again := named[ref.Key]; again { // a step and its lease name the same one
			continue
		}
		named[ref.Key] = struct{}{}
		size, err := checkBody(bodies, ref)
		if err != nil {
			r.Find("body of %s: %v", ref.Owner, err)
			continue
		}
		r.BodyFiles++
		r.BodyBytes += size
	}
	err = bodies.List(func(key string, whole bool) bool {
		if _, ok := named[key]; !ok || !whole {
			r.Orphans++
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("check the bodies: %w", err)
	}
	strays, err := bodies.Strays()
	if err != nil {
		return fmt.Errorf("check the bodies: %w", err)
	}
	for _, name := range strays {
		r.Find("%s/%s is none of swampd's files: move it away", blobsDir, name)
	}
	return nil
}

// checkBody tells why a body is not what its record says. It returns the size of its file.
func checkBody(bodies *blobs.Store, ref persistence.BlobRef) (size uint64, err error) {
	if !persistence.IsBlobKey(ref.Key) {
		return 0, fmt.Errorf("%q is no name of a body", ref.Key)
	}
	f, err := bodies.Open(ref.Key)
	if errors.Is(err, persistence.ErrNotFound) {
		return 0, fmt.Errorf("file %s is missing", ref.Key)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size = uint64(f.Size())
	if size < ref.Size {
		return 0, fmt.Errorf("file %s has %d bytes, and there were %d", ref.Key, size, ref.Size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, int64(ref.Size))); err != nil {
		return 0, fmt.Errorf("file %s cannot be read: %w", ref.Key, err)
	}
	if !bytes.Equal(sum.Sum(nil), ref.Digest) {
		return 0, fmt.Errorf("file %s is not what was written: its digest is another one", ref.Key)
	}
	return size, nil
}
