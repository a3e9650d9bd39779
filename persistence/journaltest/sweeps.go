package journaltest

import (
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// version commits a version of an artifact whose body is a file. It says what the first size bytes of that are.
func version(t testing.TB, j persistence.Journal, name string, number uint32, key string, size uint64) {
	t.Helper()
	digest := sha256.New()
	if r, err := j.OpenBlob(key); err == nil {
		_, err = io.Copy(digest, io.LimitReader(r, int64(size)))
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := proto.Marshal(&messages.ArtifactVersionRecord{
		Name: name, Version: number, Kind: "file", Size: size, Digest: digest.Sum(nil), Blob: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, puts(persistence.Put{
		Kind: persistence.KindArtifactVersion, ID: persistence.ArtifactVersionID(name, number), Body: encoded,
	}))
}

func sweep(t testing.TB, j persistence.Journal, want persistence.BlobSweep) {
	t.Helper()
	if got, err := j.SweepBlobs(t.Context()); err != nil || got != want {
		t.Errorf("the sweep says %+v, %v; %+v was due", got, err, want)
	}
}

func sweepTests() []test {
	return []test{
		{"what no record names is removed at the next boot, and not before", func(t *testing.T, h Harness) {
			j := h.Open(t)
			named, orphan := newBlob(t, j, []byte("named")), newBlob(t, j, []byte("orphan"))
			version(t, j, "a", 1, named, 5)
			unfinished, err := j.NewBlob()
			if err != nil {
				t.Fatal(err)
			}
			sweep(t, j, persistence.BlobSweep{})
			body(t, j, orphan)
			j = h.Reopen(t, j)
			if err := unfinished.Discard(); err != nil {
				t.Error(err)
			}
			young := newBlob(t, j, []byte("about to be named"))
			writing, err := j.NewBlob()
			if err != nil {
				t.Fatal(err)
			}
			sweep(t, j, persistence.BlobSweep{Removed: 2})
			noBody(t, j, orphan)
			if got := body(t, j, named); string(got) != "named" {
				t.Errorf("body %q", got)
			}
			version(t, j, "a", 2, young, 17)
			version(t, j, "a", 3, write(t, writing, []byte("written meanwhile")), 17)
			sweep(t, j, persistence.BlobSweep{})
			j = h.Reopen(t, j)
			sweep(t, j, persistence.BlobSweep{})
			if keys := blobKeys(t, j); len(keys) != 3 {
				t.Errorf("bodies %q", keys)
			}
		}},
		{"a body whose record went first is removed at the next boot", func(t *testing.T, h Harness) {
			j := h.Open(t)
			key := newBlob(t, j, []byte("x"))
			version(t, j, "a", 1, key, 1)
			commit(t, j, persistence.Commit{Deletes: []persistence.Delete{
				{Kind: persistence.KindArtifactVersion, ID: persistence.ArtifactVersionID("a", 1)},
			}})
			j = h.Reopen(t, j)
			sweep(t, j, persistence.BlobSweep{Removed: 1})
			noBody(t, j, key)
		}},
		{"a body of a record that does not decode stays, before and after it is set aside", func(t *testing.T, h Harness) {
			j := h.Open(t)
			key := newBlob(t, j, []byte("worth keeping"))
			// The flipped bit is in the middle of the value, and the key of the body behind it.
			version(t, j, strings.Repeat("a", 100), 1, key, 13)
			h.Damage(t, j, func(k, _ []byte) bool { return strings.HasPrefix(string(k), "v/") })
			j = h.Reopen(t, j)
			for range 2 {
				sweep(t, j, persistence.BlobSweep{})
				if got := ids(t, j, persistence.KindArtifactVersion, false, "", ""); len(got) > 0 {
					t.Errorf("versions %q", got)
				}
			}
			if keys := blobKeys(t, j); !slices.Equal(keys, []string{key}) {
				t.Errorf("bodies %q", keys)
			}
		}},
		{"a record whose body is missing is counted, and its body is an error and no more", func(t *testing.T, h Harness) {
			j := h.Open(t)
			key := newBlob(t, j, []byte("lost"))
			version(t, j, "a", 1, key, 4)
			version(t, j, "a", 2, newBlob(t, j, []byte("there")), 5)
			version(t, j, "a", 3, "..", 4)
			if err := j.DeleteBlob(key); err != nil {
				t.Fatal(err)
			}
			sweep(t, j, persistence.BlobSweep{Missing: 2})
			j = h.Reopen(t, j)
			sweep(t, j, persistence.BlobSweep{Missing: 2})
			noBody(t, j, key)
			noBody(t, j, "..")
		}},
		{"nothing is removed beside a backup", func(t *testing.T, h Harness) {
			j := h.Open(t)
			key := newBlob(t, j, []byte("orphan"))
			j = h.Reopen(t, j)
			_, err := j.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
				if _, err := j.SweepBlobs(t.Context()); !errors.Is(err, persistence.ErrBusy) {
					t.Errorf("swept beside a backup: %v", err)
				}
				return len(p), nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			body(t, j, key)
			sweep(t, j, persistence.BlobSweep{Removed: 1})
		}},
	}
}
