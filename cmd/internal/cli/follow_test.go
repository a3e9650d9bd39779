package cli

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/messages"
)

// story is an orchestrator with one run, which cuts the connection after every few events.
type story struct {
	*script
	history *history
	status  messages.RunStatus
	// every is after how many events it cuts; 0 is never.
	every   int
	submits []*messages.WorkflowRunParams
	watches []*messages.RunWatchParams
}

func newStory(t *testing.T, h *history, status messages.RunStatus, every int) *story {
	t.Helper()
	s := &story{history: h, status: status, every: every}
	s.script = newScript(t, s.tell)
	return s
}

func (s *story) tell(_ context.Context, verb messages.Verb, params proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
	var after uint32
	offsets := map[string]uint32{}
	switch p := params.(type) {
	case *messages.WorkflowRunParams:
		s.submits = append(s.submits, p)
	case *messages.RunWatchParams:
		s.watches = append(s.watches, p)
		after = p.GetAfterSeq()
		for _, c := range p.GetOutput() {
			offsets[c.GetDispatchId()] = c.GetOffset()
		}
	case *messages.RunShowParams:
		return &messages.RunItem{RunId: s.history.run, WorkflowName: "train"}, nil
	}
	n := 0
	for i, e := range s.history.events {
		if e.GetKind() == messages.EventStepOutput {
			if e.GetOffset() <= offsets[e.GetDispatchId()] || s.over(i, after) {
				continue
			}
		} else if e.GetSeq() <= after {
			continue
		}
		if n++; s.every > 0 && n > s.every {
			return nil, errCut
		}
		emit(e)
	}
	if verb == messages.VerbWorkflowRun {
		return &messages.WorkflowRunResult{RunId: s.history.run, Status: string(s.status)}, nil
	}
	return &messages.RunWatchResult{RunId: s.history.run, Status: string(s.status)}, nil
}

// over tells whether the dispatch of an output had ended by the event of that number.
func (s *story) over(output int, by uint32) bool {
	e := s.history.events[output]
	for _, later := range s.history.events[output:] {
		if later.GetSeq() <= by && stepKey(later) == stepKey(e) && messages.EndsDispatch(later.GetKind()) {
			return true
		}
	}
	return false
}

// outputs gives output ends of pieces as offsets, as an orchestrator does.
func withOffsets(h *history) *history {
	at := map[string]uint32{}
	for _, e := range h.events {
		if e.GetKind() == messages.EventStepOutput {
			at[e.GetDispatchId()] += uint32(len(e.GetLine()) + 1)
			e.Offset = proto.Uint32(at[e.GetDispatchId()])
		}
		if messages.EndsDispatch(e.GetKind()) {
			delete(at, "d-"+e.GetStep())
		}
	}
	return h
}

// TestFollow_EveryEventOnceThroughEveryCut cuts the connection after every event, every second one, and so on.
func TestFollow_EveryEventOnceThroughEveryCut(t *testing.T) {
	t.Parallel()
	h := withOffsets(example())
	var want strings.Builder
	for _, e := range h.events {
		if err := printShape(&want, e); err != nil {
			t.Fatal(err)
		}
	}
	for every := range 6 {
		s := newStory(t, h, messages.RunFailed, every)
		host := newTestHost(t, "workflow", "run", "testdata/one.yaml", "--output", "json")
		s.use(host)
		if code := host.run(t, Swamp); code != ExitFailed {
			t.Errorf("cut after %d events: exit %d: %s", every, code, host.err.String())
		}
		s.settle()
		if diff := cmp.Diff(want.String(), host.out.String()); diff != "" {
			t.Errorf("cut after %d events (-want +got):\n%s", every, diff)
		}
		if len(s.submits) != 1 {
			t.Errorf("cut after %d events: submitted %d times, although events had come", every, len(s.submits))
		}
		if lost, back := strings.Count(host.err.String(), "no connection to"), strings.Count(host.err.String(), "again after"); lost != len(s.watches) || back != lost {
			t.Errorf("cut after %d events: %d cuts, told of %d losses and %d returns:\n%s", every, len(s.watches), lost, back, host.err.String())
		}
	}
}

