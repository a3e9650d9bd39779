package actors

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

func noon() time.Time { return time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC) }

func TestRemovable(t *testing.T) {
	t.Parallel()
	ago := func(id string, d time.Duration) endedRun { return endedRun{id, noon().Add(-d)} }
	tests := []struct {
		name string
		runs []endedRun
		keep Retention
		want []string
	}{
		{"nothing is there", nil, Retention{}, nil},
		{"older than seven days, the oldest first", []endedRun{ago("b", 8*24*time.Hour), ago("c", 7*24*time.Hour-1), ago("a", 9*24*time.Hour)}, Retention{}, []string{"a", "b"}},
		{"exactly seven days is not older", []endedRun{ago("a", 7*24*time.Hour)}, Retention{}, nil},
		{"beyond the newest two", []endedRun{ago("a", 3*time.Hour), ago("b", time.Hour), ago("c", 2*time.Hour)}, Retention{MaxRuns: 2}, []string{"a"}},
		{"of those that ended at the same time the greater id is the newer", []endedRun{ago("a", time.Hour), ago("b", time.Hour)}, Retention{MaxRuns: 1}, []string{"a"}},
		{"what ended within a minute stays, whatever there is", []endedRun{ago("a", time.Minute-1), ago("b", time.Minute), ago("c", 2*time.Second)}, Retention{MaxRuns: 1, Runs: time.Second}, []string{"b"}},
		{"below zero there is no bound", []endedRun{ago("a", 900*24*time.Hour), ago("b", 800*24*time.Hour)}, Retention{Runs: -1, MaxRuns: -1}, nil},
		{"a clock that went back removes nothing", []endedRun{ago("a", -time.Hour), ago("b", -2*time.Hour)}, Retention{MaxRuns: 1}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, removable(tt.runs, tt.keep.withDefaults(), noon())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever there is: the newest stay, nothing of the last minute goes, and what goes once does not stay for being looked at
// later or beside more.
func TestRemovable_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keep := Retention{
			Runs: time.Duration(rapid.Int64Range(-1, 5000).Draw(t, "runs")) * time.Second, MaxRuns: rapid.IntRange(-1, 10).Draw(t, "max"),
		}.withDefaults()
		var runs []endedRun
		for n := range rapid.IntRange(0, 30).Draw(t, "count") {
			runs = append(runs, endedRun{string(rune('A' + n)), noon().Add(-time.Duration(rapid.Int64Range(-100, 8000).Draw(t, "age")) * time.Second)})
		}
		byAge := slices.Clone(runs)
		slices.SortFunc(byAge, func(a, b endedRun) int { return a.at.Compare(b.at) })
		gone := removable(runs, keep, noon())
		for n, r := range byAge {
			age, newer := noon().Sub(r.at), len(byAge)-1-n
			isGone := slices.Contains(gone, r.id)
			if isGone && (age < restTime || (keep.Runs < 0 || age <= keep.Runs) && (keep.MaxRuns < 0 || newer+1 <= 0)) {
				t.Fatalf("run of %s ago goes, with %d newer ones and %+v", age, newer, keep)
			}
			if !isGone && age >= restTime && keep.Runs >= 0 && age > keep.Runs {
				t.Fatalf("run of %s ago stays, with %+v", age, keep)
			}
		}
		if left := len(runs) - len(gone); keep.MaxRuns >= 0 && left > keep.MaxRuns {
			for _, r := range runs {
				if !slices.Contains(gone, r.id) && noon().Sub(r.at) < restTime {
					left--
				}
			}
			if left > keep.MaxRuns {
				t.Fatalf("%d stay, beside those of the last minute, and %+v", left, keep)
			}
		}
		later := removable(runs, keep, noon().Add(time.Hour))
		for _, id := range gone {
			if !slices.Contains(later, id) {
				t.Fatalf("run %s was to go, and an hour later no more", id)
			}
		}
	})
}

