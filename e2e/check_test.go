//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// damage changes a file of the data directory in place.
func (f *fleet) damage(pattern string, change func([]byte) []byte) {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.data, pattern))
	if err != nil || len(files) == 0 {
		f.t.Fatalf("there is no %s: %v", pattern, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		f.t.Fatal(err)
	}
	if data = change(data); data == nil {
		err = os.Remove(files[0])
	} else {
		err = os.WriteFile(files[0], data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestCheck_OfADirectoryInEveryState(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	run := f.swamp("workflow", "run", f.write(flow(step("a", "for i in $(seq 20000); do echo line $i; done"))), "--detach")
	f.ends(run, 60*time.Second, "succeeded")
	check := func(dir string, exit int, says ...string) {
		t.Helper()
		p := f.launch("swampd", startOptions{}, "check", "--data-dir", dir)
		p.exits(60*time.Second, exit)
		for _, part := range says {
			if !strings.Contains(p.text(), part) {
				t.Errorf("check of %s says %q, without %q", dir, p.text(), part)
			}
		}
	}
	check(f.data, 1, "in use by process", fmt.Sprint(f.d.pid))
	check(f.path("none"), 1, "holds no store", "--data-dir")
	check(f.path("home"), 1, "holds no store", "--data-dir")
	f.crash()
	f.checked()
	f.start()
	f.stop()
	f.checked()

	// Each damage is done to a copy: what is wrong, and whether swampd would start there.
	whole := f.data
	flip := func(data []byte) []byte { data[len(data)/2] ^= 0x40; return data }
	half := func(data []byte) []byte { return data[:len(data)/2] }
	gone := func([]byte) []byte { return nil }
	for i, tt := range []struct {
		name, file string
		change     func([]byte) []byte
		says       []string
		starts     bool
	}{
		{"the MANIFEST is cut", "journal/MANIFEST", half, []string{"is damaged", "restore a backup"}, false},
		{"the MANIFEST is gone", "journal/MANIFEST", gone, []string{"is damaged", "restore a backup"}, false},
		{"a table is gone", "journal/*.sst", gone, []string{"is damaged", "restore a backup"}, false},
		{"a bit of a table is flipped", "journal/*.sst", flip, []string{"is damaged", "restore a backup"}, false},
		{"a log of output is cut", "output/*/*", half, []string{"1 wrong", "wrong: output of dispatch", "were acknowledged"}, true},
		{"a log of output is gone", "output/*/*", gone, []string{"1 wrong", "is missing", "were acknowledged"}, true},
	} {
		f.data = f.path(fmt.Sprintf("copy-%d", i))
		if err := os.CopyFS(f.data, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		f.damage(tt.file, tt.change)
		check(f.data, 1, tt.says...)
		check(f.data, 1, tt.says...) // the first look has mended nothing
		p := f.launchSwampd()
		if tt.starts {
			f.ready()
			f.stop()
			continue
		}
		p.exits(30*time.Second, 1)
		if !strings.Contains(p.text(), "is damaged") {
			t.Errorf("%s: swampd says %s", tt.name, p.text())
		}
	}
}
