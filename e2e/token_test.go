//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tokenIs waits until token list gives a token that state.
func (f *fleet) tokenIs(name, want string, within time.Duration) {
	f.t.Helper()
	eventually(f.t, within, fmt.Sprintf("token %s is %s", name, want), func() error {
		var tokens list[struct {
			Name, State string
			Bindings    []any
		}]
		if err := f.call("worker.token.list", "{}", &tokens); err != nil {
			return err
		}
		for _, token := range tokens.Items {
			if token.Name == name && token.State == want {
				return nil
			}
		}
		return fmt.Errorf("the list is %+v", tokens.Items)
	})
}

func TestToken_AdmitsOneMachineAndThatOneAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	token := f.newToken("one")
	f.tokenIs("one", "unused", 5*time.Second)
	first := f.launchWorker("one", workerOptions{token: token})
	first.enrolled()
	f.tokenIs("one", "enrolled", 5*time.Second)
	second := f.launchWorker("one", workerOptions{token: token})
	second.exits(20*time.Second, 1)
	if !strings.Contains(second.text(), "enrollment_exhausted") {
		t.Errorf("the second machine is not told why: %s", second.text())
	}
	first.kill()
	f.restart()
	first.again().enrolled()
}

func TestToken_ForThreeMachinesAdmitsThreeOfTenAlsoThroughACrash(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	token := f.newToken("three", "--max-enrollments", "3")
	var workers []*worker
	for range 10 {
		workers = append(workers, f.launchWorker("three", workerOptions{token: token}))
	}
	eventually(t, 30*time.Second, "somebody is enrolled", func() error {
		for _, w := range workers {
			if strings.Contains(w.text(), "enrolled as three-") {
				return nil
			}
		}
		return fmt.Errorf("nobody")
	})
	f.restart()
	var in, out []*worker
	eventually(t, 60*time.Second, "each is admitted or refused for good", func() error {
		in, out = nil, nil
		for _, w := range workers {
			switch {
			case !w.alive():
				out = append(out, w)
			case strings.Contains(w.text(), "enrolled as "):
				in = append(in, w)
			}
		}
		if len(in)+len(out) < 10 {
			return fmt.Errorf("%d in, %d out", len(in), len(out))
		}
		return nil
	})
	if len(in) != 3 {
		t.Errorf("%d of ten are admitted, not 3", len(in))
	}
	for _, w := range out {
		if w.code != 1 || !strings.Contains(w.text(), "enrollment_exhausted") {
			t.Errorf("a refused one ends with %d: %s", w.code, w.text())
		}
	}
	names := map[string]bool{}
	for _, w := range in {
		w.kill()
		w.again().enrolled()
	}
	for _, w := range f.workers() {
		names[w.Name] = true
	}
	if len(names) != 4 { // loopback too
		t.Errorf("the fleet is %v", names)
	}
}

func TestToken_AtItsExpiryTheWorkerIsThrownOutAndItsStepKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	token := f.newToken("short", "--duration", "3s")
	w := f.launchWorker("short", workerOptions{token: token}, "--label", "pool=a")
	w.enrolled()
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.script("sleep 600"), "labels: {pool: a}")))
	pid := ledger.started(t, "long", 1, 10*time.Second)
	w.exits(30*time.Second, 1)
	if !strings.Contains(w.text(), "token_expired") {
		t.Errorf("it does not name the code: %s", w.text())
	}
	gone(t, 5*time.Second, pid)
	f.stepIs(id, "long", "queued", 5*time.Second) // without a grace of a minute
	f.tokenIs("short", "expired", 5*time.Second)
	w.again().exits(20*time.Second, 1)
	f.newToken("short") // the name is free again
	f.tokenIs("short", "unused", 5*time.Second)
}

func TestToken_RevokedTheWorkerIsThrownOutAndItsStepKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	other := f.worker("other", "--label", "pool=b")
	ledger := newLedger(f)
	id := f.detach(flow(step("long", ledger.script("trap '' TERM; while true; do sleep 1; done"), "labels: {pool: a}")))
	pid := ledger.started(t, "long", 1, 10*time.Second)
	f.swamp("worker", "token", "revoke", "w")
	w.exits(30*time.Second, 1)
	if !strings.Contains(w.text(), "token_revoked") {
		t.Errorf("it does not name the code: %s", w.text())
	}
	gone(t, 5*time.Second, pid)
	f.stepIs(id, "long", "queued", 5*time.Second)
	f.tokenIs("w", "revoked", 5*time.Second)
	f.restart()
	again := w.again()
	again.exits(20*time.Second, 1)
	if !strings.Contains(again.text(), "token_revoked") {
		t.Errorf("it does not name the code: %s", again.text())
	}
	if !other.alive() {
		t.Errorf("another worker ended too: %s", other.text())
	}
}