func TestRetireWorker(t *testing.T) {
	t.Parallel()
	away := workerState{version: 3, told: 3, name: "w", goneAt: noon().Add(-25 * time.Hour)}
	before := retireWorker{noon().Add(-24 * time.Hour)}
	tests := []struct {
		name   string
		change func(*workerState)
		gone   bool
	}{
		{"away for long enough", func(*workerState) {}, true},
		{"it has drained", func(w *workerState) { w.intent = messages.IntentDraining }, true},
		{"away for not so long", func(w *workerState) { w.goneAt = noon().Add(-23 * time.Hour) }, false},
		{"it has come back", func(w *workerState) { w.connected = true }, false},
		{"somebody has paused it", func(w *workerState) { w.intent = messages.IntentPaused }, false},
		{"it has a lease", func(w *workerState) { w.leases = map[string]uint32{"d/1": 1} }, false},
		{"a step hopes for its return", func(w *workerState) { w.awaiting = []awaitWorker{{step: runAddress("r"), lease: "r.0.1/1"}} }, false},
		{"the scheduler does not know it yet", func(w *workerState) { w.told = 2 }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := away
			tt.change(&w)
			next, d := stepWorker(w, before, moment{now: noon()})
			if gone := next.version == 0; gone != tt.gone || gone != (len(d.erases) == 1) {
				t.Fatalf("version %d, %+v", next.version, d)
			}
			if !tt.gone {
				return
			}
			if d.erases[0] != (erase{kindWorker, "w"}) || len(d.requires) != 1 || d.requires[0] != (require{kindWorker, "w", 3}) || len(d.writes) > 0 {
				t.Errorf("%+v", d)
			}
			if owed := resumeWorker(next, moment{}); owed != nil {
				t.Errorf("it still owes %+v", owed)
			}
			if _, d := stepWorker(next, before, moment{now: noon()}); d.durable() {
				t.Errorf("again: %+v", d)
			}
		})
	}
}

func TestRetireToken(t *testing.T) {
	t.Parallel()
	revoked := tokenState{
		version: 4, name: "t", generation: 2, state: messages.TokenRevoked, revokedAt: noon().Add(-8 * 24 * time.Hour),
		expiresAt: noon().Add(time.Hour), machines: map[string]string{}, gone: map[string]bool{},
	}
	before := noon().Add(-7 * 24 * time.Hour)
	whole := retireToken{before: before, bindings: []string{"t/1/a", "t/2/b"}, last: true}
	tests := []struct {
		name   string
		change func(*tokenState)
		batch  []any
		erased []string
		gone   bool
	}{
		{"revoked long ago", func(*tokenState) {}, []any{whole}, []string{"t/1/a", "t/2/b", "t"}, true},
		{"a part of its bindings", func(*tokenState) {}, []any{retireToken{before: before, bindings: []string{"t/1/a"}}}, []string{"t/1/a"}, false},
		{"expired long ago", func(s *tokenState) { s.state, s.expiresAt = messages.TokenExpired, s.revokedAt }, []any{whole}, []string{"t/1/a", "t/2/b", "t"}, true},
		{"revoked lately", func(s *tokenState) { s.revokedAt = noon() }, []any{whole}, nil, false},
		{"expired lately", func(s *tokenState) { s.state, s.revokedAt = messages.TokenExpired, time.Time{} }, []any{whole}, nil, false},
		{"it has not ended", func(s *tokenState) { s.state = messages.TokenEnrolled }, []any{whole}, nil, false},
		{"together with its new creation", func(*tokenState) {}, []any{whole, createToken{digest: []byte("d"), duration: time.Hour, answer: newAnswer()}}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := revoked
			tt.change(&s)
			next, d := stepToken(s, tt.batch, moment{now: noon()})
			var erased []string
			for _, e := range d.erases {
				erased = append(erased, e.id)
			}
			if diff := cmp.Diff(tt.erased, erased); diff != "" || (next.version == 0) != tt.gone {
				t.Errorf("version %d: %s", next.version, diff)
			}
			if len(erased) > 0 && (len(d.requires) != 1 || d.requires[0] != (require{kindToken, "t", 4})) {
				t.Errorf("on condition of %+v", d.requires)
			}
		})
	}
}
