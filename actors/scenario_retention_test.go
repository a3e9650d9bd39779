package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
	"github.com/swampd/swampd/testkit"
)

// held is what the journal has: the ids of all records of the kinds that belong to runs, of streams, and of logs.
func held(t *testing.T, j persistence.Journal) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	note := func(what, id string) { all[what] = append(all[what], id) }
	for _, kind := range []persistence.Kind{
		persistence.KindRun, persistence.KindStep, persistence.KindPending, persistence.KindLease, persistence.KindOutput, persistence.KindSource,
	} {
		for _, ended := range []bool{false, true} {
			err := j.Scan(kind, ended, "", "", func(r persistence.Record) bool {
				note(string(kind), r.ID)
				if kind == persistence.KindRun {
					if events, err := j.Events(r.ID, 0, 1); err == nil && len(events) > 0 {
						note("stream", r.ID)
					}
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	logs, err := j.OutputLogs()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		note("log", l)
	}
	return all
}

// talkative is a worker that prints more than fits beside a record, and then succeeds.
func talkative() testkit.WorkerOption {
	return testkit.OnDispatch(func(d *testkit.Dispatch) {
		d.Accept().Output(strings.Repeat("many words\n", 7000)).Succeed()
	})
}

func TestRetention_AnEndedRunGoesWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("w", gpu(), talkative())
		old := f.Submit(pair)
		old.WaitStatus(messages.RunSucceeded)
		f.Advance(50 * time.Minute)
		lately := f.Submit(chain)
		lately.WaitStatus(messages.RunSucceeded)
		w.Drop()
		lives := f.Submit(single)
		if got := held(t, f.Journal()); len(got["run"]) != 3 || len(got["log"]) != 4 || len(got["pending"]) < 1 {
			t.Fatalf("the journal holds %v", got)
		}
		f.Advance(20 * time.Minute)
		got := held(t, f.Journal())
		for what, ids := range got {
			for _, id := range ids {
				if strings.HasPrefix(id, old.ID) {
					t.Errorf("%s %s is left", what, id)
				}
			}
		}
		if diff := cmp.Diff([]string{lives.ID, lately.ID}, got["run"]); diff != "" {
			t.Errorf("runs: %s", diff)
		}
		if events, err := f.Journal().Events(old.ID, 0, 1); err != nil || len(events) > 0 {
			t.Errorf("events are left: %v, %v", events, err)
		}
		if _, err := f.Do(t.Context(), messages.VerbRunShow, &messages.RunShowParams{RunId: old.ID}, nil); codeOf(err) != messages.CodeNotFound {
			t.Errorf("run show: %v", err)
		}
		if f.Show(lately.ID).GetStatus() != string(messages.RunSucceeded) || len(lately.Lines("first")) != 7000 {
			t.Error("the run that ended lately is not whole")
		}
		w.Reconnect(testkit.AsNewInstance())
		lives.WaitStatus(messages.RunSucceeded) // what lives is not disturbed
	}, testkit.WithRetention(actors.Retention{Runs: time.Hour}), testkit.WithQueueTimeout(0))
}

func TestRetention_OnlySoManyEndedRunsStay(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("w", gpu(), testkit.AutoRun())
		var ids []string
		for range 12 {
			run := f.Submit(single)
			run.WaitStatus(messages.RunSucceeded)
			ids = append(ids, run.ID)
			f.Advance(time.Second)
		}
		f.Advance(3 * time.Minute)
		if diff := cmp.Diff(ids[7:], held(t, f.Journal())["run"]); diff != "" {
			t.Error(diff)
		}
	}, testkit.WithRetention(actors.Retention{MaxRuns: 5}))
}

func TestRetention_TheDefaultsAreSevenDaysAndADay(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t)
		w := f.Worker("w", gpu(), testkit.AutoRun())
		f.Submit(single).WaitStatus(messages.RunSucceeded)
		w.Drop()
		const minute = time.Minute
		f.Advance(24*time.Hour - 2*minute)
		if len(f.Workers()) != 1 {
			t.Error("the worker is gone before its time")
		}
		f.Advance(5 * minute)
		if got := f.Workers(); len(got) != 0 {
			t.Errorf("a day later there are workers: %v", got)
		}
		f.Advance(6*24*time.Hour - 10*minute)
		if len(held(t, f.Journal())["run"]) != 1 {
			t.Error("the run is gone before its time")
		}
		f.Advance(10 * minute)
		if got := held(t, f.Journal()); len(got) != 0 {
			t.Errorf("seven days later the journal holds %v", got)
		}
		if len(f.Tokens()) != 1 {
			t.Error("the token is gone before its time, which began when it expired")
		}
		f.Advance(24 * time.Hour)
		if got := f.Tokens(); len(got) != 0 {
			t.Errorf("there are tokens: %v", got)
		}
	})
}

