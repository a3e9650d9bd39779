package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// trees returns the command trees of all programs.
func trees(t *testing.T) []*app {
	t.Helper()
	var apps []*app
	for _, p := range []Program{Swampd, SwampWorker, Swamp} {
		apps = append(apps, &app{host: newTestHost(t).Host, program: p, format: choiceValue{"log", []string{"log", "json"}}})
	}
	return apps
}

// TestFlags_Completeness wants of each flag a sentence and, on a daemon, a variable with the right name.
func TestFlags_Completeness(t *testing.T) {
	t.Parallel()
	none := map[string]bool{"help": true, flagPrintConfig: true, flagTokenFD: true}
	for _, a := range trees(t) {
		for _, cmd := range all(a.root()) {
			prefix := map[string]string{
				"swampd": "SWAMPD_", "swamp serve": "SWAMPD_", "swamp-worker": "SWAMP_WORKER_", "swamp worker connect": "SWAMP_WORKER_",
			}[cmd.CommandPath()]
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				where := cmd.CommandPath() + " --" + f.Name
				if f.Usage == "" {
					t.Errorf("%s has no help", where)
				}
				variables := f.Annotations[annotationEnv]
				var want []string
				switch {
				case none[f.Name]:
				case prefix != "":
					want = []string{prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
					if f.Name == "label" {
						want = append(want, envWorkerLabels)
					}
				case f.Name == "data-dir" && strings.HasPrefix(cmd.CommandPath(), "swampd "):
					want = []string{"SWAMPD_DATA_DIR"}
				case f.Name == "data-url":
					want = []string{"SWAMP_DATA_URL"}
				case f.Name == "server":
					want = []string{"SWAMP_SERVER"}
				case f.Name == "server-token":
					want = []string{"SWAMP_SERVER_TOKEN"}
				}
				if diff := cmp.Diff(want, variables); diff != "" {
					t.Errorf("variables of %s (-want +got):\n%s", where, diff)
				}
				if len(want) > 0 && !strings.Contains(f.Usage, "[$"+want[0]+"]") {
					t.Errorf("the help of %s does not name %s: %s", where, want[0], f.Usage)
				}
			})
		}
	}
}

// TestHelp shows what every command says of itself.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, a := range trees(t) {
		for _, cmd := range all(a.root()) {
			path := strings.Fields(cmd.CommandPath())
			if path[len(path)-1] == "help" {
				continue
			}
			t.Run(cmd.CommandPath(), func(t *testing.T) {
				t.Parallel()
				if !cmd.HasSubCommands() && cmd.Example == "" {
					t.Error("it has no example")
				}
				h := newTestHost(t, append(path[1:], "--help")...)
				if code := h.run(t, a.program); code != ExitOK || h.err.String() != "" {
					t.Errorf("--help exits %d and writes %q to standard error", code, h.err.String())
				}
				golden(t, "help/"+strings.Join(path, "_")+".txt", h.out.String())
			})
		}
	}
}

// TestCommandTree lists the commands, so that none is lost.
func TestCommandTree(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, a := range trees(t) {
		for _, cmd := range all(a.root()) {
			if cmd.Name() != "help" {
				fmt.Fprintln(&b, cmd.UseLine())
			}
		}
	}
	golden(t, "commands.txt", b.String())
}

func TestConfig_FlagThenVariableThenDefault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string // the line of --print-config
	}{
		{"the default", nil, nil, "queue-timeout 60s default"},
		{"a variable", nil, map[string]string{"SWAMPD_QUEUE_TIMEOUT": "5m"}, "queue-timeout 5m SWAMPD_QUEUE_TIMEOUT"},
		{"an empty variable is none", nil, map[string]string{"SWAMPD_QUEUE_TIMEOUT": ""}, "queue-timeout 60s default"},
		{"a flag", []string{"--queue-timeout", "2d"}, map[string]string{"SWAMPD_QUEUE_TIMEOUT": "5m"}, "queue-timeout 48h flag"},
		{"a flag that says what the default is", []string{"--queue-timeout=60s"}, nil, "queue-timeout 60s flag"},
		{"0 is for ever, not unset", []string{"--queue-timeout", "0"}, nil, "queue-timeout 0s flag"},
		{"a list in a variable", nil, map[string]string{"SWAMPD_SHIP_ENV": "CI_*,AWS_REGION"}, "ship-env CI_*,AWS_REGION SWAMPD_SHIP_ENV"},
		{"a list of flags replaces the variable", []string{"--ship-env", "A", "--ship-env", "B"}, map[string]string{"SWAMPD_SHIP_ENV": "C"}, "ship-env A,B flag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, append(tt.args, "--print-config")...)
			for k, v := range tt.env {
				h.env[k] = v
			}
			if code := h.run(t, Swampd); code != ExitOK {
				t.Fatalf("exit %d: %s", code, h.err.String())
			}
			for line := range strings.Lines(h.out.String()) {
				if strings.Join(strings.Fields(line), " ") == tt.want {
					return
				}
			}
			t.Errorf("no line %q in\n%s", tt.want, h.out.String())
		})
	}
}

