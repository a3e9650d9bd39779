package badgerstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// bodyFiles is the size of the bodies that are files.
func bodyFiles(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, blobsDir), func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// Versions of artifacts come, and the twentieth before each goes, in the same commit: in the end the disk holds what is kept
// and at most as much again.
func TestRetention_VersionsThatComeAndGoLeaveTheirSpace(t *testing.T) {
	t.Parallel()
	const artifacts, kept, versions, inline, file = 8, 20, 120, 60 << 10, 120 << 10
	dir := t.TempDir()
	s := open(t, dir)
	source := rand.NewChaCha8([32]byte{7})
	noise := make([]byte, file)
	blobs := map[string]string{} // by the id of their version
	for n := uint32(1); n <= versions; n++ {
		for a := range artifacts {
			name := fmt.Sprint("artifact", a)
			id, old := persistence.ArtifactVersionID(name, n), persistence.ArtifactVersionID(name, n-min(n, kept))
			_, _ = source.Read(noise) // it never fails
			v := &messages.ArtifactVersionRecord{Name: name, Version: n}
			if a%2 == 0 {
				v.Body = noise[:inline]
			} else {
				w, err := s.NewBlob()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(noise); err != nil {
					t.Fatal(err)
				}
				if v.Blob, err = w.Commit(); err != nil {
					t.Fatal(err)
				}
				blobs[id] = v.GetBlob()
			}
			body, err := proto.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			commit(t, s, persistence.Commit{
				Puts:    []persistence.Put{{Kind: persistence.KindArtifactVersion, ID: id, Body: bytes.Clone(body)}},
				Deletes: []persistence.Delete{{Kind: persistence.KindArtifactVersion, ID: old}},
			})
			if err := s.DeleteBlob(blobs[old]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	const retained = artifacts / 2 * kept * (inline + file)
	if used := tables(t, dir) + bodyFiles(t, dir); used > 2*retained || used < retained {
		t.Errorf("%d KiB are used for the %d KiB of what is kept", used>>10, retained>>10)
	}
}
