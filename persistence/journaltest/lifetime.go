package journaltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

func lifetimeTests() []test {
	return []test{
		{"all of it is there after the store was closed", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, persistence.Commit{
				Puts: []persistence.Put{
					put(persistence.KindRun, "live", 0, "running"), ended(put(persistence.KindRun, "over", 0, "failed")),
					put(persistence.KindStep, persistence.StepID("live", 0), 0, "waiting"),
				},
				Appends: []persistence.Append{{Stream: "live", Body: []byte("started")}},
			})
			commit(t, j, puts(put(persistence.KindWorker, "w", 0, "idle")))
			commit(t, j, puts(put(persistence.KindWorker, "w", 1, "busy")))
			before := snapshot(t, j)
			j = h.Reopen(t, j)
			if diff := cmp.Diff(before, snapshot(t, j)); diff != "" {
				t.Error(diff)
			}
			refused(t, j, puts(put(persistence.KindRun, "live", 0, "again")), persistence.ErrStaleWriter)
			refused(t, j, puts(put(persistence.KindRun, "over", 1, "again")), persistence.ErrStaleWriter)
			commit(t, j, puts(put(persistence.KindWorker, "w", 2, "idle")))
			if got := get(t, j, persistence.KindWorker, "w"); got.Epoch != j.Epoch() {
				t.Errorf("written in boot %d, not %d", got.Epoch, j.Epoch())
			}
		}},
		{"the sequence never falls or repeats, and the epoch grows", func(t *testing.T, h Harness) {
			j := h.Open(t)
			var last, epoch uint64
			id := j.StoreID()
			if id == "" {
				t.Error("the store has no name")
			}
			for range 4 {
				if j.Epoch() <= epoch {
					t.Errorf("epoch %d after %d", j.Epoch(), epoch)
				}
				if j.StoreID() != id {
					t.Errorf("the store is %q, not %q", j.StoreID(), id)
				}
				epoch = j.Epoch()
				for range 100 {
					next := j.Sequence()
					if next <= last {
						t.Fatalf("%d after %d", next, last)
					}
					last = next
				}
				j = h.Reopen(t, j)
			}
		}},
		on("the sequence is everybody's own", func(t *testing.T, j persistence.Journal) {
			var mu sync.Mutex
			seen := map[uint64]bool{}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 1000 {
						n := j.Sequence()
						mu.Lock()
						if seen[n] {
							t.Errorf("%d twice", n)
						}
						seen[n] = true
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		}),
		{"a close answers those that wait, and what succeeded stays", func(t *testing.T, h Harness) {
			old := h.Open(t)
			const writers = 40
			var mu sync.Mutex
			done := map[string]bool{}
			started := make(chan struct{}, writers)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := 0; ; i++ {
						id := fmt.Sprint(w, "-", i)
						_, err := old.Commit(context.Background(), puts(put(persistence.KindRun, id, 0, "a")))
						if errors.Is(err, persistence.ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						done[id] = true
						mu.Unlock()
						if i == 0 {
							started <- struct{}{}
						}
					}
				})
			}
			for range writers {
				<-started
			}
			j := h.Reopen(t, old)
			wg.Wait()
			for id := range done {
				if _, err := j.Get(persistence.KindRun, id); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		}},
		on("after the close there is only ErrClosed, and to close again is harmless", func(t *testing.T, j persistence.Journal) {
			commit(t, j, puts(put(persistence.KindRun, "r", 0, "a")))
			for range 2 {
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
			}
			_, commitErr := j.Commit(context.Background(), puts(put(persistence.KindRun, "r", 1, "b")))
			_, getErr := j.Get(persistence.KindRun, "r")
			_, eventsErr := j.Events("r", 0, 1)
			_, historyErr := j.History(persistence.KindWorker, "w")
			for what, err := range map[string]error{
				"commit": commitErr, "get": getErr, "events": eventsErr, "history": historyErr,
				"scan":         j.Scan(persistence.KindRun, false, "", "", func(persistence.Record) bool { return true }),
				"scan back":    j.ScanBack(persistence.KindRun, false, "", "", func(persistence.Record) bool { return true }),
				"close output": j.CloseOutput("d"),
			} {
				if !errors.Is(err, persistence.ErrClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}),
	}
}

