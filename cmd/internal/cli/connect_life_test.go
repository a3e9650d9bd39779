package cli

import (
	"strings"
	"testing"
)

// TestConnect_RefusesBadLives names the flag or the variable of each value that makes no sense.
func TestConnect_RefusesBadLives(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flag string
		bad  []string
	}{
		{"max-dispatches", []string{"0", "-1", "1.5", "3abc", ""}},
		{"idle-timeout", []string{"0s", "0", "-5s", "fast", ""}},
		{"max-uptime", []string{"0s", "1w"}},
		{"drain-timeout", []string{"0s", "soon"}},
		{"drain-mode", []string{"kill", ""}},
		{"concurrency", []string{"-1", "0", "x"}},
		{"label", []string{"nokey"}},
	}
	for _, tt := range tests {
		for _, bad := range tt.bad {
			t.Run("flag "+tt.flag+" "+bad, func(t *testing.T) {
				t.Parallel()
				h := newTestHost(t, "http://127.0.0.1:1", "--no-reconnect", "--"+tt.flag, bad)
				h.env["SWAMP_WORKER_TOKEN"] = "a.b"
				if code := h.run(t, SwampWorker); code != ExitUsage || !strings.Contains(h.err.String(), "--"+tt.flag) || strings.Count(h.err.String(), "\n") != 1 {
					t.Errorf("exit %d: %q", code, h.err.String())
				}
			})
			variable := "SWAMP_WORKER_" + strings.ToUpper(strings.ReplaceAll(tt.flag, "-", "_"))
			if bad == "" {
				continue // a variable that is set to nothing is not set
			}
			t.Run("variable "+tt.flag+" "+bad, func(t *testing.T) {
				t.Parallel()
				h := newTestHost(t, "http://127.0.0.1:1", "--no-reconnect")
				h.env["SWAMP_WORKER_TOKEN"], h.env[variable] = "a.b", bad
				if code := h.run(t, SwampWorker); code != ExitUsage || !strings.Contains(h.err.String(), variable) || strings.Count(h.err.String(), "\n") != 1 {
					t.Errorf("exit %d: %q", code, h.err.String())
				}
			})
		}
	}
}

// TestConnect_ShowsTheLifeItWasGiven reads it from flags and variables; a flag wins.
func TestConnect_ShowsTheLifeItWasGiven(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, "http://127.0.0.1:1", "--print-config", "--max-dispatches", "3", "--idle-timeout", "1h30m", "--drain-mode", "finish")
	h.env["SWAMP_WORKER_MAX_DISPATCHES"] = "7"
	h.env["SWAMP_WORKER_MAX_UPTIME"] = "2d"
	if code := h.run(t, SwampWorker); code != ExitOK {
		t.Fatalf("exit %d: %s", code, h.err.String())
	}
	var got []string
	for line := range strings.Lines(h.out.String()) {
		if f := strings.Fields(line); strings.Contains(f[0], "-") && f[0] != "cache-dir" && f[0] != "log-level" && f[0] != "token-file" {
			got = append(got, strings.Join(f, " "))
		}
	}
	want := "max-dispatches 3 flag; idle-timeout 1h30m flag; max-uptime 48h SWAMP_WORKER_MAX_UPTIME; drain-timeout - default; " +
		"drain-mode finish flag; no-reconnect false default"
	if strings.Join(got, "; ") != want {
		t.Errorf("got %q", strings.Join(got, "; "))
	}
}
