package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/persistence"
)

// noise are bytes that nothing else is made of.
func noise(seed uint64, n int) []byte {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	b := make([]byte, n)
	_, _ = source.Read(b) // it never fails
	return b
}

// write writes pieces and commits.
func write(t testing.TB, w persistence.BlobWriter, pieces ...[]byte) string {
	t.Helper()
	for _, p := range pieces {
		if n, err := w.Write(p); err != nil || n != len(p) {
			t.Fatalf("write body: %d of %d, %v", n, len(p), err)
		}
	}
	key, err := w.Commit()
	if err != nil {
		t.Fatalf("commit body: %v", err)
	}
	if err := w.Discard(); err != nil {
		t.Fatalf("discard after the commit: %v", err)
	}
	return key
}

func newBlob(t testing.TB, j persistence.Journal, pieces ...[]byte) string {
	t.Helper()
	w, err := j.NewBlob()
	if err != nil {
		t.Fatalf("new body: %v", err)
	}
	return write(t, w, pieces...)
}

func extend(t testing.TB, j persistence.Journal, key string, at int64, pieces ...[]byte) {
	t.Helper()
	w, err := j.ExtendBlob(key, at)
	if err != nil {
		t.Fatalf("extend body: %v", err)
	}
	if got := write(t, w, pieces...); got != key {
		t.Fatalf("extended body %s is named %s", key, got)
	}
}

func body(t testing.TB, j persistence.Journal, key string) []byte {
	t.Helper()
	r, err := j.OpenBlob(key)
	if err != nil {
		t.Fatalf("open body: %v", err)
	}
	got, err := io.ReadAll(r)
	if err != nil || int64(len(got)) != r.Size() {
		t.Fatalf("read body: %d bytes of %d, %v", len(got), r.Size(), err)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("close body: %v", err)
	}
	return got
}

func noBody(t testing.TB, j persistence.Journal, key string) {
	t.Helper()
	if _, err := j.OpenBlob(key); !errors.Is(err, persistence.ErrNotFound) {
		t.Fatalf("open body: %v", err)
	}
	if _, err := j.ExtendBlob(key, 0); !errors.Is(err, persistence.ErrNotFound) {
		t.Fatalf("extend body: %v", err)
	}
}

func blobKeys(t testing.TB, j persistence.Journal) []string {
	t.Helper()
	keys, err := j.Blobs()
	if err != nil {
		t.Fatalf("list bodies: %v", err)
	}
	return keys
}

