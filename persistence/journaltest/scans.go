package journaltest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/persistence"
)

func history(t testing.TB, j persistence.Journal, kind persistence.Kind, id string) []uint64 {
	t.Helper()
	records, err := j.History(kind, id)
	if err != nil {
		t.Fatalf("history of %s %q: %v", kind, id, err)
	}
	versions := []uint64{}
	for _, r := range records {
		if r.Kind != kind || r.ID != id {
			t.Errorf("history of %s %q holds %s %q", kind, id, r.Kind, r.ID)
		}
		versions = append(versions, r.Version)
	}
	return versions
}

func historyTests() []test {
	const kept = persistence.HistoryKept
	countdown := func(from, to uint64) []uint64 {
		versions := []uint64{}
		for v := from; v >= to && v > 0; v-- {
			versions = append(versions, v)
		}
		return versions
	}
	return []test{
		on("workers and tokens keep their last versions, newest first", func(t *testing.T, j persistence.Journal) {
			for _, kind := range []persistence.Kind{persistence.KindWorker, persistence.KindToken} {
				for v := range uint64(kept + 15) {
					commit(t, j, puts(put(kind, "x", v, fmt.Sprint("state", v))))
					if diff := cmp.Diff(countdown(v, max(v, kept)-kept+1), history(t, j, kind, "x")); diff != "" {
						t.Fatalf("%s at version %d: %s", kind, v+1, diff)
					}
				}
				records, err := j.History(kind, "x")
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					if r.State != fmt.Sprint("state", r.Version-1) {
						t.Errorf("version %d is in state %s", r.Version, r.State)
					}
				}
			}
		}),
		on("the history of one is not that of another whose name begins alike", func(t *testing.T, j persistence.Journal) {
			for _, id := range []string{"a", "aa", "a/", "a\x00", "a\x00\x01"} {
				for v := range uint64(3) {
					commit(t, j, puts(put(persistence.KindWorker, id, v, "idle")))
				}
			}
			for _, id := range []string{"a", "aa", "a/", "a\x00", "a\x00\x01"} {
				if diff := cmp.Diff(countdown(2, 1), history(t, j, persistence.KindWorker, id)); diff != "" {
					t.Errorf("%q: %s", id, diff)
				}
			}
		}),
		on("the history outlives the end and goes with the record", func(t *testing.T, j persistence.Journal) {
			commit(t, j, puts(put(persistence.KindToken, "x", 0, "active")))
			commit(t, j, puts(ended(put(persistence.KindToken, "x", 1, "revoked"))))
			if diff := cmp.Diff(countdown(1, 1), history(t, j, persistence.KindToken, "x")); diff != "" {
				t.Error(diff)
			}
			commit(t, j, persistence.Commit{Deletes: []persistence.Delete{{Kind: persistence.KindToken, ID: "x"}}})
			if got := history(t, j, persistence.KindToken, "x"); len(got) != 0 {
				t.Errorf("versions %v", got)
			}
		}),
		on("other kinds have none", func(t *testing.T, j persistence.Journal) {
			for _, kind := range []persistence.Kind{persistence.KindRun, persistence.KindStep, persistence.KindLease} {
				commit(t, j, puts(put(kind, "x", 0, "a")))
				commit(t, j, puts(put(kind, "x", 1, "b")))
				if got := history(t, j, kind, "x"); len(got) != 0 {
					t.Errorf("versions %v of a %s", got, kind)
				}
			}
		}),
	}
}