// Neither a step nor anything above it, and no log, shows a secret.
func TestToken_IsNowhereToBeFound(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--log-level", "debug", "--ship-env", "*")
	token := f.newToken("w")
	_, secret, _ := strings.Cut(token, ".")
	admin := f.admin()
	for _, tt := range []struct {
		name  string
		env   []string
		flags []string
	}{
		{"given by a variable", []string{"SWAMP_WORKER_TOKEN=" + token}, nil},
		{"given by a flag", nil, []string{"--token", token}},
		{"given by a file", nil, []string{"--token-file", f.write(token + "\n")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := f.launch("swamp-worker", startOptions{env: tt.env}, append([]string{
				"ws://" + f.addr, "--cache-dir", f.path("cache"), "--label", "pool=a", "--log-level", "debug",
			}, tt.flags...)...)
			w.line(20*time.Second, "enrolled as ")
			run := f.follow(flow(step("look", `set +e
env
for p in $$ $PPID $(ps -o ppid= -p $PPID); do
  tr '\0' '\n' < /proc/$p/environ
  tr '\0' ' ' < /proc/$p/cmdline
done
echo; sleep 600`, "labels: {pool: a}")))
			id := run.event(20*time.Second, "step_output", "look").RunID
			eventually(t, 10*time.Second, "the step looks around", func() error {
				if !strings.Contains(output(run.events(), "look", ""), "__keeper") {
					return fmt.Errorf("it has seen no keeper above it: %s", output(run.events(), "look", ""))
				}
				return nil
			})
			for _, p := range append(below(w.pid), found{pid: w.pid}) {
				for _, file := range []string{"environ", "cmdline"} {
					data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, file))
					if strings.Contains(string(data), secret) {
						t.Errorf("the secret stands in the %s of %v", file, p)
					}
				}
			}
			f.swamp("run", "cancel", id)
			run.exits(30*time.Second, 1)
			for name, text := range map[string]string{
				"the worker's log": strings.Join(append(w.stdout(), w.stderr()...), "\n"), "swampd's log": strings.Join(f.d.stderr(), "\n"),
				"the step's output": output(run.events(), "look", ""),
			} {
				if strings.Contains(text, secret) || strings.Contains(text, admin) {
					t.Errorf("%s holds a secret", name)
				}
			}
			w.kill()
		})
	}
	for name, text := range snapshot(t, f.data) {
		if name != "/admin-token" && (strings.Contains(text, secret) || strings.Contains(text, admin)) {
			t.Errorf("the file %s of the data directory holds a secret", name)
		}
	}
	info, err := os.Stat(filepath.Join(f.data, "admin-token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin-token is %v, %v", info.Mode(), err)
	}
	if out := f.swamp("worker", "token", "list"); strings.Contains(out, secret) {
		t.Error("token list shows the secret")
	}
}

func TestToken_WhatAStepPrintsOfItIsRedacted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	_, secret, _ := strings.Cut(w.token, ".")
	half := len(secret) / 2
	run := f.follow(flow(step("tell", fmt.Sprintf("echo whole %s\nprintf 'in two %s'\nsleep 1.5\necho '%s'", secret, secret[:half], secret[half:]), "labels: {pool: a}")))
	run.exits(30*time.Second, 0)
	got := output(run.events(), "tell", "stdout")
	if strings.Contains(got, secret) || !strings.Contains(got, "whole ***") {
		t.Errorf("it printed %q", got)
	}
}

func TestToken_OfAClientIsWanted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, wrong := range []string{"SWAMP_SERVER_TOKEN=nonsense", "SWAMP_SERVER_TOKEN="} {
		p := f.launch("swamp", startOptions{env: []string{"SWAMP_SERVER=" + f.url(), wrong}}, "run", "list")
		p.exits(20*time.Second, 1)
		if len(p.stderr()) != 1 || strings.Contains(p.text(), "nonsense") {
			t.Errorf("it says %s", p.text())
		}
	}
	r, err := f.http.Post(f.url()+"/v1/rpc/run.list", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 401 {
		t.Errorf("without a token the answer is %s", r.Status)
	}
	if !slices.Contains([]string{"[]", "[loopback]"}, fmt.Sprint(names(f.workers()))) {
		t.Errorf("the fleet is %v", f.workers())
	}
}

func names(workers []workerShown) []string {
	var list []string
	for _, w := range workers {
		list = append(list, w.Name)
	}
	return list
}
