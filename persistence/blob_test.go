package persistence

import (
	"slices"
	"strings"
	"testing"
)

func TestBlobKey_SaysItsBoot(t *testing.T) {
	t.Parallel()
	for _, epoch := range []uint64{1, 4097, maxEpoch} {
		key := newBlobKey(epoch)
		if !IsBlobKey(key) || blobEpoch(key) != epoch {
			t.Errorf("key %s of boot %d is read as one of %d", key, epoch, blobEpoch(key))
		}
		if other := newBlobKey(epoch); other == key {
			t.Error("the same key twice")
		}
	}
	for _, no := range []string{"", "..", strings.Repeat("0", BlobKeySize-1), strings.Repeat("F", BlobKeySize), strings.Repeat("/", BlobKeySize)} {
		if IsBlobKey(no) {
			t.Errorf("%q passes for a key", no)
		}
	}
}

func TestArtifactVersionID_SortsByNameAndNumber(t *testing.T) {
	t.Parallel()
	want := []string{
		ArtifactVersionID("a", 1), ArtifactVersionID("a", 2), ArtifactVersionID("a", 10), ArtifactVersionID("a", 1<<32-1),
		ArtifactVersionID("a-b", 1), ArtifactVersionID("a/b", 1), ArtifactVersionID("ab", 1),
	}
	if !slices.IsSorted(want) {
		t.Errorf("%q", want)
	}
	for _, id := range want {
		if got := strings.HasPrefix(id, ArtifactVersionPrefix("a")); got != (id[1] == 0) {
			t.Errorf("%q among those of another: %t", id, got)
		}
	}
}
