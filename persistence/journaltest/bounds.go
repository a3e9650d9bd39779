package journaltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

func boundTests() []test {
	filled := func(n int) persistence.Put {
		return persistence.Put{Kind: persistence.KindSource, ID: "s", Body: make([]byte, n)}
	}
	return []test{
		on("a commit of MaxEntries entries is made, and one more is too large", func(t *testing.T, j persistence.Journal) {
			var c persistence.Commit
			for i := range persistence.MaxEntries / 2 {
				c.Puts = append(c.Puts, put(persistence.KindStep, persistence.StepID("r", uint32(i)), 0, "waiting"))
				c.Appends = append(c.Appends, persistence.Append{Stream: "r", Body: fmt.Append(nil, i)})
			}
			if seqs := commit(t, j, c); len(seqs) != len(c.Appends) || seqs[len(seqs)-1] != uint64(len(c.Appends)) {
				t.Errorf("%d numbers, up to %d", len(seqs), seqs[len(seqs)-1])
			}
			if got := ids(t, j, persistence.KindStep, false, "r/", ""); len(got) != len(c.Puts) {
				t.Errorf("%d steps", len(got))
			}
			c.Conditions = []persistence.Condition{{Kind: persistence.KindRun, ID: "x", Absent: true}}
			refused(t, j, c, persistence.ErrTooLarge)
		}),
		on("a commit of MaxCommitBytes is made, and one byte more is too large", func(t *testing.T, j persistence.Journal) {
			commit(t, j, puts(filled(persistence.MaxCommitBytes-1)))
			over := filled(persistence.MaxCommitBytes)
			over.ID = "t"
			refused(t, j, puts(over), persistence.ErrTooLarge)
			refused(t, j, persistence.Commit{
				Appends: []persistence.Append{{Stream: "r", Body: make([]byte, persistence.MaxCommitBytes)}},
			}, persistence.ErrTooLarge)
			gone(t, j, persistence.KindSource, "t")
		}),
		on("many large commits at once are all made", func(t *testing.T, j persistence.Journal) {
			var commits []persistence.Commit
			for i := range 12 {
				p := filled(persistence.MaxCommitBytes - 100)
				p.ID = fmt.Sprintf("s%02d", i)
				commits = append(commits, puts(p))
			}
			if _, errs := together(j, commits); cmp.Diff(make([]error, len(commits)), errs) != "" {
				t.Fatal(errs)
			}
			if got := ids(t, j, persistence.KindSource, false, "s", ""); len(got) != len(commits) {
				t.Errorf("sources %v", got)
			}
		}),
		on("many large commits of many entries at once are all made", func(t *testing.T, j persistence.Journal) {
			var commits []persistence.Commit
			for i := range 30 {
				var c persistence.Commit
				for n := range persistence.MaxEntries {
					c.Puts = append(c.Puts, put(persistence.KindStep, persistence.StepID(fmt.Sprintf("r%02d", i), uint32(n)), 0, "waiting"))
				}
				commits = append(commits, c)
			}
			if _, errs := together(j, commits); cmp.Diff(make([]error, len(commits)), errs) != "" {
				t.Fatal(errs)
			}
			if got := ids(t, j, persistence.KindStep, false, "", ""); len(got) != 30*persistence.MaxEntries {
				t.Errorf("%d steps", len(got))
			}
		}),
		on("a record that stands twice in a commit is an error of its own", func(t *testing.T, j persistence.Journal) {
			p := put(persistence.KindRun, "r", 0, "a")
			many := persistence.Commit{Puts: []persistence.Put{p}}
			for i := range 20 {
				many.Puts = append(many.Puts, put(persistence.KindRun, fmt.Sprint(i), 0, "a"))
			}
			many.Puts = append(many.Puts, p)
			for _, c := range []persistence.Commit{
				puts(p, p), many,
				{Puts: []persistence.Put{p}, Deletes: []persistence.Delete{{Kind: persistence.KindRun, ID: "r"}}},
			} {
				if _, err := j.Commit(context.Background(), c); err == nil || persistence.OfOperation(err) {
					t.Errorf("%v", err)
				}
			}
			gone(t, j, persistence.KindRun, "r")
			commit(t, j, puts(p))
		}),
		on("what cannot be a record is an error of its own", func(t *testing.T, j persistence.Journal) {
			for _, c := range []persistence.Commit{
				puts(put("ghost", "x", 0, "a")), puts(put(persistence.KindRun, "", 0, "a")),
				{Appends: []persistence.Append{{Body: []byte("x")}}}, {Class: 7},
			} {
				if _, err := j.Commit(context.Background(), c); err == nil || persistence.OfOperation(err) {
					t.Errorf("%v", err)
				}
			}
			refused(t, j, puts(put(persistence.KindRun, string(make([]byte, 10_000)), 0, "a")), persistence.ErrTooLarge)
		}),
	}
}

