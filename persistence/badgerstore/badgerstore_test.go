package badgerstore

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/journaltest"
)

// open opens the store in a directory; it closes with the test.
func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
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

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	journaltest.Exercise(t, journaltest.Harness{
		Open: func(t *testing.T) persistence.Journal {
			t.Helper()
			return open(t, t.TempDir())
		},
		Reopen: func(t *testing.T, j persistence.Journal) persistence.Journal {
			t.Helper()
			s := j.(*Store)
			closeStore(t, s)
			return open(t, s.dir)
		},
		Damage: func(t *testing.T, j persistence.Journal, choose func(key, value []byte) bool) {
			t.Helper()
			damage(t, j.(*Store).engine.db, choose)
		},
		Restore: func(t *testing.T, backup []byte) (persistence.Journal, error) {
			t.Helper()
			dir := filepath.Join(t.TempDir(), "restored")
			if _, err := Restore(RestoreConfig{From: bytes.NewReader(backup), Dir: dir}); err != nil {
				return nil, err
			}
			return open(t, dir), nil
		},
	})
}

// damage flips a bit in the values that are chosen.
func damage(t *testing.T, db *badger.DB, choose func(key, value []byte) bool) {
	t.Helper()
	err := db.Update(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := it.Item().KeyCopy(nil)
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			if !choose(key, bytes.Clone(value)) {
				continue
			}
			value[len(value)/2] ^= 0x10
			if err := txn.Set(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
