package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wired returns a detached wire that writes, and the other end of its connection.
func wired(t *testing.T) (*wire, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	start := time.Now()
	w := newWire(ours, func() time.Duration { return time.Since(start) }, &sync.Pool{})
	w.limit.Store(queueClient)
	w.detach()
	go w.write()
	t.Cleanup(func() {
		w.kill(net.ErrClosed)
		<-w.done
		_ = theirs.Close()
	})
	return w, theirs
}

func TestWire_WhatIsQueuedIsWrittenWhateverDeadlinesTheLayersAboveSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, other := wired(t)
		if _, err := w.Write([]byte("queued ")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is being written, and nobody reads
		if _, err := w.Write([]byte("behind it")); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{w.SetWriteDeadline(time.Now()), w.SetDeadline(time.Now()), w.Close()} { // as TLS does
			if err != nil {
				t.Error(err)
			}
		}
		if got, err := io.ReadAll(other); string(got) != "queued behind it" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := w.Write([]byte("late")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
		if err := w.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a second close: %v", err)
		}
	})
}

func TestWire_CloseEndsReadingAtOnceAndWritingSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := wired(t)
		if _, err := w.Write([]byte("nobody reads this")); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := w.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil || time.Since(start) > 0 {
			t.Errorf("reading ended after %s with %v", time.Since(start), err)
		}
		<-w.done
		within(t, time.Since(start), lingerTimeout, lingerTimeout)
	})
}

func TestWire_AwaitSeesPiecesGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, other := wired(t)
		const pieces = 5
		if _, err := w.Write(make([]byte, pieces*writePiece)); err != nil {
			t.Fatal(err)
		}
		for left := pieces - 1; left >= 0; left-- {
			waits := make(chan error, 1)
			go func() { waits <- w.await(t.Context(), left*writePiece) }()
			synctest.Wait()
			if len(waits) > 0 {
				t.Fatalf("with %d bytes left it did not wait for %d", w.queued(), left*writePiece)
			}
			if _, err := io.ReadFull(other, make([]byte, writePiece)); err != nil {
				t.Fatal(err)
			}
			if err := <-waits; err != nil {
				t.Error(err)
			}
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.await(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody reads: %v", err)
		}
		w.kill(errStopping)
		if err := w.await(t.Context(), 0); !errors.Is(err, errStopping) {
			t.Errorf("killed: %v", err)
		}
	})
}

func TestWire_PassesThroughUntilItIsDetached(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	w := newWire(ours, func() time.Duration { return 0 }, &sync.Pool{})
	if err := w.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err == nil { // it would have been queued
		t.Error("a write did not end with its deadline")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads: %v", err)
	}
}
