package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// toolFile is a program that says who it was called as.
func toolFile(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"I am ${0##*/}\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestTools_AStepFindsThemFirst(t *testing.T) {
	t.Parallel()
	program := toolFile(t)
	e := newTestExecutor(t, func(c *ExecutorConfig) { c.Tools = map[string]string{"swamp": program} })
	tests := []struct {
		name, script string
		env          []string
	}{
		{"with the worker's path", "swamp", nil},
		{"with a path of the step's", "swamp", []string{"PATH=/usr/bin:/bin"}},
		{"with an empty one", "swamp", []string{"PATH="}},
		{"though the cache was cleaned", "swamp", nil},
	}
	for _, tt := range tests {
		if err := os.RemoveAll(toolsDir(e.cacheDir)); err != nil {
			t.Fatal(err)
		}
		task := shellTask(tt.script)
		task.Env = tt.env
		if o, out := e.run(t, task); out.text() != "I am swamp\n" {
			t.Errorf("%s: %+v %q", tt.name, o, out.text())
		}
	}
}

func TestTools_AnotherProgramTakesThePlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := toolFile(t), toolFile(t)
	for _, program := range []string{first, first, second} {
		if err := makeTools(dir, map[string]string{"swamp": program}); err != nil {
			t.Fatal(err)
		}
		if !sameTool(filepath.Join(toolsDir(dir), "swamp"+programSuffix), program) {
			t.Errorf("it is not %s", program)
		}
	}
	if entries, err := os.ReadDir(toolsDir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("%v is there, %v", entries, err)
	}
}

func TestTools_WithoutAPathTheUsualOneFollows(t *testing.T) {
	t.Parallel()
	got := withTools([]string{"A=1"}, "/tools")
	if want := "PATH=/tools" + string(os.PathListSeparator) + defaultPath; strings.Join(got, " ") != "A=1 "+want {
		t.Errorf("environment %q", got)
	}
}

func TestTools_WhatCannotBeOneIsRefused(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{"": "/bin/sh", "a/b": "/bin/sh", "..": "/bin/sh", ".x": "/bin/sh", "sh": "bin/sh"} {
		if validateTools(map[string]string{name: program}) == nil {
			t.Errorf("%q is %q", name, program)
		}
	}
}
