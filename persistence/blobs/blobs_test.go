package blobs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

const (
	keyA = "00112233445566778899aabbccddeeff000001"
	keyB = "ff112233445566778899aabbccddeeff000001"
)

var errDiskFull = errors.New("disk full")

func config(dir string) Config {
	return Config{
		Dir: dir, SyncDir: func(string) error { return nil }, DiskFull: func(err error) bool { return errors.Is(err, errDiskFull) },
	}
}

func open(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *Store, key, content string) persistence.BlobFile {
	t.Helper()
	f, err := s.Create(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return f
}

// files are the paths of what stands in a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	found := []string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, rerr := filepath.Rel(dir, path)
			found, err = append(found, filepath.ToSlash(name)), rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNew_NeedsToKnowItsSystem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{"nothing": {}, "no folder": config(""), "no system": {Dir: "x"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestBody_IsSyncedAndNamedBeforeItIsSaid(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	var trace []string
	c := config(dir)
	c.SyncDir = func(folder string) error {
		name, err := filepath.Rel(dir, folder)
		trace = append(trace, "sync "+filepath.ToSlash(name))
		if folder == filepath.Join(dir, "00") { // of the body: by now it has its name
			trace = append(trace, files(t, dir)...)
		}
		return err
	}
	s := open(t, c)
	f := create(t, s, keyA, "hello")
	trace = append(trace, files(t, dir)...)
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	want := []string{"sync ..", "sync .", "00/" + keyA + ".tmp", "sync 00", "00/" + keyA}
	if diff := cmp.Diff(want, trace); diff != "" {
		t.Error(diff)
	}
}

func TestBody_WhoseFolderCannotBeSyncedIsNotToBeTrusted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	boom := errors.New("input/output error")
	failing := ""
	c := config(dir)
	c.SyncDir = func(folder string) error {
		if folder == failing {
			return boom
		}
		return nil
	}
	s := open(t, c)
	failing = dir
	if _, err := s.Create(keyA); !errors.Is(err, persistence.ErrSync) || !errors.Is(err, boom) {
		t.Errorf("create: %v", err)
	}
	failing = filepath.Join(dir, "00")
	f := create(t, s, keyA, "hello") // the folder of the one before is synced again
	if err := f.Commit(); !errors.Is(err, persistence.ErrSync) || !errors.Is(err, boom) {
		t.Errorf("commit: %v", err)
	}
}

func TestBody_ThatFillsTheDiskLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	full := true
	c := config(dir)
	c.SyncDir = func(folder string) error {
		if full && folder == dir {
			return errDiskFull
		}
		return nil
	}
	s := open(t, c)
	if _, err := s.Create(keyA); !errors.Is(err, persistence.ErrNoSpace) || errors.Is(err, persistence.ErrSync) {
		t.Errorf("create: %v", err)
	}
	full = false
	f := create(t, s, keyA, "hello")
	if err := f.Discard(); err != nil {
		t.Error(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

func TestClose_LeavesTheFolderAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, config(dir))
	if err := create(t, s, keyA, "named").Commit(); err != nil {
		t.Fatal(err)
	}
	unfinished := create(t, s, keyB, "unfinished")
	longer, err := s.Extend(keyA, 5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := longer.Write([]byte(" and more")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, created := s.Create(keyB)
	_, written := unfinished.Write([]byte("x"))
	for what, err := range map[string]error{
		"create": created, "write": written, "commit": longer.Commit(), "remove": s.Remove(keyA),
	} {
		if !errors.Is(err, persistence.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(unfinished.Discard(), longer.Discard()); err != nil {
		t.Error(err)
	}
	want := []string{"00/" + keyA, "ff/" + keyB + ".tmp"}
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Error(diff)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "00", keyA)); err != nil || string(data) != "named and more" {
		t.Errorf("the body of another process may have been cut: %q, %v", data, err)
	}
}

func TestList_TellsWholeUnfinishedAndStrayFilesApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, config(dir))
	if err := create(t, s, keyB, "whole").Commit(); err != nil {
		t.Fatal(err)
	}
	unfinished := create(t, s, keyA, "unfinished")
	defer func() {
		if err := unfinished.Discard(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"stray", "00/" + keyB, "ff/notes.txt", "ff/" + keyB + ".old"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "00", keyA), 0o700); err != nil {
		t.Fatal(err)
	}
	type found struct {
		Key   string
		Whole bool
	}
	var got []found
	err := s.List(func(key string, whole bool) bool {
		got = append(got, found{key, whole})
		return true
	})
	if diff := cmp.Diff([]found{{keyA, false}, {keyB, true}}, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	strays, err := s.Strays()
	for i := range strays {
		strays[i] = filepath.ToSlash(strays[i])
	}
	want := []string{"00/" + keyA, "00/" + keyB, "ff/" + keyB + ".old", "ff/notes.txt", "stray"}
	if diff := cmp.Diff(want, strays); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
}

func TestList_WithoutAFolderIsEmpty(t *testing.T) {
	t.Parallel()
	s := open(t, config(filepath.Join(t.TempDir(), "none")))
	if err := s.List(func(key string, _ bool) bool { t.Errorf("body %s", key); return true }); err != nil {
		t.Error(err)
	}
	if _, err := s.Open(keyA); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("open: %v", err)
	}
	if err := s.Remove(keyA); err != nil {
		t.Error(err)
	}
}