// Ids of runs may hold dots: the dispatches of one run may begin like those of another one.
func TestRetention_ARunWhoseIDBeginsAnothersTakesNothingAlong(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("w", gpu(), talkative())
		first, err := f.SubmitAs("a", single)
		if err != nil {
			t.Fatal(err)
		}
		first.WaitStatus(messages.RunSucceeded)
		f.Advance(30 * time.Minute)
		before := held(t, f.Journal())
		for _, id := range []string{"a.0", "a.0.1", "a.b"} {
			other, err := f.SubmitAs(id, single)
			if err != nil {
				t.Fatal(err)
			}
			other.WaitStatus(messages.RunSucceeded)
		}
		want := held(t, f.Journal())
		for what, ids := range want {
			if what != "source" {
				want[what] = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(before[what], id) })
			}
		}
		f.Advance(40 * time.Minute)
		if diff := cmp.Diff(want, held(t, f.Journal())); diff != "" {
			t.Error(diff)
		}
	}, testkit.WithRetention(actors.Retention{Runs: time.Hour}))
}

func TestRetention_WhoReadsARunThatGoesIsTold(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithRetention(actors.Retention{Runs: time.Hour}))
		f.Worker("w", gpu(), testkit.Capacity(250), testkit.AutoRun())
		run := f.Submit(wide(240)) // more events than a reader is handed at a time
		run.WaitStatus(messages.RunSucceeded)
		events := 0
		goOn, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := f.Do(t.Context(), messages.VerbRunWatch, &messages.RunWatchParams{RunId: run.ID}, func(*messages.Event) error {
				events++
				<-goOn
				return nil
			})
			ended <- err
		}()
		f.Advance(2 * time.Hour)
		close(goOn)
		if err := <-ended; codeOf(err) != messages.CodeNotFound {
			t.Errorf("it ended with %v", err)
		}
		if all := len(run.Events()); events == 0 || events >= all {
			t.Errorf("it was told %d of %d events", events, all)
		}
	})
}

// A crash after each of the commits of a removal: the next boot finishes it, and what was not over is whole throughout.
func TestRetention_ACrashAtAnyCommitLosesNothingElse(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint("commit ", n), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				var f *testkit.Fleet
				removals := 0
				removes := func(e persistence.Entry) bool {
					return e.Delete && (bytes.HasPrefix(e.Key, []byte("T/")) || bytes.HasPrefix(e.Key, []byte("s/")) || bytes.HasPrefix(e.Key, []byte("e/")))
				}
				crash := memstore.Options{Before: func(b *persistence.Batch) error {
					if slices.ContainsFunc(b.Entries, removes) {
						if removals++; removals == n {
							f.CrashAtBatch(1, time.Minute)
						}
					}
					return nil
				}}
				f = testkit.Start(t, testkit.WithRetention(actors.Retention{Runs: time.Hour}), testkit.WithJournal(crash), testkit.WithFaults(), testkit.WithQueueTimeout(0))
				w := f.Worker("w", gpu(), testkit.Capacity(100), testkit.OnDispatch(func(d *testkit.Dispatch) {
					if d.Accept(); strings.HasSuffix(d.Step(), "0") {
						d.Output(strings.Repeat("many words\n", 7000))
					}
					d.Succeed()
				}))
				for range 2 {
					f.Submit(wide(90)).WaitStatus(messages.RunSucceeded) // each is more than one commit
				}
				w.Drop()
				f.Advance(50 * time.Minute)
				lives := f.Submit(single)
				if before := held(t, f.Journal()); len(before["log"]) != 18 || len(before["lease"]) != 180 {
					t.Errorf("there are %d logs and %d leases", len(before["log"]), len(before["lease"]))
				}
				f.Advance(20 * time.Minute)
				if removals < n {
					t.Errorf("%d commits removed something, and the crash was to come at number %d", removals, n)
				}
				after := held(t, f.Journal())
				if diff := cmp.Diff([]string{lives.ID}, after["run"]); diff != "" {
					t.Errorf("runs: %s", diff)
				}
				for what, ids := range after {
					for _, id := range ids {
						if !strings.HasPrefix(id, lives.ID) && what != "source" {
							t.Errorf("%s %s outlives its run", what, id)
						}
					}
				}
			})
		})
	}
}

