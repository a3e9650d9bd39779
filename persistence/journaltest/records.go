package journaltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/persistence"
)

// split are the kinds whose ended records stand apart; joint are the others.
func split() []persistence.Kind {
	return []persistence.Kind{
		persistence.KindRun, persistence.KindPending, persistence.KindLease, persistence.KindToken, persistence.KindWorker,
		persistence.KindScheduler,
	}
}

func joint() []persistence.Kind {
	return []persistence.Kind{
		persistence.KindStep, persistence.KindBinding, persistence.KindSource, persistence.KindOutput, persistence.KindArtifact,
		persistence.KindArtifactVersion, persistence.KindDataRequest,
	}
}

func recordTests() []test {
	return []test{
		on("a record comes back as it was put", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				before := time.Now()
				commit(t, j, puts(persistence.Put{Kind: kind, ID: "a/b c%\xff", State: "new", Body: []byte{0, 1, 0xff}}))
				got := get(t, j, kind, "a/b c%\xff")
				want := persistence.Record{
					Kind: kind, ID: "a/b c%\xff", Version: 1, Epoch: j.Epoch(), State: "new", Body: []byte{0, 1, 0xff},
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(persistence.Record{}, "Time")); diff != "" {
					t.Error(diff)
				}
				if got.Time.Before(before.Add(-time.Millisecond)) || got.Time.After(time.Now().Add(time.Millisecond)) {
					t.Errorf("written at %v, not after %v", got.Time, before)
				}
			}
		}),
		on("the journal keeps nothing of the caller's memory", func(t *testing.T, j persistence.Journal) {
			body := []byte("before")
			event := []byte("event before")
			commit(t, j, persistence.Commit{
				Puts:    []persistence.Put{{Kind: persistence.KindRun, ID: "r", Body: body}},
				Appends: []persistence.Append{{Stream: "r", Body: event}},
			})
			copy(body, "after!")
			copy(event, "event after!")
			if got := get(t, j, persistence.KindRun, "r").Body; string(got) != "before" {
				t.Errorf("the record's body is %q", got)
			}
			if got := events(t, j, "r", 0, 1)[0]; got != "event before" {
				t.Errorf("the event's body is %q", got)
			}
		}),
		on("each put raises the version by one", func(t *testing.T, j persistence.Journal) {
			for v := range uint64(5) {
				commit(t, j, puts(put(persistence.KindRun, "r", v, fmt.Sprint("s", v))))
				got := get(t, j, persistence.KindRun, "r")
				if got.Version != v+1 || got.State != fmt.Sprint("s", v) {
					t.Fatalf("version %d in state %s", got.Version, got.State)
				}
			}
		}),
		on("a stale writer is refused and writes nothing of its commit", func(t *testing.T, j persistence.Journal) {
			commit(t, j, puts(put(persistence.KindRun, "r", 0, "a")))
			commit(t, j, puts(put(persistence.KindRun, "r", 1, "b")))
			for _, expect := range []uint64{0, 1, 3} {
				refused(t, j, persistence.Commit{
					Puts:    []persistence.Put{put(persistence.KindLease, "l", 0, "x"), put(persistence.KindRun, "r", expect, "c")},
					Appends: []persistence.Append{{Stream: "r", Body: []byte("no")}},
				}, persistence.ErrStaleWriter)
			}
			gone(t, j, persistence.KindLease, "l")
			if got := get(t, j, persistence.KindRun, "r"); got.Version != 2 || got.State != "b" {
				t.Errorf("version %d in state %s", got.Version, got.State)
			}
			if got := events(t, j, "r", 0, 10); len(got) != 0 {
				t.Errorf("events %v", got)
			}
			refused(t, j, puts(put(persistence.KindWorker, "none", 1, "a")), persistence.ErrStaleWriter)
		}),
		on("an ended record leaves the live ones and is found by Get", func(t *testing.T, j persistence.Journal) {
			for _, kind := range split() {
				commit(t, j, puts(put(kind, "x", 0, "a")))
				commit(t, j, puts(ended(put(kind, "x", 1, "done"))))
				if got := ids(t, j, kind, false, "", ""); len(got) != 0 {
					t.Errorf("live %ss: %v", kind, got)
				}
				if diff := cmp.Diff([]string{"x"}, ids(t, j, kind, true, "", "")); diff != "" {
					t.Error(diff)
				}
				if got := get(t, j, kind, "x"); !got.Ended || got.Version != 2 || got.State != "done" {
					t.Errorf("%+v", got)
				}
			}
		}),
		on("an ended record of a kind without an end of its own stays where it is", func(t *testing.T, j persistence.Journal) {
			for _, kind := range joint() {
				commit(t, j, puts(put(kind, "x", 0, "a")))
				commit(t, j, puts(ended(put(kind, "x", 1, "done"))))
				if diff := cmp.Diff([]string{"x"}, ids(t, j, kind, false, "", "")); diff != "" {
					t.Error(diff)
				}
				if got := ids(t, j, kind, true, "", ""); len(got) != 0 {
					t.Errorf("ended %ss: %v", kind, got)
				}
				if got := get(t, j, kind, "x"); !got.Ended {
					t.Errorf("%+v", got)
				}
			}
		}),
		on("a record may be born ended", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				commit(t, j, puts(ended(put(kind, "x", 0, "skipped"))))
				if got := get(t, j, kind, "x"); !got.Ended || got.Version != 1 {
					t.Errorf("%+v", got)
				}
				refused(t, j, puts(put(kind, "x", 0, "again")), persistence.ErrStaleWriter)
			}
		}),
		on("an ended record is not written again, by whatever version", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				commit(t, j, puts(put(kind, "x", 0, "a")))
				commit(t, j, puts(ended(put(kind, "x", 1, "done"))))
				for _, expect := range []uint64{0, 1, 2} {
					refused(t, j, puts(put(kind, "x", expect, "again")), persistence.ErrStaleWriter)
					refused(t, j, puts(ended(put(kind, "x", expect, "again"))), persistence.ErrStaleWriter)
				}
				if got := get(t, j, kind, "x"); got.State != "done" {
					t.Errorf("%+v", got)
				}
			}
		}),
		on("a deleted record is gone, live or ended, and its id is free", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				commit(t, j, puts(put(kind, "live", 0, "a"), ended(put(kind, "ended", 0, "a"))))
				commit(t, j, persistence.Commit{Deletes: []persistence.Delete{{Kind: kind, ID: "live"}, {Kind: kind, ID: "ended"}}})
				gone(t, j, kind, "live")
				gone(t, j, kind, "ended")
				commit(t, j, puts(put(kind, "live", 0, "b"), put(kind, "ended", 0, "b")))
			}
		}),
		on("to delete what is not there is no error", func(t *testing.T, j persistence.Journal) {
			commit(t, j, persistence.Commit{Deletes: []persistence.Delete{{Kind: persistence.KindToken, ID: "none"}}})
		}),
		on("what is not there is ErrNotFound", func(t *testing.T, j persistence.Journal) {
			for _, kind := range append(split(), joint()...) {
				gone(t, j, kind, "none")
			}
		}),
		on("an empty commit succeeds", func(t *testing.T, j persistence.Journal) {
			if seqs := commit(t, j, persistence.Commit{}); len(seqs) != 0 {
				t.Errorf("numbers %v", seqs)
			}
		}),
		on("a context that has ended commits nothing", func(t *testing.T, j persistence.Journal) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := j.Commit(ctx, puts(put(persistence.KindRun, "r", 0, "a"))); !errors.Is(err, context.Canceled) {
				t.Errorf("commit: %v", err)
			}
			gone(t, j, persistence.KindRun, "r")
		}),
	}
}

