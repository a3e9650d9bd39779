package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// scrape returns the lines of /metrics that are ours, without help and type.
func scrape(t *testing.T, f *fixture) (ours []string, all string) {
	t.Helper()
	got := f.call(t, http.MethodGet, "/metrics", "", withToken())
	if got.status != http.StatusOK {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	for line := range strings.Lines(got.body) {
		if strings.HasPrefix(line, "swamp_") {
			ours = append(ours, strings.TrimSuffix(line, "\n"))
		}
	}
	return ours, got.body
}

func numbering(m actors.Metrics, err error) *fakeOrchestrator {
	fake := newFake()
	fake.numbers = func(context.Context) (actors.Metrics, error) { return m, err }
	return fake
}

func TestMetrics_OfASystemAtWork(t *testing.T) {
	t.Parallel()
	f := serve(t, numbering(actors.Metrics{
		Waiting:   map[string]int{"target 'gpu-1'": 2, `labels a="x\y"`: 1},
		Workers:   map[messages.WorkerStatus]int{messages.WorkerIdle: 3, messages.WorkerBusy: 1},
		SlotsFree: 5, SlotsTotal: 8, RunsLive: 2,
		RunsEnded:  map[messages.RunStatus]uint64{messages.RunSucceeded: 7},
		StepsEnded: map[messages.StepStatus]uint64{messages.StepFailed: 4},
		Drains:     map[string]uint64{"signal": 6, "other": 1},
		Restarts:   1, Findings: 3, Commits: 100, Syncs: 20, SyncTime: 1500 * time.Millisecond,
	}, nil), nil)
	ours, all := scrape(t, f)
	want := []string{
		"swamp_actor_restarts_total 1",
		"swamp_book_findings_total 3",
		"swamp_journal_commits_total 100",
		"swamp_journal_sync_seconds_total 1.5",
		"swamp_journal_syncs_total 20",
		`swamp_queue_waiting{requirement="labels a=\"x\\y\""} 1`,
		`swamp_queue_waiting{requirement="target 'gpu-1'"} 2`,
		`swamp_runs_ended_total{status="cancelled"} 0`,
		`swamp_runs_ended_total{status="failed"} 0`,
		`swamp_runs_ended_total{status="succeeded"} 7`,
		"swamp_runs_live 2",
		"swamp_slots_free 5",
		"swamp_slots_total 8",
		`swamp_steps_ended_total{status="cancelled"} 0`,
		`swamp_steps_ended_total{status="failed"} 4`,
		`swamp_steps_ended_total{status="skipped"} 0`,
		`swamp_steps_ended_total{status="succeeded"} 0`,
		`swamp_worker_drains_total{reason="drained"} 0`,
		`swamp_worker_drains_total{reason="forced"} 0`,
		`swamp_worker_drains_total{reason="idle_timeout"} 0`,
		`swamp_worker_drains_total{reason="max_dispatches"} 0`,
		`swamp_worker_drains_total{reason="max_uptime"} 0`,
		`swamp_worker_drains_total{reason="other"} 1`,
		`swamp_worker_drains_total{reason="signal"} 6`,
		`swamp_workers{status="busy"} 1`,
		`swamp_workers{status="disconnected"} 0`,
		`swamp_workers{status="draining"} 0`,
		`swamp_workers{status="idle"} 3`,
		`swamp_workers{status="paused"} 0`,
		`swamp_workers{status="unhealthy"} 0`,
		`swamp_workers{status="unverified"} 0`,
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, part := range []string{"# TYPE swamp_queue_waiting gauge", "# TYPE swamp_runs_ended_total counter", "go_goroutines "} {
		if !strings.Contains(all, part) {
			t.Errorf("%q is missing", part)
		}
	}
}

func TestMetrics_WaitingNeedsNoWorkerAndIsBounded(t *testing.T) {
	t.Parallel()
	queue := map[string]int{"\xff": 1, "any worker": 500}
	for i := range 300 {
		queue[fmt.Sprintf("target 'w-%03d'", i)] = 2
	}
	ours, _ := scrape(t, serve(t, numbering(actors.Metrics{Waiting: queue}, nil), nil))
	total, series := 0, 0
	var last string
	for _, line := range ours {
		rest, ok := strings.CutPrefix(line, "swamp_queue_waiting{")
		if !ok {
			continue
		}
		var n int
		requirement, value, _ := strings.Cut(rest, "} ")
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatal(err)
		}
		if requirement == `requirement="other"` {
			last = line
		} else {
			series++
		}
		total += n
	}
	if total != 1101 || series != maxRequirements {
		t.Errorf("%d steps in %d series, want 1101 in %d", total, series, maxRequirements)
	}
	if want := `swamp_queue_waiting{requirement="other"} 203`; last != want {
		t.Errorf("the rest is %q, want %q", last, want)
	}
}

func TestMetrics_AreOpenOnlyToThisMachine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, listen string
		header       http.Header
		status       int
	}{
		{"a loopback listener", "127.0.0.1:0", nil, 200},
		{"a public listener", "0.0.0.0:0", nil, 401},
		{"a public listener and a wrong token", "0.0.0.0:0", http.Header{"Authorization": {"Bearer x"}}, 401},
		{"a public listener and the token", "0.0.0.0:0", withToken(), 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, numbering(actors.Metrics{}, nil), func(c *Config) { c.Listen = tt.listen })
			if got := f.call(t, http.MethodGet, "/metrics", "", tt.header); got.status != tt.status {
				t.Errorf("status %d, want %d", got.status, tt.status)
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if got := f.call(t, http.MethodGet, path, "", nil); got.status != http.StatusOK {
					t.Errorf("%s: status %d", path, got.status)
				}
			}
		})
	}
}

func TestMetrics_WithoutNumbersAreAnError(t *testing.T) {
	t.Parallel()
	f := serve(t, numbering(actors.Metrics{}, errors.New("broken")), nil)
	if got := f.call(t, http.MethodGet, "/metrics", "", nil); got.status != http.StatusInternalServerError {
		t.Errorf("status %d", got.status)
	}
}

func TestMetrics_AreWaitedForOnlySoLong(t *testing.T) {
	bubble(t, func() *fakeOrchestrator {
		fake := newFake()
		fake.numbers = func(ctx context.Context) (actors.Metrics, error) {
			<-ctx.Done()
			return actors.Metrics{}, ctx.Err()
		}
		return fake
	}, func(t *testing.T, f *fixture) {
		got := f.call(t, http.MethodGet, "/metrics", "", nil)
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	check := func(path string, status int, body string) {
		t.Helper()
		if got := f.call(t, http.MethodGet, path, "", nil); got.status != status || got.body != body {
			t.Errorf("%s: %d %q, want %d %q", path, got.status, got.body, status, body)
		}
	}
	check("/healthz", 200, "ok\n")
	check("/readyz", 200, "ready\n")
	f.notReady.Store(true)
	check("/healthz", 200, "ok\n")
	check("/readyz", 503, "not ready\n")
}
