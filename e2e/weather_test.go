//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// aMinute is a step of a minute, and what it prints.
func aMinute() (script, prints string) {
	for i := range 60 {
		prints += fmt.Sprintf("second %d\n", i)
	}
	return `for i in $(seq 0 59); do echo "second $i"; sleep 1; done`, prints
}

// passes waits for a time that weather lasts.
func passes(t *testing.T, since time.Time, last time.Duration) {
	t.Helper()
	eventually(t, last+10*time.Second, "the end of the weather", func() error {
		if left := last - time.Since(since); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
}

// The fleets of this test live side by side, so that it takes as long as the longest weather and no longer.
func TestWeather_AStepOfAMinuteOutlivesIt(t *testing.T) {
	t.Parallel()
	script, prints := aMinute()
	type fleetInWeather struct {
		name    string
		f       *fleet
		network *proxy
		ledger  *ledger
		run     follower
	}
	all := make([]fleetInWeather, 4)
	for i, name := range []string{"kill -9", "a clean restart", "a cut of 5 s", "a cut of 90 s"} {
		f := newFleet(t, "--grace-window", "3m")
		network := newProxy(t, f.addr)
		f.behind(network, "w", "--label", "pool=a")
		ledger := newLedger(f)
		all[i] = fleetInWeather{name, f, network, ledger, f.follow(flow(step("minute", ledger.script(script), "labels: {pool: a}")))}
	}
	for _, x := range all {
		x.run.event(20*time.Second, "step_output", "minute")
	}
	cut := time.Now()
	for _, x := range all[2:] {
		x.network.deny(true)
		x.network.cut()
	}
	all[0].f.crash()
	all[1].f.d.signal(syscall.SIGTERM)
	all[1].f.d.exits(40*time.Second, 0)
	all[0].f.restart()
	all[1].f.restart()
	passes(t, cut, 5*time.Second)
	all[2].network.deny(false)
	passes(t, cut, 90*time.Second)
	all[3].network.deny(false)
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			x.run.exits(90*time.Second, 0)
			wantOnce(t, x.f, x.ledger, x.run, "minute", prints)
		})
	}
}

// A machine that was cloned has the identity of another one. Who is there keeps it, and the clone gets it when the first
// has gone; what ran on the first one is then lost at once and runs on the clone.
func TestWeather_TwoWorkersWithOneIdentity(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("gate", ledger.gate(), "labels: {pool: a}")))
	ledger.started(t, "gate", 1, 20*time.Second)
	id, err := os.ReadFile(filepath.Join(w.cache, "machine-id"))
	if err != nil {
		t.Fatal(err)
	}
	cache := f.path("clone")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, "machine-id"), id, 0o600); err != nil {
		t.Fatal(err)
	}
	clone := f.launchWorker("w", workerOptions{token: w.token, cache: cache}, "--label", "pool=a")
	clone.line(20*time.Second, "already_connected")
	holds(t, 2*time.Second, "the first one keeps its place", func() error {
		if n := countLines(clone.process, "enrolled as "); n > 0 || !w.alive() || !clone.alive() {
			return fmt.Errorf("the clone enrolled %d times: %s", n, clone.text())
		}
		return nil
	})
	if n := ledger.count(t, "start", "gate"); n != 1 {
		t.Errorf("the step started %d times beside the first", n)
	}
	w.kill()
	clone.enrolled()
	ledger.started(t, "gate", 2, 60*time.Second)
	ledger.open(t)
	run.exits(60*time.Second, 0)
	for _, x := range wrong(ledger.entries(t)) {
		t.Error(x)
	}
	if n := ledger.count(t, "start", "gate"); n != 2 {
		t.Errorf("it started %d times", n)
	}
}
