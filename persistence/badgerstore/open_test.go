package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

func TestOpen_AKilledProcessLosesNothingAtAnyCommit(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	s := open(t, at)
	for i := range 12 {
		putRun(t, s, fmt.Sprintf("r%02d", i), 10_000)
		if err := s.AppendOutput("d", []persistence.Chunk{{Offset: uint64(i), Stream: "stdout", Data: []byte{byte('a' + i)}}}); err != nil {
			t.Fatal(err)
		}
		next := open(t, clone(t, at))
		if got := runs(t, next); len(got) != i+1 {
			t.Errorf("after %d commits: %v", i+1, got)
		}
		events, err := next.Events(fmt.Sprintf("r%02d", i), 0, 10)
		if err != nil || len(events) != 1 {
			t.Errorf("after %d commits: events %v, %v", i+1, events, err)
		}
		chunks, err := next.Output("d", 0, 100)
		if err != nil || len(chunks) != i+1 {
			t.Errorf("after %d commits: output %v, %v", i+1, chunks, err)
		}
		if next.Epoch() <= s.Epoch() || next.StoreID() != s.StoreID() {
			t.Errorf("epoch %d after %d, store %s after %s", next.Epoch(), s.Epoch(), next.StoreID(), s.StoreID())
		}
		closeStore(t, next)
	}
}

func TestOpen_AProcessThatDiedWhileItMadeTheStoreIsNoDamage(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	s := open(t, at)
	dir := clone(t, at)
	closeStore(t, s)
	// The sentinel comes last.
	remove(t, filepath.Join(dir, sentinelFile))
	next := open(t, dir)
	if next.StoreID() != s.StoreID() {
		t.Errorf("store %s, not %s", next.StoreID(), s.StoreID())
	}
	closeStore(t, next)
	if _, err := os.Stat(filepath.Join(dir, sentinelFile)); err != nil {
		t.Error(err)
	}
}

func TestOpen_TheSecondIsToldWhoHoldsTheDirectory(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	s := open(t, at)
	putRun(t, s, "r", 10)
	_, err := Open(Config{Dir: at})
	var locked *persistence.LockedError
	if !errors.As(err, &locked) || locked.Dir != at || locked.PID != os.Getpid() {
		t.Fatalf("open: %v", err)
	}
	if !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("the sentence: %v", err)
	}
	putRun(t, s, "r2", 10) // the first is not disturbed
	closeStore(t, s)
	if got := runs(t, open(t, at)); len(got) != 2 {
		t.Errorf("runs %v", got)
	}
}

func TestOpen_AStoreOfANewerFormatStaysAsItIs(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	closeStore(t, open(t, at))
	edit(t, filepath.Join(at, sentinelFile), func([]byte) []byte {
		return fmt.Appendf(nil, `{"format": %d, "storeId": {"new": "shape"}}`, persistence.FormatVersion+1)
	})
	before := content(t, at)
	_, err := Open(Config{Dir: at})
	var newer *persistence.NewerFormatError
	if !errors.As(err, &newer) || newer.Found != persistence.FormatVersion+1 || newer.Known != persistence.FormatVersion {
		t.Fatalf("open: %v", err)
	}
	if diff := cmp.Diff(before, content(t, at)); diff != "" {
		t.Error(diff)
	}
}

func TestOpen_ADirectoryThatCannotBeWrittenIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{file, filepath.Join(file, "below")}
	if os.Geteuid() != 0 { // who is root may write everywhere
		readOnly := t.TempDir()
		if err := os.Chmod(readOnly, 0o500); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, readOnly, filepath.Join(readOnly, "below"))
	}
	for _, dir := range dirs {
		s, err := Open(Config{Dir: dir})
		if err == nil {
			closeStore(t, s)
			t.Fatalf("%s was opened", dir)
		}
		if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("the sentence: %v", err)
		}
	}
}

func TestOpen_MakesAPrivateDirectory(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, at)
	putRun(t, s, "r", 10)
	if err := s.AppendOutput("d", []persistence.Chunk{{Data: []byte("secret")}}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{at, filepath.Join(at, journalDir), filepath.Join(at, outputDir)} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestOpen_RefusesAConfigThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, config := range []Config{
		{}, {Dir: t.TempDir(), Marks: Marks{NewWork: 1, Data: 2, Hard: 3}}, {Dir: t.TempDir(), OpenLogs: -1},
	} {
		if s, err := Open(config); err == nil {
			closeStore(t, s)
			t.Errorf("%+v was opened", config)
		}
	}
}

func TestSpace_BelowTheLastMarkTheStoreIsNotOpened(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	free := DefaultMarks().Hard - 1
	config := Config{Dir: at, FreeSpace: func(string) (uint64, error) { return free, nil }}
	if _, err := Open(config); !errors.Is(err, persistence.ErrNoSpace) {
		t.Fatalf("open: %v", err)
	}
	free++
	s, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
}

func TestSpace_ServiceStopsByClassAndResumesByItself(t *testing.T) {
	t.Parallel()
	marks := DefaultMarks()
	free := marks.NewWork
	s, err := Open(Config{Dir: t.TempDir(), FreeSpace: func(string) (uint64, error) { return free, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	n := 0
	try := func(class persistence.Class) error {
		n++
		_, err := s.Commit(t.Context(), persistence.Commit{
			Class: class, Puts: []persistence.Put{{Kind: persistence.KindRun, ID: fmt.Sprint(n), State: "a"}},
		})
		return err
	}
	for _, step := range []struct {
		free    uint64
		allowed persistence.Class // and all before it; below 0: none
	}{
		{marks.NewWork, persistence.ClassNewWork}, {marks.NewWork - 1, persistence.ClassData}, {marks.Data - 1, persistence.ClassEnding},
		{marks.Hard - 1, -1}, {marks.Data, persistence.ClassData}, {marks.NewWork, persistence.ClassNewWork},
	} {
		s.engine.space.mu.Lock()
		free = step.free
		s.engine.space.mu.Unlock()
		for class := persistence.ClassEnding; class <= persistence.ClassNewWork; class++ {
			if err := try(class); class <= step.allowed && err != nil || class > step.allowed && !errors.Is(err, persistence.ErrNoSpace) {
				t.Errorf("%d MiB free, class %d: %v", step.free>>20, class, err)
			}
		}
	}
}

// Somebody else can fill a disk between any two batches.
func TestSpace_IsAskedBeforeEachBatch(t *testing.T) {
	t.Parallel()
	free := DefaultMarks().NewWork
	s := newSpace(Config{
		Dir: "x", Marks: DefaultMarks(),
		FreeSpace: func(string) (uint64, error) { return free, nil },
	}.withDefaults())
	for range 3 {
		s.report()
		free /= 2
		if got := s.report(); got.Free != free {
			t.Errorf("it has %d bytes, want %d", got.Free, free)
		}
	}
}

func TestSpace_AnErrorLeavesTheLastAnswer(t *testing.T) {
	t.Parallel()
	var failure error
	s := newSpace(Config{
		Dir: "x", FreeSpace: func(string) (uint64, error) { return 7, failure },
	}.withDefaults())
	s.report()
	failure = errors.New("stale file handle")
	if got := s.report(); got.Free != 7 {
		t.Errorf("%+v", got)
	}
}
