package journaltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

func backup(t testing.TB, j persistence.Journal) []byte {
	t.Helper()
	var b bytes.Buffer
	info, err := j.Backup(context.Background(), &b)
	if err != nil {
		t.Fatalf("back up: %v", err)
	}
	sum := sha256.Sum256(b.Bytes())
	if info.Digest != hex.EncodeToString(sum[:]) || info.Bytes != uint64(b.Len()) || info.StoreID != j.StoreID() || info.Epoch != j.Epoch() {
		t.Errorf("the backup of %d bytes with digest %x says of itself %+v", b.Len(), sum, info)
	}
	read, err := persistence.ReadBackup(bytes.NewReader(b.Bytes()), nil)
	if err != nil {
		t.Fatalf("read the backup: %v", err)
	}
	if diff := cmp.Diff(info, read); diff != "" {
		t.Errorf("what was written and what is read differ: %s", diff)
	}
	return b.Bytes()
}

func restore(t *testing.T, h Harness, backup []byte) persistence.Journal {
	t.Helper()
	j, err := h.Restore(t, backup)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return j
}

// populate makes something of everything.
func populate(t testing.TB, j persistence.Journal) {
	t.Helper()
	for i := range 40 {
		id := fmt.Sprintf("r%02d", i)
		p := put(persistence.KindRun, id, 0, "running")
		p.Ended = i%2 == 0
		c := puts(p, put(persistence.KindStep, persistence.StepID(id, 0), 0, "running"))
		c.Appends = appends(id, "started", "went on").Appends
		commit(t, j, c)
		appendOutput(t, j, id+".0.1", chunk(0, "stdout", strings.Repeat(id, 1+1000*i)), chunk(uint64(len(id)*(1+1000*i)), "stderr", "end"))
	}
	commit(t, j, puts(put(persistence.KindWorker, "w", 0, "idle")))
	for v := range uint64(30) {
		commit(t, j, puts(put(persistence.KindWorker, "w", 1+v, "busy")))
	}
	commit(t, j, puts(ended(put(persistence.KindWorker, "gone", 0, "idle")), put(persistence.KindToken, "t\x00", 0, "unused")))
	outputRecord(t, j, "r00.0.2", chunk(0, "stdout", "few"))
	for i, size := range []int{0, 70_000, 300_000, 1 << 20} {
		version(t, j, "artifact", uint32(i+1), newBlob(t, j, noise(uint64(i), size)), uint64(size))
	}
}

// outputs is the output of every dispatch that has a log or a record.
func outputs(t testing.TB, j persistence.Journal) map[string]string {
	t.Helper()
	logs, err := j.OutputLogs()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, dispatch := range append(logs, ids(t, j, persistence.KindOutput, false, "", "")...) {
		all[dispatch] = text(output(t, j, dispatch, 0, 1<<20))
	}
	return all
}

