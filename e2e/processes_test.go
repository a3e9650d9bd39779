//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// spread is a script that leaves processes behind in every way that we know: in the background, in a session of its
// own, orphaned twice over, without an environment, with every descriptor closed, deaf to signals, and in another
// folder. Each writes its id to a file.
func spread(f *fleet) string {
	return strings.ReplaceAll(`
mkdir -p PIDS
(echo $BASHPID > PIDS/background; exec sleep 600) &
nohup bash -c 'echo $$ > PIDS/nohup; exec sleep 600' >/dev/null 2>&1 &
setsid bash -c 'echo $$ > PIDS/session; exec sleep 600' &
( ( setsid bash -c 'echo $$ > PIDS/orphan; exec sleep 600' & ) & )
env -i "$(command -v setsid)" "$(command -v bash)" -c 'echo $$ > PIDS/bare; exec /bin/sleep 600' &
setsid bash -c 'exec 0<&- 1>&- 2>&-; echo $$ > PIDS/closed; cd /; exec sleep 600' &
bash -c 'trap "" TERM INT HUP; echo $$ > PIDS/deaf; while true; do sleep 1; done' &
while [ "$(ls PIDS | wc -l)" -lt 7 ]; do sleep 0.01; done
touch PIDS.complete`, "PIDS", f.path("pids"))
}

// spreadPIDs waits for the processes of spread.
func spreadPIDs(t testing.TB, f *fleet) []int {
	t.Helper()
	eventually(t, 20*time.Second, "the script has started everything", func() error {
		_, err := os.Stat(f.path("pids.complete"))
		return err
	})
	names, err := filepath.Glob(f.path("pids", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range names {
		eventually(t, 5*time.Second, name+" holds a number", func() error {
			pid, err := strconv.Atoi(strings.Join(f.lines(name), ""))
			if err == nil {
				pids = append(pids, pid)
			}
			return err
		})
	}
	return pids
}

func TestProcesses_NothingOfAStepOutlivesIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rest, want string
		keys             []string
		act              func(*fleet, string)
	}{
		{name: "that succeeds", rest: "exit 0", want: "succeeded"},
		{name: "that fails", rest: "exit 3", want: "failed"},
		{name: "that kills itself", rest: "kill -9 $$", want: "failed"},
		{name: "that times out", rest: "sleep 600", want: "failed", keys: []string{"timeout: 3"}},
		{name: "that times out and is deaf", rest: "trap '' TERM; while true; do sleep 1; done", want: "failed", keys: []string{"timeout: 3"}},
		{name: "that is cancelled", rest: "sleep 600", want: "cancelled", act: func(f *fleet, id string) { f.swamp("run", "cancel", id) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.worker("w", "--label", "pool=a")
			id := f.detach(flow(step("tree", spread(f)+"\n"+tt.rest, append(tt.keys, "labels: {pool: a}")...)))
			pids := spreadPIDs(t, f)
			if tt.act != nil {
				tt.act(f, id)
			}
			f.ends(id, 40*time.Second, tt.want)
			// It is over when it is told to be over: the slot is another step's from here on.
			if left := living(pids...); len(left) > 0 {
				t.Errorf("the step is over, and of its processes %v live %v", pids, left)
			}
			f.workerIs("w", "idle", 5*time.Second)
		})
	}
}

// A tree that grows while it is being killed.
func TestProcesses_WhatForksWhileItIsKilledIsKilled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script string }{
		{"two that start one after the other", `grow() { while true; do sleep 600 & sleep 0.01; done; }
grow & grow & wait`},
		{"one that starts itself anew in another session, and ends", `cat > $HOME/hop <<'HOP'
#!/bin/bash
trap '' TERM
echo x >> $HOME/hops
sleep 0.02
setsid $HOME/hop &
HOP
chmod +x $HOME/hop; $HOME/hop & sleep 600`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.worker("w", "--label", "pool=a")
			run := f.follow(flow(step("grow", "echo begins\n"+tt.script, "labels: {pool: a}")))
			id := run.event(10*time.Second, "step_output", "grow").RunID
			holds(t, 500*time.Millisecond, "it goes on", func() error { return nil })
			f.swamp("run", "cancel", id)
			f.ends(id, 60*time.Second, "cancelled")
			var left []found
			for _, p := range footprint(f.path("home")) {
				if strings.Contains(p.command, "sleep") || strings.Contains(p.command, "hop") {
					left = append(left, p)
				}
			}
			if len(left) > 0 {
				t.Errorf("the step is over, and %d of its processes live: %v", len(left), left)
			}
		})
	}
}

