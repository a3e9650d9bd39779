package persistence

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/swampd/swampd/messages"
)

// missingTold is how many missing bodies a sweep names in its warnings.
const missingTold = 100

// BlobSweep is what a sweep of the bodies has found.
type BlobSweep struct {
	Removed int // bodies of earlier boots that no record names, and what was never finished
	Missing int // bodies that a record names and that are not there; each has been warned of
}

// SweepBlobs implements [Journal].
func (s *Store) SweepBlobs(ctx context.Context) (BlobSweep, error) {
	if err := s.enter(); err != nil {
		return BlobSweep{}, err
	}
	defer s.leave()
	sweep, err := s.sweepBlobs(ctx)
	if err != nil {
		return sweep, fmt.Errorf("sweep the bodies: %w", err)
	}
	return sweep, nil
}

// sweepBlobs lists the bodies before it reads the records: a record names no body of an earlier boot that was not named
// before, so what is listed, and not named then, is nobody's.
func (s *Store) sweepBlobs(ctx context.Context) (sweep BlobSweep, err error) {
	there, left := map[string]struct{}{}, map[string]struct{}{}
	err = s.blobs.List(func(key string, whole bool) bool {
		if whole {
			there[key] = struct{}{}
		}
		if blobEpoch(key) < s.epoch { // those of this boot may be about to be named
			left[key] = struct{}{}
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return sweep, err
	}
	missing := map[string][]byte{} // the keys of their records, by key
	if err := s.namedBlobs(ctx, func(blob string, record []byte) {
		delete(left, blob)
		if _, ok := there[blob]; !ok && record != nil {
			missing[blob] = record
		}
	}); err != nil {
		return sweep, err
	}
	for blob, record := range missing {
		if err := s.reportMissing(blob, record, &sweep); err != nil {
			return sweep, err
		}
	}
	for blob := range left {
		if ctx.Err() != nil {
			return sweep, context.Cause(ctx)
		}
		if err := s.DeleteBlob(blob); err != nil {
			return sweep, err
		}
		sweep.Removed++
	}
	return sweep, nil
}

// namedBlobs calls fn for each body that a record names, with the record's key; and for what looks like one in a value that
// does not decode, without.
func (s *Store) namedBlobs(ctx context.Context, fn func(blob string, record []byte)) error {
	return s.engine.View(func(r Reader) error {
		scan := func(prefix string, decodes bool) error {
			if prefix == "" {
				return nil
			}
			return r.Scan([]byte(prefix), prefixEnd([]byte(prefix)), false, func(key, value []byte) bool {
				ref, named, err := BlobRef{}, false, error(nil)
				if decodes {
					ref, named, err = blobRefAt(key, value)
				}
				switch {
				case !decodes || err != nil:
					blobKeysIn(value, func(blob string) { fn(blob, nil) })
				case named:
					fn(ref.Key, bytes.Clone(key))
				}
				return ctx.Err() == nil
			})
		}
		for _, kind := range blobKinds() {
			info := infoOf(kind)
			if err := errors.Join(scan(info.prefix, true), scan(info.ended, true)); err != nil {
				return err
			}
		}
		if err := scan(prefixQuarantine, false); err != nil {
			return err
		}
		return context.Cause(ctx)
	})
}

// reportMissing warns of a body that was not listed, if its record names it still and it is not there indeed: both may have
// come, or gone, meanwhile.
func (s *Store) reportMissing(blob string, record []byte, sweep *BlobSweep) error {
	var ref BlobRef
	named := false
	err := s.engine.View(func(r Reader) error {
		value, err := r.Get(record)
		if err == nil {
			ref, named, err = blobRefAt(record, value)
		}
		return err
	})
	var decode *DecodeError
	switch {
	case errors.Is(err, ErrNotFound), errors.As(err, &decode):
		return nil
	case err != nil:
		return err
	case !named || ref.Key != blob:
		return nil
	}
	r, err := BlobReader(nil), ErrNotFound
	if IsBlobKey(blob) {
		r, err = s.blobs.Open(blob)
	}
	if err == nil {
		return r.Close()
	}
	if sweep.Missing++; sweep.Missing <= missingTold {
		s.quarantine.logger.Warn("the body of a record is missing, restore it from a backup",
			messages.KeyErr, fmt.Errorf("%s: body %s: %w", ref.Owner, blob, err))
	}
	return nil
}
