package badgerstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

// backup is that of a small store with a bit of everything.
func backup(t *testing.T) []byte {
	t.Helper()
	s := open(t, t.TempDir())
	putRun(t, s, "r", 3000)
	if err := s.AppendOutput("r.0.1", []persistence.Chunk{{Stream: "stdout", Data: []byte("printed")}}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := s.Backup(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestRestore_IntoAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, dir := range []string{filepath.Join(parent, "new", "deep"), filepath.Join(parent, "empty")} {
		if filepath.Base(dir) == "empty" {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		info, err := Restore(RestoreConfig{From: bytes.NewReader(backup(t)), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, filepath.Dir(dir)); len(got) > 2 || strings.Contains(strings.Join(got, " "), "restoring") {
			t.Errorf("beside it: %v", got)
		}
		if diff := cmp.Diff([]string{"head", "journal", "lock", "output", "store.json"}, names(t, dir)); diff != "" {
			t.Error(diff)
		}
		if at, err := os.Stat(dir); err != nil || at.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", at.Mode(), err)
		}
		report, err := Check(Config{Dir: dir})
		if err != nil || report.Wrong > 0 || report.Records[persistence.KindRun] != 1 || report.OutputBytes != 7 {
			t.Errorf("check: %+v, %v", report, err)
		}
		s := open(t, dir)
		if s.Epoch() <= info.Epoch+100 || s.StoreID() != info.StoreID {
			t.Errorf("boot %d of %s after a backup of boot %d of %s", s.Epoch(), s.StoreID(), info.Epoch, info.StoreID)
		}
		closeStore(t, s)
	}
}

func TestRestore_RefusesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	whole := backup(t)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	tests := []struct {
		name   string
		backup []byte
		full   []string // files that are in the directory
		free   uint64
		want   string
	}{
		{name: "a backup that is cut off", backup: whole[:len(whole)-1], want: "it is cut off after"},
		{name: "a backup with a flipped bit", backup: flipped, want: "it is damaged near byte"},
		{name: "something else", backup: []byte("PK\x03\x04 and more than enough"), want: "it is no backup of swampd"},
		{name: "an empty file", backup: nil, want: "it is cut off after 0 bytes"},
		{name: "a directory with something in it", backup: whole, full: []string{"notes.txt"}, want: "is not empty"},
		{name: "too little space", backup: whole, free: 1 << 20, want: "1 MiB free"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := filepath.Join(parent, "data")
			for _, name := range tt.full {
				if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			before := content(t, parent)
			config := RestoreConfig{From: bytes.NewReader(tt.backup), Dir: dir}
			if tt.free > 0 {
				config.FreeSpace = func(string) (uint64, error) { return tt.free, nil }
			}
			_, err := Restore(config)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("restore: %v", err)
			}
			if diff := cmp.Diff(before, content(t, parent)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRestore_AFolderThatIsNoRestoresIsNotTouched(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	if err := errors.Join(os.Mkdir(dir+restoreSuffix, 0o700), os.WriteFile(filepath.Join(dir+restoreSuffix, "notes.txt"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := content(t, parent)
	_, err := Restore(RestoreConfig{From: bytes.NewReader(backup(t)), Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is in the way") {
		t.Errorf("restore: %v", err)
	}
	if diff := cmp.Diff(before, content(t, parent)); diff != "" {
		t.Error(diff)
	}
}

// stopper says when it is read the second time, and then reads no more.
type stopper struct {
	*bytes.Reader
	seeks int
}

func (s *stopper) Seek(offset int64, whence int) (int64, error) {
	s.seeks++
	return s.Reader.Seek(offset, whence)
}

func (s *stopper) Read(p []byte) (int, error) {
	if s.seeks > 0 && s.Reader.Len() < int(s.Reader.Size())/2 {
		_, _ = os.Stdout.WriteString("half\n")
		select {}
	}
	return s.Reader.Read(p[:min(len(p), 1000)])
}

// restoreUntilKilled is the process that the test below kills.
func restoreUntilKilled(dir string) {
	data, err := os.ReadFile(dir + ".backup")
	if err == nil {
		_, err = Restore(RestoreConfig{From: &stopper{Reader: bytes.NewReader(data)}, Dir: dir})
	}
	_, _ = os.Stdout.WriteString(err.Error())
	os.Exit(1)
}

func TestRestore_KilledInTheMiddleLeavesNoStoreAndIsDoneAgain(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	source := open(t, t.TempDir())
	for i := range 300 {
		putRun(t, source, "r"+string(rune('a'+i%26))+strings.Repeat("x", i), 10_000)
	}
	var b bytes.Buffer
	if _, err := source.Backup(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".backup", b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		process := exec.CommandContext(t.Context(), self)
		process.Env = append(os.Environ(), restoreDir+"="+dir)
		out, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 5)
		if _, err := io.ReadFull(out, said); err != nil || string(said) != "half\n" {
			t.Fatalf("the process says %q, %v", said, err)
		}
		// Another one is told, and disturbs nothing.
		_, err = Restore(RestoreConfig{From: bytes.NewReader(b.Bytes()), Dir: dir})
		if locked, ok := errors.AsType[*persistence.LockedError](err); !ok || locked.PID != process.Process.Pid {
			t.Errorf("restore beside it: %v", err)
		}
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait() // killed
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a data directory: %v", err)
		}
	}
	if _, err := Restore(RestoreConfig{From: bytes.NewReader(b.Bytes()), Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"data", "data.backup"}, names(t, filepath.Dir(dir))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(runs(t, source), runs(t, open(t, dir))); diff != "" {
		t.Error(diff)
	}
}
