package badgerstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

func putRun(t *testing.T, s *Store, id string, body int) {
	t.Helper()
	_, err := s.Commit(context.Background(), persistence.Commit{
		Puts:    []persistence.Put{{Kind: persistence.KindRun, ID: id, State: "running", Body: bytes.Repeat([]byte(id), body/len(id))}},
		Appends: []persistence.Append{{Stream: id, Body: []byte("event of " + id)}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func runs(t *testing.T, s *Store) []string {
	t.Helper()
	var ids []string
	err := s.Scan(persistence.KindRun, false, "", "", func(r persistence.Record) bool {
		ids = append(ids, r.ID)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// withoutEmptyEnd is a file without the pages of zeros at its end: Badger's logs are mapped, and mostly empty.
func withoutEmptyEnd(data []byte) []byte {
	empty := make([]byte, 64<<10)
	for len(data) >= len(empty) && bytes.Equal(data[len(data)-len(empty):], empty) {
		data = data[:len(data)-len(empty)]
	}
	return data
}

// clone copies a directory as a process that is killed would leave it: the kernel has all that was written. The zeros at
// the end of Badger's logs stay a hole.
func clone(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, withoutEmptyEnd(data), 0o600); err != nil {
			return err
		}
		return os.Truncate(target, int64(len(data)))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// content is every file of a directory.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = fmt.Sprintf("%d bytes, %x", len(data), castagnoli(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// used is a store that has tables and a live log: one closed boot, and one that is killed. last is its last run.
func used(t *testing.T) (dir, last string) {
	t.Helper()
	at := t.TempDir()
	s := open(t, at)
	for i := range 300 {
		putRun(t, s, fmt.Sprintf("a%03d", i), 1000)
	}
	closeStore(t, s)
	s = open(t, at)
	for i := range 100 {
		last = fmt.Sprintf("b%03d", i)
		putRun(t, s, last, 1000)
	}
	dir = clone(t, at)
	closeStore(t, s)
	return dir, last
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(at func(int) int) func([]byte) []byte {
	return func(data []byte) []byte {
		n := at(len(bytes.TrimRight(data, "\x00")))
		data[n] ^= 0xff
		data[n+1] ^= 0xff
		return data
	}
}

func cut(keep func(int) int) func([]byte) []byte {
	return func(data []byte) []byte { return data[:keep(len(bytes.TrimRight(data, "\x00")))] }
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func half(n int) int { return n / 2 }

func TestDamage_IsRefusedRepairedOrCounted(t *testing.T) {
	t.Parallel()
	killed, last := used(t)
	s := open(t, clone(t, killed))
	whole := len(runs(t, s))
	closeStore(t, s)
	if whole != 400 {
		t.Fatalf("%d runs after the kill, not 400", whole)
	}
	closed := s.dir
	other, _ := used(t)

	for _, tt := range []struct {
		name   string
		closed bool // of the store that was closed, not killed
		damage func(t *testing.T, dir string)
		what   string // of the DamagedError; empty: it opens and nothing is missing
	}{
		{"no damage, killed", false, func(*testing.T, string) {}, ""},
		{"no damage, closed", true, func(*testing.T, string) {}, ""},
		{"two bytes flipped within a live log", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.mem"), flip(half))
		}, "last commits are missing"},
		{"a live log cut in half", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.mem"), cut(half))
		}, "last commits are missing"},
		{"a live log cut by a few bytes", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.mem"), cut(func(n int) int { return n - 5 }))
		}, "last commits are missing"},
		{"a live log of length zero", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.mem"), cut(func(int) int { return 0 }))
		}, "last commits are missing"},
		{"a new log without a byte", false, func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "journal/00099.mem"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"a live log removed", false, func(t *testing.T, dir string) {
			remove(t, one(t, dir, "journal/*.mem"))
		}, "last commits are missing"},
		{"bytes flipped in a table's data", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.sst"), flip(half))
		}, "table 000001.sst"},
		{"bytes flipped at a table's end", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.sst"), flip(func(n int) int { return n - 3 }))
		}, "table 000001.sst"},
		{"a table removed", false, func(t *testing.T, dir string) {
			remove(t, one(t, dir, "journal/*.sst"))
		}, "table 000001.sst is missing"},
		{"a table cut", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.sst"), cut(half))
		}, "table 000001.sst"},
		{"a table of length zero", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.sst"), cut(func(int) int { return 0 }))
		}, "table 000001.sst"},
		{"the manifest flipped", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "journal/MANIFEST"), flip(half))
		}, "MANIFEST"},
		{"the manifest cut by five bytes", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "journal/MANIFEST"), cut(func(n int) int { return n - 5 }))
		}, "MANIFEST ends too early"},
		{"the manifest cut to its first record", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "journal/MANIFEST"), func(data []byte) []byte { return data[:16] })
		}, "MANIFEST ends too early"},
		{"the manifest removed", false, func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "journal/MANIFEST"))
		}, "MANIFEST is missing"},
		{"bytes behind the manifest of a closed store", true, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "journal/MANIFEST"), func(data []byte) []byte { return append(data, 1) })
		}, "MANIFEST has changed"},
		{"an append to the manifest that was under way", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "journal/MANIFEST"), func(data []byte) []byte { return append(data, 0, 0, 0, 9, 1, 2) })
		}, ""},
		{"a table that was being written", false, func(t *testing.T, dir string) {
			data, err := os.ReadFile(one(t, dir, "journal/*.sst"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "journal/000099.sst"), data[:len(data)/2], 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		{"a table that nobody wrote, in a closed store", true, func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "journal/000099.sst"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "does not name table 000099.sst"},
		{"the value log cut", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.vlog"), cut(func(n int) int { return n }))
		}, ""},
		{"the value log empty", false, func(t *testing.T, dir string) {
			edit(t, one(t, dir, "journal/*.vlog"), cut(func(int) int { return 0 }))
		}, ""},
		{"the value log removed", false, func(t *testing.T, dir string) {
			remove(t, one(t, dir, "journal/*.vlog"))
		}, ""},
		{"the whole journal removed", false, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
				t.Fatal(err)
			}
		}, "MANIFEST is missing"},
		{"the journal of another store", false, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(clone(t, other), "journal"), filepath.Join(dir, "journal")); err != nil {
				t.Fatal(err)
			}
		}, "that of another store"},
		{"store.json removed", false, func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, sentinelFile))
		}, "store.json is missing"},
		{"store.json cut", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, sentinelFile), cut(half))
		}, "store.json cannot be read"},
		{"the head file removed", false, func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, headFile))
		}, "head is missing"},
		{"the head file empty", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, headFile), cut(func(int) int { return 0 }))
		}, "head cannot be read"},
		{"one slot of the head file torn", false, func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, headFile), func(data []byte) []byte {
				data[20] ^= 1
				return data
			})
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := clone(t, killed)
			if tt.closed {
				dir = clone(t, closed)
			}
			tt.damage(t, dir)
			if tt.what == "" {
				s := open(t, dir)
				if n := len(runs(t, s)); n != whole || s.Quarantined() != 0 {
					t.Errorf("%d of %d runs, %d in quarantine", n, whole, s.Quarantined())
				}
				if _, err := s.Get(persistence.KindRun, last); err != nil {
					t.Error(err)
				}
				return
			}
			s, err := Open(Config{Dir: dir})
			if err == nil {
				defer closeStore(t, s)
				t.Fatalf("it opened, with %d of %d runs", len(runs(t, s)), whole)
			}
			var damaged *persistence.DamagedError
			if !errors.As(err, &damaged) || !strings.Contains(damaged.What, tt.what) {
				t.Fatalf("it was refused otherwise: %v", err)
			}
			if damaged.Dir != dir || damaged.Next == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("the sentence: %v", err)
			}
			// The refusal is not forgotten at the next try.
			if s, err := Open(Config{Dir: dir}); err == nil {
				closeStore(t, s)
				t.Error("the second try opened it")
			}
		})
	}
}

