package badgerstore

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/blobs"
)

func TestBodies_OnAFullDiskLeaveNothingPartial(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s, err := blobs.New(blobs.Config{Dir: filepath.Join(dir, blobsDir), SyncDir: syncDir, DiskFull: isDiskFull})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(f persistence.BlobFile) {
		t.Helper()
		for i := 0; ; i++ {
			if _, err := f.Write(make([]byte, 64<<10)); errors.Is(err, persistence.ErrNoSpace) {
				break
			} else if err != nil || i > 100 {
				t.Fatalf("piece %d: %v", i, err)
			}
		}
		if err := f.Discard(); err != nil {
			t.Error(err)
		}
	}
	size := func(key string) int64 {
		t.Helper()
		r, err := s.Open(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		return r.Size()
	}
	before, err := freeSpace(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, other := strings.Repeat("0", persistence.BlobKeySize), strings.Repeat("1", persistence.BlobKeySize)
	f, err := s.Create(key)
	if err != nil {
		t.Fatal(err)
	}
	fill(f)
	if f, err = s.Create(key); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if f, err = s.Extend(key, 900); err != nil {
		t.Fatal(err)
	}
	fill(f)
	if n := size(key); n != 900 {
		t.Errorf("the body that could not be extended has %d bytes", n)
	}
	if err := s.Remove(key); err != nil {
		t.Error(err)
	}
	if after, err := freeSpace(dir); err != nil || before-after > 64<<10 {
		t.Errorf("%d bytes are free, %d were: %v", after, before, err)
	}
	if f, err = s.Create(other); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil || size(other) != 0 {
		t.Errorf("with space again: %v", err)
	}
}