func TestFollow_ASubmitIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		var submits []*messages.WorkflowRunParams
		s := newScript(t, func(_ context.Context, _ messages.Verb, params proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
			p, _ := params.(*messages.WorkflowRunParams)
			submits = append(submits, p)
			switch {
			case len(submits) == 1:
				return nil, errCut // durable or not: nobody knows
			case len(submits) == 2:
				return nil, messages.Faultf(messages.CodeOverloaded, "too much is waiting to be accepted")
			}
			h := &history{run: p.GetRunId()}
			for _, e := range h.started("one").add(messages.EventRunSucceeded, "", "", nil).events {
				emit(e)
			}
			return &messages.WorkflowRunResult{RunId: p.GetRunId(), Status: "succeeded"}, nil
		})
		host := newTestHost(t, "workflow", "run", "testdata/one.yaml", "--output", "json")
		if detach {
			host.Args = append(host.Args, "--detach")
		}
		s.use(host)
		if code := host.run(t, Swamp); code != ExitOK {
			t.Fatalf("exit %d: %s", code, host.err.String())
		}
		s.settle()
		if len(submits) != 3 {
			t.Fatalf("submitted %d times", len(submits))
		}
		for _, again := range submits[1:] {
			if diff := cmp.Diff(submits[0], again, protocmp.Transform()); diff != "" {
				t.Errorf("the repeated submit is another (-want +got):\n%s", diff)
			}
		}
		if want := `{"runId":"` + submits[0].GetRunId() + "\"}\n"; detach && host.out.String() != want {
			t.Errorf("--detach prints %q, not %q", host.out.String(), want)
		}
	}
}

func TestFollow_AServerThatFindsTheFileInvalid(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(nil, &messages.Fault{Code: messages.CodeInvalid, Text: "2 mistakes", Details: []string{"f.yaml:1:2: bad", "f.yaml:3:4: worse"}}))
	h := newTestHost(t, "workflow", "run", "testdata/one.yaml")
	s.use(h)
	if code := h.run(t, Swamp); code != ExitUsage || h.err.String() != "f.yaml:1:2: bad\nf.yaml:3:4: worse\n" {
		t.Errorf("exit %d: %q", code, h.err.String())
	}
}

func TestWatch_ExitsAsTheRunEnded(t *testing.T) {
	t.Parallel()
	for status, want := range map[messages.RunStatus]int{
		messages.RunSucceeded: ExitOK, messages.RunFailed: ExitFailed, messages.RunCancelled: ExitFailed,
	} {
		s := newStory(t, withOffsets(example()), status, 0)
		h := newTestHost(t, "run", "watch", s.history.run)
		s.use(h)
		if code := h.run(t, Swamp); code != want {
			t.Errorf("%s exits %d: %s", status, code, h.err.String())
		}
	}
}

