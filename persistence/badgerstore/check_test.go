package badgerstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// books is a store with one run and all that belongs to one. It is open.
func books(t *testing.T) *Store {
	t.Helper()
	lease, err := proto.Marshal(&messages.LeaseRecord{DispatchId: "r.0.1", RunId: "r", Logged: true, Offset: 99, Outcome: &messages.Outcome{FinalOffset: 7}})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, t.TempDir())
	putRun(t, s, "r", 100)
	if err := s.AppendOutput("r.0.1", []persistence.Chunk{{Stream: "stdout", Data: []byte("printed")}}); err != nil {
		t.Fatal(err)
	}
	commit(t, s, persistence.Commit{
		Puts: []persistence.Put{
			{Kind: persistence.KindStep, ID: persistence.StepID("r", 0), State: "running"},
			{Kind: persistence.KindLease, ID: "r.0.1/1", State: "completed", Ended: true, Body: lease},
			{Kind: persistence.KindPending, ID: "r.0.q1", State: "dispatched", Ended: true},
			{Kind: persistence.KindWorker, ID: "w", State: "idle"},
		},
		Appends: []persistence.Append{{Stream: "r", Body: []byte("b")}, {Stream: "r", Body: []byte("c")}},
	})
	commit(t, s, persistence.Commit{Puts: []persistence.Put{{Kind: persistence.KindWorker, ID: "w", Expect: 1, State: "busy"}}})
	return s
}

// check checks the store of a process that is killed now, and that nothing in it changes.
func check(t *testing.T, dir string) (Report, error) {
	t.Helper()
	dir = clone(t, dir)
	if err := os.Remove(filepath.Join(dir, lockFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	before := content(t, dir)
	report, err := Check(Config{Dir: dir})
	after := content(t, dir)
	delete(after, "/"+lockFile)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the check has changed something: %s", diff)
	}
	return report, err
}

func TestCheck_CountsAStoreThatIsWhole(t *testing.T) {
	t.Parallel()
	s := books(t)
	test := func(state string) {
		report, err := check(t, s.dir)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		want := Report{
			CheckReport: persistence.CheckReport{
				Meta: report.Meta, Former: 1, Events: 3, Acknowledged: map[string]uint64{},
				Records: map[persistence.Kind]int{
					persistence.KindRun: 1, persistence.KindStep: 1, persistence.KindLease: 1, persistence.KindPending: 1, persistence.KindWorker: 1,
				},
			},
			OutputLogs: 1, OutputBytes: 7,
		}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
		if report.Meta.StoreID != s.StoreID() || report.Meta.Head.Number != 4 {
			t.Errorf("%s: %+v", state, report.Meta)
		}
	}
	test("killed")
	closeStore(t, s)
	test("closed")
}

func TestCheck_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	set := func(key string, value []byte) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			if err := s.engine.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte(key), value) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	deleteKey := func(part string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			var found []byte
			err := s.engine.View(func(r persistence.Reader) error {
				return r.Scan(nil, nil, false, func(key, _ []byte) bool {
					if found == nil && strings.HasPrefix(string(key), part) {
						found = append(found, key...)
					}
					return true
				})
			})
			if err == nil {
				err = s.engine.db.Update(func(txn *badger.Txn) error { return txn.Delete(found) })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		harm func(*testing.T, *Store)
		want string
	}{
		{"a record that does not decode", func(t *testing.T, s *Store) {
			damage(t, s.engine.db, func(key, _ []byte) bool { return string(key) == "L/worker/w" })
		}, `worker "w": persistence: stored value does not decode: checksum mismatch`},
		{"a former version that does not decode", func(t *testing.T, s *Store) {
			damage(t, s.engine.db, func(key, _ []byte) bool { return strings.HasPrefix(string(key), "h/") })
		}, `worker "w@1": persistence: stored value does not decode: checksum mismatch`},
		{"events that do not decode", func(t *testing.T, s *Store) {
			damage(t, s.engine.db, func(key, _ []byte) bool { return strings.HasPrefix(string(key), "e/") && key[len(key)-1] == 1 })
		}, `events up to 1 of "r": persistence: stored value does not decode: checksum mismatch`},
		{"a key that nobody writes", set("x/y", []byte("z")), `key "x/y" is of no known kind`},
		{"events that are missing at the beginning", deleteKey("e/"), `events 1 to 1 of "r" are missing`},
		{"a run that is missing", deleteKey("L/run/"), `belongs to run "r", and there is none`},
		{"a log that is missing", func(t *testing.T, s *Store) {
			if err := s.DeleteOutput("r.0.1"); err != nil {
				t.Fatal(err)
			}
		}, `output of dispatch "r.0.1" is missing, and 7 bytes were acknowledged`},
		{"a log that is too short", func(t *testing.T, s *Store) {
			edit(t, one(t, s.dir, "output/*/*.log"), func(b []byte) []byte { return b[:len(b)-1] })
		}, `output of dispatch "r.0.1" ends after 0 bytes, and 7 were acknowledged`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := books(t)
			tt.harm(t, s)
			report, err := check(t, s.dir)
			if err != nil {
				t.Fatal(err)
			}
			if report.Wrong != 1 || len(report.Findings) != 1 || !strings.Contains(report.Findings[0], tt.want) {
				t.Errorf("findings %q", report.Findings)
			}
		})
	}
}

func TestCheck_MissingEventsInTheMiddleAreFound(t *testing.T) {
	t.Parallel()
	s := books(t)
	commit(t, s, persistence.Commit{Appends: []persistence.Append{{Stream: "r", Body: []byte("d")}}})
	key := []byte("e/r\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03") // events 2 and 3
	if err := s.engine.db.Update(func(txn *badger.Txn) error { return txn.Delete(key) }); err != nil {
		t.Fatal(err)
	}
	report, err := check(t, s.dir)
	if diff := cmp.Diff([]string{`events 2 to 3 of "r" are missing`}, report.Findings); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestCheck_ATornLogIsCountedAndNoFinding(t *testing.T) {
	t.Parallel()
	s := books(t)
	edit(t, one(t, s.dir, "output/*/*.log"), func(b []byte) []byte { return append(b, 1, 2, 3) })
	report, err := check(t, s.dir)
	if err != nil || report.Wrong != 0 || report.Torn != 1 || report.OutputBytes != 7 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestCheck_RefusesWhatCannotBeOpened(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	addRuns(t, s, 0, 40, 1000)
	closeStore(t, s)
	tests := []struct {
		name string
		harm func(t *testing.T, dir string)
		want string
	}{
		{"a table that is damaged", func(t *testing.T, dir string) { edit(t, one(t, dir, "journal/*.sst"), flip(half)) }, "checksum"},
		{"a MANIFEST that is cut", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, journalDir, manifestFile), cut(func(n int) int { return n - 5 }))
		}, "MANIFEST"},
		{"a head that is gone", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, headFile)) }, "head is missing"},
		{"no store.json", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, sentinelFile)) }, "store.json is missing"},
		{"no store at all", func(t *testing.T, dir string) {
			for _, name := range names(t, dir) {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}, "holds no store"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := clone(t, s.dir)
			tt.harm(t, dir)
			_, err := check(t, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("check: %v", err)
			}
		})
	}
}

func TestCheck_SaysWhoHoldsTheDirectory(t *testing.T) {
	t.Parallel()
	s := books(t)
	_, err := Check(Config{Dir: s.dir})
	if locked, ok := errors.AsType[*persistence.LockedError](err); !ok || locked.PID != os.Getpid() {
		t.Errorf("check: %v", err)
	}
	putRun(t, s, "more", 100) // the holder is not disturbed
}
