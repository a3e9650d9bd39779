package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

// ls is what a folder holds, as one line.
func ls(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// swampd runs a command of swampd that has to end, and returns its exit code and its host.
func swampd(t *testing.T, args ...string) (*testHost, int) {
	t.Helper()
	h := newTestHost(t, args...)
	return h, h.run(t, Swampd)
}

// TestBackup_RestoreAndCheck takes a backup of an orchestrator at work, restores it, and goes on there.
func TestBackup_RestoreAndCheck(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("its step is a Unix script")
	}
	root := t.TempDir()
	s := serve(t, filepath.Join(root, "data"))
	run := s.swamp("workflow", "run", "--detach", workflowFile(t, placed))
	token := s.swamp("worker", "token", "create", "box")

	folder := filepath.Join(root, "backups")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "one")
	h := newTestHost(t, "backup", "--server", s.url, "--data-dir", s.dir, file)
	if code := h.run(t, Swampd); code != ExitOK || !strings.HasPrefix(h.out.String(), file+": ") || !strings.Contains(h.out.String(), "sha256 ") {
		t.Fatalf("backup: exit %d, %q, %q", code, h.out.String(), h.err.String())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has mode %v, %v", info.Mode(), err)
	}
	h = newTestHost(t, "backup", "--server", s.url, "--data-dir", s.dir, file)
	if code := h.run(t, Swampd); code != ExitUsage || !strings.Contains(h.err.String(), "exists") {
		t.Errorf("a second backup to the same file: exit %d, %q", code, h.err.String())
	}
	h, code := swampd(t, "check", "--data-dir", s.dir)
	if code != ExitFailed || !strings.Contains(h.err.String(), "in use by process") || strings.Count(h.err.String(), "\n") != 1 {
		t.Errorf("check beside the daemon: exit %d, %q", code, h.err.String())
	}
	h, code = swampd(t, "restore", file, "--data-dir", s.dir)
	if code != ExitFailed || !strings.Contains(h.err.String(), "is not empty") {
		t.Errorf("restore over the daemon's directory: exit %d, %q", code, h.err.String())
	}
	if code := s.end(syscall.SIGTERM); code != ExitOK {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}

	restored := filepath.Join(root, "restored")
	h, code = swampd(t, "restore", file, "--data-dir", restored, "--output", "json")
	var said struct {
		DataDir string `json:"dataDir"`
		StoreID string `json:"storeId"`
		Epoch   uint64 `json:"epoch"`
	}
	if err := json.Unmarshal([]byte(h.out.String()), &said); code != ExitOK || err != nil || said.DataDir != restored || said.StoreID == "" || said.Epoch != 1 {
		t.Fatalf("restore: exit %d, %q, %q", code, h.out.String(), h.err.String())
	}
	for _, dir := range []string{s.dir, restored} {
		h, code = swampd(t, "check", "--data-dir", dir)
		if code != ExitOK || !strings.HasSuffix(h.out.String(), "nothing is wrong\n") || !strings.Contains(h.out.String(), "run records") {
			t.Errorf("check %s: exit %d, %q, %q", dir, code, h.out.String(), h.err.String())
		}
	}
	if got := ls(t, root) + " / " + ls(t, folder); got != "backups data restored / one" {
		t.Errorf("left are %s", got)
	}

	again := serve(t, restored)
	w := newTestHost(t, again.url, "--cache-dir", t.TempDir(), "--label", "tier=x", "--max-dispatches", "1")
	w.env[envWorkerToken] = token // of before the backup
	workerCode := w.start(t.Context(), SwampWorker)
	if code := again.client("run", "watch", run).run(t, Swamp); code != ExitOK {
		t.Errorf("the run that waited when the backup was taken: exit %d", code)
	}
	if code := w.wait(t, workerCode); code != ExitOK {
		t.Errorf("the worker: exit %d, %s", code, w.err.String())
	}
	if code := again.end(syscall.SIGTERM); code != ExitOK {
		t.Errorf("exit %d: %s", code, again.err.String())
	}
}

