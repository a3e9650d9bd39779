package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// bulky are outputs of nearly a MiB, as a worker says them and as they are read.
func bulky() (said []string, want map[string]string) {
	want = make(map[string]string)
	for i := range 16 {
		name, value := fmt.Sprintf("k%02d", i), strings.Repeat(string(rune('a'+i)), 65_000)
		said, want[name] = append(said, name+"="+value), value
	}
	return said, want
}

// outputKeys are the bodies that leases and steps name, each once, and how large the largest of their records is.
func outputKeys(t *testing.T, j persistence.Journal) (keys []string, largest int) {
	t.Helper()
	note := func(ref *messages.BodyRef, size int) {
		if largest = max(largest, size); ref != nil && !slices.Contains(keys, ref.GetKey()) {
			keys = append(keys, ref.GetKey())
		}
	}
	for _, ended := range []bool{false, true} {
		err := j.Scan(persistence.KindLease, ended, "", "", func(r persistence.Record) bool {
			m := &messages.LeaseRecord{}
			if err := proto.Unmarshal(r.Body, m); err != nil {
				t.Error(err)
			}
			note(m.GetOutcome().GetOutputsBody(), len(r.Body))
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
	err := j.Scan(persistence.KindStep, false, "", "", func(r persistence.Record) bool {
		m := &messages.StepRecord{}
		if err := proto.Unmarshal(r.Body, m); err != nil {
			t.Error(err)
		}
		note(m.GetOutputsBody(), len(r.Body))
		return true
	})
	if err != nil {
		t.Error(err)
	}
	slices.Sort(keys)
	return keys, largest
}

func blobsOf(t *testing.T, j persistence.Journal) []string {
	t.Helper()
	keys, err := j.Blobs()
	if err != nil {
		t.Error(err)
	}
	return keys
}

// wantOutputs compares what is shown of a step, and what a client is told that follows the run from its beginning.
func wantOutputs(t *testing.T, run *testkit.Run, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, run.Step("only").GetOutputs()); diff != "" {
		t.Errorf("shown are other outputs: %.300s", diff)
	}
	told := false
	err := run.Watch(context.Background(), 0, nil, func(e *messages.RunEvent) bool {
		if e.GetKind() == messages.EventStepSucceeded {
			told = true
			if diff := cmp.Diff(want, e.GetOutputs()); diff != "" {
				t.Errorf("told are other outputs: %.300s", diff)
			}
			if len(e.ProtoReflect().GetUnknown()) > 0 {
				t.Error("the event tells where the journal has its outputs")
			}
		}
		return true
	})
	if err != nil || !told {
		t.Errorf("the end of the step is not told: %v", err)
	}
}

func TestOutputs_OfNearlyAMebibyteAreKeptWholeAndGoWithTheirRun(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		said, want := bulky()
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		run := f.Submit(single)
		w.NextDispatch().Succeed(said...)
		live := run.WaitEvent(messages.EventStepSucceeded)
		if diff := cmp.Diff(want, live.GetOutputs()); diff != "" {
			t.Errorf("who follows is told other outputs: %.300s", diff)
		}
		run.WaitStatus(messages.RunSucceeded)
		wantOutputs(t, run, want)
		keys, largest := outputKeys(t, f.Journal())
		if diff := cmp.Diff(keys, blobsOf(t, f.Journal())); diff != "" || len(keys) != 1 || largest > 10_000 {
			t.Errorf("%d bodies for one step, and a record of %d bytes: %s", len(keys), largest, diff)
		}
		f.Crash()
		f.Restart()
		f.Settle()
		wantOutputs(t, run, want)
		f.Advance(2 * time.Hour)
		if left := blobsOf(t, f.Journal()); len(left) > 0 {
			t.Errorf("the run is gone, and its bodies are left: %q", left)
		}
	}, testkit.WithRetention(actors.Retention{Runs: time.Hour}))
}

func TestOutputs_ThatAreLostTakeNothingWithThem(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		said, _ := bulky()
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		run := f.Submit(single)
		w.NextDispatch().Succeed(said...)
		run.WaitStatus(messages.RunSucceeded)
		for _, key := range blobsOf(t, f.Journal()) {
			if err := f.Journal().DeleteBlob(key); err != nil {
				t.Fatal(err)
			}
		}
		wantOutputs(t, run, nil)
		f.Crash()
		f.Restart()
		f.Settle()
		wantOutputs(t, run, nil)
		if sweep, err := f.Journal().SweepBlobs(t.Context()); err != nil || sweep != (persistence.BlobSweep{Missing: 1}) {
			t.Errorf("the sweep says %+v, %v", sweep, err)
		}
		next := f.Submit(single)
		w.NextDispatch().Succeed("a=1")
		next.WaitStatus(messages.RunSucceeded)
	})
}

// TestOutputs_ThatAreLargeOutliveEveryPoint breaks something around the body, the commit that names it and the commit that
// ends the step: the step ends once, with all its outputs, and no body is left that nothing names.
func TestOutputs_ThatAreLargeOutliveEveryPoint(t *testing.T) {
	t.Parallel()
	said, want := bulky()
	tell := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		run := f.Submit(single)
		w.NextDispatch().Accept().Succeed(said...)
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		f.Eventually("the process is there", func() bool { return f.System() != nil })
		f.Crash()
		f.Restart()
		f.Settle()
		wantOutputs(t, run, want)
		if _, err := f.Journal().SweepBlobs(context.Background()); err != nil {
			t.Error(err)
		}
		keys, _ := outputKeys(t, f.Journal())
		if diff := cmp.Diff(keys, blobsOf(t, f.Journal())); diff != "" || len(keys) != 1 {
			t.Errorf("bodies (-named +there): %s", diff)
		}
		wantOutputs(t, run, want)
	}
	result := func(at testkit.PanicAt) testkit.PanicAt { return nth(2, at) } // after the accept
	for _, c := range []crashCase{
		{name: "the lease panics before its commit", fault: panics(result(before("lease", "leaseFrame")))},
		{name: "the process dies before the lease's commit", fault: dies(result(before("lease", "leaseFrame")))},
		{name: "the lease panics after its commit", fault: panics(after("lease", "leaseFrame"))},
		{name: "the process dies after the lease's commit", fault: dies(after("lease", "leaseFrame"))},
		{name: "the step panics before its commit", fault: panics(before("step", "leaseEnded"))},
		{name: "the process dies before the step's commit", fault: dies(before("step", "leaseEnded"))},
		{name: "the step panics after its commit", fault: panics(after("step", "leaseEnded"))},
		{name: "the process dies after the step's commit", fault: dies(after("step", "leaseEnded"))},
		{name: "the run panics", fault: panics(before("run", "stepEnded"))},
		{name: "the process dies before the run's commit", fault: dies(before("run", "stepEnded"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.tell = tell
			testkit.Bubble(t, c.run)
		})
	}
}

func TestOutputs_ThatFindNoSpaceWaitForIt(t *testing.T) {
	t.Parallel()
	scenario(t, func(t *testing.T, f *testkit.Fleet) {
		said, want := bulky()
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		run := f.Submit(single)
		d := w.NextDispatch().Accept()
		f.Settle()
		f.Journal().SetSpace(persistence.Space{Free: 30, NewWork: 100, Data: 50, Hard: 20})
		d.Succeed(said...)
		f.Settle()
		if left := blobsOf(t, f.Journal()); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
		f.Journal().SetSpace(persistence.Space{Free: 200, NewWork: 100, Data: 50, Hard: 20})
		d.Repeat()
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		wantOutputs(t, run, want)
	})
}
