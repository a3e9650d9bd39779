package actors

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

// keeper is retention over a store, without any actors.
func keeper(t *testing.T, store *memstore.Store) *retainer {
	t.Helper()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	sys := &System{journal: store, log: slog.New(slog.DiscardHandler)}
	sys.data = newData(sys)
	return &retainer{sys: sys, keep: Retention{}.withDefaults(), reported: make(map[string]bool)}
}

func orphanBody(t *testing.T, j persistence.Journal) string {
	t.Helper()
	w, err := j.NewBlob()
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRetainer_WritesAreForgottenAfterADay(t *testing.T) {
	t.Parallel()
	age := 25 * time.Hour
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(-age) }})
	if err != nil {
		t.Fatal(err)
	}
	r := keeper(t, store)
	for i := range removalSize + 50 { // more than one commit removes
		r.write(t, persistence.KindDataRequest, fmt.Sprintf("old%04d", i), false, &messages.DataRequestRecord{Name: "a"})
	}
	age = 23 * time.Hour
	r.write(t, persistence.KindDataRequest, "young", false, &messages.DataRequestRecord{Name: "a"})
	left := func() (ids []string) {
		t.Helper()
		err := store.Scan(persistence.KindDataRequest, false, "", "", func(rec persistence.Record) bool {
			ids = append(ids, rec.ID)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if err := r.data(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := left(); !slices.Equal(got, []string{"young"}) || r.removed != removalSize+50 {
		t.Errorf("%d are left, of %d that were removed: %q", len(got), r.removed, got)
	}
	age = 25 * time.Hour
	r.write(t, persistence.KindDataRequest, "later", false, &messages.DataRequestRecord{Name: "a"})
	if err := r.data(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := left(); len(got) != 2 {
		t.Errorf("it was looked for again before its time: %q are left", got)
	}
}

func TestRetainer_BodiesWithoutARecordGo(t *testing.T) {
	t.Parallel()
	first, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	orphan := orphanBody(t, first)
	store, err := memstore.Open(first.Crash(), memstore.Options{})
	if err := errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	r := keeper(t, store)
	young, unfreed := orphanBody(t, store), orphanBody(t, store)
	bodies := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		if got, err := store.Blobs(); err != nil || !slices.Equal(got, want) {
			t.Errorf("bodies %q, %v; %q were due", got, err, want)
		}
	}
	beside := func(fn func()) { // beside a backup
		t.Helper()
		_, err := store.Backup(t.Context(), writer(func(p []byte) (int, error) {
			fn()
			return len(p), nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	beside(func() {
		r.sys.data.free(unfreed)
		if err := r.data(t.Context()); err != nil {
			t.Error(err)
		}
		bodies(orphan, young, unfreed)
	})
	if err := r.data(t.Context()); err != nil {
		t.Error(err)
	}
	bodies(young)
	beside(func() {
		r.sys.data.free(young)
		if err := r.data(t.Context()); err != nil {
			t.Error(err)
		}
		bodies(young)
	})
	if err := r.data(t.Context()); err != nil {
		t.Error(err)
	}
	bodies()
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestRetainer_VersionsThatWentCountForTheirSpace(t *testing.T) {
	t.Parallel()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := keeper(t, store)
	for range keptVersions + 3 {
		body := bytes.Repeat([]byte("x"), 100)
		if _, _, err := r.sys.data.attempt(dataWrite{method: methodPut, name: "a"}, received{body: dataBody{size: 100, inline: body}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.data(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.removed != 3*versionWeight {
		t.Errorf("they count for %d", r.removed)
	}
}