// namedBodies are the bodies that records name, by their key: as much as these say.
func namedBodies(t testing.TB, j persistence.Journal) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := j.Scan(persistence.KindArtifactVersion, false, "", "", func(r persistence.Record) bool {
		var v messages.ArtifactVersionRecord
		if err := proto.Unmarshal(r.Body, &v); err != nil {
			t.Fatal(err)
		}
		all[v.GetBlob()] = string(body(t, j, v.GetBlob())[:v.GetSize()])
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func backupTests() []test {
	return []test{
		{"a restored store holds all that the other held, and goes on above it", func(t *testing.T, h Harness) {
			j := h.Open(t)
			populate(t, j)
			restored := restore(t, h, backup(t, j))
			if diff := cmp.Diff(snapshot(t, j), snapshot(t, restored)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(outputs(t, j), outputs(t, restored)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(namedBodies(t, j), namedBodies(t, restored)); diff != "" {
				t.Error(diff)
			}
			if keys := blobKeys(t, restored); len(keys) != 4 {
				t.Errorf("bodies %q", keys)
			}
			if restored.StoreID() != j.StoreID() {
				t.Errorf("it is store %q, not %q", restored.StoreID(), j.StoreID())
			}
			if restored.Epoch() <= j.Epoch()+100 {
				t.Errorf("its epoch is %d, and the other's may have come from %d to as much", restored.Epoch(), j.Epoch())
			}
			refused(t, restored, puts(put(persistence.KindRun, "r00", 0, "again")), persistence.ErrStaleWriter)
			commit(t, restored, puts(put(persistence.KindWorker, "w", 31, "idle")))
			if got := commit(t, restored, appends("r01", "more")); got[0] != 3 {
				t.Errorf("number %d after 2", got[0])
			}
			restored = h.Reopen(t, restored)
			if got := get(t, restored, persistence.KindWorker, "w"); got.Version != 32 {
				t.Errorf("version %d after the restored store was opened again", got.Version)
			}
		}},
		{"an empty store can be backed up and restored", func(t *testing.T, h Harness) {
			j := h.Open(t)
			restored := restore(t, h, backup(t, j))
			if diff := cmp.Diff(snapshot(t, j), snapshot(t, restored)); diff != "" {
				t.Error(diff)
			}
		}},
		{"what was set aside stays set aside", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindRun, "bad", 0, "running"), put(persistence.KindRun, "good", 0, "running")))
			h.Damage(t, j, func(key, _ []byte) bool { return strings.HasSuffix(string(key), "/bad") })
			restored := restore(t, h, backup(t, j))
			gone(t, restored, persistence.KindRun, "bad")
			get(t, restored, persistence.KindRun, "good")
			if n := restored.Quarantined(); n != 1 {
				t.Errorf("%d set aside", n)
			}
		}},
		{"a backup has of each body what its record says, and none that no record names", func(t *testing.T, h Harness) {
			j := h.Open(t)
			orphan := newBlob(t, j, []byte("orphan"))
			open := newBlob(t, j, []byte("named, and more"))
			version(t, j, "open", 1, open, 5)
			version(t, j, "missing", 1, strings.Repeat("0", persistence.BlobKeySize), 5)
			version(t, j, "short", 1, newBlob(t, j, []byte("shor")), 5)
			var b bytes.Buffer
			info, err := j.Backup(t.Context(), &b)
			if err != nil || info.Bodies != 2 || info.Absent != 2 || info.InBodies != 9 {
				t.Fatalf("back up: %+v, %v", info, err)
			}
			restored := restore(t, h, b.Bytes())
			if got := body(t, restored, open); string(got) != "named" {
				t.Errorf("body %q", got)
			}
			noBody(t, restored, orphan)
			extend(t, restored, open, 5, []byte(" again"))
		}},
		{"a backup beside commits is the state of one moment", backupWhileWriting},
		{"a log is not deleted while a backup may need it", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindRun, "r", 0, "running")))
			appendOutput(t, j, "d", chunk(0, "stdout", "needed"))
			var b bytes.Buffer
			looked := false
			_, err := j.Backup(context.Background(), writerFunc(func(p []byte) (int, error) {
				looked = true
				if err := j.DeleteOutput("d"); !errors.Is(err, persistence.ErrBusy) {
					t.Errorf("deleted beside a backup: %v", err)
				}
				return b.Write(p)
			}))
			if err != nil || !looked {
				t.Fatalf("back up: %v, %t", err, looked)
			}
			if err := j.DeleteOutput("d"); err != nil {
				t.Errorf("after the backup: %v", err)
			}
			if got := text(output(t, restore(t, h, b.Bytes()), "d", 0, 100)); got != "needed" {
				t.Errorf("output %q", got)
			}
		}},
		{"a writer that fails or is told to stop ends the backup, and the journal goes on", func(t *testing.T, h Harness) {
			j := h.Open(t)
			populate(t, j)
			broken := errors.New("broken pipe")
			n := 0
			_, err := j.Backup(context.Background(), writerFunc(func(p []byte) (int, error) {
				if n++; n > 1 {
					return 0, broken
				}
				return len(p), nil
			}))
			if !errors.Is(err, broken) {
				t.Errorf("it ended with %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			_, err = j.Backup(ctx, writerFunc(func(p []byte) (int, error) {
				cancel()
				return len(p), nil
			}))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			if err := j.DeleteOutput("r00.0.1"); err != nil {
				t.Errorf("after both: %v", err)
			}
			backup(t, j)
		}},
		{"a backup that is cut off or changed anywhere is refused", func(t *testing.T, h Harness) {
			j := h.Open(t)
			commit(t, j, puts(put(persistence.KindRun, "r", 0, "running")))
			appendOutput(t, j, "d", chunk(0, "stdout", "printed"))
			version(t, j, "a", 1, newBlob(t, j, []byte("body")), 4)
			whole := backup(t, j)
			check := func(what string, b []byte) {
				t.Helper()
				var bad *persistence.BackupError
				if _, err := persistence.ReadBackup(bytes.NewReader(b), nil); !errors.As(err, &bad) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for n := range whole {
				check(fmt.Sprint("cut to ", n), whole[:n])
				flipped := bytes.Clone(whole)
				flipped[n] ^= 1 << (n % 8)
				check(fmt.Sprint("flipped at ", n), flipped)
			}
			check("more behind it", append(bytes.Clone(whole), 0))
			for _, n := range []int{0, 10, len(whole) / 2, len(whole) - 1} {
				if _, err := h.Restore(t, whole[:n]); err == nil {
					t.Errorf("restored from the first %d of %d bytes", n, len(whole))
				}
			}
		}},
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// backupWhileWriting backs up while writers commit chains: each commit writes the next version of two records, an event
// that names the version, and before it as many bytes of output. In whatever moment the backup was taken, a chain agrees.
func backupWhileWriting(t *testing.T, h Harness) {
	j := h.Open(t)
	const chains = 4
	var stop atomic.Bool
	var wg sync.WaitGroup
	begun := make(chan struct{}, chains)
	for c := range chains {
		wg.Go(func() {
			a, b := fmt.Sprintf("chain%d", c), fmt.Sprintf("chain%d/00000000", c)
			for v := uint64(0); !stop.Load(); v++ {
				if err := j.AppendOutput(a, []persistence.Chunk{chunk(v, "stdout", "x")}); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				next := puts(put(persistence.KindWorker, a, v, "busy"), put(persistence.KindStep, b, v, "running"))
				next.Appends = appends(a, fmt.Sprint(v+1)).Appends
				if _, err := j.Commit(context.Background(), next); err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				if v == 3 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range chains {
		<-begun
	}
	var taken [][]byte
	for range 3 {
		taken = append(taken, backup(t, j))
	}
	stop.Store(true)
	wg.Wait()
	for _, b := range taken {
		restored := restore(t, h, b)
		for c := range chains {
			id := fmt.Sprintf("chain%d", c)
			version := get(t, restored, persistence.KindWorker, id).Version
			if other := get(t, restored, persistence.KindStep, id+"/00000000").Version; other != version {
				t.Errorf("%s: versions %d and %d of one commit", id, version, other)
			}
			all := events(t, restored, id, 0, 1<<20) // checks that they are dense
			if len(all) != int(version) || all[len(all)-1] != fmt.Sprint(version) {
				t.Errorf("%s: version %d with %d events", id, version, len(all))
			}
			if printed := text(output(t, restored, id, 0, 1<<20)); len(printed) < int(version) {
				t.Errorf("%s: version %d with %d bytes of output", id, version, len(printed))
			}
			if former := history(t, restored, persistence.KindWorker, id); len(former) != min(int(version)-1, persistence.HistoryKept) {
				t.Errorf("%s: version %d with former versions %v", id, version, former)
			}
		}
	}
}
