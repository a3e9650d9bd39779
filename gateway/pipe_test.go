package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// piped connects to a fake and returns both ends.
func piped(t *testing.T, fake *fakeOrchestrator) (*PipeEnd, *fakeSession) {
	t.Helper()
	end, err := Pipe(fake, actors.ConnInfo{Loopback: true, Remote: "loopback"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end.Close(messages.CodeInternal, "the test is over") })
	return end, take(t, fake.sessions, "a session")
}

func TestPipe_CarriesFramesInOrder(t *testing.T) {
	t.Parallel()
	end, session := piped(t, newFake())
	if !session.info.Loopback || session.info.Client {
		t.Errorf("info %+v", session.info)
	}
	ids := []string{"1", "2", "3"}
	for _, id := range ids {
		if err := end.Write(t.Context(), ping(id)); err != nil {
			t.Fatal(err)
		}
		if err := session.conn.Send(pong(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if diff := cmp.Diff(ping(id), take(t, session.frames, "a frame"), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		got, err := end.Read(t.Context())
		if diff := cmp.Diff(pong(id), got, protocmp.Transform()); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	if err := session.conn.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestPipe_EndsFromEitherSide(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(*PipeEnd, *fakeSession)
	}{
		{"the worker's", func(e *PipeEnd, _ *fakeSession) { _ = e.Close(messages.CodeSuperseded, "bye") }},
		{"the session's", func(_ *PipeEnd, s *fakeSession) { s.conn.Close(messages.CodeSuperseded, "bye") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			end, session := piped(t, newFake())
			if err := end.Write(t.Context(), ping("up")); err != nil {
				t.Fatal(err)
			}
			if err := session.conn.Send(pong("down")); err != nil {
				t.Fatal(err)
			}
			tt.end(end, session)
			want := &messages.Fault{Code: messages.CodeSuperseded, Text: "bye"}
			if diff := cmp.Diff(want, session.ended(t)); diff != "" {
				t.Errorf("the session's reason: %s", diff)
			}
			if f := take(t, session.frames, "what was written before the end"); f.GetId() != "up" {
				t.Errorf("received %v", f)
			}
			if f, err := end.Read(t.Context()); f.GetId() != "down" || err != nil {
				t.Errorf("what was sent before the end: %v, %v", f, err)
			}
			for range 2 {
				if f, err := end.Read(t.Context()); f != nil || !cmp.Equal(err, error(want)) {
					t.Errorf("read %v, %v", f, err)
				}
			}
			for what, err := range map[string]error{
				"write": end.Write(t.Context(), ping("late")), "send": session.conn.Send(pong("late")),
				"sendWait": session.conn.SendWait(t.Context(), pong("late")), "ping": session.conn.Ping(t.Context()),
			} {
				if messages.CodeOf(err) != messages.CodeSuperseded {
					t.Errorf("%s after the end: %v", what, err)
				}
			}
			_ = end.Close(messages.CodeInternal, "again")
			session.conn.Close(messages.CodeInternal, "again")
		})
	}
}

func TestPipe_WriteWaitsForTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, release := newFake(), make(chan struct{})
		fake.onFrame = func(*fakeSession, *messages.Frame) { <-release }
		end, _ := piped(t, fake)
		defer close(release)
		written := 0
		for {
			ctx, cancel := contextWithin(time.Second)
			err := end.Write(ctx, ping("1"))
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if written++; err != nil || written > 2*pipeFrames {
				t.Fatalf("frame %d: %v", written, err)
			}
		}
		if written != pipeFrames+1 { // one is with the session
			t.Errorf("%d frames were taken, want %d", written, pipeFrames+1)
		}
	})
}

func TestPipe_ReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	end, session := piped(t, newFake())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := end.Read(ctx); f != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("read %v, %v", f, err)
	}
	if err := session.conn.Send(pong("1")); err != nil {
		t.Fatal(err)
	}
	if f, err := end.Read(ctx); f.GetId() != "1" || err != nil {
		t.Errorf("read %v, %v", f, err)
	}
}

func TestPipe_HasTheLimitsOfASocket(t *testing.T) {
	t.Parallel()
	end, session := piped(t, newFake())
	if err := end.Write(t.Context(), output("1", messages.MaxFrame)); messages.CodeOf(err) != messages.CodeFrameTooLarge {
		t.Errorf("write: %v", err)
	}
	if err := session.conn.Send(output("1", messages.MaxFrame)); messages.CodeOf(err) != messages.CodeFrameTooLarge {
		t.Errorf("send: %v", err)
	}
	if err := session.conn.Send(&messages.Frame{Id: "2", Body: &messages.Frame_Response{
		Response: messages.NewResponse(messages.VerbRunShow, &messages.RunItem{RunId: strings.Repeat("x", messages.MaxFrame)}),
	}}); err != nil {
		t.Errorf("an answer: %v", err)
	}
	if f, err := end.Read(t.Context()); err != nil || f.GetId() != "2" || f.GetError().GetCode() != string(messages.CodeFrameTooLarge) {
		t.Errorf("the asker is told %v, %v", f, err)
	}
	large := output("1", 1<<20)
	sent := 0
	for err := error(nil); err == nil; sent++ {
		if err = session.conn.Send(large); err != nil && messages.CodeOf(err) != messages.CodeStreamOverflow {
			t.Errorf("frame %d: %v", sent, err)
		}
	}
	if sent > queueWorker>>20+1 {
		t.Errorf("%d MiB were queued", sent)
	}
	if code := messages.CodeOf(session.ended(t)); code != messages.CodeStreamOverflow {
		t.Errorf("the session was told %s", code)
	}
}

func TestPipe_SendWaitWaitsForTheReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end, session := piped(t, newFake())
		large := output("1", 1<<20)
		sent := make(chan error, 1)
		count := 0
		go func() {
			var err error
			for ; err == nil && count < 3*queueWorker>>20; count++ {
				err = session.conn.SendWait(context.Background(), large)
			}
			sent <- err
		}()
		synctest.Wait()
		if len(sent) > 0 || count > queueWorker>>20 {
			t.Fatalf("%d MiB were sent and nothing was read", count)
		}
		ctx, cancel := contextWithin(time.Second)
		defer cancel()
		if err := session.conn.SendWait(ctx, large); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait without end: %v", err)
		}
		for range 3 * queueWorker >> 20 {
			if _, err := end.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

func TestPipe_ARefusedSessionIsAnError(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.refusal = messages.Faultf(messages.CodeNotReady, "not yet")
	if _, err := Pipe(fake, actors.ConnInfo{Loopback: true}); messages.CodeOf(err) != messages.CodeNotReady {
		t.Errorf("error %v", err)
	}
}
