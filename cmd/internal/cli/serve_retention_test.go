package cli

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/cmd/internal/daemon"
)

// askedEngine notes what it is asked to start, and does not.
type askedEngine struct {
	daemon.Engine
	asked daemon.Config
}

func (e *askedEngine) Start(_ context.Context, cfg daemon.Config) (daemon.Orchestrator, error) {
	e.asked = cfg
	return nil, errors.New("not here")
}

func TestServe_RetentionIsWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want daemon.Retention
	}{
		{"by default", nil, nil, daemon.Retention{Runs: 7 * day, MaxRuns: 10_000, Workers: day}},
		{
			"shorter", []string{"--retain-runs-for", "2d", "--retain-runs", "5", "--retain-workers-for", "90s"}, nil,
			daemon.Retention{Runs: 2 * day, MaxRuns: 5, Workers: 90 * time.Second},
		},
		{
			"for ever", []string{"--retain-runs-for", "0", "--retain-runs", "unlimited", "--retain-workers-for", "0"}, nil,
			daemon.Retention{Runs: -1, MaxRuns: -1, Workers: -1},
		},
		{
			"by variables", []string{"--retain-runs", "7"},
			map[string]string{"SWAMPD_RETAIN_RUNS_FOR": "1h", "SWAMPD_RETAIN_RUNS": "9", "SWAMPD_RETAIN_WORKERS_FOR": "0"},
			daemon.Retention{Runs: time.Hour, MaxRuns: 7, Workers: -1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, append([]string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, tt.args...)...)
			for name, value := range tt.env {
				h.env[name] = value
			}
			engine := &askedEngine{}
			h.Engine = engine
			h.run(t, Swampd)
			if diff := cmp.Diff(tt.want, engine.asked.Retention); diff != "" {
				t.Errorf("(-want +got): %s\n%s", diff, h.err.String())
			}
		})
	}
}
