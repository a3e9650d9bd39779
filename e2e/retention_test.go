//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// outputLogs are the files below the data directory that hold output of a run.
func (f *fleet) outputLogs(run string) []string {
	f.t.Helper()
	var logs []string
	err := filepath.WalkDir(filepath.Join(f.data, "output"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), run) {
			logs = append(logs, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return logs
}

// A run that has ended goes with its output, and what has not ended stays, whatever it has done already.
func TestRetention_AnEndedRunGoesWithItsOutput(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--retain-runs-for", "1s", "--retain-workers-for", "1s")
	w := f.worker("w", "--label", "pool=a", "--max-dispatches", "1")
	loud := "for i in $(seq 20000); do echo line $i; done"
	ended := f.detach(flow(step("ended", loud, "labels: {pool: a}")))
	f.ends(ended, 60*time.Second, "succeeded")
	w.exits(30*time.Second, 0)
	living := f.detach(flow(step("before", loud), step("waits", "true", "labels: {pool: nobody}", "dependsOn: [before]")))
	f.stepIs(living, "before", "succeeded", 60*time.Second)
	for _, run := range []string{ended, living} {
		if len(f.outputLogs(run)) != 1 {
			t.Fatalf("run %s has logs %v", run, f.outputLogs(run))
		}
	}
	eventually(t, 3*time.Minute, "the run goes", func() error {
		if logs := f.outputLogs(ended); len(logs) > 0 {
			return fmt.Errorf("there are %v", logs)
		}
		return nil
	})
	for _, args := range [][]string{{"show", ended}, {"logs", ended}, {"watch", ended}} {
		p := f.client(append([]string{"run"}, args...)...)
		p.exits(30*time.Second, 1)
		if !strings.Contains(p.text(), ended) {
			t.Errorf("run %s says %s", args[0], p.text())
		}
	}
	if listed := f.swamp("run", "list"); strings.Contains(listed, ended) || !strings.Contains(listed, living) {
		t.Errorf("run list says %s", listed)
	}
	eventually(t, 3*time.Minute, "the worker goes", func() error {
		for _, w := range f.workers() {
			if w.Name == "w" {
				return fmt.Errorf("it is %+v", w)
			}
		}
		return nil
	})
	if got := strings.Count(f.swamp("run", "logs", living, "before"), "\n"); got != 19_999 || len(f.outputLogs(living)) != 1 {
		t.Errorf("what has not ended has %d lines in %v", got+1, f.outputLogs(living))
	}
	f.stop()
	f.checked()
}