func TestProcesses_AGrandchildThatKeepsThePipeDoesNotKeepTheStep(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	run := f.follow(flow(step("leave", `setsid bash -c 'echo $$ > $HOME/pid; sleep 600' & echo said; while [ ! -s $HOME/pid ]; do sleep 0.01; done`, "labels: {pool: a}")))
	run.exits(30*time.Second, 0)
	if got := output(run.events(), "leave", "stdout"); got != "said\n" {
		t.Errorf("it printed %q", got)
	}
	pid, err := strconv.Atoi(f.lines(f.path("home", "pid"))[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(living(pid)) > 0 {
		t.Errorf("the grandchild %d lives", pid)
	}
}

func TestProcesses_ACancelLetsAStepCleanUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.worker("w", "--label", "pool=a")
	run := f.follow(flow(step("tidy", `trap 'echo tidied; touch $HOME/tidied; exit 1' TERM; echo ready; sleep 600 & wait`, "labels: {pool: a}")))
	id := run.event(10*time.Second, "step_output", "tidy").RunID
	f.swamp("run", "cancel", id)
	run.exits(30*time.Second, 1)
	if got := output(run.events(), "tidy", "stdout"); got != "ready\ntidied\n" {
		t.Errorf("it printed %q", got)
	}
	if _, err := os.Stat(f.path("home", "tidied")); err != nil {
		t.Error(err)
	}
}

// A usage is what a daemon holds.
type usage struct{ descriptors, children, threads, rss int }

func usageOf(t testing.TB, p *process) usage {
	t.Helper()
	return usage{descriptors(t, p.pid), len(below(p.pid)), statusNumber(t, p.pid, "Threads"), statusNumber(t, p.pid, "VmRSS")}
}

func TestProcesses_ManyShortStepsLeaveNothingBehind(t *testing.T) {
	steps := 1000
	if v := os.Getenv("E2E_STEPS"); v != "" {
		var err error
		if steps, err = strconv.Atoi(v); err != nil {
			t.Fatalf("E2E_STEPS: %v", err)
		}
	}
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a", "--concurrency", "4")
	perform := func(n int) {
		var list []string
		for i := range n {
			list = append(list, step(fmt.Sprintf("s%d", i), "echo $SWAMP_STEP", "labels: {pool: a}"))
		}
		f.ends(f.detach(flow(list...)), 120*time.Second, "succeeded")
	}
	const each = 200
	perform(each) // what grows once, grows now
	before := map[string]usage{"swampd": usageOf(t, f.d), "the worker": usageOf(t, w.process)}
	for done := 0; done < steps; done += each {
		perform(each)
	}
	for name, p := range map[string]*process{"swampd": f.d, "the worker": w.process} {
		was := before[name]
		var now usage
		eventually(t, 20*time.Second, name+" holds what it held before", func() error {
			now = usageOf(t, p)
			// Runtime and store open and close a few by themselves. 100 is what a leak of one in ten steps makes.
			if now.descriptors > was.descriptors+8 || now.children != 0 || now.threads > was.threads+12 {
				return fmt.Errorf("before %+v, now %+v: %v", was, now, below(p.pid))
			}
			return nil
		})
		const most = 96 << 10 // KiB; the store's own tables are the most of it
		if now.rss > was.rss+most && slow == 1 {
			t.Errorf("%s grew from %d to %d KiB over %d steps", name, was.rss, now.rss, steps)
		}
		t.Logf("%s: before %+v, after %d steps %+v", name, was, steps, now)
	}
	scratch, err := filepath.Glob(filepath.Join(w.cache, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(scratch) > 8 {
		t.Errorf("the worker keeps %d things in its cache: %v", len(scratch), scratch)
	}
	var tree list[struct{ PID string }]
	f.ask("actor.tree", `{}`, &tree)
	if len(tree.Items) > 40 {
		t.Errorf("%d actors live, and nothing runs: %v", len(tree.Items), tree.Items)
	}
}