func TestDamage_RefusedBeforeBadgerOpensChangesNothing(t *testing.T) {
	t.Parallel()
	dir, _ := used(t)
	edit(t, filepath.Join(dir, "journal/MANIFEST"), cut(func(n int) int { return n - 5 }))
	before := content(t, dir)
	for range 2 {
		if s, err := Open(Config{Dir: dir}); err == nil {
			closeStore(t, s)
			t.Fatal("it opened")
		}
	}
	after := content(t, dir)
	delete(after, "/lock") // of this process now
	delete(before, "/lock")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestDamage_ADamagedLogIsKeptAsItWas(t *testing.T) {
	t.Parallel()
	dir, _ := used(t)
	path := one(t, dir, "journal/*.mem")
	edit(t, path, flip(half))
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = Open(Config{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, rescueDir)) {
			t.Fatalf("the sentence does not say where the logs are: %v", err)
		}
		kept, err := os.ReadFile(filepath.Join(dir, rescueDir, filepath.Base(path)))
		if err != nil || !bytes.Equal(kept, damaged) {
			t.Fatalf("the log was not kept: %v", err)
		}
	}
}

func TestDamage_OfARecordIsCounted(t *testing.T) {
	t.Parallel()
	dir, last := used(t)
	s := open(t, dir)
	damage(t, s.engine.db, func(_, value []byte) bool {
		r, err := persistence.DecodeRecord(value)
		return err == nil && r.ID == last
	})
	if n := len(runs(t, s)); n != 399 || s.Quarantined() != 1 {
		t.Errorf("%d runs, %d in quarantine", n, s.Quarantined())
	}
}
