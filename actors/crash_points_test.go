package actors_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// A crashPoint is a row of the table of crash points: a place between two things that have to happen together, and what is
// tried there. Its story has to end as if nothing had happened.
type crashPoint struct {
	row   string
	point string
	cases []crashCase
	// later says what of the row cannot happen yet, and why.
	later string
}

// A crashCase is one way to break something at the point.
type crashCase struct {
	name string
	// fault is what happens; a zero one is made by the story itself.
	fault   fault
	options []testkit.Option
	// onDisk and inFleet are what the journal holds at the fault, as work and fleet say it; empty is not compared.
	onDisk, inFleet string
	// bare: the books are not looked at after each commit, for stories with many steps.
	bare bool
	tell func(t *testing.T, f *testkit.Fleet)
}

// A fault is something that dies at a place.
type fault struct {
	at   testkit.PanicAt
	dies bool // the process; else the actor
}

// before and after name a place before the commit, and one after it and before anybody is told.
func before(kind, command string) testkit.PanicAt {
	return testkit.PanicAt{Stage: "decided", Kind: kind, Command: command}
}

func after(kind, command string) testkit.PanicAt {
	return testkit.PanicAt{Stage: "committed", Kind: kind, Command: command}
}

// nth is the place when it is reached for the nth time.
func nth(n int, at testkit.PanicAt) testkit.PanicAt { at.Nth = n; return at }

// dies, panics and alwaysPanics are the faults.
func dies(at testkit.PanicAt) fault   { return fault{at: at, dies: true} }
func panics(at testkit.PanicAt) fault { return fault{at: at} }
func alwaysPanics(at testkit.PanicAt) fault {
	at.Times = 1_000_000
	return fault{at: at}
}

// stalls has an actor stand still at a place. Options count, so each case needs its own.
func stalls(at testkit.PanicAt, while time.Duration) []testkit.Option {
	return []testkit.Option{testkit.WithCall(at, func(*testkit.Fleet) { time.Sleep(while) })}
}

// downTime is how long the process is away after it has died.
const downTime = 3 * time.Second

// crashPoints is the table.
func crashPoints() []crashPoint {
	return slices.Concat(
		submitPoints(), enqueuePoints(), assignPoints(), leasePoints(), sendPoints(), acceptPoints(), writePoints(), resultPoints(),
		leaseEndPoints(), runEndPoints(), drainPoints(), enrollPoints(),
	)
}

func TestCrashPoints(t *testing.T) {
	t.Parallel()
	for _, p := range crashPoints() {
		for _, c := range p.cases {
			t.Run(strings.TrimSpace(p.row+" "+p.point+" "+c.name), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, c.run)
			})
		}
	}
}