func blobTests() []test {
	return []test{
		{"bodies come back as they were written, also in the next process", func(t *testing.T, h Harness) {
			j := h.Open(t)
			want := map[string][]byte{}
			for i, size := range []int{0, 1, 64 << 10, 3<<20 + 7} {
				b := noise(uint64(i), size)
				want[newBlob(t, j, b[:size/3], nil, b[size/3:])] = b
			}
			for range 2 {
				for key, b := range want {
					if !bytes.Equal(body(t, j, key), b) {
						t.Errorf("the body of %d bytes is another one", len(b))
					}
				}
				if keys := blobKeys(t, j); len(keys) != len(want) || !slices.IsSorted(keys) {
					t.Errorf("bodies %q", keys)
				}
				j = h.Reopen(t, j)
			}
		}},
		on("a body is read from anywhere", func(t *testing.T, j persistence.Journal) {
			b := noise(1, 100_000)
			r, err := j.OpenBlob(newBlob(t, j, b))
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1000)
			if _, err := r.ReadAt(got, 50_000); err != nil || !bytes.Equal(got, b[50_000:51_000]) {
				t.Errorf("read at: %v, or others", err)
			}
			if _, err := r.Seek(-10, io.SeekEnd); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, b[len(b)-10:]) {
				t.Errorf("read after a seek: %x, %v", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}),
		{"what is discarded, or never finished, is not there", func(t *testing.T, h Harness) {
			j := h.Open(t)
			w, err := j.NewBlob()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("given up")); err != nil {
				t.Error(err)
			}
			if err := errors.Join(w.Discard(), w.Discard()); err != nil {
				t.Error(err)
			}
			if _, err := w.Write([]byte("more")); err == nil {
				t.Error("written after it was discarded")
			}
			if _, err := w.Commit(); err == nil {
				t.Error("committed after it was discarded")
			}
			unfinished, err := j.NewBlob()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := unfinished.Write([]byte("never finished")); err != nil {
				t.Error(err)
			}
			next := h.Reopen(t, j)
			if _, err := unfinished.Commit(); !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("commit in a store that is closed: %v", err)
			}
			if err := unfinished.Discard(); err != nil {
				t.Errorf("discard in a store that is closed: %v", err)
			}
			if keys := blobKeys(t, next); len(keys) > 0 {
				t.Errorf("bodies %q", keys)
			}
		}},
		{"an extension goes on behind what is named, and cuts what is not", func(t *testing.T, h Harness) {
			j := h.Open(t)
			key := newBlob(t, j, []byte("first"))
			extend(t, j, key, 5, []byte(" sec"), []byte("ond"))
			extend(t, j, key, 12)
			r, err := j.OpenBlob(key)
			if err != nil {
				t.Fatal(err)
			}
			extend(t, j, key, 12, []byte(", never named"))
			j = h.Reopen(t, j)
			extend(t, j, key, 12, []byte(" third"))
			if got := body(t, j, key); string(got) != "first second third" {
				t.Errorf("body %q", got)
			}
			got := make([]byte, 12)
			if _, err := r.ReadAt(got, 0); err != nil || string(got) != "first second" || r.Size() != 12 {
				t.Errorf("who reads it meanwhile gets %q of %d, %v", got, r.Size(), err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}},
		on("an extension that is discarded leaves what was there", func(t *testing.T, j persistence.Journal) {
			key := newBlob(t, j, []byte("kept"))
			w, err := j.ExtendBlob(key, 4)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(", not this")); err != nil {
				t.Error(err)
			}
			if err := w.Discard(); err != nil {
				t.Error(err)
			}
			if got := body(t, j, key); string(got) != "kept" {
				t.Errorf("body %q", got)
			}
		}),
		on("a body is extended by one at a time", func(t *testing.T, j persistence.Journal) {
			key, other := newBlob(t, j, []byte("a")), newBlob(t, j, []byte("b"))
			w, err := j.ExtendBlob(key, 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := j.ExtendBlob(key, 1); !errors.Is(err, persistence.ErrInUse) {
				t.Errorf("a second writer: %v", err)
			}
			extend(t, j, other, 1, []byte("b"))
			write(t, w, []byte("a"))
			extend(t, j, key, 2, []byte("a"))
			w, err = j.ExtendBlob(key, 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Discard(); err != nil {
				t.Error(err)
			}
			extend(t, j, key, 3, []byte("a"))
			if got := body(t, j, key); string(got) != "aaaa" {
				t.Errorf("body %q", got)
			}
		}),
		on("a body that is too short is not extended", func(t *testing.T, j persistence.Journal) {
			key := newBlob(t, j, []byte("short"))
			for range 2 {
				var damaged *persistence.BlobError
				if _, err := j.ExtendBlob(key, 6); !errors.As(err, &damaged) || damaged.Key != key {
					t.Errorf("extend: %v", err)
				}
			}
			extend(t, j, key, 5, []byte("er"))
			if _, err := j.ExtendBlob(key, -1); err == nil {
				t.Error("extended before its beginning")
			}
		}),
		on("a body can be deleted, and who reads it has it", func(t *testing.T, j persistence.Journal) {
			key, other := newBlob(t, j, []byte("gone")), newBlob(t, j, []byte("stays"))
			r, err := j.OpenBlob(key)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := j.DeleteBlob(key); err != nil {
					t.Error(err)
				}
			}
			noBody(t, j, key)
			if got, err := io.ReadAll(r); err != nil || string(got) != "gone" {
				t.Errorf("its reader gets %q, %v", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if keys := blobKeys(t, j); !slices.Equal(keys, []string{other}) {
				t.Errorf("bodies %q", keys)
			}
		}),
		on("names that are no keys are not there, whatever they would be as paths", func(t *testing.T, j persistence.Journal) {
			key := newBlob(t, j, []byte("x"))
			for _, name := range []string{"", ".", "..", "../../lock", key[:10], key + ".tmp", key + "/", "a", fmt.Sprintf("%038X", 10), "../" + key[3:]} {
				noBody(t, j, name)
				if err := j.DeleteBlob(name); err != nil {
					t.Errorf("delete %q: %v", name, err)
				}
			}
			body(t, j, key)
		}),
		on("a body is not deleted while a backup may need it", func(t *testing.T, j persistence.Journal) {
			key := newBlob(t, j, []byte("needed"))
			looked := false
			_, err := j.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
				looked = true
				if err := j.DeleteBlob(key); !errors.Is(err, persistence.ErrBusy) {
					t.Errorf("deleted beside a backup: %v", err)
				}
				return len(p), nil
			}))
			if err != nil || !looked {
				t.Fatalf("back up: %v, %t", err, looked)
			}
			if err := j.DeleteBlob(key); err != nil {
				t.Error(err)
			}
		}),
		on("many bodies are written, extended, read and deleted at once", func(t *testing.T, j persistence.Journal) {
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					want := noise(uint64(i), 10_000)
					key := newBlob(t, j, want[:4000])
					for at := 4000; at < len(want); at += 1000 {
						extend(t, j, key, int64(at), want[at:at+1000])
						if got := body(t, j, key); !bytes.Equal(got, want[:at+1000]) {
							t.Errorf("%d bytes, or others", len(got))
						}
					}
					if i%2 == 0 {
						if err := j.DeleteBlob(key); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if keys := blobKeys(t, j); len(keys) != 8 {
				t.Errorf("%d bodies", len(keys))
			}
		}),
		{"extensions, discards, crashes between body and record, at random: what is named is there", blobProperty},
		on("after the close there is only ErrClosed", func(t *testing.T, j persistence.Journal) {
			key := newBlob(t, j, []byte("x"))
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			_, created := j.NewBlob()
			_, extended := j.ExtendBlob(key, 1)
			_, opened := j.OpenBlob(key)
			_, listed := j.Blobs()
			for what, err := range map[string]error{
				"new": created, "extend": extended, "open": opened, "list": listed, "delete": j.DeleteBlob(key),
			} {
				if !errors.Is(err, persistence.ErrClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}),
	}
}

// blobProperty holds a body against the bytes that its owner has named, as a record would.
func blobProperty(t *testing.T, h Harness) {
	j := h.Open(t)
	outer, round := t, 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		key, named := newBlob(outer, j), []byte{}
		for range rapid.IntRange(1, 10).Draw(t, "actions") {
			fresh := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "fresh")
			w, err := j.ExtendBlob(key, int64(len(named)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(fresh); err != nil {
				t.Fatal(err)
			}
			switch rapid.IntRange(0, 5).Draw(t, "end") {
			case 0: // given up
				if err := w.Discard(); err != nil {
					t.Fatal(err)
				}
			case 1: // made durable, and never named
				if _, err := w.Commit(); err != nil {
					t.Fatal(err)
				}
			case 2: // the process dies
				if round%10 != 0 { // a restart costs more than all the rest
					if err := w.Discard(); err != nil {
						t.Fatal(err)
					}
					break
				}
				j = h.Reopen(outer, j)
				if err := w.Discard(); err != nil {
					t.Fatal(err)
				}
			default:
				if _, err := w.Commit(); err != nil {
					t.Fatal(err)
				}
				named = append(named, fresh...)
			}
			if got := body(outer, j, key); len(got) < len(named) || !bytes.Equal(got[:len(named)], named) {
				t.Fatalf("%d bytes, or others, and %d were named", len(got), len(named))
			}
		}
	})
}
