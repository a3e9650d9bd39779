package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/swampd/swampd/messages"
)

func TestMachine_KeepsItsID(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	m, err := openMachine(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := m.id
	m.close()
	if m, err = openMachine(dir); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if m.id != id || len(id) != 36 {
		t.Errorf("first %q, then %q", id, m.id)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != machineFile {
		t.Errorf("the directory holds %v (%v)", entries, err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v (%v)", info.Mode(), err)
	}
}

func TestMachine_IsUsedByOneWorkerAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := openMachine(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openMachine(dir)
	if err == nil || !strings.Contains(err.Error(), "another worker uses the cache directory "+dir) ||
		!strings.Contains(err.Error(), "--cache-dir") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	m.close()
	m, err = openMachine(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.close()
}

func TestMachine_ManyAtOnceMakeOneID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var mu sync.Mutex
	ids := map[string]bool{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			m, err := openMachine(dir)
			if err != nil {
				return // somebody else has the lock
			}
			mu.Lock()
			ids[m.id] = true
			mu.Unlock()
			m.close()
		})
	}
	all.Wait()
	if len(ids) != 1 {
		t.Errorf("ids %v", ids)
	}
}

func TestMachine_DamageIsNamed(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "\n", "nonsense", strings.Repeat("x", 5000), "0123"} {
		dir := t.TempDir()
		path := filepath.Join(dir, machineFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openMachine(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("with %.10q: %v", content, err)
		}
	}
}

func TestMachine_ADirectoryThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openMachine(filepath.Join(file, "dir")); err == nil {
		t.Error("no error")
	}
}

func TestDefaultCacheDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if dir, err := DefaultCacheDir(); err != nil || dir != "/cache/swamp-worker" {
		t.Errorf("%q, %v", dir, err)
	}
	t.Setenv("XDG_CACHE_HOME", "relative") // the specification says to ignore it
	if dir, err := DefaultCacheDir(); err != nil || dir != "/home/me/.cache/swamp-worker" {
		t.Errorf("%q, %v", dir, err)
	}
	t.Setenv("HOME", "")
	if _, err := DefaultCacheDir(); err == nil || !strings.Contains(err.Error(), "--cache-dir") {
		t.Errorf("without a home: %v", err)
	}
}

func TestNewUUID_IsRandomAndOfVersion4(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := newUUID()
		if seen[id] || len(id) != 36 || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// TestAgent_WithItsOwnCacheDirectory runs a whole agent on real files: it has a machine id, refuses a second worker on
// the directory, and runs a shell step.
func TestAgent_WithItsOwnCacheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	links := make(chan *memLink, 10)
	cfg := Config{CacheDir: dir, Dial: func(context.Context) (Link, error) {
		w, s := newMemLinks(1000)
		links <- s
		return w, nil
	}}
	exec, err := NewExecutor(ExecutorConfig{
		CacheDir: dir, Logger: slog.New(slog.DiscardHandler), KeeperCommand: []string{os.Args[0], KeeperArg},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Executor = exec
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		reason StopReason
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		reason, err := a.Run(t.Context())
		ended <- end{reason, err}
	}()
	o := &orchestrator{t: t, conns: make(chan *conn, 1)}
	o.conns <- &conn{memLink: receive(t, "a connection", links), t: t}
	c := o.enrolled()
	if len(c.enroll.GetMachineId()) != 36 {
		t.Errorf("machine id %q", c.enroll.GetMachineId())
	}
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if reason, err := second.Run(t.Context()); reason != StopError || err == nil || !strings.Contains(err.Error(), "another worker") {
		t.Errorf("a second worker: %s, %v", reason, err)
	}
	c.dispatch("d1", 1, func(p *messages.DispatchParams) {
		p.Args = []*messages.KeyValue{{Key: "run", Value: "echo hello; exit 3"}}
	})
	c.expect("d1/1 accepted")
	c.expect("d1/1 started")
	c.expect("d1/1 stdout hello")
	c.expect("d1/1 failed exit_nonzero")
	c.ack("d1", 6, true)
	a.Drain("signal")
	c.expect("status draining signal")
	a.Kill()
	if e := receive(t, "the end", ended); e.reason != StopForced || e.err != nil {
		t.Errorf("%s, %v", e.reason, e.err)
	}
}

// TestAgent_LeavesPromptlyWhileItWaitsForKeepers holds the lock of a keeper of an earlier process.
func TestAgent_LeavesPromptlyWhileItWaitsForKeepers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := holdKeeperLock(keeperLockPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	a, err := New(Config{CacheDir: dir, Executor: execFunc(succeed), Dial: func(context.Context) (Link, error) {
		t.Error("it dialled")
		return nil, errDialled
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan StopReason, 1)
	go func() {
		reason, err := a.Run(t.Context())
		if err != nil {
			t.Error(err)
		}
		ended <- reason
	}()
	eventually(t, "there is a machine id", func() bool {
		_, err := os.Stat(filepath.Join(dir, machineFile))
		return err == nil
	})
	a.Drain("signal")
	if reason := receive(t, "the end", ended); reason != StopSignal {
		t.Errorf("reason %s", reason)
	}
}
