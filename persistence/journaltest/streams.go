package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/persistence"
)

func appends(stream string, bodies ...string) persistence.Commit {
	var c persistence.Commit
	for _, body := range bodies {
		c.Appends = append(c.Appends, persistence.Append{Stream: stream, Body: []byte(body)})
	}
	return c
}

// events returns the bodies of a stream's events, and checks that their numbers are dense.
func events(t testing.TB, j persistence.Journal, stream string, after uint64, limit int) []string {
	t.Helper()
	got, err := j.Events(stream, after, limit)
	if err != nil {
		t.Fatalf("events of %q: %v", stream, err)
	}
	var bodies []string
	for i, e := range got {
		if e.Seq != after+uint64(i)+1 {
			t.Fatalf("event %d after %d has number %d", i, after, e.Seq)
		}
		bodies = append(bodies, string(e.Body))
	}
	return bodies
}

func streamTests() []test {
	return []test{
		on("events are numbered from 1, in the order of their commit", func(t *testing.T, j persistence.Journal) {
			if diff := cmp.Diff([]uint64{1, 2}, commit(t, j, appends("r", "a", "b"))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]uint64{3}, commit(t, j, appends("r", "c"))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"a", "b", "c"}, events(t, j, "r", 0, 10)); diff != "" {
				t.Error(diff)
			}
		}),
		on("a commit may append to several streams, mixed", func(t *testing.T, j persistence.Journal) {
			commit(t, j, appends("x", "0"))
			c := persistence.Commit{Appends: []persistence.Append{
				{Stream: "x", Body: []byte("1")}, {Stream: "y", Body: []byte("2"), New: true}, {Stream: "x", Body: []byte("3")},
				{Stream: "z\x00", Body: nil}, {Stream: "y", Body: []byte("4")},
			}}
			if diff := cmp.Diff([]uint64{2, 1, 3, 1, 2}, commit(t, j, c)); diff != "" {
				t.Error(diff)
			}
			for stream, want := range map[string][]string{"x": {"0", "1", "3"}, "y": {"2", "4"}, "z\x00": {""}, "z": nil, "": nil} {
				if diff := cmp.Diff(want, events(t, j, stream, 0, 10)); diff != "" {
					t.Errorf("%q: %s", stream, diff)
				}
			}
		}),
		on("a page of events is any part of the stream", func(t *testing.T, j persistence.Journal) {
			var all []string
			for n := range 12 { // commits of 0 to 11 events
				var bodies []string
				for i := range n {
					bodies = append(bodies, fmt.Sprint(n, "-", i))
				}
				commit(t, j, appends("r", bodies...))
				all = append(all, bodies...)
			}
			for after := range uint64(len(all) + 2) {
				for _, limit := range []int{0, 1, 5, 66, 1000} {
					var want []string
					if after < uint64(len(all)) {
						want = all[after:min(len(all), int(after)+limit)]
					}
					if got := events(t, j, "r", after, limit); !slices.Equal(want, got) {
						t.Errorf("%d after %d: %v", limit, after, got)
					}
				}
			}
		}),
		on("numbers stay dense under concurrency, and tell the order", func(t *testing.T, j persistence.Journal) {
			const writers, each = 20, 30
			var mu sync.Mutex
			byNumber := map[uint64]string{}
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					last := uint64(0)
					for i := range each {
						body := fmt.Sprint(w, "/", i)
						seqs, err := j.Commit(context.Background(), appends("r", body, body+"b"))
						if err != nil || len(seqs) != 2 || seqs[0] <= last || seqs[1] != seqs[0]+1 {
							t.Errorf("numbers %v after %d: %v", seqs, last, err)
							return
						}
						last = seqs[1]
						mu.Lock()
						byNumber[seqs[0]], byNumber[seqs[1]] = body, body+"b"
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			got := events(t, j, "r", 0, 10_000)
			if len(got) != 2*writers*each {
				t.Fatalf("%d events", len(got))
			}
			for i, body := range got {
				if byNumber[uint64(i)+1] != body {
					t.Errorf("event %d is %q, its writer was told of %q", i+1, body, byNumber[uint64(i)+1])
				}
			}
		}),
		{"numbers go on after the store was closed", func(t *testing.T, h Harness) {
			j := h.Open(t)
			for i := range 5 {
				commit(t, j, appends("r", fmt.Sprint(i), fmt.Sprint(i, "b")))
				j = h.Reopen(t, j)
			}
			if got := events(t, j, "r", 0, 100); len(got) != 10 {
				t.Errorf("events %v", got)
			}
			if diff := cmp.Diff([]uint64{11}, commit(t, j, appends("r", "last"))); diff != "" {
				t.Error(diff)
			}
		}},
		on("many streams do not get in each other's way", func(t *testing.T, j persistence.Journal) {
			for i := range 40 {
				var c persistence.Commit
				for s := range 900 {
					c.Appends = append(c.Appends, persistence.Append{Stream: fmt.Sprint(i%20, "/", s), Body: []byte("x")})
				}
				for k, seq := range commit(t, j, c) {
					if seq != uint64(i/20)+1 {
						t.Fatalf("stream %s: number %d", c.Appends[k].Stream, seq)
					}
				}
			}
		}),
	}
}

