package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// oneWorker is an orchestrator with a fleet of one.
type oneWorker struct {
	before, after *messages.WorkerItem
	err           error // of the wish
	asked         proto.Message
}

func (o *oneWorker) answer(_ context.Context, verb messages.Verb, params proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
	if verb == messages.VerbWorkerShow {
		if o.before == nil {
			return nil, messages.Faultf(messages.CodeNotFound, "no worker gpu-1")
		}
		return detail(o.before), nil
	}
	o.asked = params
	return o.after, o.err
}

func item(status string, running ...string) *messages.WorkerItem {
	intent := "none"
	if status == "draining" {
		intent = status
	}
	return &messages.WorkerItem{
		Name: "gpu-1", Status: status, Connected: status != "disconnected", Intent: intent, Health: "ok", Capacity: 2, ActiveDispatchIds: running,
	}
}

func detail(w *messages.WorkerItem) *messages.WorkerDetail {
	return &messages.WorkerDetail{
		Name: w.GetName(), Status: w.GetStatus(), Connected: w.GetConnected(), Intent: w.GetIntent(), Health: w.GetHealth(),
		Capacity: w.GetCapacity(), ActiveDispatchIds: w.GetActiveDispatchIds(),
	}
}

// left is a worker that has drained and gone.
func left() *messages.WorkerItem {
	w := item("draining")
	w.Status, w.Connected = "disconnected", false
	return w
}

func TestWishes(t *testing.T) {
	t.Parallel()
	unknown := messages.Faultf(messages.CodeNotFound, "no worker gpu-1: the nearest are gpu-2, gpu-3")
	away := messages.Faultf(messages.CodeConflict, "worker gpu-1 is not connected: there is nothing to drain")
	back := messages.Faultf(messages.CodeConflict, "the drain of worker gpu-1 was taken back")
	tests := []struct {
		name    string
		command string
		world   oneWorker
		code    int
		says    string
		want    proto.Message
	}{
		{
			"a busy worker drains", "worker drain gpu-1", oneWorker{before: item("busy", "d1"), after: item("draining", "d1")},
			ExitOK, "gpu-1 drains, and leaves after 1 step\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"an idle worker leaves", "worker drain gpu-1", oneWorker{before: item("idle"), after: item("draining")},
			ExitOK, "gpu-1 leaves\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"one that drains already", "worker drain gpu-1", oneWorker{before: item("draining", "d1", "d2"), after: item("draining", "d1", "d2")},
			ExitOK, "gpu-1 drains already, and still runs 2 steps\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"one that drains already and runs nothing", "worker drain gpu-1", oneWorker{before: item("draining"), after: item("draining")},
			ExitOK, "gpu-1 drains already, and leaves\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"one that has drained and left", "worker drain gpu-1", oneWorker{before: left(), after: left()},
			ExitOK, "gpu-1 has left already\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"one that is not connected", "worker drain gpu-1", oneWorker{before: item("disconnected"), err: away},
			ExitFailed, "swamp: worker gpu-1 is not connected: there is nothing to drain\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"waiting for one that is not connected", "worker drain gpu-1 --wait", oneWorker{before: item("disconnected"), err: away},
			ExitFailed, "swamp: worker gpu-1 is not connected: there is nothing to drain\n", &messages.WorkerDrainParams{Name: "gpu-1", Wait: true},
		},
		{
			"a drain that was taken back while it was waited for", "worker drain gpu-1 --wait", oneWorker{before: item("busy", "d1"), err: back},
			ExitFailed, "swamp: the drain of worker gpu-1 was taken back\n", &messages.WorkerDrainParams{Name: "gpu-1", Wait: true},
		},
		{
			"a pause of one that drains", "worker pause gpu-1", oneWorker{err: messages.Faultf(messages.CodeConflict, "worker gpu-1 drains: it gets nothing new anyway")},
			ExitFailed, "swamp: worker gpu-1 drains: it gets nothing new anyway\n", &messages.WorkerPauseParams{Name: "gpu-1"},
		},
		{
			"a pause of a worker that nobody knows", "worker pause gpu-1", oneWorker{err: unknown},
			ExitFailed, "swamp: no worker gpu-1: the nearest are gpu-2, gpu-3\n", &messages.WorkerPauseParams{Name: "gpu-1"},
		},
		{
			"the end of a drain that is the worker's own", "worker resume gpu-1", oneWorker{err: messages.Faultf(messages.CodeConflict, "worker gpu-1 drains by itself (signal): it cannot be kept")},
			ExitFailed, "swamp: worker gpu-1 drains by itself (signal): it cannot be kept\n", &messages.WorkerResumeParams{Name: "gpu-1"},
		},
		{
			"a worker that nobody knows", "worker drain gpu-1", oneWorker{err: unknown},
			ExitFailed, "swamp: no worker gpu-1: the nearest are gpu-2, gpu-3\n", &messages.WorkerDrainParams{Name: "gpu-1"},
		},
		{
			"waiting for a drain", "worker drain gpu-1 --wait", oneWorker{before: item("busy", "d1"), after: item("disconnected")},
			ExitOK, "gpu-1 has left\n", &messages.WorkerDrainParams{Name: "gpu-1", Wait: true},
		},
		{
			"waiting for a worker that nobody knows", "worker drain gpu-1 --wait", oneWorker{err: unknown},
			ExitFailed, "swamp: no worker gpu-1: the nearest are gpu-2, gpu-3\n", &messages.WorkerDrainParams{Name: "gpu-1", Wait: true},
		},
		{
			"a pause", "worker pause gpu-1", oneWorker{after: item("paused")},
			ExitOK, "gpu-1 is paused\n", &messages.WorkerPauseParams{Name: "gpu-1"},
		},
		{
			"a pause with an end and a note", "worker pause gpu-1 --for 2h --note driver", oneWorker{after: item("paused", "d1")},
			ExitOK, "gpu-1 is paused for 2h, and finishes 1 step\n", &messages.WorkerPauseParams{Name: "gpu-1", Note: "driver", ForMs: 7_200_000},
		},
		{
			"a pause of no length", "worker pause gpu-1 --for 0s", oneWorker{},
			ExitUsage, `invalid argument "0s" for "--for" flag`, nil,
		},
		{
			"the end of a pause", "worker resume gpu-1", oneWorker{after: item("idle")},
			ExitOK, "gpu-1 is idle\n", &messages.WorkerResumeParams{Name: "gpu-1"},
		},
		{
			"books that agree", "doctor books", oneWorker{}, ExitOK, "the books agree\n", &messages.DoctorBooksParams{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(tt.command, "doctor") {
				tt.world.err = nil
			}
			s := newScript(t, func(ctx context.Context, verb messages.Verb, p proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
				if verb == messages.VerbDoctorBooks {
					tt.world.asked = p
					return &messages.DoctorBooksResult{}, nil
				}
				return tt.world.answer(ctx, verb, p, emit)
			})
			h := newTestHost(t, strings.Fields(tt.command)...)
			s.use(h)
			if code := h.run(t, Swamp); code != tt.code {
				t.Errorf("exit %d", code)
			}
			if got := h.out.String() + h.err.String(); !strings.Contains(got, tt.says) {
				t.Errorf("it says %q, want %q", got, tt.says)
			}
			s.settle()
			if (tt.want == nil) != (tt.world.asked == nil) || tt.want != nil && !proto.Equal(tt.want, tt.world.asked) {
				t.Errorf("asked for %v, want %v", tt.world.asked, tt.want)
			}
		})
	}
}

