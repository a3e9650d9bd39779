//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// backup has swampd write a backup of the fleet, and returns the file.
func (f *fleet) backup(name string) string {
	f.t.Helper()
	file := f.path(name)
	p := f.launch("swampd", startOptions{env: f.clientEnv()}, "backup", file)
	p.exits(60*time.Second, 0)
	return file
}

// comeBackFrom has the fleet go on in a directory of its own that is restored from a backup: its swampd is killed, and what
// has happened since the backup is gone.
func (f *fleet) comeBackFrom(file string) {
	f.t.Helper()
	f.crash()
	f.data = f.path(fmt.Sprintf("restored-%d", len(f.processes)))
	f.launch("swampd", startOptions{}, "restore", file, "--data-dir", f.data).exits(60*time.Second, 0)
	f.checked()
	f.start()
}

// checked wants nothing to be wrong in the data directory.
func (f *fleet) checked() {
	f.t.Helper()
	p := f.launch("swampd", startOptions{}, "check", "--data-dir", f.data)
	p.exits(60*time.Second, 0)
	if !strings.HasSuffix(strings.Join(p.stdout(), "\n"), "\nnothing is wrong") {
		f.t.Errorf("check exits 0 and says: %s", p.text())
	}
}

// reconciled wants the line that says what the start has found.
func (f *fleet) reconciled(want string) {
	f.t.Helper()
	if line := f.d.line(time.Second, "reconciled: "); !strings.Contains(line, want) {
		f.t.Errorf("swampd says %q, not %q", line, want)
	}
}

// printsAndWaits is a script that prints a line, and another each time that a file is there.
func printsAndWaits(l *ledger, lines int) string {
	return l.script(fmt.Sprintf(`for i in $(seq %d); do
  echo "line $i"
  while [ ! -e %s.$i ]; do sleep 0.02; done
done`, lines, l.path))
}

func (l *ledger) goOn(t testing.TB, line int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("%s.%d", l.path, line), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// printed waits until so many lines of a step are kept.
func (p follower) printed(step string, lines int) {
	p.t.Helper()
	eventually(p.t, 20*time.Second, "the step's output", func() error {
		if have := strings.Count(output(p.events(), step, ""), "\n"); have < lines {
			return fmt.Errorf("%d lines so far", have)
		}
		return nil
	})
}

// A step that was in flight at the backup and has said nothing since goes on: nothing of it is missing.
func TestRestore_AStepThatIsAsTheBackupKnowsItGoesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("long", printsAndWaits(ledger, 2), "labels: {pool: a}")))
	run.printed("long", 1)
	id := run.events()[0].RunID
	file := f.backup("backup")
	f.comeBackFrom(file)
	f.reconciled("reconciled: 1 leases expired, 0 pending dispatches orphaned, 1 workers disconnected, 1 runs resumed, 0 records quarantined")
	f.workerIs("w", "busy", 30*time.Second)
	ledger.goOn(t, 1)
	ledger.goOn(t, 2)
	shown := f.ends(id, 30*time.Second, "succeeded").step("long")
	if ledger.count(t, "start", "long") != 1 || shown.Losses != 0 || shown.Attempts != 1 {
		t.Errorf("it started %d times: %+v", ledger.count(t, "start", "long"), shown)
	}
	if got := f.swamp("run", "logs", id); got != "line 1\nline 2" {
		t.Errorf("it printed %q", got)
	}
	if !w.alive() {
		t.Errorf("the worker has left: %s", w.text())
	}
}

