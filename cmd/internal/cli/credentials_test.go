package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/cmd/internal/daemon"
)

func TestHideCredentials_StartsAnewWithoutThem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		args    []string
		env     map[string]string
		restart bool
		want    []string // the new arguments
	}{
		{"a token in the variable", []string{"ws://h", "--label", "a=b"}, map[string]string{envWorkerToken: "n.s"}, true, []string{"ws://h", "--label", "a=b"}},
		{"a token among the arguments", []string{"--token", "n.s", "ws://h"}, nil, true, []string{"ws://h"}},
		{"the same, joined", []string{"ws://h", "--token=n.s", "--no-reconnect"}, nil, true, []string{"ws://h", "--no-reconnect"}},
		{"a value that looks like the flag", []string{"--cache-dir", "--token", "--token", "n.s", "ws://h"}, nil, true, []string{"--cache-dir", "--token", "ws://h"}},
		{"after two dashes there are no flags", []string{"--token", "n.s", "--", "ws://h"}, nil, true, []string{"--", "ws://h"}},
		{"a server token that lies around", []string{"ws://h", "--token-file", "FILE"}, map[string]string{envServerToken: "f00d"}, true, []string{"ws://h", "--token-file", "FILE"}},
		{"nothing to hide", []string{"ws://h", "--token-file", "FILE"}, nil, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "token")
			if err := os.WriteFile(file, []byte("n.s\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string(nil), tt.args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "FILE", file)
			}
			// The new start is recorded and refused: nothing connects.
			h := newTestHost(t, args...)
			for k, v := range tt.env {
				h.env[k] = v
			}
			h.env["XDG_CACHE_HOME"] = dir
			h.Reexec = func(r Restart) error {
				h.restart = &r
				return os.ErrPermission
			}
			if !tt.restart {
				h.Args = append(h.Args, "--"+flagPrintConfig)
			}
			h.run(t, SwampWorker)
			if (h.restart != nil) != tt.restart {
				t.Fatalf("restart %v", h.restart)
			}
			if !tt.restart {
				return
			}
			want := append([]string(nil), tt.want...)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "FILE", file)
			}
			if diff := cmp.Diff(want, h.restart.Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			for _, e := range h.restart.Env {
				if strings.HasPrefix(e, envWorkerToken+"=") || strings.HasPrefix(e, envServerToken+"=") {
					t.Errorf("the environment still has %s", e)
				}
			}
			if h.restart.Secret.Reveal() != "n.s" {
				t.Errorf("handed over %q", h.restart.Secret.Reveal())
			}
			if warned := strings.Contains(h.err.String(), "among the arguments"); warned != (tt.env == nil) {
				t.Errorf("warned: %t: %s", warned, h.err.String())
			}
			if strings.Contains(h.err.String()+h.out.String(), "n.s") {
				t.Error("the token was printed")
			}
		})
	}
}

func TestHideCredentials_TheOrchestratorNeedsNone(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, "--data-dir", t.TempDir())
	h.env[envServerToken], h.env[envWorkerToken] = "f00d", "n.s"
	h.Reexec = func(r Restart) error {
		h.restart = &r
		return os.ErrPermission
	}
	if code := h.run(t, Swampd); code != ExitFailed || h.restart == nil {
		t.Fatalf("exit %d, restart %v", code, h.restart)
	}
	if env := strings.Join(h.restart.Env, "\n"); strings.Contains(env, "TOKEN") || h.restart.Secret != "" {
		t.Errorf("handed on %q and %q", env, h.restart.Secret.Reveal())
	}
}

func TestTokenFlags_TheNearestCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("  file.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"a flag before a variable", []string{"--token", "flag.1"}, map[string]string{envWorkerToken: "env.1"}, "flag.1"},
		{"a flag before the variable of the other", []string{"--token", "flag.1"}, map[string]string{"SWAMP_WORKER_TOKEN_FILE": file}, "flag.1"},
		{"a file named by a flag before a variable", []string{"--token-file", file}, map[string]string{envWorkerToken: "env.1"}, "file.1"},
		{"a variable", nil, map[string]string{envWorkerToken: "env.1\n"}, "env.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, append(tt.args, "ws://h")...)
			h.env[envServerToken] = "f00d" // so that there is something to hide in each case
			for k, v := range tt.env {
				h.env[k] = v
			}
			h.Reexec = func(r Restart) error {
				h.restart = &r
				return os.ErrPermission
			}
			h.run(t, SwampWorker)
			if h.restart == nil || h.restart.Secret.Reveal() != tt.want {
				t.Errorf("used %v: %s", h.restart, h.err.String())
			}
		})
	}
}

func TestClient_FindsTheAdminTokenOfALocalOrchestrator(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(nil, os.ErrInvalid))
	for _, tt := range []struct {
		name, dir string
		env       map[string]string
	}{
		{"in the state directory", "state/swampd", map[string]string{"XDG_STATE_HOME": "state"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, tt.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, daemon.AdminTokenFile), []byte(testToken+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			h := newTestHost(t)
			for k, v := range tt.env {
				h.env[k] = filepath.Join(root, v)
			}
			a := &app{host: h.Host, client: clientFlags{server: s.url}}
			c, err := a.newClient(settings{})
			if err != nil || c.token != testToken {
				t.Errorf("token %q, %v", c.token.Reveal(), err)
			}
			a.client.server = "https://swamp.example.com"
			if c, err := a.newClient(settings{}); err != nil || c.token != "" {
				t.Errorf("the token of this machine is shown to another: %v", err)
			}
		})
	}
}
