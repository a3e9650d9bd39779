package persistence

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// whole is a backup of one key, one chunk and one body.
func whole() []byte {
	var b bytes.Buffer
	w := newBackupWriter(&b)
	w.header(Meta{Format: 1, StoreID: "s", Generation: 1, Epoch: 2, Head: Head{Number: 3, Hash: 4}}, time.Unix(5, 6))
	w.record([]byte("k"), []byte("v"))
	w.chunk("d", &Chunk{Stream: "stdout", Data: []byte("x")})
	w.piece(newBlobKey(1), 0, []byte("body"))
	_ = w.end() // a buffer takes everything
	return b.Bytes()
}

func FuzzReadBackup(f *testing.F) {
	f.Add(whole())
	f.Add(whole()[:40])
	f.Add([]byte(backupMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries := uint64(0)
		info, err := ReadBackup(bytes.NewReader(data), func(_ BackupInfo, e BackupEntry) error {
			entries++
			is := 0
			for _, kind := range []bool{e.Dispatch != "", len(e.Key) > 0, e.Body != ""} {
				if kind {
					is++
				}
			}
			if is != 1 {
				t.Errorf("an entry that is neither key nor output nor body, or more than one: %+v", e)
			}
			return nil
		})
		var bad *BackupError
		switch {
		case err != nil && !errors.As(err, &bad):
			t.Errorf("the backup is not at fault: %v", err)
		case err == nil && (entries != info.Records+info.Chunks+info.Pieces || info.Bytes != uint64(len(data))):
			t.Errorf("%d entries in %d bytes: %+v", entries, len(data), info)
		}
	})
}

func TestReadBackup_OneOfANewerFormatSaysSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		meta Meta
		want string
	}{
		{"of the store", Meta{Format: FormatVersion + 1, StoreID: "s"}, "it is of store format 2, this program knows up to 1: use the newer swampd"},
		{"without a name", Meta{Format: FormatVersion}, "it is damaged near byte 44: its description is too short"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			w := newBackupWriter(&b)
			w.header(tt.meta, time.Unix(5, 6))
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadBackup(&b, nil); err == nil || err.Error() != tt.want {
				t.Errorf("read: %v", err)
			}
		})
	}
}

func TestReadBackup_AnErrorOfItsReaderIsNoFaultOfTheBackup(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	stop := errors.New("stop")
	_, err := ReadBackup(&failingReader{data: whole()[:40], err: broken}, nil)
	if bad := (*BackupError)(nil); !errors.Is(err, broken) || errors.As(err, &bad) {
		t.Errorf("read: %v", err)
	}
	_, err = ReadBackup(bytes.NewReader(whole()), func(BackupInfo, BackupEntry) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("read: %v", err)
	}
}

type failingReader struct {
	data []byte
	err  error
}

func (r *failingReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, r.err
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

func TestRunOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"r.0.1": "r", "r.0.1/2": "r", "r.0.q3": "r", "a.b.10.2/1": "a.b", "r.0": "", "r": "", "": "", ".0.1": "",
	} {
		if got := RunOf(id); got != want {
			t.Errorf("the run of %q is %q, not %q", id, got, want)
		}
	}
}