// TestCrashPoints_AreAllThere keeps rows from being forgotten.
func TestCrashPoints_AreAllThere(t *testing.T) {
	t.Parallel()
	var want []string
	for _, section := range []struct {
		letter string
		rows   int
	}{{"S", 5}, {"Q", 6}, {"A", 5}, {"L", 4}, {"D", 5}, {"C", 5}, {"F", 8}, {"R", 8}, {"E", 7}, {"N", 6}, {"G", 9}, {"T", 7}} {
		for n := range section.rows {
			want = append(want, fmt.Sprintf("%s%d", section.letter, n+1))
		}
	}
	var have []string
	for _, p := range crashPoints() {
		have = append(have, p.row)
		if len(p.cases) == 0 && p.later == "" {
			t.Errorf("row %s tries nothing and does not say why", p.row)
		}
		names := make(map[string]bool)
		for _, c := range p.cases {
			if names[c.name] {
				t.Errorf("row %s has two cases called %q", p.row, c.name)
			}
			names[c.name] = true
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func (c crashCase) run(t *testing.T) {
	var mu sync.Mutex
	reached, disk, fleet := 0, "", ""
	options := c.options
	if !c.bare {
		options = append(options, testkit.WithEveryCommit())
	}
	if broken := c.fault.at != (testkit.PanicAt{}); broken {
		options = append(options, testkit.WithCall(c.fault.at, func(f *testkit.Fleet) {
			mu.Lock()
			defer mu.Unlock()
			if reached++; reached == 1 {
				disk, fleet = work(f.Journal()), inventory(f.Journal())
			}
		}))
	}
	switch {
	case c.fault.dies:
		options = append(options, testkit.WithDeath(c.fault.at, downTime))
	case c.fault.at != (testkit.PanicAt{}):
		options = append(options, testkit.WithPanic(c.fault.at))
	}
	f := testkit.Start(t, options...)
	c.tell(t, f)
	if c.fault.dies { // the story may be over before the process is back
		f.Advance(downTime + time.Second)
	}
	f.Settle()
	f.Audit()
	mu.Lock()
	defer mu.Unlock()
	if c.fault.at != (testkit.PanicAt{}) && reached == 0 {
		t.Fatal("the story does not come to the point")
	}
	if c.fault.dies && f.Journal().Epoch() == 1 {
		t.Error("the process has not died")
	}
	if c.onDisk != "" && disk != c.onDisk {
		t.Errorf("on disk is %q, want %q", disk, c.onDisk)
	}
	if c.inFleet != "" && fleet != c.inFleet {
		t.Errorf("the fleet is %q, want %q", fleet, c.inFleet)
	}
}

// work is what a journal holds of runs, in words: each run, its steps, its pending dispatches and its leases, by
// ordinal and number.
func work(j persistence.Journal) string {
	var words []string
	say := func(kind persistence.Kind, fn func(r persistence.Record) string) {
		for _, ended := range []bool{false, true} {
			err := j.Scan(kind, ended, "", "", func(r persistence.Record) bool {
				words = append(words, fn(r))
				return true
			})
			if err != nil {
				words = append(words, err.Error())
			}
		}
	}
	short := func(id string) string { _, rest, _ := strings.Cut(id, "."); return rest }
	say(persistence.KindRun, func(r persistence.Record) string { return "run " + r.State })
	steps := make(map[string]bool) // they count as live, and are found once
	say(persistence.KindStep, func(r persistence.Record) string {
		m := &messages.StepRecord{}
		if err := proto.Unmarshal(r.Body, m); err != nil || steps[r.ID] {
			return fmt.Sprintf("step %s: %v", r.ID, err)
		}
		steps[r.ID] = true
		return m.GetStep() + " " + r.State
	})
	say(persistence.KindPending, func(r persistence.Record) string { return short(r.ID) + " " + r.State })
	say(persistence.KindLease, func(r persistence.Record) string { return short(r.ID) + " " + r.State })
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// inventory is what a journal holds of tokens, bindings and workers, in words.
func inventory(j persistence.Journal) string {
	var words []string
	for _, kind := range []persistence.Kind{persistence.KindToken, persistence.KindBinding, persistence.KindWorker} {
		err := j.Scan(kind, false, "", "", func(r persistence.Record) bool {
			words = append(words, string(kind)+" "+r.ID+" "+r.State)
			return true
		})
		if err != nil {
			words = append(words, err.Error())
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// waits is a workflow with that many steps which want a worker with the label gpu=true.
func waits(steps int) string {
	var b strings.Builder
	b.WriteString("name: wide\nlabels: {gpu: \"true\"}\njobs:\n  - name: main\n    steps:\n")
	for i := range steps {
		fmt.Fprintf(&b, "      - {name: s%03d, run: work}\n", i)
	}
	return b.String()
}

// forgets has a worker speak of a dispatch that is over, and checks that it is told to forget it: it would repeat its word
// for ever.
func forgets(f *testkit.Fleet, w *testkit.Worker, id string, speak func()) {
	f.T().Helper()
	ack := w.Await(id)
	speak()
	f.Settle()
	select {
	case got := <-ack:
		if !got.GetAck().GetDone() {
			f.T().Errorf("of %s the worker is told %v, want to forget it", id, got)
		}
	default:
		f.T().Errorf("of %s the worker is told nothing, want to forget it", id)
	}
}

// runs are the ids of all runs that there are, the oldest first.
func runs(f *testkit.Fleet) []string {
	var ids []string
	for _, ended := range []bool{false, true} {
		err := f.Journal().Scan(persistence.KindRun, ended, "", "", func(r persistence.Record) bool {
			ids = append(ids, r.ID)
			return true
		})
		if err != nil {
			f.T().Fatal(err)
		}
	}
	slices.Sort(ids)
	return ids
}

// within checks that no more than that much time has passed since the start of the story.
func within(t *testing.T, limit time.Duration) {
	t.Helper()
	if got := sinceStart(); got > limit {
		t.Errorf("it took %s, want at most %s", got, limit)
	}
}
