package actors

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

// retained is retention over a journal of its own, without any actors, an hour after its records were written.
func retained(t *testing.T) (*retainer, *bytes.Buffer) {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	var log bytes.Buffer
	sys := &System{journal: store, log: slog.New(slog.NewTextHandler(&log, nil))}
	sys.data = newData(sys)
	return &retainer{sys: sys, keep: Retention{Runs: time.Minute}.withDefaults(), reported: make(map[string]bool)}, &log
}

// write commits a record of a run.
func (r *retainer) write(t *testing.T, kind persistence.Kind, id string, ended bool, body proto.Message) {
	t.Helper()
	encoded, err := proto.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.sys.journal.Commit(t.Context(), persistence.Commit{Puts: []persistence.Put{{Kind: kind, ID: id, State: "s", Ended: ended, Body: encoded}}})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *retainer) has(t *testing.T, kind persistence.Kind, id string) bool {
	t.Helper()
	_, err := r.sys.journal.Get(kind, id)
	return err == nil
}

func TestRetainer_ARunOfWhichSomethingLivesStaysWhole(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		kind persistence.Kind
		id   string
		body proto.Message
	}{
		{"a lease", persistence.KindLease, "r.0.1/1", &messages.LeaseRecord{}},
		{"a pending dispatch", persistence.KindPending, "r.0.q2", &messages.PendingRecord{}},
		{"a step", persistence.KindStep, "r/00000001", &messages.StepRecord{Ordinal: 1, Job: "j", Step: "s", Status: string(messages.StepRunning)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, log := retained(t)
			r.write(t, persistence.KindRun, "r", true, &messages.RunRecord{RunId: "r"})
			r.write(t, persistence.KindStep, "r/00000000", false, &messages.StepRecord{Status: string(messages.StepSucceeded)})
			r.write(t, persistence.KindPending, "r.0.q1", true, &messages.PendingRecord{})
			r.write(t, persistence.KindRun, "other", true, &messages.RunRecord{RunId: "other"})
			r.write(t, tt.kind, tt.id, false, tt.body)
			for range 2 {
				if err := r.runs(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for kind, id := range map[persistence.Kind]string{persistence.KindRun: "r", persistence.KindStep: "r/00000000", persistence.KindPending: "r.0.q1", tt.kind: tt.id} {
				if !r.has(t, kind, id) {
					t.Errorf("%s %s is gone", kind, id)
				}
			}
			if r.has(t, persistence.KindRun, "other") {
				t.Error("it keeps another run from going")
			}
			if n := strings.Count(log.String(), "an ended run is not removed"); n != 1 {
				t.Errorf("it is reported %d times: %s", n, log)
			}
		})
	}
}

func TestRetainer_ALongStreamGoesInSeveralCommits(t *testing.T) {
	t.Parallel()
	r, _ := retained(t)
	r.write(t, persistence.KindRun, "r", true, &messages.RunRecord{RunId: "r"})
	const events = 2*persistence.MaxDropped + 7
	for i := range events {
		if _, err := r.sys.journal.Commit(t.Context(), persistence.Commit{Appends: []persistence.Append{{Stream: "r", Body: fmt.Append(nil, i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	before := r.sys.journal.Stats().Commits
	if err := r.runs(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := r.sys.journal.Events("r", 0, events)
	if err != nil || len(left) > 0 || r.has(t, persistence.KindRun, "r") {
		t.Errorf("%d events are left, %v", len(left), err)
	}
	if n := r.sys.journal.Stats().Commits - before; n != 3 {
		t.Errorf("it took %d commits", n)
	}
}

func TestRetainer_OutputWaitsForABackupToEnd(t *testing.T) {
	t.Parallel()
	r, _ := retained(t)
	r.write(t, persistence.KindRun, "r", true, &messages.RunRecord{RunId: "r"})
	r.write(t, persistence.KindLease, "r.0.1/1", true, &messages.LeaseRecord{})
	if err := r.sys.journal.AppendOutput("r.0.1", []persistence.Chunk{{Stream: "stdout", Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	logs := func() []string {
		list, err := r.sys.journal.OutputLogs()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	_, err := r.sys.journal.Backup(t.Context(), chunkWriter(func([]byte) error {
		if err := r.round(t.Context()); err != nil {
			t.Errorf("a round beside a backup: %v", err)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"r.0.1"}, logs()); diff != "" || r.has(t, persistence.KindRun, "r") {
		t.Errorf("beside a backup: %s", diff)
	}
	if err := r.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := logs(); len(got) > 0 {
		t.Errorf("logs are left: %q", got)
	}
}

func TestRetainer_ARoundThatIsToldToStopRemovesNothing(t *testing.T) {
	t.Parallel()
	r, _ := retained(t)
	r.write(t, persistence.KindRun, "r", true, &messages.RunRecord{RunId: "r"})
	r.write(t, persistence.KindSource, "d", false, &messages.SourceRecord{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.round(ctx); err == nil {
		t.Error("it says that it has done its work")
	}
	if !r.has(t, persistence.KindRun, "r") || !r.has(t, persistence.KindSource, "d") {
		t.Error("something is gone")
	}
}
