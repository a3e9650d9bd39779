package badgerstore

import (
	"bytes"
	"compress/flate"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// What cannot be reserved is written, as something that no file system makes smaller.
func TestBallast_IsWrittenWhereNothingCanBeReserved(t *testing.T) {
	t.Parallel()
	b := newBallast(Config{Dir: t.TempDir(), Ballast: ballastPiece + ballastPiece/2, Logger: slog.New(slog.DiscardHandler)})
	f, err := os.Create(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.fill(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(b.path)
	if err != nil || int64(len(data)) != b.size {
		t.Fatalf("%d bytes, %v; want %d", len(data), err, b.size)
	}
	var small bytes.Buffer
	w, err := flate.NewWriter(&small, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if small.Len() < len(data)*9/10 {
		t.Errorf("%d bytes can be made %d", len(data), small.Len())
	}
}

func TestBallast_ThatIsGivenUpWhileItIsMadeLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBallast(Config{Dir: t.TempDir(), Ballast: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	b.stop.Store(true)
	f, err := os.Create(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.fill(f); err != errGivenUp { //nolint:errorlint // it is that itself
		t.Errorf("fill: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBallast_ThatIsNotWholeIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ballastFile), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if b := newBallast(Config{Dir: dir, Ballast: 1 << 20, Logger: slog.New(slog.DiscardHandler)}); b.held {
		t.Error("a hundred bytes are taken for the reserve")
	}
}
