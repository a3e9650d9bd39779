package worker

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// failing is a test, or a part of one that rapid runs.
type failing interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// spoolSizes returns the sizes of what is in a folder, and checks that nobody else may read it.
func spoolSizes(t failing, dir string) (total int64, files int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", e.Name(), info.Mode())
		}
		total, files = total+info.Size(), files+1
	}
	return total, files
}

// TestSpool_Property puts and takes at random: what comes out is what went in, stream by stream, in order and with its
// time; what is on disk is bounded, and gone when nothing is left.
func TestSpool_Property(t *testing.T) {
	t.Parallel()
	base, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(base, strconv.Itoa(runs))
		const limit = 64 << 10
		s := newSpool(filepath.Join(dir, "spool", "7"), limit)
		var want []chunk // bytes that are in it
		now := t0()
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				p := bytes.Repeat([]byte{byte(len(want))}, rapid.SampledFrom([]int{1, 3, 100, 5000, chunkBytes}).Draw(t, "bytes"))
				now = now.Add(time.Millisecond)
				stream := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
				size, _ := spoolSizes(t, filepath.Join(dir, "spool"))
				switch err := s.put(stream, now, p); {
				case errors.Is(err, errSpoolFull):
					if size+int64(len(p)+spoolHeader) <= limit {
						t.Fatalf("full with %d bytes", size)
					}
				case err != nil:
					t.Fatal(err)
				default:
					want = append(want, chunk{stream: stream, at: now, data: p})
				}
			},
			"take": func(t *rapid.T) {
				limit := rapid.SampledFrom([]int{1, 7, 1000, chunkBytes}).Draw(t, "at most")
				stream, at, p, err := s.take(limit)
				if len(want) == 0 {
					if !errors.Is(err, io.EOF) {
						t.Fatalf("%d bytes from nowhere, %v", len(p), err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(p) == 0 || len(p) > limit || stream != want[0].stream || !at.Equal(want[0].at) {
					t.Fatalf("%d bytes of %s at %v, want %s at %v", len(p), stream, at, want[0].stream, want[0].at)
				}
				for len(p) > 0 {
					n := min(len(p), len(want[0].data))
					if want[0].stream != stream || !bytes.Equal(p[:n], want[0].data[:n]) {
						t.Fatal("other bytes")
					}
					if want[0].data, p = want[0].data[n:], p[n:]; len(want[0].data) == 0 {
						want = want[1:]
					}
				}
			},
			"relax": func(*rapid.T) { s.relax() },
			"": func(t *rapid.T) {
				size, files := spoolSizes(t, filepath.Join(dir, "spool"))
				if size > limit || len(want) == 0 && files > 0 {
					t.Fatalf("%d bytes in %d files, with %d records in it", size, files, len(want))
				}
			},
		})
		s.close()
		if _, files := spoolSizes(t, filepath.Join(dir, "spool")); files > 0 {
			t.Fatalf("%d files are left", files)
		}
		if err := s.put(Stdout, now, []byte("x")); !errors.Is(err, errSpoolClosed) {
			t.Fatalf("put: %v", err)
		}
		if _, _, _, err := s.take(1); !errors.Is(err, errSpoolClosed) {
			t.Fatalf("take: %v", err)
		}
	})
}

func TestSpool_OnePutsWhileAnotherTakes(t *testing.T) {
	t.Parallel()
	s := newSpool(filepath.Join(t.TempDir(), "spool", "1"), 1<<20)
	const total = 20 << 20
	var writer sync.WaitGroup
	writer.Go(func() {
		for sent := 0; sent < total; {
			p := make([]byte, min(total-sent, 1+sent%chunkBytes))
			for i := range p {
				p[i] = byte((sent + i) * 31 >> 4)
			}
			switch err := s.put(Stdout, t0(), p); {
			case errors.Is(err, errSpoolFull):
			case err != nil:
				t.Error(err)
				return
			default:
				sent += len(p)
			}
		}
	})
	for got := 0; got < total; {
		_, _, p, err := s.take(chunkBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for i, b := range p {
			if b != byte((got+i)*31>>4) {
				t.Fatalf("byte %d is another one", got+i)
			}
		}
		got += len(p)
	}
	writer.Wait()
}

func TestSpool_ADiskThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "spool")
	if err := os.WriteFile(root, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	s := newSpool(filepath.Join(root, "1"), 1<<20)
	if err := s.put(Stdout, t0(), []byte("lost")); err == nil || errors.Is(err, errSpoolFull) {
		t.Fatalf("error %v", err)
	}
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one ", "two "} {
		if err := s.put(Stdout, t0(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	// A disk that is full in the middle of a record: what came of it is written over.
	if err := s.files[0].file.Close(); err != nil { // it is to fail
		t.Fatal(err)
	}
	if err := s.put(Stdout, t0(), []byte("never")); err == nil {
		t.Fatal("a closed file took it")
	}
	f, err := os.OpenFile(s.files[0].path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("\x01half a rec"), s.files[0].size); err != nil {
		t.Fatal(err)
	}
	s.files[0].file = f
	if err := s.put(Stdout, t0(), []byte("three")); err != nil {
		t.Fatal(err)
	}
	if _, _, p, err := s.take(100); err != nil || string(p) != "one two three" {
		t.Errorf("%q, %v", p, err)
	}
}

func TestSpool_ATornFileIsNoOutput(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"shorter":        func(path string) error { return os.Truncate(path, 10) },
		"zeros":          func(path string) error { return os.WriteFile(path, make([]byte, 100), 0o600) },
		"another length": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{0xff}, 100), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpool(filepath.Join(t.TempDir(), "spool", "1"), 1<<20)
			if err := s.put(Stdout, t0(), make([]byte, 50)); err != nil {
				t.Fatal(err)
			}
			if err := damage(s.files[0].path); err != nil {
				t.Fatal(err)
			}
			if _, _, p, err := s.take(100); err == nil {
				t.Errorf("took %d bytes", len(p))
			}
			s.close()
		})
	}
}

func TestSweepSpools_RemovesWhatAnEarlierProcessLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSpool(filepath.Join(spoolRoot(dir), "1"), 1<<20)
	if err := s.put(Stdout, t0(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sweepSpools(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(spoolRoot(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