// TestDrain_OfAWorkerThatLeftWhileTheOrchestratorWasGone repeats the request of a drain whose end nobody could tell.
func TestDrain_OfAWorkerThatLeftWhileTheOrchestratorWasGone(t *testing.T) {
	t.Parallel()
	drains, shows := 0, 0
	s := newScript(t, func(_ context.Context, verb messages.Verb, _ proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
		if verb == messages.VerbWorkerShow {
			if shows++; shows == 1 {
				return detail(item("busy", "d1")), nil
			}
			return detail(item("disconnected")), nil
		}
		if drains++; drains == 1 {
			return nil, errors.New("it dies")
		}
		return nil, messages.Faultf(messages.CodeInvalid, "worker gpu-1 is not connected")
	})
	h := newTestHost(t, "worker", "drain", "gpu-1", "--wait")
	s.use(h)
	if code := h.run(t, Swamp); code != ExitOK || h.out.String() != "gpu-1 has left\n" || !strings.Contains(h.err.String(), "trying again") {
		t.Errorf("exit %d: %q, %q", code, h.out.String(), h.err.String())
	}
}

func TestDoctorBooks_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(&messages.DoctorBooksResult{Count: 1, Items: []*messages.BookFinding{
		{Kind: "lease", Id: "d1/1", Text: "its step does not know it"},
	}}, nil))
	for _, form := range []string{"log", "json"} {
		h := newTestHost(t, "doctor", "books", "--output", form)
		s.use(h)
		if code := h.run(t, Swamp); code != ExitFailed || !strings.Contains(h.out.String(), "its step does not know it") || h.err.String() != "" {
			t.Errorf("exit %d: %q, %q", code, h.out.String(), h.err.String())
		}
	}
}
