package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// watchShown is a stream of everything that actors do.
func watchShown() []*messages.ActorEvent {
	at := func(ms int) *messages.ActorEvent {
		return &messages.ActorEvent{At: messages.Time(testTime(time.Duration(ms) * time.Millisecond)), Pid: "swampd/runs/r", Seq: float64(ms)}
	}
	event := func(ms int, kind string, fill func(*messages.ActorEvent)) *messages.ActorEvent {
		e := at(ms)
		e.Kind, e.Command = kind, proto.String("stepEnded")
		if fill != nil {
			fill(e)
		}
		return e
	}
	return []*messages.ActorEvent{
		{Kind: "watching", At: messages.Time(testTime(0)), Pid: "swampd/runs/r"},
		event(1, "command", nil),
		event(2, "transition", func(e *messages.ActorEvent) { e.From, e.To = proto.String("running"), proto.String("failed") }),
		event(3, "transition", func(e *messages.ActorEvent) { e.To = proto.String("failed") }),
		event(4, "commit", func(e *messages.ActorEvent) { e.Text, e.TookMs = proto.String("run r v3 failed"), proto.Float64(1.25) }),
		event(5, "effect", func(e *messages.ActorEvent) {
			e.Text, e.To = proto.String("tells endNoted"), proto.String("swampd/runs/r/j/s")
		}),
		event(6, "effect", func(e *messages.ActorEvent) { e.Text = proto.String("leaves") }),
		event(7, "refused", func(e *messages.ActorEvent) { e.Text = proto.String("no space\x1b[2J") }),
		event(8, "panic", func(e *messages.ActorEvent) { e.Text = proto.String("boom") }),
		{Kind: "dropped", At: messages.Time(testTime(9 * time.Millisecond)), Dropped: proto.Float64(7)},
	}
}

func TestActorWatch_PrintsWhatActorsDo(t *testing.T) {
	t.Parallel()
	s := newScript(t, nil)
	s.stream = func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
		for _, e := range watchShown() {
			send(&messages.Event{Event: &messages.Event_Actor{Actor: e}})
		}
		return nil, messages.Faultf(messages.CodeStreamOverflow, "the watch is cut off: its reader took 11s for one event; 9 were read, 7 dropped")
	}
	for form, file := range map[string]string{"log": "actor_watch.txt", "json": "actor_watch.json"} {
		h := newTestHost(t, "actor", "watch", "r", "--output", form)
		s.use(h)
		if code := h.run(t, Swamp); code != ExitFailed {
			t.Errorf("exit %d: %s", code, h.err.String())
		}
		golden(t, "lists/"+file, h.out.String()+h.err.String())
	}
}

func TestActorWatch_AnInterruptDetaches(t *testing.T) {
	t.Parallel()
	s := newScript(t, nil)
	s.stream = func(ctx context.Context, send func(*messages.Event)) (proto.Message, error) {
		send(&messages.Event{Event: &messages.Event_Actor{Actor: watchShown()[0]}})
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h := newTestHost(t, "actor", "watch", "r")
	s.use(h)
	code := h.start(t.Context(), Swamp)
	h.out.waitFor(t, "watching")
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitInterrupted {
		t.Errorf("exit %d: %s", got, h.err.String())
	}
}

// A connection that is lost is one thing, and one that the orchestrator has cut because nobody read what came is another.
func TestActorWatch_SaysWhyItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	for step, want := range map[time.Duration]struct {
		code int
		text string
	}{
		time.Second:      {ExitUnreachable, "the connection was lost"},
		40 * time.Second: {ExitFailed, "the watch is cut off: what it prints was not read for 40s"},
	} {
		s := newScript(t, nil)
		s.stream = func(_ context.Context, send func(*messages.Event)) (proto.Message, error) {
			send(&messages.Event{Event: &messages.Event_Actor{Actor: watchShown()[0]}})
			return nil, context.Canceled // it hangs up
		}
		h := newTestHost(t, "actor", "watch", "r")
		s.use(h)
		now := testTime(0)
		h.Now = func() time.Time {
			now = now.Add(step)
			return now
		}
		if code := h.run(t, Swamp); code != want.code || !strings.Contains(h.err.String(), want.text) {
			t.Errorf("after lines of %s: exit %d: %s", step, code, h.err.String())
		}
	}
}