// hanging is an orchestrator whose one run waits until it is cancelled.
func hanging(t *testing.T, cancels *atomic.Int32) *script {
	t.Helper()
	cancelled := make(chan struct{})
	return newScript(t, func(ctx context.Context, verb messages.Verb, params proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
		switch p := params.(type) {
		case *messages.RunCancelParams:
			if cancels.Add(1) == 1 {
				return nil, errCut // it is asked for again
			}
			close(cancelled)
			return &messages.RunCancelResult{RunId: p.GetRunId(), Status: "running", CancelRequested: true}, nil
		case *messages.RunShowParams:
			return &messages.RunItem{RunId: "r", WorkflowName: "w"}, nil
		}
		h := &history{run: "r"}
		emit(h.started("w").events[0])
		select {
		case <-cancelled:
		case <-ctx.Done():
			return nil, errCut
		}
		emit(h.add(messages.EventRunCancelled, "", "", nil).events[1])
		if verb == messages.VerbWorkflowRun {
			return &messages.WorkflowRunResult{RunId: "r", Status: "cancelled"}, nil
		}
		return &messages.RunWatchResult{RunId: "r", Status: "cancelled"}, nil
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		args    string
		signal  os.Signal
		cancels int32 // requests
		ended   bool
	}{
		{"Ctrl-C cancels the run and waits for it", "workflow run testdata/one.yaml", os.Interrupt, 2, true},
		{"SIGTERM is like Ctrl-C", "workflow run testdata/one.yaml", syscall.SIGTERM, 2, true},
		{"a hang-up only leaves", "workflow run testdata/one.yaml", syscall.SIGHUP, 0, false},
		{"Ctrl-C only leaves what watches", "run watch r", os.Interrupt, 0, false},
		{"Ctrl-C only leaves what prints", "run logs r -f", os.Interrupt, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var cancels atomic.Int32
			s := hanging(t, &cancels)
			h := newTestHost(t, strings.Fields(tt.args)...)
			s.use(h)
			code := h.start(t.Context(), Swamp)
			s.waitFor(t, messages.Verb(strings.Join(strings.Fields(tt.args)[:2], ".")))
			if !strings.Contains(tt.args, "logs") {
				h.out.waitFor(t, "started")
			}
			h.signals <- tt.signal
			if got := h.wait(t, code); got != ExitInterrupted {
				t.Errorf("exit %d: %s", got, h.err.String())
			}
			if cancels.Load() != tt.cancels || strings.Contains(h.out.String(), "run cancelled") != tt.ended {
				t.Errorf("%d requests to cancel; printed %s", cancels.Load(), h.out.String())
			}
		})
	}
}

func TestInterrupt_ASecondOneLeavesAtOnce(t *testing.T) {
	t.Parallel()
	s := newScript(t, func(ctx context.Context, verb messages.Verb, _ proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
		if verb == messages.VerbRunCancel {
			return &messages.RunCancelResult{RunId: "r", Status: "running", CancelRequested: true}, nil
		}
		emit((&history{run: "r"}).started("w").events[0])
		<-ctx.Done()
		return nil, errCut
	})
	h := newTestHost(t, "workflow", "run", "testdata/one.yaml")
	s.use(h)
	code := h.start(t.Context(), Swamp)
	h.out.waitFor(t, "started")
	h.signals <- os.Interrupt
	h.err.waitFor(t, "once more leaves at once")
	s.waitFor(t, messages.VerbRunCancel)
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitInterrupted {
		t.Errorf("exit %d", got)
	}
}

func TestInterrupt_WhereNothingWasSubmittedThereIsNothingToCancel(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, "workflow", "run", "testdata/one.yaml")
	h.env["SWAMP_SERVER"] = "http://127.0.0.1:1"
	code := h.start(t.Context(), Swamp)
	h.err.waitFor(t, "no connection to http://127.0.0.1:1")
	h.signals <- os.Interrupt
	if got := h.wait(t, code); got != ExitInterrupted {
		t.Errorf("exit %d: %s", got, h.err.String())
	}
}

func TestLogs_ADifferentConnectionPrintsNothingTwice(t *testing.T) {
	t.Parallel()
	h := withOffsets(example())
	calls := 0
	s := newScript(t, func(_ context.Context, _ messages.Verb, _ proto.Message, emit func(*messages.RunEvent)) (proto.Message, error) {
		calls++
		n := 0
		for _, e := range h.events {
			if e.GetKind() != messages.EventStepOutput {
				continue
			}
			if n++; n > calls*2 {
				return nil, errCut
			}
			emit(e)
		}
		return &messages.RunLogsResult{RunId: "r"}, nil
	})
	for _, e := range h.events[10:] { // the second dispatch of the step
		if e.GetKind() == messages.EventStepOutput {
			e.DispatchId = proto.String("d-fetch-2")
		}
	}
	host := newTestHost(t, "run", "logs", "r")
	s.use(host)
	if code := host.run(t, Swamp); code != ExitOK {
		t.Fatalf("exit %d: %s", code, host.err.String())
	}
	if want := "downloading\nslow mirror\n10%…100%\nno line end\n"; host.out.String() != want {
		t.Errorf("printed %q, not %q", host.out.String(), want)
	}
}
