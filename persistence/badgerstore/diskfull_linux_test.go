package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/swampd/swampd/persistence"
)

// TestDiskFull runs a store into a small file system's end. Without its marks Badger would end this process.
func TestDiskFull_NothingIsLostAndServiceResumes(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=220m"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	marks := DefaultMarks()
	ballast := filepath.Join(dir, "ballast")
	fill := func(leave uint64) {
		t.Helper()
		free, err := freeSpace(dir)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for ; free > leave; free -= 1 << 20 {
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	s := open(t, data)
	try := func(id string) error {
		_, err := s.Commit(t.Context(), persistence.Commit{
			Class: persistence.ClassEnding,
			Puts:  []persistence.Put{{Kind: persistence.KindRun, ID: id, State: "a", Body: make([]byte, 400<<10)}},
		})
		return err
	}
	if err := try("before"); err != nil {
		t.Fatal(err)
	}
	fill(marks.Hard + 8<<20)
	var done []string
	for i := 0; ; i++ {
		id := fmt.Sprintf("r%05d", i)
		if err := try(id); err != nil {
			if !errors.Is(err, persistence.ErrNoSpace) {
				t.Fatal(err)
			}
			break
		}
		done = append(done, id)
		if i > 10_000 {
			t.Fatal("the disk does not fill")
		}
	}
	fill(1 << 20) // and others write on: even that must not end the process
	if err := try("full"); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := s.AppendOutput("d", []persistence.Chunk{{Data: []byte("x")}}); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("output on a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := try("after"); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	closeStore(t, s)
	s = open(t, data)
	for _, id := range append(done, "before", "after") {
		if _, err := s.Get(persistence.KindRun, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	closeStore(t, s)
}
