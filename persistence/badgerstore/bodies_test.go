package badgerstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// putArtifact commits an artifact of one version, whose body is a file. It returns the path of that.
func putArtifact(t *testing.T, s *Store, name string, body []byte) (path string) {
	t.Helper()
	w, err := s.NewBlob()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	key, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	head, err := proto.Marshal(&messages.ArtifactRecord{Name: name, LastVersion: 1, Latest: 1})
	if err != nil {
		t.Fatal(err)
	}
	version, err := proto.Marshal(&messages.ArtifactVersionRecord{Name: name, Version: 1, Size: uint64(len(body)), Digest: sum[:], Blob: key})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, persistence.Commit{Puts: []persistence.Put{
		{Kind: persistence.KindArtifact, ID: name, Body: head},
		{Kind: persistence.KindArtifactVersion, ID: persistence.ArtifactVersionID(name, 1), Body: version},
	}})
	return filepath.Join(s.dir, blobsDir, key[:2], key)
}

// besideAnother is a store with a body, and with another one in another folder, which damage to a folder does not reach.
func besideAnother(t *testing.T, body []byte) (s *Store, path string) {
	t.Helper()
	for {
		s = open(t, t.TempDir())
		path = putArtifact(t, s, "damaged", body)
		if other := putArtifact(t, s, "other", []byte("whole")); filepath.Dir(other) != filepath.Dir(path) {
			return s, path
		}
		closeStore(t, s)
	}
}

func TestBodies_DamageIsFoundByTheCheckAndStopsNothing(t *testing.T) {
	t.Parallel()
	whole := bytes.Repeat([]byte("0123456789"), 10_000)
	rewrite := func(t *testing.T, path string, change func([]byte) []byte) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		damage  func(t *testing.T, path string)
		finding string // of the body of "damaged"
		reads   bool   // it can still be read in full
		missing int
		orphans int
		absent  uint64 // in a backup
	}{
		{name: "none", damage: func(*testing.T, string) {}, reads: true},
		{
			name: "truncated", absent: 1, finding: "has 99999 bytes, and there were 100000",
			damage: func(t *testing.T, path string) {
				rewrite(t, path, func(b []byte) []byte { return b[:len(b)-1] })
			},
		},
		{
			name: "empty", absent: 1, finding: "has 0 bytes, and there were 100000",
			damage: func(t *testing.T, path string) { rewrite(t, path, func([]byte) []byte { return nil }) },
		},
		{
			name: "a flipped bit", finding: "its digest is another one", reads: true,
			damage: func(t *testing.T, path string) {
				rewrite(t, path, func(b []byte) []byte { b[54_321] ^= 4; return b })
			},
		},
		{
			name: "bytes that were never named", reads: true,
			damage: func(t *testing.T, path string) {
				rewrite(t, path, func(b []byte) []byte { return append(b, "more"...) })
			},
		},
		{
			name: "missing", absent: 1, missing: 1, finding: "is missing",
			damage: func(t *testing.T, path string) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "its folder is missing", absent: 1, missing: 1, finding: "is missing",
			damage: func(t *testing.T, path string) {
				if err := os.RemoveAll(filepath.Dir(path)); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "a folder in its place", absent: 1, missing: 1, finding: "it is no file",
			damage: func(t *testing.T, path string) {
				if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "a file that no record names", orphans: 1, reads: true,
			damage: func(t *testing.T, path string) {
				name := filepath.Base(path)
				other := name[:len(name)-8] + "00" + name[len(name)-6:]
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), other), whole, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "a file that is none of ours", reads: true, finding: "notes.txt is none of swampd's files",
			damage: func(t *testing.T, path string) {
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), "notes.txt"), whole, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "one that was being written", orphans: 1, reads: true,
			damage: func(t *testing.T, path string) {
				name := filepath.Base(path)
				other := name[:len(name)-8] + "00" + name[len(name)-6:] + ".tmp"
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), other), whole, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, path := besideAnother(t, whole)
			closeStore(t, s)
			tt.damage(t, path)

			report, err := check(t, s.dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(report.Findings, "; "); (tt.finding == "") != (got == "") || !strings.Contains(got, tt.finding) {
				t.Errorf("%d findings: %s", report.Wrong, got)
			}
			if report.Orphans != tt.orphans {
				t.Errorf("%d orphans", report.Orphans)
			}

			s = open(t, s.dir)
			if sweep, err := s.SweepBlobs(t.Context()); err != nil || sweep != (persistence.BlobSweep{Removed: tt.orphans, Missing: tt.missing}) {
				t.Errorf("the sweep says %+v, %v", sweep, err)
			}
			r, err := s.OpenBlob(filepath.Base(path))
			switch {
			case err != nil && tt.reads, err == nil && (r.Size() >= int64(len(whole))) != tt.reads:
				t.Errorf("open: %v", err)
			case err == nil:
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			var b bytes.Buffer
			info, err := s.Backup(t.Context(), &b)
			if err != nil || info.Absent != tt.absent {
				t.Errorf("back up: %d absent, %v", info.Absent, err)
			}
			if _, err := persistence.ReadBackup(&b, nil); err != nil {
				t.Error(err)
			}
			closeStore(t, s)
		})
	}
}

