package badgerstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/swampd/swampd/persistence"
)

// addRuns writes ended runs with all that belongs to one, forty a commit; removeRuns is retention.
func addRuns(t *testing.T, s *Store, from, to, body int) {
	t.Helper()
	text := bytes.Repeat([]byte("x"), body)
	for ; from < to; from += 40 {
		var c persistence.Commit
		for n := from; n < min(from+40, to); n++ {
			id := fmt.Sprintf("r%08d", n)
			for _, p := range []persistence.Put{
				{Kind: persistence.KindRun, ID: id}, {Kind: persistence.KindStep, ID: persistence.StepID(id, 0)},
				{Kind: persistence.KindLease, ID: persistence.LeaseID(id+".0.1", 1)}, {Kind: persistence.KindOutput, ID: id + ".0.1"},
			} {
				p.State, p.Ended, p.Body = "succeeded", true, text
				c.Puts = append(c.Puts, p)
			}
			c.Appends = append(c.Appends, persistence.Append{Stream: id, Body: text})
		}
		commit(t, s, c)
	}
}

func removeRuns(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for ; from < to; from += 40 {
		var c persistence.Commit
		for n := from; n < min(from+40, to); n++ {
			id := fmt.Sprintf("r%08d", n)
			c.Deletes = append(c.Deletes,
				persistence.Delete{Kind: persistence.KindStep, ID: persistence.StepID(id, 0)},
				persistence.Delete{Kind: persistence.KindLease, ID: persistence.LeaseID(id+".0.1", 1)},
				persistence.Delete{Kind: persistence.KindOutput, ID: id + ".0.1"}, persistence.Delete{Kind: persistence.KindRun, ID: id})
			c.Drops = append(c.Drops, id)
		}
		commit(t, s, c)
	}
}

func commit(t *testing.T, s *Store, c persistence.Commit) {
	t.Helper()
	if _, err := s.Commit(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}

// tables is the size of Badger's tables.
func tables(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) { // a table that was compacted just now
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".sst") {
			size += info.Size()
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return size
}

// From the second thousand on, as many runs go as come. Badger compacts by itself: the tables gather to some 40 MiB and
// fall back to what lives, again and again, and where they fall back to does not rise.
func TestRetention_ASteadyStreamOfRunsDoesNotGrowTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	const rounds, round, body = 20, 1000, 1000
	var sizes []int64
	for n := range rounds {
		addRuns(t, s, n*round, (n+1)*round, body)
		if n > 0 {
			removeRuns(t, s, (n-1)*round, n*round)
		}
		sizes = append(sizes, tables(t, dir)>>20)
	}
	const live, written = 2 * round * 5 * body >> 20, rounds * round * 5 * body >> 20
	if least := slices.Min(sizes[rounds-10:]); least > live+2*memTableSize>>20 {
		t.Errorf("%d MiB live of %d MiB that were written, and the tables never fell below %d MiB of late: %v", live, written, least, sizes)
	}
}

func TestRetention_AQuietStoreGivesSpaceBackWhenAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	addRuns(t, s, 0, 6000, 1000)
	putRun(t, s, "stays", 1000)
	full := tables(t, dir)
	if full < 15<<20 {
		t.Fatalf("the tables hold %d MiB, too little for a test", full>>20)
	}
	removeRuns(t, s, 0, 6000)
	for range 2 { // to do it again is harmless
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
	}
	if left := tables(t, dir); left > 1<<20 {
		t.Errorf("the tables hold %d KiB of %d KiB after all was removed", left>>10, full>>10)
	}
	closeStore(t, s)
	s = open(t, dir)
	if got := runs(t, s); len(got) != 1 || got[0] != "stays" {
		t.Errorf("runs %v", got)
	}
}

func TestRetention_ALogIsRemovedUnderItsReader(t *testing.T) {
	t.Parallel()
	o := logs(t, 4)
	appendText(t, o, "d", 0, "old")
	l, err := o.acquire("d") // a reader in the middle of it
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Remove("d"); err != nil {
		t.Fatal(err)
	}
	appendText(t, o, "d", 0, "new log")
	if chunks, err := l.read(0, 100); err != nil || len(chunks) != 1 || string(chunks[0].Data) != "old" {
		t.Errorf("the reader got %v, %v", chunks, err)
	}
	if err := o.giveBack(l); err != nil {
		t.Fatal(err)
	}
	if l.opened() {
		t.Error("the file of the removed log is still open")
	}
	if got := readText(t, o, "d", 0); got != "new log" {
		t.Errorf("the new log holds %q", got)
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "r.0.1", "%", "%4", "%41", "A", "ä\x00/.."} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, ok := unescapeName(escapeName(name)); !ok || got != name {
			t.Errorf("%q came back as %q, %t", name, got, ok)
		}
		unescapeName(name)
	})
}