// wide is a workflow of n steps that start together.
func wide(n int) string {
	var b strings.Builder
	b.WriteString("name: wide\nlabels: {gpu: \"true\"}\njobs:\n  - name: main\n    steps:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {name: s%d, run: work}\n", i)
	}
	return b.String()
}

func TestRetention_OutputWithoutARunIsSweptAtTheNextBoot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithFaults())
		f.Worker("w", gpu(), talkative())
		run := f.Submit(single)
		run.WaitStatus(messages.RunSucceeded)
		printed := []persistence.Chunk{{Stream: "stdout", Data: []byte("x")}}
		if err := errors.Join(f.Journal().AppendOutput("gone.0.1", printed), f.Journal().AppendOutput("something else", printed)); err != nil {
			t.Fatal(err)
		}
		f.Crash()
		f.Restart()
		f.Advance(time.Minute)
		if diff := cmp.Diff([]string{run.ID + ".0.1", "something else"}, held(t, f.Journal())["log"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRetention_AWorkerThatIsAwayForADayIsForgotten(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithRetention(actors.Retention{Workers: time.Hour}))
		token := f.Token("pool", testkit.MaxEnrollments(3), testkit.ValidFor(100*time.Hour))
		away, paused, stays := f.Worker("a", testkit.WithToken(token)), f.Worker("b", testkit.WithToken(token)), f.Worker("c", testkit.WithToken(token))
		if _, err := f.Do(t.Context(), messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: paused.Name()}, nil); err != nil {
			t.Fatal(err)
		}
		away.Drop()
		paused.Drop()
		f.Advance(59 * time.Minute)
		if len(f.Workers()) != 3 {
			t.Fatalf("workers: %v", f.Workers())
		}
		f.Advance(3 * time.Minute)
		names := func() (list []string) {
			for _, w := range f.Workers() {
				list = append(list, w.GetName())
			}
			slices.Sort(list)
			return list
		}
		want := []string{paused.Name(), stays.Name()}
		slices.Sort(want)
		if diff := cmp.Diff(want, names()); diff != "" {
			t.Fatal(diff)
		}
		if former, err := f.Journal().History(persistence.KindWorker, away.Name()); err != nil || len(former) > 0 {
			t.Errorf("former versions are left: %v, %v", former, err)
		}
		for _, a := range f.Actors() {
			if a.GetKind() == "worker" && strings.HasSuffix(a.GetPid(), away.Name()) {
				t.Errorf("its actor is left: %v", a)
			}
		}
		away.Reconnect() // its token still knows it
		if w := f.WorkerNamed(away.Name()); w.GetStatus() != string(messages.WorkerIdle) {
			t.Errorf("the worker is %s, want idle", w.GetStatus())
		}
		away.Drop()
		away.Reconnect(testkit.AsNewInstance())
	})
}

// The scheduler may still know a worker whose record was erased, when the actor that should have told it died over that. What
// comes back under the name begins its versions anew, and gets work all the same.
func TestRetention_AWorkerThatWasForgottenInAPanicGetsWorkWhenItIsBack(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			f := testkit.Start(t, testkit.WithRetention(actors.Retention{Workers: time.Minute}),
				testkit.WithPanic(testkit.PanicAt{Stage: "committed", Kind: "worker", Command: "retireWorker"}))
			w := f.Worker("w1", testkit.AutoRun())
			for range 3 { // so that its version is well above that of a new one
				w.Drop()
				w.Reconnect()
			}
			w.Drop()
			f.Advance(72 * time.Second) // no time for anybody to notice
			if n := len(f.Workers()); n != 0 {
				t.Fatalf("%d workers are known", n)
			}
			if same {
				w.Reconnect()
			} else {
				w.Reconnect(testkit.AsNewInstance())
			}
			run := f.Submit(oneStep("target: w1"))
			f.Advance(time.Second)
			run.Expect("only").Succeeds().Waited(0)
		})
	}
}

func TestRetention_ManyWorkersThatCameOnceLeaveNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithRetention(actors.Retention{Workers: time.Hour, Runs: 2 * time.Hour}))
		token := f.Token("pool", testkit.MaxEnrollments(-1), testkit.ValidFor(time.Hour))
		before := len(f.Actors())
		const many = 450
		for i := range many {
			f.Worker(fmt.Sprint("w", i), testkit.WithToken(token)).Drop()
		}
		if len(f.Workers()) != many {
			t.Fatalf("%d workers", len(f.Workers()))
		}
		f.Advance(70 * time.Minute)
		if n := len(f.Workers()); n != 0 {
			t.Errorf("%d workers are left", n)
		}
		f.Advance(3 * time.Hour)
		bindings := 0
		err := f.Journal().Scan(persistence.KindBinding, false, "", "", func(persistence.Record) bool {
			bindings++
			return true
		})
		if err != nil || bindings > 0 || len(f.Tokens()) > 0 {
			t.Errorf("%d bindings and %d tokens are left, %v", bindings, len(f.Tokens()), err)
		}
		if after := len(f.Actors()); after > before {
			t.Errorf("%d actors, and there were %d", after, before)
		}
	})
}