func batchTests() []test {
	return []test{
		on("of many writers of one version one wins, and neighbours do not suffer", func(t *testing.T, j persistence.Journal) {
			commit(t, j, puts(put(persistence.KindRun, "r", 0, "a")))
			const rivals, neighbours = 50, 50
			var commits []persistence.Commit
			for i := range rivals {
				p := put(persistence.KindRun, "r", 1, fmt.Sprint("rival", i))
				commits = append(commits, persistence.Commit{
					Puts:    []persistence.Put{p, put(persistence.KindLease, fmt.Sprint("l", i), 0, "active")},
					Appends: []persistence.Append{{Stream: "r", Body: []byte(p.State)}},
				})
			}
			for i := range neighbours {
				commits = append(commits, puts(put(persistence.KindWorker, fmt.Sprint("w", i), 0, "idle")))
			}
			_, errs := together(j, commits)
			winner := -1
			for i, err := range errs[:rivals] {
				switch {
				case err == nil && winner >= 0:
					t.Fatalf("both %d and %d won", winner, i)
				case err == nil:
					winner = i
				case !persistence.OfOperation(err):
					t.Fatal(err)
				}
			}
			if winner < 0 {
				t.Fatal("nobody won")
			}
			for i, err := range errs[rivals:] {
				if err != nil {
					t.Errorf("neighbour %d: %v", i, err)
				}
			}
			if got := get(t, j, persistence.KindRun, "r"); got.Version != 2 || got.State != fmt.Sprint("rival", winner) {
				t.Errorf("%d won, but version %d in state %s", winner, got.Version, got.State)
			}
			if diff := cmp.Diff([]string{fmt.Sprint("l", winner)}, ids(t, j, persistence.KindLease, false, "", "")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{fmt.Sprint("rival", winner)}, events(t, j, "r", 0, 10)); diff != "" {
				t.Error(diff)
			}
		}),
		on("conditions of commits made at once see each other", func(t *testing.T, j persistence.Journal) {
			// Each takes the one slot if it is free: the batch must not let two of them see it so.
			commit(t, j, puts(put(persistence.KindWorker, "w", 0, "free")))
			var commits []persistence.Commit
			for i := range 64 {
				c := puts(put(persistence.KindWorker, "w", 1, "taken"), put(persistence.KindLease, fmt.Sprint(i), 0, "active"))
				c.Conditions = []persistence.Condition{{Kind: persistence.KindWorker, ID: "w", State: "free"}}
				commits = append(commits, c)
			}
			_, errs := together(j, commits)
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if !persistence.OfOperation(err) {
					t.Error(err)
				}
			}
			if leases := ids(t, j, persistence.KindLease, false, "", ""); won != 1 || len(leases) != 1 {
				t.Errorf("%d won, leases %v", won, leases)
			}
		}),
		on("a record may be made, changed, ended and deleted within a batch", func(t *testing.T, j persistence.Journal) {
			// One after the other for each record, many records at once: they share batches.
			done := make(chan error)
			for i := range 40 {
				go func() {
					id := fmt.Sprint("w", i)
					for _, c := range []persistence.Commit{
						puts(put(persistence.KindWorker, id, 0, "idle")), puts(put(persistence.KindWorker, id, 1, "busy")),
						puts(ended(put(persistence.KindWorker, id, 2, "gone"))),
						{Deletes: []persistence.Delete{{Kind: persistence.KindWorker, ID: id}}},
						puts(put(persistence.KindWorker, id, 0, "idle")),
					} {
						if _, err := j.Commit(context.Background(), c); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range 40 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if got := ids(t, j, persistence.KindWorker, false, "", ""); len(got) != 40 {
				t.Errorf("workers %v", got)
			}
			if got := ids(t, j, persistence.KindWorker, true, "", ""); len(got) != 0 {
				t.Errorf("ended workers %v", got)
			}
			for i := range 40 {
				if got := history(t, j, persistence.KindWorker, fmt.Sprint("w", i)); len(got) != 0 {
					t.Errorf("former versions of a new worker: %v", got)
				}
			}
		}),
		on("the counters count", func(t *testing.T, j persistence.Journal) {
			before := j.Stats()
			for i := range 10 {
				commit(t, j, puts(put(persistence.KindRun, fmt.Sprint(i), 0, "a")))
			}
			refused(t, j, puts(put(persistence.KindRun, "0", 0, "a")), persistence.ErrStaleWriter)
			got := j.Stats()
			if n := got.Commits - before.Commits; n != 10 {
				t.Errorf("%d commits", n)
			}
			if n := got.Syncs - before.Syncs; n == 0 || n > 10 || got.Sync < 0 {
				t.Errorf("%d syncs in %v", n, got.Sync)
			}
		}),
	}
}
