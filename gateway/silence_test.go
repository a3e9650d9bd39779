package gateway

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// bubble runs a test with virtual time, and a server that is reached without a network.
func bubble(t *testing.T, fake func() *fakeOrchestrator, test func(*testing.T, *fixture)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, serve(t, fake(), func(c *Config) { c.Listener = newMemListener() }))
	})
}

func newFast() *fakeOrchestrator {
	fake := newFake()
	fake.interval = 10 * time.Second
	return fake
}

// within fails unless d lies between lo and hi.
func within(t *testing.T, d, lo, hi time.Duration) {
	t.Helper()
	if d < lo || d > hi {
		t.Errorf("it took %s, want %s to %s", d, lo, hi)
	}
}

func TestSilence_APeerThatSaysNothingIsGivenUpAfterThreeIntervals(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		start := time.Now()
		p := f.raw(t, true)
		gone := p.discard()
		reason := (<-p.session.closed).reason
		within(t, time.Since(start), 30*time.Second, 33*time.Second)
		if want := "no byte from the peer for 30s"; reason.Error() != want {
			t.Errorf("reason %q, want %q", reason, want)
		}
		<-gone
	})
}

func TestSilence_APeerThatNeitherReadsNorWritesToo(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		start := time.Now()
		p := f.raw(t, true) // the ping stays in the pipe
		<-p.session.closed
		within(t, time.Since(start), 30*time.Second, 33*time.Second)
	})
}

func TestSilence_APeerThatAnswersPingsStays(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		p := f.connect(t, true)
		answers := make(chan error, 1)
		go func() { // a read is what answers pings
			_, _, err := p.ws.Read(context.Background())
			answers <- err
		}()
		time.Sleep(time.Hour)
		if err := p.session.conn.Send(pong("still")); err != nil {
			t.Error(err)
		}
		if err := <-answers; err != nil {
			t.Error(err)
		}
	})
}

func TestSilence_AnyByteIsLife(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		p := f.raw(t, true)
		p.discard()
		p.write(rawHeader(opText, 1000)) // one frame that takes hours, and not one pong
		for range 500 {
			time.Sleep(29 * time.Second)
			p.write([]byte("x"))
		}
		if len(p.session.closed) > 0 {
			t.Error(<-p.session.closed)
		}
	})
}

func TestSilence_WhatIsNotReadForTheSessionsSakeIsNoSilence(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	fake := func() *fakeOrchestrator {
		fake := newFast()
		release = make(chan struct{}) // of the bubble
		fake.onFrame = func(s *fakeSession, f *messages.Frame) {
			<-release
			s.frames <- f
		}
		return fake
	}
	bubble(t, fake, func(t *testing.T, f *fixture) {
		defer once.Do(func() { close(release) })
		p := f.connect(t, true)
		p.send(messages.CodingJSON, ping("slow"))
		time.Sleep(time.Hour)
		once.Do(func() { close(release) })
		<-p.session.frames
		if len(p.session.closed) > 0 {
			t.Fatal(<-p.session.closed)
		}
		start := time.Now()
		<-p.session.closed // and from now on it is silence
		within(t, time.Since(start), 27*time.Second, 33*time.Second)
	})
}

// stallingFake stands still once, as a process that was stopped or swapped out does.
type stallingFake struct {
	*fakeOrchestrator
	stall time.Duration
	calls int
}

func (o *stallingFake) PingInterval() time.Duration {
	o.calls++
	if o.calls == 2 {
		time.Sleep(o.stall)
	}
	return o.interval
}

func TestSilence_AStallOfOurOwnGivesAFreshInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFast()
		stalling := &stallingFake{fakeOrchestrator: fake, stall: time.Hour}
		f := serve(t, fake, func(c *Config) {
			c.Listener = newMemListener()
			c.Orchestrator = stalling
		})
		start := time.Now()
		p := f.raw(t, true)
		p.discard()
		<-p.session.closed
		within(t, time.Since(start), time.Hour+10*time.Second, time.Hour+17*time.Second)
	})
}

func TestSilence_WhoDoesNotEnrollIsClosed(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		start := time.Now()
		client, worker, nobody := f.connect(t, true), f.connect(t, false), f.connect(t, false)
		if err := worker.session.conn.Send(enrolled("1")); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*peer{client, worker} {
			go func() {
				for {
					if _, _, err := p.ws.Read(context.Background()); err != nil {
						return
					}
				}
			}()
		}
		_, _, err := nobody.ws.Read(context.Background())
		if websocket.CloseStatus(err) != 4024 {
			t.Errorf("read: %v", err)
		}
		within(t, time.Since(start), enrollTimeout, enrollTimeout+3*time.Second)
		time.Sleep(time.Hour)
		for _, p := range []*peer{client, worker} {
			if len(p.session.closed) > 0 {
				t.Error(<-p.session.closed)
			}
		}
	})
}

func TestConn_PingTellsWhetherThePeerLives(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		alive, frozen := f.connect(t, true), f.raw(t, true)
		go func() { _, _, _ = alive.ws.Read(context.Background()) }()
		ping := func(s *fakeSession) error {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			return s.conn.Ping(ctx)
		}
		if err := ping(alive.session); err != nil {
			t.Errorf("alive: %v", err)
		}
		if err := ping(frozen.session); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("frozen: %v", err)
		}
		if len(frozen.session.closed) > 0 {
			t.Error("a ping closed the connection")
		}
		frozen.discard()
		go frozen.write(rawMessage(opText, []byte("any byte")))
		if err := ping(frozen.session); err != nil {
			t.Errorf("thawed: %v", err)
		}
		_ = alive.ws.CloseNow()
		<-alive.session.closed
		if err := ping(alive.session); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestWire_APeerThatWritesAndNeverReadsRunsIntoTheWriteDeadline(t *testing.T) {
	bubble(t, newFast, func(t *testing.T, f *fixture) {
		start := time.Now()
		p := f.raw(t, true)
		if err := p.session.conn.Send(pong("1")); err != nil {
			t.Fatal(err)
		}
		for len(p.session.closed) == 0 {
			if _, err := p.conn.Write(rawMessage(opText, []byte(`{"id":"1","cancel":{}}`))); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		<-p.session.closed
		within(t, time.Since(start), writeTimeout, writeTimeout+2*time.Second)
	})
}

func TestConn_CloseGivesASlowReaderTime(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		p := f.raw(t, true)
		const chunks, size = 9, 100 << 10
		for range chunks {
			if err := p.session.conn.Send(output("1", size)); err != nil {
				t.Fatal(err)
			}
		}
		p.session.conn.Close(messages.CodeSuperseded, "at the very end")
		for range chunks { // longer than the closing handshake alone would take
			time.Sleep(time.Second)
			if _, err := io.ReadFull(p.in, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := io.ReadAll(p.in)
		if !strings.HasSuffix(string(rest), "superseded: at the very end") {
			t.Errorf("the last %d bytes hold no close frame, %v", len(rest), err)
		}
	})
}
