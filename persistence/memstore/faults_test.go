package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/swampd/swampd/persistence"
)

func run(id string, expect uint64, state string) persistence.Put {
	return persistence.Put{Kind: persistence.KindRun, ID: id, Expect: expect, State: state}
}

func commit(s *Store, c persistence.Commit) error {
	_, err := s.Commit(context.Background(), c)
	return err
}

func puts(p ...persistence.Put) persistence.Commit { return persistence.Commit{Puts: p} }

// gate holds up the batches after the first, which is the boot's.
type gate struct {
	batches int
	arrived chan struct{}
	pass    chan struct{}
}

func newGate() *gate { return &gate{arrived: make(chan struct{}), pass: make(chan struct{})} }

func (g *gate) before(*persistence.Batch) error {
	g.batches++
	if g.batches > 1 {
		g.arrived <- struct{}{}
		<-g.pass
	}
	return nil
}

// fill makes commits that wait behind one batch that is held up, and returns their errors once the gate is open.
func fill(t *testing.T, s *Store, g *gate, commits []persistence.Commit) []error {
	t.Helper()
	errs := make([]error, len(commits))
	done := make(chan struct{})
	go func() {
		if err := commit(s, puts(run("first", 0, "a"))); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	<-g.arrived
	for i := range commits {
		go func() {
			errs[i] = commit(s, commits[i])
			done <- struct{}{}
		}()
		synctest.Wait() // it waits in the committer: they stand there in this order
	}
	close(g.pass)
	go func() {
		for range g.arrived { // the batches that follow pass
		}
	}()
	for range len(commits) + 1 {
		<-done
	}
	close(g.arrived)
	return errs
}

func TestCommitter_WhatWaitsSharesOneSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := open(t, Snapshot{}, Options{Before: g.before})
		var commits []persistence.Commit
		for i := range 100 {
			commits = append(commits, puts(run(fmt.Sprint(i), 0, "a")))
		}
		for i, err := range fill(t, s, g, commits) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		if got := s.Stats(); got.Commits != 101 || got.Syncs != 2 {
			t.Errorf("%d commits in %d syncs", got.Commits, got.Syncs)
		}
		closeStore(t, s)
	})
}

