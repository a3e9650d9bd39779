package memstore

import (
	"errors"
	"io"
	"testing"

	"github.com/swampd/swampd/persistence"
)

func TestNewBlob_StopsWhereSpaceRunsShort(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{})
	w, err := s.NewBlob()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	s.SetSpace(persistence.Space{Free: 9, NewWork: 30, Data: 10, Hard: 5})
	if n, err := w.Write(make([]byte, 10)); !errors.Is(err, persistence.ErrNoSpace) || n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := w.Commit(); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("commit of what is not whole: %v", err)
	}
	if err := w.Discard(); err != nil {
		t.Error(err)
	}
	if _, err := s.NewBlob(); !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("new: %v", err)
	}
	if keys, err := s.Blobs(); err != nil || len(keys) > 0 {
		t.Errorf("bodies %q, %v", keys, err)
	}
	if err := commit(s, puts(run("r", 0, "a"))); err != nil {
		t.Errorf("the store is not trusted any more: %v", err)
	}
	s.SetSpace(persistence.Space{Free: 10, NewWork: 30, Data: 10, Hard: 5}) // new work would be refused
	if w, err = s.NewBlob(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Error(err)
	}
}

func TestBlob_ThatCannotBeSyncedEndsTheTrustInTheStore(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{})
	w, err := s.NewBlob()
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.Join(persistence.ErrSync, errors.New("input/output error"))
	s.blobs.failCommit(boom)
	if _, err := w.Commit(); !errors.Is(err, persistence.ErrSync) {
		t.Errorf("commit: %v", err)
	}
	<-s.Failed()
	if _, err := s.NewBlob(); !errors.Is(err, persistence.ErrSync) {
		t.Errorf("new: %v", err)
	}
	if err := commit(s, puts(run("r", 0, "a"))); !errors.Is(err, persistence.ErrSync) {
		t.Errorf("a later commit: %v", err)
	}
	if err := w.Discard(); err != nil {
		t.Error(err)
	}
}

func TestSnapshot_HoldsTheBodiesOfItsMoment(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{Remember: 1})
	named := func(s *Store, at int64, more string) string {
		t.Helper()
		w, err := s.NewBlob()
		if at > 0 {
			keys, lerr := s.Blobs()
			if lerr != nil {
				t.Fatal(lerr)
			}
			w, err = s.ExtendBlob(keys[0], at)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(more)); err != nil {
			t.Fatal(err)
		}
		key, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	key := named(s, 0, "shared")
	late, err := s.NewBlob()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := s.Crash()
	if _, err := late.Commit(); !errors.Is(err, persistence.ErrClosed) {
		t.Errorf("late: %v", err)
	}
	for _, own := range []string{"-one", "-two"} {
		next := open(t, snapshot.Behind(1), Options{})
		named(next, 6, own)
		r, err := next.OpenBlob(key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "shared"+own {
			t.Errorf("%q, %v", got, err)
		}
	}
}
