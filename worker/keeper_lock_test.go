//go:build linux || darwin

package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWaitForKeepers_WaitsForAStepThatRuns(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	r := e.start(t, shellTask("trap 'echo term; exit' TERM; echo up; sleep 4000 & wait"))
	r.out.waitFor(t, "up")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- WaitForKeepers(ctx, e.cacheDir) }()
	why := errors.New("no patience")
	cancel(why)
	if err := receive(t, "the end of the wait", waited); !errors.Is(err, why) || !strings.Contains(err.Error(), "keepers of an earlier process still live") {
		t.Errorf("error %v", err)
	}
	go func() { waited <- WaitForKeepers(t.Context(), e.cacheDir) }()
	r.stop(ErrCancelled)
	r.end(t)
	if err := receive(t, "the end of the wait", waited); err != nil {
		t.Error(err)
	}
}

func TestWaitForKeepers_ClearsWhatWasLeft(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "new", "folder")
	if err := WaitForKeepers(t.Context(), cache); err != nil {
		t.Fatalf("on a cache directory that does not exist yet: %v", err)
	}
	s, err := makeScratch(cache, "d-old", "echo hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := WaitForKeepers(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old folder is still there: %v", err)
	}
}

func TestScratch_WhatAnEarlierProcessLeftIsReplaced(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	first, err := makeScratch(cache, "d", "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(first.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := makeScratch(cache, "d", "two")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(second.dir, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file is still there: %v", err)
	}
	if data, err := os.ReadFile(second.script); err != nil || string(data) != "two" {
		t.Errorf("script %q, %v", data, err)
	}
}

func TestScratch_NamesThatAreNoFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "a/b", "/a", `a\b`, "a\x00b", strings.Repeat("x", 201)} {
		if _, err := makeScratch(t.TempDir(), name, ""); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