func TestCommitter_MembersOfOneBatchSeeTheOnesBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := open(t, Snapshot{}, Options{Before: g.before})
		worker := func(expect uint64, state string) persistence.Put {
			return persistence.Put{Kind: persistence.KindWorker, ID: "w", Expect: expect, State: state}
		}
		when := func(c persistence.Commit, state string) persistence.Commit {
			c.Conditions = []persistence.Condition{{Kind: persistence.KindWorker, ID: "w", State: state}}
			return c
		}
		end := worker(3, "gone")
		end.Ended = true
		steps := []struct {
			commit persistence.Commit
			want   error
		}{
			{when(puts(run("early", 0, "a")), "idle"), persistence.ErrConditionFailed},
			{puts(worker(0, "idle")), nil},
			{puts(worker(0, "idle")), persistence.ErrStaleWriter},
			{when(puts(run("1", 0, "a")), "idle"), nil},
			{puts(worker(1, "busy")), nil},
			{puts(worker(1, "paused")), persistence.ErrStaleWriter},
			{when(puts(run("2", 0, "a")), "idle"), persistence.ErrConditionFailed},
			{when(puts(run("2", 0, "a"), worker(2, "idle")), "busy"), nil},
			{puts(run("2", 0, "a")), persistence.ErrStaleWriter},
			{puts(end), nil},
			{puts(end), persistence.ErrStaleWriter},
			{puts(worker(4, "idle")), persistence.ErrStaleWriter},
			{puts(worker(0, "idle")), persistence.ErrStaleWriter},
			{when(puts(run("3", 0, "a")), "gone"), persistence.ErrConditionFailed},
			{persistence.Commit{Deletes: []persistence.Delete{{Kind: persistence.KindWorker, ID: "w"}}}, nil},
			{puts(worker(0, "new")), nil},
			{persistence.Commit{
				Puts:    []persistence.Put{run("4", 0, "a"), worker(0, "no")},
				Appends: []persistence.Append{{Stream: "s", Body: []byte("refused")}},
			}, persistence.ErrStaleWriter},
			{persistence.Commit{Appends: []persistence.Append{{Stream: "s", Body: []byte("first")}}}, nil},
		}
		var commits []persistence.Commit
		for _, step := range steps {
			commits = append(commits, step.commit)
		}
		for i, err := range fill(t, s, g, commits) {
			if !errors.Is(err, steps[i].want) {
				t.Errorf("step %d: %v, not %v", i, err, steps[i].want)
			}
		}
		if got := s.Stats(); got.Syncs != 2 {
			t.Errorf("%d syncs: they did not stand in one batch", got.Syncs)
		}
		if r, err := s.Get(persistence.KindWorker, "w"); err != nil || r.Version != 1 || r.State != "new" {
			t.Errorf("%+v, %v", r, err)
		}
		if h, err := s.History(persistence.KindWorker, "w"); err != nil || len(h) != 0 {
			t.Errorf("former versions %v, %v", h, err)
		}
		if r, err := s.Get(persistence.KindRun, "4"); !errors.Is(err, persistence.ErrNotFound) {
			t.Errorf("%+v, %v", r, err)
		}
		if e, err := s.Events("s", 0, 10); err != nil || len(e) != 1 || e[0].Seq != 1 || string(e[0].Body) != "first" {
			t.Errorf("%v, %v", e, err)
		}
		closeStore(t, s)
	})
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCommitter_AFailedBatchPoisonsTheJournal(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"nothing was applied": false, "it was applied all the same": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			boom := errors.New("input/output error")
			var armed bool
			hook := func(*persistence.Batch) error {
				if armed {
					return boom
				}
				return nil
			}
			options := Options{Before: hook}
			if after {
				options = Options{After: hook}
			}
			s := open(t, Snapshot{}, options)
			if err := commit(s, puts(run("ok", 0, "a"))); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.Failed():
				t.Fatal("failed before its time")
			default:
			}
			armed = true
			if err := commit(s, puts(run("r", 0, "a"))); !errors.Is(err, boom) || persistence.OfOperation(err) {
				t.Errorf("commit: %v", err)
			}
			<-s.Failed()
			if !errors.Is(s.Err(), boom) {
				t.Errorf("failure: %v", s.Err())
			}
			armed = false
			if err := commit(s, puts(run("later", 0, "a"))); !errors.Is(err, boom) {
				t.Errorf("later commit: %v", err)
			}
			if err := s.AppendOutput("d", []persistence.Chunk{{Data: []byte("x")}}); !errors.Is(err, boom) {
				t.Errorf("later output: %v", err)
			}
			if _, err := s.Get(persistence.KindRun, "r"); (err == nil) != after {
				t.Errorf("get: %v", err)
			}
		})
	}
}

func TestCommit_AContextThatEndsMeanwhileDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := open(t, Snapshot{}, Options{Before: g.before})
		why := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error)
		go func() {
			_, err := s.Commit(ctx, puts(run("r", 0, "a")))
			done <- err
		}()
		<-g.arrived
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("commit: %v", err)
		}
		close(g.pass)
		closeStore(t, s) // waits for the batch
		next := open(t, s.Snapshot(), Options{})
		if _, err := next.Get(persistence.KindRun, "r"); err != nil {
			t.Error(err)
		}
		closeStore(t, next)
	})
}

func TestClose_FinishesTheBatchUnderWayAndAnswersTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := open(t, Snapshot{}, Options{Before: g.before})
		first, second, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { first <- commit(s, puts(run("first", 0, "a"))) }()
		<-g.arrived
		go func() { second <- commit(s, puts(run("second", 0, "a"))) }()
		synctest.Wait()
		go func() { closed <- s.Close() }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("closed with a batch under way: %v", err)
		default:
		}
		close(g.pass)
		if err := <-first; err != nil {
			t.Errorf("first: %v", err)
		}
		if err := <-second; !errors.Is(err, persistence.ErrClosed) {
			t.Errorf("second: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestCrash_FencesTheOldHandle(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{})
	if err := commit(s, puts(run("before", 0, "a"))); err != nil {
		t.Fatal(err)
	}
	next := open(t, s.Crash(), Options{})
	if err := commit(s, puts(run("late", 0, "a"))); !errors.Is(err, persistence.ErrClosed) {
		t.Errorf("late commit: %v", err)
	}
	if err := s.AppendOutput("d", []persistence.Chunk{{Data: []byte("x")}}); !errors.Is(err, persistence.ErrClosed) {
		t.Errorf("late output: %v", err)
	}
	if _, err := next.Get(persistence.KindRun, "before"); err != nil {
		t.Error(err)
	}
	if _, err := next.Get(persistence.KindRun, "late"); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("late: %v", err)
	}
	if next.Epoch() <= s.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), s.Epoch())
	}
}

