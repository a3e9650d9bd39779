//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ids are the runs that there are, by status.
func (f *fleet) ids() map[string][]string {
	f.t.Helper()
	var runs list[struct{ RunID, Status string }]
	f.ask("run.list", `{"limit":1000}`, &runs)
	by := map[string][]string{}
	for _, r := range runs.Items {
		by[r.Status] = append(by[r.Status], r.RunID)
	}
	return by
}

// history is all that is kept of an ended run.
func (f *fleet) history(run string) string {
	f.t.Helper()
	return f.swamp("run", "watch", run, "--output", "json")
}

// Backups are taken while runs begin, print and end. Each has what had happened when it began.
func TestBackup_OfAnOrchestratorUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a", "--concurrency", "4")
	loud := func(name string, keys ...string) string {
		return step(name, `for i in $(seq 300); do echo "$SWAMP_STEP $i"; done; sleep 0.1; for i in $(seq 300); do echo "$SWAMP_STEP again $i"; done`, keys...)
	}
	path := f.write(flow(loud("here"), loud("there", "labels: {pool: a}"), loud("after", "dependsOn: [here, there]")))
	submit := func() { f.swamp("workflow", "run", path, "--detach") }
	waits := f.detach(flow(step("waits", "true", "labels: {pool: nobody}")))

	var file string
	var ended, begun []string // before the backup that is restored
	histories := map[string]string{}
	for round := range 3 {
		for range 4 {
			submit()
		}
		eventually(t, 60*time.Second, "some have ended", func() error {
			if n := len(f.ids()["succeeded"]); n < 3*round+2 {
				return fmt.Errorf("%d have ended", n)
			}
			return nil
		})
		now := f.ids()
		ended = now["succeeded"]
		begun = slices.Concat(now["pending"], now["running"], now["suspended"])
		for _, run := range ended {
			histories[run] = f.history(run)
		}
		submit()
		file = f.path(fmt.Sprintf("backup-%d", round))
		p := f.launch("swampd", startOptions{env: f.clientEnv()}, "backup", file, "--output", "json")
		submit()
		p.exits(60*time.Second, 0)
		var said struct {
			File, Digest string
			Bytes        int64
			Records      int
		}
		info, err := os.Stat(file)
		if err == nil {
			err = json.Unmarshal([]byte(strings.Join(p.stdout(), "\n")), &said)
		}
		if err != nil || said.File != file || said.Bytes != info.Size() || len(said.Digest) != 64 || said.Records == 0 || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v: %+v, %v", err, said, info)
		}
	}
	if len(begun) < 2 {
		t.Fatalf("only %v is under way: the backup was taken of an orchestrator at rest", begun)
	}

	f.comeBackFrom(file)
	f.d.line(10*time.Second, "reconciled: ")
	f.workerIs("w", "idle", 60*time.Second)
	eventually(t, 60*time.Second, "what was under way ends", func() error {
		now := f.ids()
		if left := len(now["pending"]) + len(now["running"]) + len(now["suspended"]); left > 1 {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	now := f.ids()
	for _, run := range begun {
		if run != waits && !slices.Contains(now["succeeded"], run) {
			t.Errorf("a run that had begun before the backup is not there, or has not succeeded: %s", f.show(run))
		}
	}
	for _, run := range ended {
		if got := f.history(run); got != histories[run] {
			t.Errorf("the history of run %s was %d bytes and is %d", run, len(histories[run]), len(got))
		}
	}
	for _, run := range now["succeeded"] {
		events, err := parseEvents(strings.Split(f.history(run), "\n"))
		if err == nil {
			err = dense(events)
		}
		if err != nil {
			t.Errorf("run %s: %v", run, err)
		}
	}
	f.queueHas(1, 10*time.Second)
	f.swamp("doctor", "books")
	if !w.alive() {
		t.Errorf("the worker has left: %s", w.text())
	}
	f.stop()
	f.checked()
}

// Nothing is left of a backup that does not come about, and what is there is not overwritten.
func TestBackup_ThatCannotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	taken := f.write("mine")
	stranger := []string{"SWAMP_SERVER=" + f.url(), "SWAMP_SERVER_TOKEN=x." + strings.Repeat("0", 20)}
	for name, tt := range map[string]struct {
		file string
		env  []string
		exit int
		says string
	}{
		"a file that is there":           {taken, f.clientEnv(), 2, "exists"},
		"a folder that is not there":     {f.path("none", "backup"), f.clientEnv(), 1, "no such file or directory"},
		"a token that is none":           {f.path("backup"), stranger, 1, "token"},
		"an orchestrator that is no one": {f.path("backup"), []string{"SWAMP_SERVER=http://127.0.0.1:9", "SWAMP_SERVER_TOKEN=x"}, 3, "127.0.0.1:9"},
	} {
		p := f.launch("swampd", startOptions{env: tt.env}, "backup", tt.file)
		p.exits(60*time.Second, tt.exit)
		if len(p.stderr()) != 1 || !strings.Contains(p.stderr()[0], tt.says) {
			t.Errorf("%s: it says %q, without %q", name, p.stderr(), tt.says)
		}
	}
	if left, err := filepath.Glob(f.path("*backup*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if got := f.lines(taken); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("the file that was there holds %q", got)
	}
}

// A file that is no whole backup, and a directory that is taken, are refused in one line, and nothing is made.
func TestRestore_RefusesInOneLineAndLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.swamp("workflow", "run", f.write(flow(step("a", "echo output"))))
	file := f.backup("backup")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	work := f.path("work")
	if err := os.MkdirAll(filepath.Join(work, "taken", "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused := func(what, file, dir string, says ...string) {
		t.Helper()
		p := f.launch("swampd", startOptions{}, "restore", file, "--data-dir", dir)
		p.exits(60*time.Second, 1)
		if len(p.stderr()) != 1 || len(p.stdout()) != 0 {
			t.Errorf("%s: it says %s", what, p.text())
		}
		for _, part := range says {
			if !strings.Contains(p.text(), part) {
				t.Errorf("%s: it says %q, without %q", what, p.text(), part)
			}
		}
		if entries, err := os.ReadDir(work); err != nil || len(entries) != 1 {
			t.Errorf("%s: left are %v, %v", what, entries, err)
		}
	}
	for _, n := range []int{0, 5, len(whole) / 3, len(whole) - 1} {
		cut := f.write(string(whole[:n]))
		refused(fmt.Sprintf("cut to %d bytes", n), cut, filepath.Join(work, "new"), cut, "cut off", "use another backup", "nothing was written")
	}
	for _, at := range []int{0, 40, len(whole) / 2, len(whole) - 1} {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		refused(fmt.Sprintf("byte %d of %d flipped", at, len(whole)), f.write(string(flipped)), filepath.Join(work, "new"), "use another backup", "nothing was written")
	}
	refused("more behind its end", f.write(string(whole)+"x"), filepath.Join(work, "new"), "follows its end")
	refused("a directory that is not empty", file, filepath.Join(work, "taken"), "is not empty")
	refused("a directory that is in use", file, f.data, "is not empty")
	f.swamp("run", "list") // nobody has hurt it

	// What a crash has left is no obstacle, and a directory that is empty is none.
	if err := os.Mkdir(filepath.Join(work, "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.launch("swampd", startOptions{}, "restore", file, "--data-dir", filepath.Join(work, "new")).exits(60*time.Second, 0)
	f.stop()
	f.data = filepath.Join(work, "new")
	f.checked()
}