func scanTests() []test {
	return []test{
		on("scans are in id order, from after and below before, of one prefix", func(t *testing.T, j persistence.Journal) {
			all := []string{"a", "a/1", "a/2", "a/2/x", "a0", "b", "\xff", "\xff\xff"}
			for _, kind := range []persistence.Kind{persistence.KindRun, persistence.KindStep} {
				for _, id := range all {
					commit(t, j, puts(put(kind, id, 0, "x")))
				}
				for _, prefix := range []string{"", "a", "a/", "a/2", "b", "c", "\xff"} {
					for _, bound := range append([]string{""}, append(all, "0", "a/", "zz", "\xff\xff\xff")...) {
						above, below := []string{}, []string{}
						for _, id := range slices.Sorted(slices.Values(all)) {
							if !strings.HasPrefix(id, prefix) {
								continue
							}
							if bound == "" || id > bound {
								above = append(above, id)
							}
							if bound == "" || id < bound {
								below = append(below, id)
							}
						}
						slices.Reverse(below)
						if diff := cmp.Diff(above, ids(t, j, kind, false, prefix, bound)); diff != "" {
							t.Errorf("%ss with prefix %q after %q: %s", kind, prefix, bound, diff)
						}
						if diff := cmp.Diff(below, idsBack(t, j, kind, false, prefix, bound)); diff != "" {
							t.Errorf("%ss with prefix %q before %q: %s", kind, prefix, bound, diff)
						}
					}
				}
			}
		}),
		on("a scan of one kind sees no other", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				commit(t, j, puts(put(kind, "x"+string(kind), 0, "a"), ended(put(kind, "y"+string(kind), 0, "a"))))
			}
			for _, kind := range split() {
				if diff := cmp.Diff([]string{"x" + string(kind)}, ids(t, j, kind, false, "", "")); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"y" + string(kind)}, idsBack(t, j, kind, true, "", "")); diff != "" {
					t.Error(diff)
				}
			}
			for _, kind := range joint() {
				if diff := cmp.Diff([]string{"x" + string(kind), "y" + string(kind)}, ids(t, j, kind, false, "", "")); diff != "" {
					t.Error(diff)
				}
			}
		}),
		on("a scan stops where it is told to", func(t *testing.T, j persistence.Journal) {
			for i := range 100 {
				commit(t, j, puts(put(persistence.KindRun, fmt.Sprintf("%03d", i), 0, "a")))
			}
			for _, n := range []int{1, 31, 32, 33, 99} {
				seen := 0
				err := j.ScanBack(persistence.KindRun, false, "", "", func(r persistence.Record) bool {
					seen++
					if want := fmt.Sprintf("%03d", 100-seen); r.ID != want {
						t.Errorf("%s, not %s", r.ID, want)
					}
					return seen < n
				})
				if err != nil || seen != n {
					t.Errorf("%d of %d: %v", seen, n, err)
				}
			}
		}),
		on("a scan's function may write, and what it does not touch is seen once", func(t *testing.T, j persistence.Journal) {
			var c persistence.Commit
			for i := range 900 {
				c.Puts = append(c.Puts, put(persistence.KindRun, fmt.Sprintf("%03d", i), 0, "a"))
			}
			commit(t, j, c)
			seen := map[string]int{}
			err := j.Scan(persistence.KindRun, false, "", "", func(r persistence.Record) bool {
				seen[r.ID]++
				if len(seen)%100 == 0 { // its own end, and a birth behind the scan
					commit(t, j, puts(ended(put(persistence.KindRun, r.ID, 1, "done")), put(persistence.KindRun, "!"+r.ID, 0, "a")))
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 900 {
				if n := seen[fmt.Sprintf("%03d", i)]; n != 1 {
					t.Errorf("%03d was seen %d times", i, n)
				}
			}
		}),
		on("pages of random scans while somebody writes hold what stays", scanProperty),
		on("a scan of an unknown kind is an error", func(t *testing.T, j persistence.Journal) {
			if err := j.Scan("ghost", false, "", "", func(persistence.Record) bool { return true }); err == nil {
				t.Error("no error")
			}
		}),
	}
}

// scanProperty pages through records that stay while others come and go between the pages.
func scanProperty(t *testing.T, j persistence.Journal) {
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		prefix := fmt.Sprintf("%06d/", round)
		stay := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,4}`), 0, 40, rapid.ID).Draw(t, "stay")
		var c persistence.Commit
		for _, id := range stay {
			c.Puts = append(c.Puts, put(persistence.KindRun, prefix+id, 0, "stays"))
		}
		if _, err := j.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		back := rapid.Bool().Draw(t, "back")
		size := rapid.IntRange(1, 10).Draw(t, "page")
		var got []string
		for from, more := "", true; more; {
			page := 0
			see := func(r persistence.Record) bool {
				page++
				from = r.ID
				if r.State == "stays" {
					got = append(got, strings.TrimPrefix(r.ID, prefix))
				}
				return page < size
			}
			var err error
			if back {
				err = j.ScanBack(persistence.KindRun, false, prefix, from, see)
			} else {
				err = j.Scan(persistence.KindRun, false, prefix, from, see)
			}
			if err != nil {
				t.Fatal(err)
			}
			more = page == size
			passing := put(persistence.KindRun, prefix+rapid.StringMatching(`[a-c]{1,4}_`).Draw(t, "passing"), 0, "passes")
			_, err = j.Commit(t.Context(), puts(passing))
			if err != nil && !persistence.OfOperation(err) {
				t.Fatal(err)
			}
		}
		want := slices.Sorted(slices.Values(stay))
		if back {
			slices.Reverse(want)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("want %v, got %v", want, got)
		}
	})
}