func TestRetention_ATokenThatEndedIsForgottenAndItsNameIsFree(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithRetention(actors.Retention{Runs: 2 * time.Hour}))
		f.Worker("w", testkit.WithToken(f.Token("t")))
		f.Token("valid", testkit.ValidFor(100*time.Hour))
		f.RevokeToken("t")
		f.Advance(2*time.Hour - time.Minute)
		if len(f.Tokens()) != 2 {
			t.Fatalf("tokens: %v", f.Tokens())
		}
		f.Advance(3 * time.Minute)
		if got := f.Tokens(); len(got) != 1 || got[0].GetName() != "valid" {
			t.Fatalf("tokens: %v", got)
		}
		w := f.Worker("w2", testkit.WithToken(f.Token("t")))
		if w.Name() != "t" {
			t.Errorf("the worker is called %s", w.Name())
		}
		f.RevokeToken("t")
		f.Settle()
		if w.Connected() {
			t.Error("the worker of the second token of that name is still connected")
		}
	})
}

// A source is shared by runs, and may be wanted again at any time: before, while and after it is swept.
func TestRetention_ASourceGoesWithItsLastRunAndComesBackWithTheNext(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithRetention(actors.Retention{Runs: 30 * time.Minute}), testkit.WithFaults(), testkit.WithQueueTimeout(0))
		w := f.Worker("w", gpu(), testkit.AutoRun())
		large := single + "# " + strings.Repeat("a long remark ", 40_000) + "\n" // in parts
		for _, yaml := range []string{single, large} {
			f.Submit(yaml).WaitStatus(messages.RunSucceeded)
		}
		whole := held(t, f.Journal())["source"]
		if len(whole) < 4 {
			t.Fatalf("the sources are %q", whole)
		}
		f.Advance(50 * time.Minute)
		f.Submit(single).WaitStatus(messages.RunSucceeded) // used again within the hour before the sweep
		f.Advance(55 * time.Minute)
		if got := held(t, f.Journal()); len(got["run"]) != 0 || len(got["source"]) != 1 {
			t.Errorf("the journal holds %v: the source that was used lately stays, the other one goes", got)
		}
		f.Advance(3 * time.Hour)
		if got := held(t, f.Journal())["source"]; len(got) != 0 {
			t.Errorf("sources are left: %q", got)
		}
		w.Drop()
		run := f.Submit(large) // whoever believed that it was there still, would lose it now
		f.Crash()
		f.Restart()
		w.Reconnect()
		run.WaitStatus(messages.RunSucceeded)
		if got := f.Show(run.ID); got.GetWorkflowName() != "single" {
			t.Errorf("show: %v", got)
		}
	})
}

func TestBackup_StreamsAWholeOfOneMoment(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		f.Worker("w", gpu(), talkative())
		for range 5 {
			f.Submit(chain).WaitStatus(messages.RunSucceeded)
		}
		var b bytes.Buffer
		got, err := f.Do(t.Context(), messages.VerbBackup, &messages.BackupParams{}, func(e *messages.Event) error {
			b.Write(e.GetBackup().GetData())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		info, err := persistence.ReadBackup(bytes.NewReader(b.Bytes()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := got.(*messages.BackupResult); r.GetDigest() != info.Digest || r.GetBytes() != float64(b.Len()) {
			t.Errorf("the result is %v, the backup %+v", r, info)
		}
		snapshot, err := memstore.Restore(&b)
		if err != nil {
			t.Fatal(err)
		}
		restored, err := memstore.Open(snapshot, memstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(held(t, f.Journal()), held(t, restored)); diff != "" {
			t.Error(diff)
		}
		if err := restored.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBackup_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		broken := errors.New("broken pipe")
		_, err := f.Do(t.Context(), messages.VerbBackup, &messages.BackupParams{}, func(*messages.Event) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("it ended with %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = f.Do(ctx, messages.VerbBackup, &messages.BackupParams{}, func(*messages.Event) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if _, err := f.Do(t.Context(), messages.VerbBackup, &messages.BackupParams{}, nil); codeOf(err) != messages.CodeInvalid {
			t.Errorf("without a stream: %v", err)
		}
	})
}
