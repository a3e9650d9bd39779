package journaltest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/persistence"
)

func drops(streams ...string) persistence.Commit { return persistence.Commit{Drops: streams} }

func retentionTests() []test {
	return []test{
		{"a dropped stream is gone, and begins anew", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, appends("r", "a", "b"))
			commit(t, j, appends("r", "c"))
			commit(t, j, appends("r\x00", "of another"))
			commit(t, j, appends("rr", "of another"))
			commit(t, j, drops("r", "that never was"))
			for range 2 {
				if got := events(t, j, "r", 0, 10); got != nil {
					t.Errorf("events %q are left", got)
				}
				for _, other := range []string{"r\x00", "rr"} {
					if diff := cmp.Diff([]string{"of another"}, events(t, j, other, 0, 10)); diff != "" {
						t.Errorf("%q: %s", other, diff)
					}
				}
				j = h.Reopen(t, j)
			}
			if diff := cmp.Diff([]uint64{1}, commit(t, j, appends("r", "new"))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"new"}, events(t, j, "r", 0, 10)); diff != "" {
				t.Error(diff)
			}
		}},
		on("a drop and a first event in one commit are a new stream", func(t *testing.T, j persistence.Journal) {
			commit(t, j, appends("r", "a", "b"))
			c := appends("r", "new")
			c.Drops = []string{"r"}
			if diff := cmp.Diff([]uint64{1}, commit(t, j, c)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"new"}, events(t, j, "r", 0, 10)); diff != "" {
				t.Error(diff)
			}
		}),
		on("drops and appends in the same batch keep their order", func(t *testing.T, j persistence.Journal) {
			for range 20 {
				seqs, errs := together(j, []persistence.Commit{
					appends("r", "a"), drops("r"), appends("r", "b"), drops("r"), appends("r", "c"), appends("s", "a"),
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				left, err := j.Events("r", 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				last := uint64(0) // whatever came last, the numbers are dense from 1
				for i, e := range left {
					if e.Seq != uint64(i)+1 {
						t.Fatalf("event %d has number %d, the commits got %v", i, e.Seq, seqs)
					}
					last = e.Seq
				}
				if got := commit(t, j, appends("r", "d")); got[0] != last+1 {
					t.Fatalf("number %d after %d", got[0], last)
				}
				commit(t, j, drops("r"))
			}
		}),
		on("a long stream goes from its beginning, and its numbers go on until it is gone", func(t *testing.T, j persistence.Journal) {
			const commits = persistence.MaxDropped + 10
			for i := range commits {
				commit(t, j, appends("r", fmt.Sprint(i)))
			}
			commit(t, j, drops("r"))
			left, err := j.Events("r", 0, commits)
			if err != nil || len(left) != 10 || left[0].Seq != persistence.MaxDropped+1 {
				t.Fatalf("%d events are left, %v", len(left), err)
			}
			if got := commit(t, j, appends("r", "more")); got[0] != commits+1 {
				t.Errorf("number %d after %d", got[0], commits)
			}
			commit(t, j, drops("r"))
			if got := events(t, j, "r", 0, 10); got != nil {
				t.Errorf("events %q are left", got)
			}
		}),
		on("followers of a stream that is gone end", func(t *testing.T, j persistence.Journal) {
			commit(t, j, appends("r", "a"))
			f, other := j.Follow("r", 0), j.Follow("s", 0)
			defer f.Close()
			defer other.Close()
			if _, err := f.Next(context.Background()); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := f.Next(context.Background())
				ended <- err
			}()
			commit(t, j, drops("r"))
			if err := <-ended; !errors.Is(err, persistence.ErrNotFound) {
				t.Errorf("it ended with %v", err)
			}
			commit(t, j, appends("s", "a"))
			if _, err := other.Next(context.Background()); err != nil {
				t.Errorf("another one ended with %v", err)
			}
		}),
		on("a drop without a name, or with one that is too long, is refused", func(t *testing.T, j persistence.Journal) {
			refused(t, j, drops(string(make([]byte, 5000))), persistence.ErrTooLarge)
			if _, err := j.Commit(context.Background(), drops("")); err == nil {
				t.Error("a stream without a name was dropped")
			}
		}),
		{"a record, its history, its stream and its log go together with nothing left", func(t *testing.T, h Harness) {
			j := h.Open(t)
			before := snapshot(t, j)
			commit(t, j, persistence.Commit{
				Puts: []persistence.Put{
					ended(put(persistence.KindRun, "r", 0, "failed")), put(persistence.KindStep, persistence.StepID("r", 0), 0, "failed"),
					ended(put(persistence.KindLease, "r.0.1/1", 0, "completed")), put(persistence.KindOutput, "r.0.1", 0, "ended"),
				},
				Appends: []persistence.Append{{Stream: "r", Body: []byte("e")}},
			})
			appendOutput(t, j, "r.0.1", chunk(0, "stdout", "printed"))
			commit(t, j, persistence.Commit{
				Deletes: []persistence.Delete{
					{Kind: persistence.KindLease, ID: "r.0.1/1"}, {Kind: persistence.KindOutput, ID: "r.0.1"},
					{Kind: persistence.KindStep, ID: persistence.StepID("r", 0)}, {Kind: persistence.KindRun, ID: "r"},
				},
				Drops: []string{"r"},
			})
			if err := j.DeleteOutput("r.0.1"); err != nil {
				t.Fatal(err)
			}
			j = h.Reopen(t, j)
			if diff := cmp.Diff(before, snapshot(t, j)); diff != "" {
				t.Error(diff)
			}
			if logs, err := j.OutputLogs(); err != nil || len(logs) != 0 {
				t.Errorf("logs %q, %v", logs, err)
			}
			if got := output(t, j, "r.0.1", 0, 100); got != nil {
				t.Errorf("output %v", got)
			}
		}},
		{"logs are listed by their dispatch, whatever it is called", func(t *testing.T, h Harness) {
			j := h.Open(t)
			want := []string{"%41", "A", "a", "r.0.1", "r/../x", "ä\x00"}
			for _, dispatch := range want {
				appendOutput(t, j, dispatch, chunk(0, "stdout", dispatch))
			}
			for range 2 {
				got, err := j.OutputLogs()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				j = h.Reopen(t, j)
			}
		}},
		{"deleted output is gone, that of others stays, and the name can be used again", func(t *testing.T, h Harness) {
			j := h.Open(t)
			for _, dispatch := range []string{"d", "dd"} {
				appendOutput(t, j, dispatch, chunk(0, "stdout", "old"))
			}
			for range 2 { // the second finds nothing, which is no error
				if err := j.DeleteOutput("d"); err != nil {
					t.Fatal(err)
				}
				if got := output(t, j, "d", 0, 100); got != nil {
					t.Errorf("output %v", got)
				}
			}
			appendOutput(t, j, "d", chunk(0, "stdout", "new!"))
			for range 2 {
				if got := text(output(t, j, "d", 0, 100)) + text(output(t, j, "dd", 0, 100)); got != "new!old" {
					t.Errorf("output %q", got)
				}
				j = h.Reopen(t, j)
			}
		}},
	}
}