func TestCheck_ComparesArtifactsWithTheirVersions(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	sum := sha256.Sum256([]byte("body"))
	head := func(name, says string, latest, last uint32) persistence.Put {
		body, err := proto.Marshal(&messages.ArtifactRecord{Name: says, Latest: latest, LastVersion: last})
		if err != nil {
			t.Fatal(err)
		}
		return persistence.Put{Kind: persistence.KindArtifact, ID: name, Body: body}
	}
	version := func(name, says string, number uint32, content string) persistence.Put {
		body, err := proto.Marshal(&messages.ArtifactVersionRecord{Name: says, Version: number, Size: 4, Digest: sum[:], Body: []byte(content)})
		if err != nil {
			t.Fatal(err)
		}
		return persistence.Put{Kind: persistence.KindArtifactVersion, ID: persistence.ArtifactVersionID(name, number), Body: body}
	}
	commit(t, s, persistence.Commit{Puts: []persistence.Put{
		head("good", "good", 3, 4), version("good", "good", 2, "body"), version("good", "good", 3, "body"),
		head("deleted", "deleted", 0, 7),
		head("digest", "digest", 1, 1), version("digest", "digest", 1, "b0dy"),
		head("latest", "latest", 2, 2), version("latest", "latest", 1, "body"),
		head("low", "low", 1, 1), version("low", "low", 1, "body"), version("low", "low", 2, "body"),
		head("name", "another", 0, 1),
		version("none", "none", 1, "body"),
		{Kind: persistence.KindArtifactVersion, ID: "undecodable", Body: []byte{0xff}},
		{Kind: persistence.KindArtifact, ID: "undecodable", Body: []byte{0xff}},
		{Kind: persistence.KindDataRequest, ID: "w"},
	}})
	report, err := check(t, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`artifact "low" has a version 2, and says that its highest one was 1`,
		`artifact "name" says that it is "another"`,
		`artifact "undecodable": proto:`,
		`the body of version 1 of artifact "digest" is another one than its size and digest say`,
		`the latest version 2 of artifact "latest" is missing`,
		`version "undecodable": proto:`,
		`versions of artifact "none" are there, and it is not`,
	}
	got := slices.Sorted(slices.Values(report.Findings))
	if len(got) != len(want) {
		t.Fatalf("findings: %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("finding %q, %q was due", got[i], want[i])
		}
	}
}

// TestBodies_AnOlderBackupIsRead restores one that was written before there were bodies.
func TestBodies_AnOlderBackupIsRead(t *testing.T) {
	t.Parallel()
	file, err := os.Open(filepath.Join("testdata", "backups", "format-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir := filepath.Join(t.TempDir(), "restored")
	info, err := Restore(RestoreConfig{From: file, Dir: dir})
	if err != nil || info.Records != 10 || info.Chunks != 1 || info.Bodies != 0 {
		t.Fatalf("restore: %+v, %v", info, err)
	}
	s := open(t, dir)
	if r, err := s.Get(persistence.KindWorker, "w"); err != nil || r.State != "busy" {
		t.Errorf("%+v, %v", r, err)
	}
	if got, err := s.Output("r.0.1", 0, 100); err != nil || string(got[0].Data) != "printed" {
		t.Errorf("output %v, %v", got, err)
	}
}