func TestConfig_NoSecretIsShown(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, "--print-config", "ws://h")
	h.env[envWorkerToken] = "name.verysecret"
	if code := h.run(t, SwampWorker); code != ExitOK {
		t.Fatalf("exit %d: %s", code, h.err.String())
	}
	if all := h.out.String() + h.err.String(); strings.Contains(all, "verysecret") || !strings.Contains(all, "***") {
		t.Errorf("printed %s", all)
	}
}

// TestUsage_OneLineThatNamesWhatIsWrong: exit 2 and one line.
func TestUsage_OneLineThatNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		program Program
		args    string
		env     map[string]string
		want    string // in the line
	}{
		{"an unknown flag", Swampd, "--colour", nil, "--colour"},
		{"a flag without its value", Swampd, "--listen", nil, "--listen"},
		{"a negative duration", Swampd, "--queue-timeout -1s", nil, "--queue-timeout"},
		{"a grace of less than a second", Swampd, "--grace-window 500ms", nil, "--grace-window"},
		{"no run to be kept", Swampd, "--retain-runs 0", nil, "--retain-runs"},
		{"a word that is none of the choices", Swampd, "--loopback maybe", nil, "--loopback"},
		{"an address without a port", Swampd, "--listen localhost", nil, "--listen"},
		{"a port that is none", Swampd, "--listen 127.0.0.1:http", nil, "--listen"},
		{"a certificate without its key", Swampd, "--tls-cert x.pem", nil, "--tls-cert"},
		{"a key without its certificate", Swampd, "", map[string]string{"SWAMPD_TLS_KEY": "k"}, "SWAMPD_TLS_KEY"},
		{"a pattern that is none", Swampd, "--ship-env [", nil, "--ship-env"},
		{"a bad variable", Swampd, "", map[string]string{"SWAMPD_GRACE_WINDOW": "3abc"}, "SWAMPD_GRACE_WINDOW"},
		{"an argument that is not wanted", Swampd, "now", nil, `"now"`},
		{"no URL", SwampWorker, "--token a.b", nil, envOrchestratorURL},
		{"a URL with another scheme", SwampWorker, "ftp://h --token a.b", nil, "ftp"},
		{"a URL with a path", SwampWorker, "http://h/x --token a.b", nil, "path"},
		{"a bad URL in its variable", SwampWorker, "--token a.b", map[string]string{envOrchestratorURL: "h:1"}, envOrchestratorURL},
		{"no token", SwampWorker, "ws://h", nil, envWorkerToken},
		{"a token without a secret", SwampWorker, "ws://h --token abc", nil, "--token"},
		{"a token without a secret in its variable", SwampWorker, "ws://h", map[string]string{envWorkerToken: "abc"}, envWorkerToken},
		{"two tokens", SwampWorker, "ws://h --token a.b --token-file f", nil, "--token-file"},
		{"a token file that is not there", SwampWorker, "ws://h --token-file /nowhere/at/all", nil, "--token-file"},
		{"concurrency 0", SwampWorker, "ws://h --token a.b --concurrency 0", nil, "--concurrency"},
		{"a bad label", SwampWorker, "ws://h --token a.b --label gpu", nil, "--label"},
		{"a bad label in the variable", SwampWorker, "ws://h --token a.b", map[string]string{envWorkerLabel: "a=1,b"}, envWorkerLabel},
		{"a bad switch in a variable", SwampWorker, "ws://h --token a.b", map[string]string{"SWAMP_WORKER_NO_RECONNECT": "perhaps"}, "SWAMP_WORKER_NO_RECONNECT"},
		{"an unknown command", Swamp, "wrokflow", nil, "workflow"},
		{"an unknown command of a group", Swamp, "worker token destroy", nil, "destroy"},
		{"a group alone", Swamp, "worker", nil, "list"},
		{"a missing argument", Swamp, "run show", nil, "ID"},
		{"one argument too many", Swamp, "worker list all", nil, `"all"`},
		{"an unknown form of output", Swamp, "run list --output yaml", nil, "--output"},
		{"a bad server", Swamp, "run list --server nonsense", nil, "--server"},
		{"a bad server in its variable", Swamp, "run list", map[string]string{"SWAMP_SERVER": "http://h/path"}, "SWAMP_SERVER"},
		{"a token for no machines", Swamp, "worker token create x --max-enrollments 0", nil, "--max-enrollments"},
		{"a token for no time", Swamp, "worker token create x --duration 0", nil, "--duration"},
		{"a workflow file that is not there", Swamp, "workflow validate /nowhere/at/all.yaml", nil, "/nowhere/at/all.yaml"},
		{"a shell that nobody knows", Swamp, "completion tcsh", nil, "tcsh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, strings.Fields(tt.args)...)
			for k, v := range tt.env {
				h.env[k] = v
			}
			code := h.run(t, tt.program)
			line := h.err.String()
			if code != ExitUsage || h.out.String() != "" {
				t.Errorf("exit %d, standard output %q", code, h.out.String())
			}
			if strings.Count(line, "\n") != 1 || !strings.Contains(line, tt.want) || !strings.HasPrefix(line, string(tt.program)+": ") {
				t.Errorf("want one line with %s, got %q", tt.want, line)
			}
		})
	}
}
