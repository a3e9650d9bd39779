package badgerstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/swampd/swampd/persistence"
)

// smallDisk is a file system of that many MiB, with a store's directory on it.
type smallDisk struct {
	t    *testing.T
	root string
	data string
}

func newSmallDisk(t *testing.T, mib int) *smallDisk {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return &smallDisk{t, dir, filepath.Join(dir, "data")}
}

// fill has somebody else leave no more than that much free.
func (d *smallDisk) fill(leave uint64) {
	d.t.Helper()
	free, err := freeSpace(d.root)
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(d.root, "others"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	for ; free > leave; free -= min(free, 1<<20) {
		if _, err := f.Write(make([]byte, min(free-leave, 1<<20))); err != nil {
			d.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// empty has it all given back.
func (d *smallDisk) empty() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.root, "others")); err != nil {
		d.t.Fatal(err)
	}
}

// ballast is how much of the disk is kept in reserve.
func (d *smallDisk) ballast() int64 {
	d.t.Helper()
	var stat unix.Stat_t
	err := unix.Stat(filepath.Join(d.data, ballastFile), &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return stat.Blocks * 512
}

// smallMarks let a store live on a small disk.
func smallMarks() Marks { return Marks{NewWork: 160 << 20, Data: 120 << 20, Hard: 64 << 20} }

func ballastConfig(dir string, log *slog.Logger) Config {
	return Config{Dir: dir, Marks: smallMarks(), Ballast: 80 << 20, Logger: log}
}

// made waits for a ballast that is being made.
func made(s *Store) {
	s.engine.space.ballast.making.Wait()
	s.engine.Space()
}

func TestBallast_IsGivenUpForEndingsAndMadeAgain(t *testing.T) {
	disk := newSmallDisk(t, 400)
	var log strings.Builder
	s, err := Open(ballastConfig(disk.data, slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string, class persistence.Class) error {
		t.Helper()
		_, err := s.Commit(t.Context(), persistence.Commit{Class: class, Puts: []persistence.Put{{Kind: persistence.KindRun, ID: id, State: "a", Body: make([]byte, 100<<10)}}})
		return err
	}
	if err := put("first", persistence.ClassNewWork); err != nil {
		t.Fatal(err)
	}
	made(s)
	if got := disk.ballast(); got < 80<<20 {
		t.Fatalf("%d bytes are kept in reserve, want 80 MiB", got)
	}

	disk.fill(130 << 20) // below the first mark
	if err := put("no", persistence.ClassNewWork); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("new work below the first mark: %v", err)
	}
	if err := put("data", persistence.ClassData); err != nil {
		t.Errorf("data below the first mark: %v", err)
	}
	if disk.ballast() == 0 {
		t.Error("the reserve was given up too early")
	}

	disk.fill(0) // at once, past all marks
	if err := put("end", persistence.ClassEnding); err != nil {
		t.Errorf("an ending on a full disk: %v", err)
	}
	if got := disk.ballast(); got != 0 {
		t.Errorf("%d bytes are still kept in reserve", got)
	}
	if err := put("no", persistence.ClassData); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("data below the second mark: %v", err)
	}
	made(s)
	if got := disk.ballast(); got != 0 {
		t.Errorf("on a full disk %d bytes are kept in reserve", got)
	}

	disk.empty()
	if err := put("again", persistence.ClassNewWork); err != nil {
		t.Errorf("with space again: %v", err)
	}
	made(s)
	if got := disk.ballast(); got < 80<<20 {
		t.Errorf("%d bytes are kept in reserve again, want 80 MiB", got)
	}
	closeStore(t, s)
	for _, want := range []string{
		"free space runs short: new work is refused", "the reserve of space was given up",
		"free space runs short: all but ends and cancels is refused", "there is enough free space again",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}

func TestBallast_LetsAStoreOnAFullDiskStart(t *testing.T) {
	disk := newSmallDisk(t, 400)
	s, err := Open(ballastConfig(disk.data, nil))
	if err != nil {
		t.Fatal(err)
	}
	made(s)
	closeStore(t, s)
	if disk.ballast() == 0 {
		t.Fatal("nothing is kept in reserve")
	}
	disk.fill(0)
	s, err = Open(ballastConfig(disk.data, nil))
	if err != nil {
		t.Fatalf("open on a full disk: %v", err)
	}
	if _, err := s.Commit(t.Context(), persistence.Commit{Puts: []persistence.Put{{Kind: persistence.KindRun, ID: "r", State: "a"}}}); err != nil {
		t.Errorf("an ending: %v", err)
	}
	closeStore(t, s)
	switch s, err = Open(ballastConfig(disk.data, nil)); { // whether it fits once more is up to what the store has grown by
	case err == nil:
		closeStore(t, s)
	case !errors.Is(err, persistence.ErrNoSpace):
		t.Errorf("open once more: %v", err)
	}
}

func TestBallast_IsNoPartOfASmallDisk(t *testing.T) {
	disk := newSmallDisk(t, 220) // less than the first mark and the reserve
	s, err := Open(ballastConfig(disk.data, nil))
	if err != nil {
		t.Fatal(err)
	}
	made(s)
	if got := disk.ballast(); got != 0 {
		t.Errorf("%d bytes are kept in reserve, where that would refuse work", got)
	}
	closeStore(t, s)
}
