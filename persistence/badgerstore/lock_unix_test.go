//go:build unix

package badgerstore

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is being started as the store closes has its files for a moment longer.
func TestLock_IsFreeAlthoughAnotherProcessStillHasItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := acquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(l.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Close(inherited); err != nil {
			t.Error(err)
		}
	}()
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	again, err := acquireLock(dir)
	if err != nil {
		t.Fatalf("the lock was released, and is held: %v", err)
	}
	for range 2 { // the second one is none
		if err := again.release(); err != nil {
			t.Error(err)
		}
	}
}