func TestCrash_FromAHookIsBeforeOrAfterTheBatch(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *Store
			var snapshot Snapshot
			hook := func(*persistence.Batch) error {
				if s != nil {
					snapshot = s.Crash()
				}
				return nil
			}
			options := Options{Before: hook}
			if after {
				options = Options{After: hook}
			}
			s = open(t, Snapshot{}, options)
			err := commit(s, puts(run("r", 0, "a")))
			if !after && !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("commit: %v", err)
			}
			closeStore(t, s)
			next := open(t, snapshot, Options{})
			if _, err := next.Get(persistence.KindRun, "r"); (err == nil) != after {
				t.Errorf("get after the crash: %v", err)
			}
		})
	}
}

func TestSnapshot_BehindHasLostItsTail(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{Remember: 3})
	for i := range 6 {
		if err := commit(s, puts(run(fmt.Sprint(i), 0, "a"))); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := s.Crash()
	for n := range 4 {
		next := open(t, snapshot.Behind(n), Options{})
		count := 0
		if err := next.Scan(persistence.KindRun, false, "", "", func(persistence.Record) bool { count++; return true }); err != nil {
			t.Fatal(err)
		}
		if count != 6-n {
			t.Errorf("%d batches behind: %d records", n, count)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a snapshot went back further than was remembered")
		}
	}()
	snapshot.Behind(4)
}

func TestSnapshots_AreIndependentOfEachOther(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{})
	if err := s.AppendOutput("d", []persistence.Chunk{{Data: []byte("shared")}}); err != nil {
		t.Fatal(err)
	}
	snapshot := s.Snapshot()
	for _, own := range []string{"-one", "-two"} {
		next := open(t, snapshot, Options{})
		if err := commit(next, puts(run(own, 0, "a"))); err != nil {
			t.Error(err)
		}
		if err := next.AppendOutput("d", []persistence.Chunk{{Offset: 6, Data: []byte(own)}}); err != nil {
			t.Error(err)
		}
		chunks, err := next.Output("d", 0, 100)
		if err != nil || len(chunks) != 2 || string(chunks[1].Data) != own {
			t.Errorf("output %v, %v", chunks, err)
		}
	}
}

func TestSpace_RefusesByClass(t *testing.T) {
	t.Parallel()
	s := open(t, Snapshot{}, Options{})
	n := 0
	for _, tt := range []struct {
		name               string
		free               uint64
		ending, data, work bool
		output             int // how much of it is taken
	}{
		{"plenty", 1000, true, true, true, 1 << 20},
		{"at the first mark", 300, true, true, true, 1 << 20},
		{"below the first mark", 299, true, true, false, 64 << 10},
		{"at the second mark", 200, true, true, false, 64 << 10},
		{"below the second mark", 199, true, false, false, 64 << 10},
		{"at the last mark", 100, true, false, false, 64 << 10},
		{"below the last mark", 99, false, false, false, 0},
		{"space has returned", 300, true, true, true, 1 << 20},
	} {
		s.SetSpace(persistence.Space{Free: tt.free, NewWork: 300, Data: 200, Hard: 100})
		for class, allowed := range map[persistence.Class]bool{
			persistence.ClassEnding: tt.ending, persistence.ClassData: tt.data, persistence.ClassNewWork: tt.work,
		} {
			n++
			c := puts(run(fmt.Sprint(n), 0, "a"))
			c.Class = class
			if err := commit(s, c); allowed && err != nil || !allowed && !errors.Is(err, persistence.ErrNoSpace) {
				t.Errorf("%s: class %d: %v", tt.name, class, err)
			}
		}
		for _, size := range []int{1, 64 << 10, 64<<10 + 1, 1 << 20} {
			n++
			err := s.AppendOutput(fmt.Sprint(n), []persistence.Chunk{{Data: make([]byte, size)}})
			if allowed := size <= tt.output; allowed && err != nil || !allowed && !errors.Is(err, persistence.ErrNoSpace) {
				t.Errorf("%s: %d bytes of output: %v", tt.name, size, err)
			}
		}
		select {
		case <-s.Failed():
			t.Fatalf("%s: the journal has failed: %v", tt.name, s.Err())
		default:
		}
	}
}
