//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// counting is a script that prints numbers, slowly enough for something to happen in between, and says where it is.
const counting = `for i in $(seq 1 60); do echo "line $i"; sleep 0.05; done`

// counted is what counting prints.
func counted() string {
	var b strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// countLines counts the lines of standard error that hold part.
func countLines(p *process, part string) int {
	n := 0
	for _, l := range p.stderr() {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

// through makes a client command that reaches the orchestrator by the proxy.
func (f *fleet) through(p *proxy, yaml string) follower {
	f.t.Helper()
	return follower{f.client("workflow", "run", f.write(yaml), "--output", "json", "--server", "http://"+p.addr)}
}

func TestReattach_AClientMissesNothingWhenItsConnectionIsCut(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	run := f.through(network, flow(step("count", counting)))
	for i := range 5 {
		eventually(t, 20*time.Second, "more output", func() error {
			if have := strings.Count(output(run.events(), "count", ""), "\n"); have < 10*i+5 {
				return fmt.Errorf("%d lines so far", have)
			}
			return nil
		})
		network.cut()
	}
	run.exits(30*time.Second, 0)
	wantWhole(t, run.events(), "count", counted())
	if n := network.accepted(); n < 4 {
		t.Errorf("the client connected %d times: the test has cut nothing", n)
	}
}

// wantWhole wants every event once, and all of a step's output.
func wantWhole(t *testing.T, events []event, name, want string) {
	t.Helper()
	if err := dense(events); err != nil {
		t.Error(err)
	}
	if got := output(events, name, "stdout"); got != want {
		t.Errorf("the output is not whole: %q", got)
	}
	if n := len(events); n == 0 || events[n-1].Kind != "run_succeeded" {
		t.Errorf("the last event is none of an end: %v", kinds(events))
	}
}

func TestReattach_SaysOnceThatTheConnectionIsLostAndOnceThatItIsBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	run := f.through(network, flow(step("count", counting)))
	run.event(10*time.Second, "step_output", "count")
	network.deny(true)
	network.cut()
	run.line(10*time.Second, "no connection to")
	before := network.accepted()
	eventually(t, 20*time.Second, "the client tries several times", func() error {
		if n := network.accepted() - before; n < 3 {
			return fmt.Errorf("%d times so far", n)
		}
		return nil
	})
	network.deny(false)
	run.exits(30*time.Second, 0)
	wantWhole(t, run.events(), "count", counted())
	for _, part := range []string{"no connection to", "again after"} {
		if n := countLines(run.process, part); n != 1 {
			t.Errorf("%d lines with %q, want one: %v", n, part, run.stderr())
		}
	}
}

func TestReattach_AConnectionThatWentSilentIsFoundAndReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	run := f.through(network, flow(step("count", counting)))
	run.event(10*time.Second, "step_output", "count")
	network.halfOpen()
	run.exits(60*time.Second, 0)
	wantWhole(t, run.events(), "count", counted())
}

func TestReattach_AShortStallChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	network := newProxy(t, f.addr)
	run := f.through(network, flow(step("count", counting)))
	run.event(10*time.Second, "step_output", "count")
	network.stall()
	id := run.events()[0].RunID
	f.ends(id, 30*time.Second, "succeeded")
	network.resume()
	run.exits(30*time.Second, 0)
	wantWhole(t, run.events(), "count", counted())
	if n := network.accepted(); n != 1 {
		t.Errorf("the client connected %d times, and its connection was never lost", n)
	}
}

// A follower lives through the end of its orchestrator, whichever way that ends.
func TestReattach_ThroughARestartOfTheOrchestrator(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(*fleet)
	}{
		{"killed", func(f *fleet) { f.crash() }},
		{"stopped", func(f *fleet) { f.stop() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "--grace-window", "2s")
			f.worker("w", "--label", "pool=a")
			run := f.follow(flow(
				step("first", counting, "labels: {pool: a}"),
				step("second", counting, "labels: {pool: b}", "dependsOn: [first]"),
			))
			run.event(20*time.Second, "step_queued", "second")
			tt.end(f)
			run.line(10*time.Second, "no connection to")
			f.start()
			run.line(20*time.Second, "again after")
			f.worker("other", "--label", "pool=b")
			run.exits(40*time.Second, 0)
			wantWhole(t, run.events(), "first", counted())
			wantWhole(t, run.events(), "second", counted())
			for _, part := range []string{"no connection to", "again after"} {
				if n := countLines(run.process, part); n != 1 {
					t.Errorf("%d lines with %q, want one: %v", n, part, run.stderr())
				}
			}
		})
	}
}

func TestFollower_GivesUpAfterItsPatienceWith3(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	run := f.follow(flow(step("wait", "true", "labels: {pool: none}")), "--server-timeout", "1s")
	run.event(10*time.Second, "step_queued", "wait")
	f.crash()
	run.exits(20*time.Second, 3)
	run.line(time.Second, "cannot be reached")
}

func TestFollower_CtrlCCancelsTheRunAndEndsWith130(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		run := f.follow(flow(step("endless", ledger.script("sleep 600"), "labels: {pool: a}")))
		id := run.event(10*time.Second, "step_dispatched", "endless").RunID
		run.signal(s)
		run.exits(30*time.Second, 130)
		if got := f.show(id); got.Status != "cancelled" {
			t.Errorf("after %s the run is %s", s, got.Status)
		}
	}
	f.workerIs("w", "idle", 10*time.Second)
}

func TestFollower_RunWatchOnlyDetaches(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	id := f.detach(flow(step("wait", "true", "labels: {pool: none}")))
	watch := follower{f.client("run", "watch", id, "--output", "json")}
	watch.event(10*time.Second, "step_queued", "wait")
	watch.signal(syscall.SIGINT)
	watch.exits(10*time.Second, 130)
	if got := f.show(id); got.Status != "running" || got.CancelRequested {
		t.Errorf("the run is %s", got)
	}
}