func conditionTests() []test {
	const kind = persistence.KindWorker
	with := func(c persistence.Condition) persistence.Commit {
		c.Kind = kind
		return persistence.Commit{
			Puts:       []persistence.Put{put(persistence.KindLease, "l", 0, "active")},
			Conditions: []persistence.Condition{c},
		}
	}
	prepare := func(t *testing.T, j persistence.Journal) {
		commit(t, j, puts(put(kind, "w", 0, "idle")))
		commit(t, j, puts(put(kind, "w", 1, "draining")))
		commit(t, j, puts(ended(put(kind, "over", 0, "gone"))))
	}
	var tests []test
	for _, tt := range []struct {
		name      string
		condition persistence.Condition
		holds     bool
	}{
		{"absent holds where there is none", persistence.Condition{ID: "none", Absent: true}, true},
		{"absent holds where it has ended", persistence.Condition{ID: "over", Absent: true}, true},
		{"absent fails where it lives", persistence.Condition{ID: "w", Absent: true}, false},
		{"version holds for the current one", persistence.Condition{ID: "w", Version: 2}, true},
		{"version fails for a former one", persistence.Condition{ID: "w", Version: 1}, false},
		{"version fails for a later one", persistence.Condition{ID: "w", Version: 3}, false},
		{"version fails where there is none", persistence.Condition{ID: "none", Version: 1}, false},
		{"version fails where it has ended", persistence.Condition{ID: "over", Version: 1}, false},
		{"state holds for the current one", persistence.Condition{ID: "w", State: "draining"}, true},
		{"state fails for another one", persistence.Condition{ID: "w", State: "idle"}, false},
		{"state fails where there is none", persistence.Condition{ID: "none", State: "idle"}, false},
		{"state fails where it has ended", persistence.Condition{ID: "over", State: "gone"}, false},
	} {
		tests = append(tests, on(tt.name, func(t *testing.T, j persistence.Journal) {
			prepare(t, j)
			if tt.holds {
				commit(t, j, with(tt.condition))
				get(t, j, persistence.KindLease, "l")
				return
			}
			refused(t, j, with(tt.condition), persistence.ErrConditionFailed)
			gone(t, j, persistence.KindLease, "l")
		}))
	}
	return append(tests,
		on("a condition on a record of the same commit sees what was there before", func(t *testing.T, j persistence.Journal) {
			prepare(t, j)
			c := puts(put(kind, "w", 2, "paused"))
			c.Conditions = []persistence.Condition{{Kind: kind, ID: "w", State: "draining"}}
			commit(t, j, c)
			c = puts(put(kind, "new", 0, "idle"))
			c.Conditions = []persistence.Condition{{Kind: kind, ID: "new", Absent: true}}
			commit(t, j, c)
		}),
		on("a commit of conditions alone tests them", func(t *testing.T, j persistence.Journal) {
			prepare(t, j)
			commit(t, j, persistence.Commit{Conditions: []persistence.Condition{{Kind: kind, ID: "w", Version: 2}}})
			refused(t, j, persistence.Commit{Conditions: []persistence.Condition{{Kind: kind, ID: "w", Version: 1}}}, persistence.ErrConditionFailed)
		}),
		on("one that has not exactly one test is an error of its own", func(t *testing.T, j persistence.Journal) {
			prepare(t, j)
			for _, c := range []persistence.Condition{{ID: "w"}, {ID: "w", Version: 2, State: "draining"}} {
				if _, err := j.Commit(context.Background(), with(c)); err == nil || persistence.OfOperation(err) {
					t.Errorf("%+v: %v", c, err)
				}
			}
			commit(t, j, puts(put(kind, "after", 0, "idle")))
		}),
	)
}