// snapshot is all that can be seen of the records, their histories and the stream of each run.
func snapshot(t testing.TB, j persistence.Journal) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, kind := range append(split(), joint()...) {
		for _, ended := range []bool{false, true} {
			err := j.Scan(kind, ended, "", "", func(r persistence.Record) bool {
				all["record "+string(kind)] = append(all["record "+string(kind)], fmt.Sprintf("%+v", r))
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids(t, j, kind, ended, "", "") {
				all["history "+id] = append(all["history "+id], fmt.Sprint(history(t, j, kind, id)))
				all["events "+id] = events(t, j, id, 0, 1000)
			}
		}
	}
	return all
}

func quarantineTests() []test {
	// damage hits the stored records that choose picks, live, ended and former ones, and checks that they are n.
	damage := func(t *testing.T, h Harness, j persistence.Journal, n int, choose func(persistence.Record) bool) {
		t.Helper()
		hit := 0
		h.Damage(t, j, func(_, value []byte) bool {
			r, err := persistence.DecodeRecord(value)
			if err != nil || !choose(r) {
				return false
			}
			hit++
			return true
		})
		if hit != n {
			t.Fatalf("damaged %d values, not %d", hit, n)
		}
	}
	named := func(kind persistence.Kind, id string) func(persistence.Record) bool {
		return func(r persistence.Record) bool { return r.Kind == kind && r.ID == id }
	}
	return []test{
		{"a scan skips, counts and sets aside what cannot be decoded", func(t *testing.T, h Harness) {
			j := h.Open(t)
			for _, id := range []string{"a", "b", "c"} {
				commit(t, j, puts(put(persistence.KindRun, id, 0, "running"), ended(put(persistence.KindRun, "over-"+id, 0, "done"))))
			}
			damage(t, h, j, 2, func(r persistence.Record) bool { return r.ID == "b" || r.ID == "over-c" })
			for range 2 {
				if diff := cmp.Diff([]string{"a", "c"}, ids(t, j, persistence.KindRun, false, "", "")); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"over-b", "over-a"}, idsBack(t, j, persistence.KindRun, true, "", "")); diff != "" {
					t.Error(diff)
				}
				if n := j.Quarantined(); n != 2 {
					t.Errorf("%d in quarantine", n)
				}
			}
			j = h.Reopen(t, j)
			if diff := cmp.Diff([]string{"a", "c"}, ids(t, j, persistence.KindRun, false, "", "")); diff != "" {
				t.Error(diff)
			}
			if n := j.Quarantined(); n != 0 {
				t.Errorf("%d in quarantine, although they were set aside before", n)
			}
		}},
		{"a Get does not find what cannot be decoded", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindLease, "l", 0, "active")))
			damage(t, h, j, 1, named(persistence.KindLease, "l"))
			for range 2 {
				gone(t, j, persistence.KindLease, "l")
			}
			if n := j.Quarantined(); n != 1 {
				t.Errorf("%d in quarantine", n)
			}
		}},
		{"a writer of what cannot be decoded is stale, and a new one begins anew", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindWorker, "w", 0, "idle")))
			damage(t, h, j, 1, named(persistence.KindWorker, "w"))
			j = h.Reopen(t, j) // or the journal remembers what it wrote
			refused(t, j, puts(put(persistence.KindWorker, "w", 1, "busy")), persistence.ErrStaleWriter)
			if n := j.Quarantined(); n != 1 {
				t.Errorf("%d in quarantine", n)
			}
			commit(t, j, puts(put(persistence.KindWorker, "w", 0, "idle")))
			if got := get(t, j, persistence.KindWorker, "w"); got.Version != 1 {
				t.Errorf("version %d", got.Version)
			}
		}},
		{"a condition on what cannot be decoded fails, and its neighbours do not", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindWorker, "w", 0, "idle")))
			damage(t, h, j, 1, named(persistence.KindWorker, "w"))
			j = h.Reopen(t, j)
			var commits []persistence.Commit
			for i := range 20 {
				commits = append(commits, puts(put(persistence.KindLease, fmt.Sprint(i), 0, "active")))
			}
			commits[10].Conditions = []persistence.Condition{{Kind: persistence.KindWorker, ID: "w", Version: 1}}
			_, errs := together(j, commits)
			for i, err := range errs {
				if i == 10 && !errors.Is(err, persistence.ErrConditionFailed) || i != 10 && err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		}},
		{"a former version that cannot be decoded is skipped", func(t *testing.T, h Harness) {
			j := h.Open(t)
			for v := range uint64(5) {
				commit(t, j, puts(put(persistence.KindWorker, "w", v, "idle")))
			}
			damage(t, h, j, 1, func(r persistence.Record) bool { return r.Version == 2 })
			if diff := cmp.Diff([]uint64{4, 3, 1}, history(t, j, persistence.KindWorker, "w")); diff != "" {
				t.Error(diff)
			}
		}},
		{"events that cannot be decoded are left out, and their numbers are not given again", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, appends("r", "1", "2"))
			commit(t, j, appends("r", "3", "bad"))
			commit(t, j, appends("r", "5"))
			commit(t, j, appends("s", "1", "bad"))
			h.Damage(t, j, func(_, value []byte) bool { return len(value) > 3 && string(value[len(value)-3:]) == "bad" })
			for range 2 {
				got, err := j.Events("r", 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				var seqs []uint64
				for _, e := range got {
					seqs = append(seqs, e.Seq)
				}
				if diff := cmp.Diff([]uint64{1, 2, 5}, seqs); diff != "" {
					t.Error(diff)
				}
			}
			if got := events(t, j, "s", 0, 10); len(got) != 0 {
				t.Errorf("events %v", got)
			}
			if n := j.Quarantined(); n != 2 {
				t.Errorf("%d in quarantine", n)
			}
			j = h.Reopen(t, j)
			for _, stream := range []string{"r", "s"} {
				if _, err := j.Events(stream, 0, 10); err != nil {
					t.Fatal(err)
				}
			}
			if n := j.Quarantined(); n != 0 {
				t.Errorf("%d in quarantine, although they were set aside before", n)
			}
			if diff := cmp.Diff([]uint64{6}, commit(t, j, appends("r", "6"))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]uint64{3}, commit(t, j, appends("s", "3"))); diff != "" {
				t.Error(diff)
			}
		}},
		{"a follower passes over events that cannot be decoded", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, appends("r", "1", "bad"))
			h.Damage(t, j, func(_, value []byte) bool { return len(value) > 3 && string(value[len(value)-3:]) == "bad" })
			f := j.Follow("r", 0)
			defer f.Close()
			commit(t, j, appends("r", "3"))
			got, err := f.Next(t.Context())
			if err != nil || len(got) != 1 || got[0].Seq != 3 {
				t.Errorf("%v, %v", got, err)
			}
		}},
	}
}
