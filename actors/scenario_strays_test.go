package actors_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/testkit"
)

// sweeps keeps the lines that boots say.
type sweeps struct {
	mu    sync.Mutex
	lines []string
}

func (s *sweeps) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (s *sweeps) WithAttrs([]slog.Attr) slog.Handler           { return s }
func (s *sweeps) WithGroup(string) slog.Handler                { return s }

func (s *sweeps) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(r.Message, "reconciled: ") {
		s.lines = append(s.lines, r.Message)
	}
	return nil
}

// last is the line of the last boot, or empty.
func (s *sweeps) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return ""
	}
	return s.lines[len(s.lines)-1]
}

// leaveWait leaves a pending dispatch that waits, as no program of ours would.
func leaveWait(t *testing.T, f *testkit.Fleet, run string, ordinal, episode uint32) string {
	t.Helper()
	id := fmt.Sprintf("%s.%d.q%d", run, ordinal, episode)
	body, err := proto.Marshal(&messages.PendingRecord{
		QueueId: id, RunId: run, Ordinal: ordinal, Episode: episode, State: string(messages.PendingWaiting), Job: "main", Step: "only",
		BootEpoch: f.Journal().Epoch(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Journal().Commit(t.Context(), persistence.Commit{Puts: []persistence.Put{
		{Kind: persistence.KindPending, ID: id, State: string(messages.PendingWaiting), Body: body},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// strayWaits are pending dispatches that nobody waits as: of a run that is gone, of one that has ended, and of a step that
// waits in another episode. The next boot ends and counts them; those that somebody waits as go on.
func strayWaits(t *testing.T, f *testkit.Fleet) {
	ended := f.Submit(single)
	ended.WaitEvent(messages.EventStepQueued)
	ended.Cancel()
	ended.WaitStatus(messages.RunCancelled)
	run := f.Submit(oneStep(forEver))
	run.WaitEvent(messages.EventStepQueued)
	f.Settle()
	strays := []string{leaveWait(t, f, "gone", 0, 1), leaveWait(t, f, ended.ID, 0, 7), leaveWait(t, f, run.ID, 0, 8)}
	f.Crash()
	f.Advance(downTime)
	f.Restart()
	f.Settle()
	for _, id := range strays {
		rec, err := f.Journal().Get(persistence.KindPending, id)
		if err != nil || rec.State != string(messages.PendingOrphaned) || !rec.Ended {
			t.Errorf("pending dispatch %s is %q, ended %t, %v: want it orphaned", id, rec.State, rec.Ended, err)
		}
	}
	if got := waitingSteps(f); got != "only" {
		t.Errorf("waiting are %q, want the one step", got)
	}
	f.Worker("gpu-1", gpu(), testkit.AutoRun())
	run.WaitStatus(messages.RunSucceeded)
}

func TestReconcile_CountsWaitsThatNobodyWaitsAsAndNamesNone(t *testing.T) {
	t.Parallel()
	var log sweeps
	testkit.Bubble(t, func(t *testing.T) {
		f := testkit.Start(t, testkit.WithLog(&log))
		run := f.Submit(oneStep(forEver))
		run.WaitEvent(messages.EventStepQueued)
		f.Settle()
		leaveWait(t, f, "gone", 0, 1)
		leaveWait(t, f, run.ID, 0, 8)
		f.Crash()
		f.Restart()
		f.Settle()
		want := "reconciled: 0 leases expired, 3 pending dispatches orphaned, 0 workers disconnected, 1 runs resumed, 0 records quarantined"
		if got := log.last(); got != want {
			t.Errorf("the boot says %q, want %q", got, want)
		}
		f.Crash()
		f.Restart()
		f.Settle()
		want = strings.Replace(want, "3 pending", "1 pending", 1)
		if got := log.last(); got != want {
			t.Errorf("the boot after it says %q, want %q", got, want)
		}
		run.Cancel()
		run.WaitStatus(messages.RunCancelled)
	})
}
