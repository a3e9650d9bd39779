package memstore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/journaltest"
)

// open boots a store from a snapshot; it closes with the test.
func open(t *testing.T, from Snapshot, options Options) *Store {
	t.Helper()
	s, err := Open(from, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func exercise(t *testing.T, end func(*testing.T, *Store) Snapshot) {
	journaltest.Exercise(t, journaltest.Harness{
		Open: func(t *testing.T) persistence.Journal {
			t.Helper()
			return open(t, Snapshot{}, Options{})
		},
		Reopen: func(t *testing.T, j persistence.Journal) persistence.Journal {
			t.Helper()
			return open(t, end(t, j.(*Store)), Options{})
		},
		Damage: func(t *testing.T, j persistence.Journal, choose func(key, value []byte) bool) {
			t.Helper()
			damage(j.(*Store).engine, choose)
		},
		Restore: func(t *testing.T, backup []byte) (persistence.Journal, error) {
			t.Helper()
			snapshot, err := Restore(bytes.NewReader(backup))
			if err != nil {
				return nil, err
			}
			return open(t, snapshot, Options{}), nil
		},
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		exercise(t, func(t *testing.T, s *Store) Snapshot {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return s.Snapshot()
		})
	})
	t.Run("crashed", func(t *testing.T) {
		t.Parallel()
		exercise(t, func(_ *testing.T, s *Store) Snapshot { return s.Crash() })
	})
}

// damage flips a bit in the values that are chosen.
func damage(e *engine, choose func(key, value []byte) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	root := e.root
	root.walk(nil, nil, false, func(key, value []byte) bool {
		if choose(key, value) {
			value = bytes.Clone(value)
			value[len(value)/2] ^= 0x10
			e.root = e.root.put(e.seed, key, value)
		}
		return true
	})
}

func TestFailNth_FailsThatCommitOnly(t *testing.T) {
	t.Parallel()
	boom := errors.New("input/output error")
	j := journaltest.FailNth(open(t, Snapshot{}, Options{}), 2, boom)
	for i, want := range []error{nil, boom, nil} {
		if _, err := j.Commit(t.Context(), puts(run(fmt.Sprint(i), 0, "a"))); !errors.Is(err, want) {
			t.Errorf("commit %d: %v", i+1, err)
		}
		if _, err := j.Get(persistence.KindRun, fmt.Sprint(i)); (err == nil) != (want == nil) {
			t.Errorf("get after commit %d: %v", i+1, err)
		}
	}
}
