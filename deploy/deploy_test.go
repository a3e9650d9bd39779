// Package deploy_test holds the files of this folder to what the programs know: each variable is one that they read, and
// each platform waits for longer than a drain may take.
package deploy_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/swampd/swampd/worker"
)

// afterTheBound is what a worker may take from the bound of its drain to its end: what a step gets from TERM to KILL, and
// the time to report it.
const afterTheBound = worker.DefaultKillGrace + 5*time.Second

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// parse reads a YAML file into v, which has to have a field for what is looked for and no more.
func parse(t *testing.T, name string, v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, name)), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.NewReplacer("min", "m", " ", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unit is a systemd unit: the values of each key of [Service], and its environment.
type unit struct {
	keys map[string][]string
	env  map[string]string
}

func parseUnit(t *testing.T, name string) unit {
	t.Helper()
	u := unit{keys: map[string][]string{}, env: map[string]string{}}
	for line := range strings.Lines(read(t, name)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		u.keys[key] = append(u.keys[key], value)
		if name, v, ok := strings.Cut(value, "="); ok && key == "Environment" {
			u.env[name] = v
		}
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u.keys[key]) != 1 {
		t.Fatalf("%s is %q", key, u.keys[key])
	}
	return u.keys[key][0]
}

type container struct {
	Name string
	Env  []struct{ Name, Value string }
}

func (c container) env(name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

type pod struct {
	RestartPolicy                 string `yaml:"restartPolicy"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	Containers                    []container
}

type manifest struct {
	Kind string
	Spec struct {
		Template struct{ Spec pod }
	}
}

type composition struct {
	Services map[string]struct {
		StopGracePeriod string `yaml:"stop_grace_period"`
		Environment     map[string]string
	}
}

// TestStop_EachPlatformWaitsForTheDrain compares the platform's patience with the bound that the worker is given.
func TestStop_EachPlatformWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	patience := map[string][2]time.Duration{}
	u := parseUnit(t, "systemd/swamp-worker@.service")
	patience["systemd"] = [2]time.Duration{duration(t, u.one(t, "TimeoutStopSec")), duration(t, u.env["SWAMP_WORKER_DRAIN_TIMEOUT"])}
	for _, name := range []string{"kubernetes/worker-deployment.yaml", "kubernetes/worker-job.yaml"} {
		var m manifest
		parse(t, name, &m)
		p := m.Spec.Template.Spec
		patience[name] = [2]time.Duration{
			time.Duration(p.TerminationGracePeriodSeconds) * time.Second, duration(t, p.Containers[0].env("SWAMP_WORKER_DRAIN_TIMEOUT")),
		}
	}
	var c composition
	parse(t, "compose.yaml", &c)
	w := c.Services["worker"]
	patience["compose"] = [2]time.Duration{duration(t, w.StopGracePeriod), duration(t, w.Environment["SWAMP_WORKER_DRAIN_TIMEOUT"])}
	for name, p := range patience {
		if p[1] <= 0 || p[0] < p[1]+afterTheBound {
			t.Errorf("%s waits for %v, and a drain may take %v and %v more", name, p[0], p[1], afterTheBound)
		}
	}
}

// TestStop_OfTheOrchestrator does the same for it.
func TestStop_OfTheOrchestrator(t *testing.T) {
	t.Parallel()
	u := parseUnit(t, "systemd/swampd.service")
	var c composition
	parse(t, "compose.yaml", &c)
	s := c.Services["swampd"]
	for name, p := range map[string][2]string{
		"systemd": {u.one(t, "TimeoutStopSec"), u.env["SWAMPD_SHUTDOWN_TIMEOUT"]},
		"compose": {s.StopGracePeriod, s.Environment["SWAMPD_SHUTDOWN_TIMEOUT"]},
	} {
		if duration(t, p[0]) <= duration(t, p[1]) {
			t.Errorf("%s waits for %s, and the end may take %s", name, p[0], p[1])
		}
	}
}

// TestUnits_SignalTheProgramAlone and do not start again what left on purpose.
func TestUnits_SignalTheProgramAlone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"systemd/swampd.service", "systemd/swamp-worker@.service"} {
		u := parseUnit(t, name)
		for key, want := range map[string]string{"KillMode": "mixed", "KillSignal": "SIGTERM", "Restart": "on-failure", "RestartPreventExitStatus": "2"} {
			if got := u.one(t, key); got != want {
				t.Errorf("%s: %s=%s, want %s", name, key, got, want)
			}
		}
	}
}

func TestKubernetes_PodsEndAsTheirOwnersExpect(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ kind, restart string }{
		"kubernetes/worker-deployment.yaml": {"Deployment", ""},
		"kubernetes/worker-job.yaml":        {"Job", "Never"},
	} {
		var m manifest
		parse(t, name, &m)
		p := m.Spec.Template.Spec
		if m.Kind != want.kind || p.RestartPolicy != want.restart {
			t.Errorf("%s is a %s with restart policy %q", name, m.Kind, p.RestartPolicy)
		}
		if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
			t.Errorf("%s gives steps a token of the cluster", name)
		}
	}
}

// TestVariables_AreThoseOfTheFlags reads them from the help of the two programs.
func TestVariables_AreThoseOfTheFlags(t *testing.T) {
	t.Parallel()
	help := filepath.Join("..", "cmd", "internal", "cli", "testdata", "help")
	known := read(t, filepath.Join(help, "swamp-worker.txt")) + read(t, filepath.Join(help, "swampd.txt"))
	variable := regexp.MustCompile(`\bSWAMP(D|_WORKER|_ORCHESTRATOR)_[A-Z_]+\b`)
	checked := 0
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".go") {
			return err
		}
		for _, v := range variable.FindAllString(read(t, name), -1) {
			checked++
			if !strings.Contains(known, v) {
				t.Errorf("%s sets %s, which no flag has", name, v)
			}
		}
		return nil
	})
	if err != nil || checked < 10 {
		t.Errorf("%d variables, error %v", checked, err)
	}
}

// TestManifests_HaveNoKeyTwice, as most readers of YAML take the last one without a word.
func TestManifests_HaveNoKeyTwice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubernetes/worker-deployment.yaml", "kubernetes/worker-job.yaml", "compose.yaml"} {
		var v any
		err := yaml.NewDecoder(bytes.NewReader([]byte(read(t, name))), yaml.Strict()).Decode(&v)
		if err != nil && err != io.EOF { //nolint:errorlint // the decoder returns it bare
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImages_RunAsNobodyInParticular: the last user of each image is a number above those of the system, so that a
// platform can see that it is not root.
func TestImages_RunAsNobodyInParticular(t *testing.T) {
	t.Parallel()
	user := map[string]string{}
	stage := ""
	for line := range strings.Lines(read(t, "Dockerfile")) {
		f := strings.Fields(line)
		switch {
		case len(f) == 4 && f[0] == "FROM":
			stage = f[3]
		case len(f) == 2 && f[0] == "USER":
			user[stage] = f[1]
		}
	}
	for _, image := range []string{"swampd", "swamp-worker"} {
		id, _, _ := strings.Cut(user[image], ":")
		if n, err := strconv.Atoi(id); err != nil || n < 1000 {
			t.Errorf("image %s runs as %q", image, user[image])
		}
	}
}