// follow collects n events from a follower, and checks their numbers.
func follow(ctx context.Context, f *persistence.Follower, after uint64, n int) (bodies []string, err error) {
	for len(bodies) < n {
		page, err := f.Next(ctx)
		if err != nil {
			return bodies, err
		}
		if len(page) == 0 {
			return bodies, errors.New("no events and no error")
		}
		for _, e := range page {
			if want := after + uint64(len(bodies)) + 1; e.Seq != want {
				return bodies, fmt.Errorf("event %d where %d was due", e.Seq, want)
			}
			bodies = append(bodies, string(e.Body))
		}
	}
	return bodies, nil
}

func followTests() []test {
	return []test{
		on("a follower gets what was there and what comes", func(t *testing.T, j persistence.Journal) {
			commit(t, j, appends("r", "a", "b", "c"))
			f := j.Follow("r", 1)
			defer f.Close()
			got, err := follow(t.Context(), f, 1, 2)
			if diff := cmp.Diff([]string{"b", "c"}, got); diff != "" || err != nil {
				t.Fatal(diff, err)
			}
			commit(t, j, appends("other", "x"))
			commit(t, j, appends("r", "d"))
			got, err = follow(t.Context(), f, 3, 1)
			if diff := cmp.Diff([]string{"d"}, got); diff != "" || err != nil {
				t.Fatal(diff, err)
			}
		}),
		on("a follower that starts ahead waits for what comes after its number", func(t *testing.T, j persistence.Journal) {
			f := j.Follow("r", 3)
			defer f.Close()
			commit(t, j, appends("r", "1", "2", "3", "4", "5"))
			got, err := follow(t.Context(), f, 3, 2)
			if diff := cmp.Diff([]string{"4", "5"}, got); diff != "" || err != nil {
				t.Fatal(diff, err)
			}
		}),
		on("a follower that does not read loses nothing and holds nobody up", func(t *testing.T, j persistence.Journal) {
			f := j.Follow("r", 0)
			defer f.Close()
			for range 5 {
				commit(t, j, appends("r", slices.Repeat([]string{"x"}, 900)...))
			}
			if _, err := follow(t.Context(), f, 0, 5*900); err != nil {
				t.Fatal(err)
			}
		}),
		on("Next ends with its context, and goes on with the next one", func(t *testing.T, j persistence.Journal) {
			f := j.Follow("r", 0)
			defer f.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := f.Next(ctx)
				done <- err
			}()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("next: %v", err)
			}
			commit(t, j, appends("r", "a"))
			if _, err := follow(t.Context(), f, 0, 1); err != nil {
				t.Error(err)
			}
		}),
		on("Next ends with ErrClosed when its follower closes", func(t *testing.T, j persistence.Journal) {
			f := j.Follow("r", 0)
			done := make(chan error)
			go func() {
				_, err := f.Next(t.Context())
				done <- err
			}()
			f.Close()
			f.Close()
			if err := <-done; !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("next: %v", err)
			}
		}),
		on("Next ends with ErrClosed when the journal closes", func(t *testing.T, j persistence.Journal) {
			f := j.Follow("r", 0)
			done := make(chan error)
			go func() {
				_, err := f.Next(context.Background())
				done <- err
			}()
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("next: %v", err)
			}
			late := j.Follow("r", 0)
			defer late.Close()
			if _, err := late.Next(context.Background()); !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("next of a late follower: %v", err)
			}
		}),
		on("followers and writers at random: no gap, no repetition", followProperty),
	}
}

// followProperty has writers append in commits of random sizes while followers start anywhere, at any time.
func followProperty(t *testing.T, j persistence.Journal) {
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		stream := fmt.Sprint("stream", round)
		// What each writer appends, commit by commit, and after how many of its commits each follower starts.
		sizes := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 400), 1, 6), 1, 4).Draw(t, "sizes")
		starts := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 4).Draw(t, "starts")
		afters := rapid.SliceOfN(rapid.Uint64Range(0, 50), len(starts), len(starts)).Draw(t, "afters")
		total := 0
		for _, writer := range sizes {
			for _, n := range writer {
				total += n
			}
		}
		var wg sync.WaitGroup
		fail := make(chan error, len(sizes)+len(starts))
		run := func(i int) {
			after := min(afters[i], uint64(total))
			f := j.Follow(stream, after)
			wg.Go(func() {
				defer f.Close()
				if _, err := follow(t.Context(), f, after, total-int(after)); err != nil {
					fail <- fmt.Errorf("follower after %d: %w", after, err)
				}
			})
		}
		for w, writer := range sizes {
			wg.Go(func() {
				for n, size := range writer {
					if w == 0 {
						for i, start := range starts {
							if start == n {
								run(i)
							}
						}
					}
					bodies := make([]string, size)
					if _, err := j.Commit(t.Context(), appends(stream, bodies...)); err != nil {
						fail <- err
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-fail:
			t.Fatal(err)
		default:
		}
		for i, start := range starts {
			if start >= len(sizes[0]) { // those that come late
				run(i)
			}
		}
		wg.Wait()
		select {
		case err := <-fail:
			t.Fatal(err)
		default:
		}
	})
}
