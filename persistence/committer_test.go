package persistence

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// batches drives a committer without its goroutine: ops are taken in batches until all are answered.
func batches(t *testing.T, limits Limits, commits []Commit) (errs []error, sizes []int) {
	t.Helper()
	engine := &mapEngine{data: map[string][]byte{}, limits: limits}
	c := newCommitter(engine, time.Now, Meta{Epoch: 1}, func(key []byte, err error) { t.Errorf("%q: %v", key, err) }, func(*operation) {})
	var ops []*operation
	for i := range commits {
		op := &operation{done: make(chan struct{}, 1)}
		if err := op.prepare(&commits[i], 1, time.Now()); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	for rest := ops; len(rest) > 0; {
		n := c.batch(rest)
		if n < 1 {
			t.Fatal("a batch without progress")
		}
		sizes = append(sizes, n)
		rest = rest[n:]
	}
	for _, op := range ops {
		errs = append(errs, op.err)
	}
	return errs, sizes
}

func TestCommitter_AnOperationOfNearlyABatchStandsAlone(t *testing.T) {
	t.Parallel()
	of := func(id string, size int) Commit {
		return Commit{Puts: []Put{{Kind: KindSource, ID: id, Body: make([]byte, size)}}}
	}
	const limit = 10_000
	for _, tt := range []struct {
		name    string
		size    int
		want    error
		batches []int
	}{
		{"it fits beside others", 5000, nil, []int{3}},
		{"it fits beside one other", 7600, nil, []int{2, 1}},
		{"it fits only by itself", 9500, nil, []int{1, 1, 1}},
		{"it fits nowhere", 10_000, ErrTooLarge, []int{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			errs, sizes := batches(t, Limits{Bytes: limit, Entries: 100}, []Commit{of("a", 200), of("b", tt.size), of("c", 200)})
			if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], tt.want) {
				t.Errorf("errors %v", errs)
			}
			if !slices.Equal(sizes, tt.batches) {
				t.Errorf("batches of %v, not %v", sizes, tt.batches)
			}
		})
	}
}

func TestCommitter_WhatADeleteTakesAlongCounts(t *testing.T) {
	t.Parallel()
	var c Commit
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		c.Deletes = append(c.Deletes, Delete{Kind: KindWorker, ID: id})
	}
	errs, _ := batches(t, Limits{Bytes: 1 << 20, Entries: 100}, []Commit{c})
	if !errors.Is(errs[0], ErrTooLarge) {
		t.Errorf("%v", errs[0])
	}
	errs, _ = batches(t, Limits{Bytes: 1 << 20, Entries: 120}, []Commit{c})
	if errs[0] != nil {
		t.Errorf("%v", errs[0])
	}
}