// whole is a backup.
func wholeBackup(t *testing.T) []byte {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b bytes.Buffer
	if _, err := store.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRestore_WhatIsNoWholeBackupIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	whole := wholeBackup(t)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	tests := []struct {
		name string
		data []byte // nil: there is no file
		want []string
	}{
		{"a truncated one", whole[:len(whole)-10], []string{"cut off", "another backup", "nothing was written"}},
		{"one with a flipped bit", flipped, []string{"damaged", "another backup", "nothing was written"}},
		{"another kind of file", []byte("name: one\njobs: []\n"), []string{"no backup of swampd"}},
		{"no file", nil, []string{"no such file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "file")
			left := ""
			if tt.data != nil {
				left = "file"
				if err := os.WriteFile(file, tt.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h, code := swampd(t, "restore", file, "--data-dir", filepath.Join(root, "data"))
			if code != ExitFailed || strings.Count(h.err.String(), "\n") != 1 || h.out.String() != "" {
				t.Errorf("exit %d, %q, %q", code, h.out.String(), h.err.String())
			}
			for _, want := range append(tt.want, file) {
				if !strings.Contains(h.err.String(), want) {
					t.Errorf("no %q in %q", want, h.err.String())
				}
			}
			if got := ls(t, root); got != left {
				t.Errorf("left are %q", got)
			}
		})
	}
}

func TestCheck_WhatIsThere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h, code := swampd(t, "check", "--data-dir", filepath.Join(root, "none"))
	if code != ExitFailed || !strings.Contains(h.err.String(), "holds no store") {
		t.Errorf("no store: exit %d, %q", code, h.err.String())
	}
	file, dir := filepath.Join(root, "file"), filepath.Join(root, "data")
	if err := os.WriteFile(file, wholeBackup(t), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, code := swampd(t, "restore", file, "--data-dir", dir); code != ExitOK {
		t.Fatalf("restore: exit %d, %q", code, h.err.String())
	}
	h, code = swampd(t, "check", "--data-dir", dir, "--output", "json")
	var said checkShape
	if err := json.Unmarshal([]byte(h.out.String()), &said); code != ExitOK || err != nil || said.Findings == nil || said.Generation != 2 || said.Count != 0 {
		t.Errorf("check: exit %d, %q, %v", code, h.out.String(), err)
	}
	manifest := filepath.Join(dir, "journal", "MANIFEST")
	data, err := os.ReadFile(manifest)
	if err == nil {
		err = os.WriteFile(manifest, data[:len(data)-5], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, code = swampd(t, "check", "--data-dir", dir)
	if code != ExitFailed || !strings.Contains(h.err.String(), "is damaged: MANIFEST") || strings.Count(h.err.String(), "\n") != 1 {
		t.Errorf("a damaged store: exit %d, %q", code, h.err.String())
	}
}

func TestCheck_FindingsArePrinted(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = store.Commit(t.Context(), persistence.Commit{Puts: []persistence.Put{{Kind: persistence.KindStep, ID: "r/00000000", State: "running"}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := store.Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	file, dir := filepath.Join(root, "file"), filepath.Join(root, "data")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, code := swampd(t, "restore", file, "--data-dir", dir); code != ExitOK {
		t.Fatalf("restore: exit %d, %q", code, h.err.String())
	}
	h, code := swampd(t, "check", "--data-dir", dir)
	if code != ExitFailed || !strings.Contains(h.out.String(), "wrong: step \"r/00000000\" belongs to run \"r\", and there is none\n1 wrong: ") || h.err.String() != "" {
		t.Errorf("exit %d, %q, %q", code, h.out.String(), h.err.String())
	}
}

func TestBackup_WhatDoesNotComeWholeLeavesNothing(t *testing.T) {
	t.Parallel()
	whole := wholeBackup(t)
	sum := sha256.Sum256(whole)
	digest := hex.EncodeToString(sum[:])
	chunk := func(p []byte) *messages.Event {
		return &messages.Event{Event: &messages.Event_Backup{Backup: &messages.BackupChunk{Data: p}}}
	}
	result := func(n int, digest string) *messages.BackupResult {
		return &messages.BackupResult{Bytes: float64(n), Digest: digest}
	}
	tests := []struct {
		name   string
		stream func(ctx context.Context, send func(*messages.Event)) (proto.Message, error)
		code   int
		want   string
	}{
		{"all of it", func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			send(chunk(whole[:10]))
			send(chunk(whole[10:]))
			return result(len(whole), digest), nil
		}, ExitOK, ""},
		{"a piece is missing", func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			send(chunk(whole[10:]))
			return result(len(whole), digest), nil
		}, ExitFailed, "damaged on its way"},
		{"the orchestrator sends no backup", func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			short := sha256.Sum256(whole[:50])
			send(chunk(whole[:50]))
			return result(50, hex.EncodeToString(short[:])), nil
		}, ExitFailed, "cut off after 50 bytes"},
		{"it fails on the way", func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			send(chunk(whole[:50]))
			return nil, messages.Faultf(messages.CodeInternal, "internal error: see the orchestrator's log")
		}, ExitFailed, "see the orchestrator's log"},
		{"the connection breaks on the way", func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			send(chunk(whole[:50]))
			return nil, context.Canceled
		}, ExitUnreachable, "cannot be reached"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t, nil)
			s.stream = tt.stream
			root := t.TempDir()
			file := filepath.Join(root, "file")
			if err := os.WriteFile(file+partialSuffix, []byte("what a killed process has left, which is longer than the backup"), 0o644); err != nil {
				t.Fatal(err)
			}
			h := newTestHost(t, "backup", file)
			s.use(h)
			code := h.run(t, Swampd)
			if code != tt.code || !strings.Contains(h.err.String(), tt.want) {
				t.Errorf("exit %d, %q", code, h.err.String())
			}
			left := ls(t, root)
			if code != ExitOK {
				if left != "" {
					t.Errorf("left are %q", left)
				}
				return
			}
			data, err := os.ReadFile(file)
			if info, serr := os.Stat(file); left != "file" || err != nil || !bytes.Equal(data, whole) || serr != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("left are %q, of %d bytes: %v, %v", left, len(data), err, serr)
			}
		})
	}
}

func TestBackup_AnInterruptEndsIt(t *testing.T) {
	t.Parallel()
	s := newScript(t, nil)
	sent := make(chan struct{})
	s.stream = func(ctx context.Context, send func(*messages.Event)) (proto.Message, error) {
		send(&messages.Event{Event: &messages.Event_Backup{Backup: &messages.BackupChunk{Data: []byte("begun")}}})
		close(sent)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	root := t.TempDir()
	h := newTestHost(t, "backup", filepath.Join(root, "file"))
	s.use(h)
	code := h.start(t.Context(), Swampd)
	<-sent
	other := newTestHost(t, "backup", filepath.Join(root, "file"))
	s.use(other)
	if runtime.GOOS != "windows" { // the first one has the file
		if code := other.run(t, Swampd); code != ExitFailed || !strings.Contains(other.err.String(), "another backup is being written") {
			t.Errorf("a second one: exit %d, %q", code, other.err.String())
		}
	}
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitInterrupted || h.err.String() != "" {
		t.Errorf("exit %d, %q", got, h.err.String())
	}
	if left := ls(t, root); left != "" {
		t.Errorf("left are %q", left)
	}
}
