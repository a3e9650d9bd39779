package actors_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// large is a body that stands in a file of its own.
func large() string { return strings.Repeat("0123456789abcdef", 10_000) }

func writePoints() []crashPoint {
	mark, data := func(at func(kind, command string) testkit.PanicAt) testkit.PanicAt { return at("lease", "markWrites") },
		func(at func(kind, command string) testkit.PanicAt) testkit.PanicAt { return at("data", "dataWrite") }
	return []crashPoint{
		{row: "F1", point: "before the mark of the first write", cases: []crashCase{
			{name: "the lease panics", fault: panics(mark(before)), onDisk: oneActive, tell: wrote("hello")},
			{name: "the process dies", fault: dies(mark(before)), onDisk: oneActive, tell: wrote("hello")},
			{name: "nothing is written yet", options: looks(mark(before), func(t *testing.T, f *testkit.Fleet) {
				wantBooks(t, f, false, 0)
			}), tell: wrote("hello")},
			{name: "nor of a large body", options: looks(mark(before), func(t *testing.T, f *testkit.Fleet) {
				wantBooks(t, f, false, 0)
			}), tell: wrote(large())},
			{name: "there is no space for it", tell: markWithoutSpace},
		}},
		{row: "F2", point: "the mark is there and the data is not", cases: []crashCase{
			{name: "the data plane panics", fault: panics(data(before)), onDisk: oneActive, tell: wrote("hello")},
			{name: "the process dies", fault: dies(data(before)), onDisk: oneActive, tell: wrote("hello")},
			{name: "the mark is durable", options: looks(data(before), func(t *testing.T, f *testkit.Fleet) {
				wantBooks(t, f, true, 0)
			}), tell: wrote("hello")},
			{name: "and its worker is gone", fault: dies(data(before)), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu()) // it does not come back
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				putInVain(t, d)
				wantLostAfterWrite(t, run)
			}},
		}},
		{row: "F3", point: "the data is there and its answer is lost", cases: []crashCase{
			{name: "the data plane panics", fault: panics(data(after)), onDisk: oneActive, tell: wrote("hello")},
			{name: "the process dies", fault: dies(data(after)), onDisk: oneActive, tell: wrote("hello")},
			{name: "of a large body, with a panic", fault: panics(data(after)), onDisk: oneActive, tell: wrote(large())},
			{name: "of a large body, with the process", fault: dies(data(after)), onDisk: oneActive, tell: wrote(large())},
			{name: "of an append, with a panic", fault: panics(nth(2, data(after))), onDisk: oneActive, tell: appended("hello ", "world")},
			{name: "of an append, with the process", fault: dies(nth(2, data(after))), onDisk: oneActive, tell: appended("hello ", "world")},
			{name: "of an append to a file, with the process", fault: dies(nth(2, data(after))), onDisk: oneActive, tell: appended(large(), large())},
			{name: "of a delete", fault: dies(nth(2, data(after))), onDisk: oneActive, tell: deleted},
		}},
		{row: "F4", point: "a lease ends before the commit of its data", cases: []crashCase{
			{name: "as it is killed", options: looks(data(before), func(t *testing.T, f *testkit.Fleet) {
				if _, err := f.Ask(messages.VerbRunCancel, &messages.RunCancelParams{RunId: runs(f)[0], Force: true}); err != nil {
					t.Error(err)
				}
				f.Eventually("the lease is fenced", func() bool { return strings.Contains(work(f.Journal()), "0.1/1 fenced") })
			}), tell: fencedWrite("hello", messages.RunCancelled)},
			{name: "as its worker is gone, with a large body", options: looks(data(before), func(_ *testing.T, f *testkit.Fleet) {
				f.Eventually("the lease has ended", func() bool { return strings.Contains(work(f.Journal()), "0.1/1 failed") })
			}), tell: fencedWrite(large(), messages.RunFailed)},
		}},
		{row: "F5", point: "a body is there and its record is not", cases: []crashCase{
			{name: "the data plane panics", fault: panics(data(before)), onDisk: oneActive, tell: wrote(large())},
			{name: "the process dies", fault: dies(data(before)), onDisk: oneActive, tell: wrote(large())},
			{name: "the process dies at an append", fault: dies(nth(2, data(before))), onDisk: oneActive, tell: appended(large(), large())},
		}},
		{row: "F6", point: "the lease panics between the mark and its answer", cases: []crashCase{
			{name: "once", fault: panics(mark(after)), onDisk: oneActive, tell: wrote("hello")},
			{name: "and so does the process", fault: dies(mark(after)), onDisk: oneActive, tell: wrote("hello")},
			{name: "and the worker returns without the dispatch", fault: panics(mark(after)), onDisk: oneActive, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				putInVain(t, w.NextDispatch().Accept())
				w.Drop()
				f.Settle()
				w.Reconnect(testkit.AsNewInstance())
				wantLostAfterWrite(t, run)
			}},
		}},
		{row: "F7", point: "the process dies later", cases: []crashCase{
			{name: "and its worker is lost after it was adopted", tell: func(t *testing.T, f *testkit.Fleet) {
				d, w, run := adoptedAfterWrite(t, f)
				w.Drop()
				f.Advance(time.Hour)
				wantLostAfterWrite(t, run)
				if _, err := d.Put("report", "late", "k9"); messages.CodeOf(err) != messages.CodeEnded {
					t.Errorf("a write of a lost dispatch: %v, want ended", err)
				}
			}},
			{name: "and its worker returns as another process", tell: func(t *testing.T, f *testkit.Fleet) {
				_, w, run := adoptedAfterWrite(t, f)
				w.Drop()
				f.Settle()
				w.Reconnect(testkit.AsNewInstance())
				wantLostAfterWrite(t, run)
			}},
			{name: "and its worker does not come back", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				mustPut(t, d, "report", "hello", "k1")
				f.Crash()
				f.Restart()
				f.Advance(time.Hour)
				wantLostAfterWrite(t, run)
			}},
		}},
		{row: "F8", point: "the credential died with the process", cases: []crashCase{
			{name: "and the next one comes with the adoption", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				mustPut(t, d, "report", "hello", "k1")
				old := d.Credential()
				f.Crash()
				f.Restart()
				if _, err := f.System().Data().Authenticate(old); messages.CodeOf(err) != messages.CodeUnauthorized {
					t.Errorf("the credential of another boot: %v, want unauthorized", err)
				}
				w.Reconnect()
				f.Settle()
				if again := mustPut(t, d, "report", "hello", "k1"); again.GetVersion() != 1 {
					t.Errorf("the repeat is version %d", again.GetVersion())
				}
				if next := mustPut(t, d, "report", "hello again", "k2"); next.GetVersion() != 2 {
					t.Errorf("the next one is version %d", next.GetVersion())
				}
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
			}},
		}},
	}
}