// What a worker was told is durable it has forgotten. A store that has forgotten it too cannot go on with the step: it is
// killed, and runs again from its beginning.
func TestRestore_AStepOfWhichTheStoreHasForgottenOutputRunsAgain(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			w := f.worker("w", "--label", "pool=a")
			ledger := newLedger(f)
			run := f.follow(flow(step("long", printsAndWaits(ledger, 3), "labels: {pool: a}")))
			run.printed("long", 1)
			id := run.events()[0].RunID
			file := f.backup("backup")
			ledger.goOn(t, 1)
			run.printed("long", 2)
			pid := ledger.pid(t, "long")
			if !running { // its result waits for an orchestrator
				f.crash()
				ledger.goOn(t, 2)
				ledger.goOn(t, 3)
				w.line(30*time.Second, "finished dispatch")
			}
			f.comeBackFrom(file)
			ledger.started(t, "long", 2, 60*time.Second)
			if left := living(pid); len(left) > 0 {
				t.Errorf("it runs again, and the first is still there: %v", left)
			}
			for i := range 3 {
				ledger.goOn(t, i+1)
			}
			shown := f.ends(id, 60*time.Second, "succeeded").step("long")
			if shown.Losses != 0 {
				t.Errorf("the worker is blamed: %+v", shown)
			}
			if got := f.swamp("run", "logs", id); !strings.HasSuffix(got, "line 1\nline 2\nline 3") {
				t.Errorf("it printed %q", got)
			}
			if found := wrong(ledger.entries(t)); len(found) > 0 {
				t.Error(found)
			}
			f.workerIs("w", "idle", 20*time.Second)
		})
	}
}

// A dispatch that is of a time after the backup is not known to the store: it is told to stop, though the same step is then
// sent under the same id.
func TestRestore_AStepThatBeganAfterTheBackupRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	token := f.newToken("w")
	ledger := newLedger(f)
	id := f.detach(flow(step("late", printsAndWaits(ledger, 2), "labels: {pool: a}")))
	f.queueHas(1, 20*time.Second)
	file := f.backup("backup")
	w := f.launchWorker("w", workerOptions{token: token}, "--label", "pool=a")
	pid := ledger.started(t, "late", 1, 20*time.Second)
	watch := follower{f.client("run", "watch", id, "--output", "json")}
	watch.printed("late", 1)
	f.comeBackFrom(file)
	f.reconciled("0 leases expired, 1 pending dispatches orphaned, 0 workers disconnected, 1 runs resumed")
	ledger.started(t, "late", 2, 60*time.Second)
	if left := living(pid); len(left) > 0 {
		t.Errorf("it runs again, and the first is still there: %v", left)
	}
	ledger.goOn(t, 1)
	ledger.goOn(t, 2)
	f.ends(id, 30*time.Second, "succeeded")
	if got := f.swamp("run", "logs", id); got != "line 1\nline 2" {
		t.Errorf("it printed %q", got)
	}
	if !w.alive() {
		t.Errorf("the worker has left: %s", w.text())
	}
	f.workerIs("w", "idle", 20*time.Second)
	if strings.Contains(f.d.text(), "the books disagree") {
		t.Errorf("the auditor had to repair something: %s", f.d.text())
	}
}

// A step that was adopted since the backup is known to the worker under a later generation than the store's.
func TestRestore_AStepThatWasAdoptedSinceTheBackupRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--grace-window", "6s")
	f.worker("w", "--label", "pool=a")
	ledger := newLedger(f)
	run := f.follow(flow(step("long", printsAndWaits(ledger, 2), "labels: {pool: a}")))
	run.printed("long", 1)
	id := run.events()[0].RunID
	file := f.backup("backup")
	f.restart()
	ledger.goOn(t, 1)
	run.printed("long", 2)
	f.comeBackFrom(file)
	ledger.started(t, "long", 2, 60*time.Second)
	ledger.goOn(t, 2)
	shown := f.ends(id, 30*time.Second, "succeeded").step("long")
	if shown.Losses != 0 {
		t.Errorf("the worker is blamed: %+v", shown)
	}
	if found := wrong(ledger.entries(t)); len(found) > 0 {
		t.Error(found)
	}
	f.workerIs("w", "idle", 20*time.Second)
}

// A worker whose token was made after the backup is refused for good; one that was revoked since is admitted.
func TestRestore_TokensAreThoseOfTheBackup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	old := f.worker("old")
	spare, revoked := f.newToken("spare"), f.newToken("revoked")
	file := f.backup("backup")
	f.swamp("worker", "token", "revoke", "revoked")
	young := f.worker("young")
	f.comeBackFrom(file)
	f.workerIs("old", "idle", 30*time.Second)
	f.launchWorker("spare", workerOptions{token: spare}).enrolled()
	f.launchWorker("revoked", workerOptions{token: revoked}).enrolled()
	young.exits(60*time.Second, 1)
	young.line(time.Second, "invalid_token")
	if !old.alive() {
		t.Errorf("the worker has left: %s", old.text())
	}
}
