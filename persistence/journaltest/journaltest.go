package journaltest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/swampd/swampd/persistence"
)

// Harness is how the suite gets at an engine. The functions fail the test where something goes wrong.
type Harness struct {
	// Open returns an empty journal, which ends with the test.
	Open func(t *testing.T) persistence.Journal
	// Reopen closes a journal and opens its store again, as the next process.
	Reopen func(t *testing.T, j persistence.Journal) persistence.Journal
	// Damage makes the stored value of a key undecodable. Keys gives it the keys to choose from.
	Damage func(t *testing.T, j persistence.Journal, choose func(key, value []byte) bool)
	// Restore returns a journal, which ends with the test, of what a backup holds; or why that cannot be.
	Restore func(t *testing.T, backup []byte) (persistence.Journal, error)
}

// Exercise runs the suite.
func Exercise(t *testing.T, h Harness) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Records", recordTests()},
		{"Conditions", conditionTests()},
		{"Bounds", boundTests()},
		{"Batches", batchTests()},
		{"History", historyTests()},
		{"Scans", scanTests()},
		{"Streams", streamTests()},
		{"Followers", followTests()},
		{"Output", outputTests()},
		{"Blobs", blobTests()},
		{"Sweeps", sweepTests()},
		{"Lifetime", lifetimeTests()},
		{"Quarantine", quarantineTests()},
		{"Retention", retentionTests()},
		{"Backup", backupTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.run(t, h)
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, h Harness)
}

// on is a test that needs nothing but an open journal.
func on(name string, run func(t *testing.T, j persistence.Journal)) test {
	return test{name, func(t *testing.T, h Harness) { run(t, h.Open(t)) }}
}

func put(kind persistence.Kind, id string, expect uint64, state string) persistence.Put {
	return persistence.Put{
		Kind: kind, ID: id, Expect: expect, State: state, Body: fmt.Appendf(nil, "%s %s after %d", kind, id, expect),
	}
}

func ended(p persistence.Put) persistence.Put {
	p.Ended = true
	return p
}

func puts(p ...persistence.Put) persistence.Commit { return persistence.Commit{Puts: p} }

func commit(t testing.TB, j persistence.Journal, c persistence.Commit) []uint64 {
	t.Helper()
	seqs, err := j.Commit(context.Background(), c)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return seqs
}

// refused commits what must be refused, and checks that it was.
func refused(t testing.TB, j persistence.Journal, c persistence.Commit, want error) {
	t.Helper()
	if _, err := j.Commit(context.Background(), c); !errors.Is(err, want) {
		t.Fatalf("commit: %v, not %v", err, want)
	}
}

func get(t testing.TB, j persistence.Journal, kind persistence.Kind, id string) persistence.Record {
	t.Helper()
	r, err := j.Get(kind, id)
	if err != nil {
		t.Fatalf("get %s %q: %v", kind, id, err)
	}
	return r
}

func gone(t testing.TB, j persistence.Journal, kind persistence.Kind, id string) {
	t.Helper()
	if r, err := j.Get(kind, id); !errors.Is(err, persistence.ErrNotFound) {
		t.Fatalf("get %s %q: %+v, %v", kind, id, r, err)
	}
}

func ids(t testing.TB, j persistence.Journal, kind persistence.Kind, ended bool, prefix, after string) []string {
	t.Helper()
	got := []string{}
	err := j.Scan(kind, ended, prefix, after, func(r persistence.Record) bool {
		got = append(got, r.ID)
		return true
	})
	if err != nil {
		t.Fatalf("scan %ss: %v", kind, err)
	}
	return got
}

func idsBack(t testing.TB, j persistence.Journal, kind persistence.Kind, ended bool, prefix, before string) []string {
	t.Helper()
	got := []string{}
	err := j.ScanBack(kind, ended, prefix, before, func(r persistence.Record) bool {
		got = append(got, r.ID)
		return true
	})
	if err != nil {
		t.Fatalf("scan %ss back: %v", kind, err)
	}
	return got
}

// together makes commits at once, so that they share batches, and returns their answers in order.
func together(j persistence.Journal, commits []persistence.Commit) (seqs [][]uint64, errs []error) {
	seqs, errs = make([][]uint64, len(commits)), make([]error, len(commits))
	start := make(chan struct{})
	done := make(chan struct{})
	for i := range commits {
		go func() {
			<-start
			seqs[i], errs[i] = j.Commit(context.Background(), commits[i])
			done <- struct{}{}
		}()
	}
	close(start)
	for range commits {
		<-done
	}
	return seqs, errs
}