// looks has fn look at a place, once.
func looks(at testkit.PanicAt, fn func(t *testing.T, f *testkit.Fleet)) []testkit.Option {
	return []testkit.Option{testkit.WithCall(nth(1, at), func(f *testkit.Fleet) { fn(f.T().(*testing.T), f) })}
}

// wantBooks wants what the journal holds of the one lease, and of versions.
func wantBooks(t *testing.T, f *testkit.Fleet, marked bool, versions int) {
	t.Helper()
	found := 0
	for _, ended := range []bool{false, true} {
		err := f.Journal().Scan(persistence.KindLease, ended, "", "", func(r persistence.Record) bool {
			l := &messages.LeaseRecord{}
			if err := proto.Unmarshal(r.Body, l); err != nil || l.GetHasWrites() != marked {
				t.Errorf("lease %s has the mark: %v, want %v (%v)", r.ID, l.GetHasWrites(), marked, err)
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := f.Journal().Scan(persistence.KindArtifactVersion, false, "", "", func(persistence.Record) bool { found++; return true }); err != nil {
		t.Error(err)
	}
	if found != versions {
		t.Errorf("%d versions are written, want %d", found, versions)
	}
}

func mustPut(t *testing.T, d *testkit.Dispatch, name, body, request string) *messages.ArtifactItem {
	t.Helper()
	item, err := d.Put(name, body, request)
	if err != nil {
		t.Errorf("put %s: %v", name, err)
	}
	return item
}

// wrote has a step put one artifact, which must be there once, whole, and marked.
func wrote(body string) func(t *testing.T, f *testkit.Fleet) {
	return func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		item := mustPut(t, d, "reports/a.txt", body, "k1")
		if item.GetVersion() != 1 || item.GetSize() != float64(len(body)) || item.GetStep() != "only" || item.GetWorker() != "gpu-1" {
			t.Errorf("it is answered with %v", item)
		}
		wantArtifact(t, f, "reports/a.txt", body, 1)
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		wantBodies(t, f)
	}
}

// appended has a step append twice.
func appended(first, second string) func(t *testing.T, f *testkit.Fleet) {
	return func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		for i, part := range []string{first, second} {
			item, err := d.Append("log", part, string(rune('a'+i)))
			if err != nil || item.GetVersion() != 1 {
				t.Errorf("append: %v, %v", item, err)
			}
		}
		wantArtifact(t, f, "log", first+second, 1)
		d.Succeed()
		run.WaitStatus(messages.RunSucceeded)
		wantBodies(t, f)
	}
}

// deleted has a step put and delete an artifact.
func deleted(t *testing.T, f *testkit.Fleet) {
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	mustPut(t, d, "report", large(), "k1")
	if err := d.Delete("report", 0, "k2"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if body, item := f.Artifact("report"); item != nil {
		t.Errorf("it is still there: %d bytes of %v", len(body), item)
	}
	if next := mustPut(t, d, "report", "new", "k3"); next.GetVersion() != 2 {
		t.Errorf("after a delete comes version %d, want 2", next.GetVersion())
	}
	d.Succeed()
	run.WaitStatus(messages.RunSucceeded)
	wantBodies(t, f)
}

func wantArtifact(t *testing.T, f *testkit.Fleet, name, body string, version uint32) {
	t.Helper()
	got, item := f.Artifact(name)
	if got != body || item.GetVersion() != version {
		t.Errorf("%s is version %d with %d bytes, want version %d with %d", name, item.GetVersion(), len(got), version, len(body))
	}
}

// wantBodies wants every body that a record names, and after the next boot's sweep no other.
func wantBodies(t *testing.T, f *testkit.Fleet) {
	t.Helper()
	f.Eventually("it is up", func() bool { return f.System() != nil })
	f.Crash()
	f.Restart()
	f.Settle()
	if _, err := f.Journal().SweepBlobs(context.Background()); err != nil {
		t.Error(err)
	}
	named := []string{}
	err := f.Journal().Scan(persistence.KindArtifactVersion, false, "", "", func(r persistence.Record) bool {
		v := &messages.ArtifactVersionRecord{}
		if err := proto.Unmarshal(r.Body, v); err != nil {
			t.Error(err)
		}
		if v.GetBlob() != "" {
			named = append(named, v.GetBlob())
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	there, err := f.Journal().Blobs()
	if err != nil {
		t.Error(err)
	}
	slices.Sort(named)
	if diff := cmp.Diff(named, there, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("bodies (-named +there):\n%s", diff)
	}
}

// putInVain has a step put while its orchestrator is about to have a fault, and does not wait for it.
func putInVain(t *testing.T, d *testkit.Dispatch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	defer func() { _ = recover() }() // the process dies
	data := d.Fleet().System().Data()
	w, err := data.Authenticate(d.Credential())
	if err != nil {
		t.Error(err)
	}
	_, _ = data.Put(ctx, w, actors.WriteRequest{Name: "report", Body: strings.NewReader("hello")})
}

func wantLostAfterWrite(t *testing.T, run *testkit.Run) {
	t.Helper()
	run.WaitStatus(messages.RunFailed)
	s := run.Step("only")
	if s.GetCode() != string(messages.CodeLostAfterWrite) || s.GetAttempts() != 1 {
		t.Errorf("the step is %v", s)
	}
	for _, word := range []string{"gpu-1", "only", "may have written"} {
		if !strings.Contains(s.GetError(), word) {
			t.Errorf("the error %q does not say %q", s.GetError(), word)
		}
	}
}

// fencedWrite has a step write whose lease ends meanwhile.
func fencedWrite(body string, want messages.RunStatus) func(t *testing.T, f *testkit.Fleet) {
	return func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		if want == messages.RunFailed {
			w.Drop()
		}
		if _, err := d.Put("report", body, "k1"); messages.CodeOf(err) != messages.CodeEnded {
			t.Errorf("the write of a lease that has ended: %v, want ended", err)
		}
		if _, item := f.Artifact("report"); item != nil {
			t.Errorf("it has landed: %v", item)
		}
		run.WaitStatus(want)
		if want == messages.RunCancelled {
			d.Succeed()
		}
		f.Settle()
		wantBodies(t, f)
	}
}

// adoptedAfterWrite is a dispatch that has written before a restart and goes on after it.
func adoptedAfterWrite(t *testing.T, f *testkit.Fleet) (*testkit.Dispatch, *testkit.Worker, *testkit.Run) {
	t.Helper()
	w := f.Worker("gpu-1", gpu())
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	mustPut(t, d, "report", "hello", "k1")
	f.Crash()
	f.Restart()
	w.Reconnect()
	f.Settle()
	if !d.Adopted() {
		t.Error("it was not adopted")
	}
	return d, w, run
}

// markWithoutSpace has a step write while there is no space for its mark: it is told so, and the next try marks.
func markWithoutSpace(t *testing.T, f *testkit.Fleet) {
	w := f.Worker("gpu-1", gpu(), testkit.Persistent())
	f.Settle()
	run := f.Submit(single)
	d := w.NextDispatch().Accept()
	f.Settle()
	f.Journal().SetSpace(persistence.Space{Free: 30, NewWork: 100, Data: 50, Hard: 20})
	data := f.System().Data()
	writer, err := data.Authenticate(d.Credential())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := data.Put(context.Background(), writer, actors.WriteRequest{Name: "report", Body: strings.NewReader("hello")}); messages.CodeOf(err) != messages.CodeNoSpace {
			t.Errorf("without space: %v, want no_space", err)
		}
		wantBooks(t, f, false, 0)
	}
	f.Journal().SetSpace(persistence.Space{Free: 1000, NewWork: 100, Data: 50, Hard: 20})
	mustPut(t, d, "report", "hello", "k1")
	wantBooks(t, f, true, 1)
	d.Succeed()
	run.WaitStatus(messages.RunSucceeded)
}
