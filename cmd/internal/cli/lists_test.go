package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
)

// shown is what a scripted orchestrator has of everything.
func shown() map[messages.Verb]proto.Message {
	at := testTime
	busy := &messages.WorkerItem{
		Name: "gpu-1", Status: "busy", Connected: true, Intent: "none", Health: "ok", Labels: map[string]string{"gpu": "true", "zone": "b"},
		Platform: proto.String("linux"), Arch: proto.String("amd64"), InstanceUuid: proto.String("6f1c0e0a-0000-4000-8000-000000000001"),
		MachineId: proto.String("9b1d"), Capacity: 4, ActiveDispatchIds: []string{"d1", "d2"}, EnrolledAt: messages.Time(at(-time.Hour)),
		LastSeenAt: messages.Time(at(-time.Second)), Version: proto.String("v0.1.0"),
	}
	gone := &messages.WorkerItem{
		Name: "spot-1a2b3c4d", Status: "disconnected", Intent: "none", Health: "ok", Capacity: 1, LastSeenAt: messages.Time(at(-3 * time.Hour)),
	}
	leaving := &messages.WorkerItem{
		Name: "gpu-2", Status: "draining", Connected: true, Intent: "draining", Health: "ok", Reason: proto.String("signal"), Capacity: 1,
		ActiveDispatchIds: []string{"d3"}, LastSeenAt: messages.Time(at(0)),
	}
	detail := &messages.WorkerDetail{
		Name: "gpu-1", Status: "draining", Connected: true, Intent: "draining", Health: "ok", Reason: proto.String("signal"),
		Labels: map[string]string{"gpu": "true", "zone": "b"}, Platform: proto.String("linux"), Arch: proto.String("amd64"),
		InstanceUuid: proto.String("6f1c0e0a-0000-4000-8000-000000000001"), MachineId: proto.String("9b1d"), Capacity: 4,
		ActiveDispatchIds: []string{"d1", "d2"}, EnrolledAt: messages.Time(at(-time.Hour)), LastSeenAt: messages.Time(at(-time.Second)),
		Version: proto.String("v0.1.0"), IntentSince: messages.Time(at(-3 * time.Minute)), Note: proto.String("new driver"),
		Until: messages.Time(at(2 * time.Hour)), RemainingMs: proto.Float64(7_200_000),
		Running: []*messages.DispatchItem{
			{DispatchId: "r1.0.1", RunId: "r1", JobName: "fit", StepName: "a", Attempt: 1, Status: "running", StartedAt: messages.Time(at(-10 * time.Minute))},
			{DispatchId: "r1.1.2", RunId: "r1", JobName: "fit", StepName: "b", Attempt: 2, Status: "running", StartedAt: messages.Time(at(-4 * time.Minute))},
		},
		Recent: []*messages.DispatchItem{
			{
				DispatchId: "r1.1.1", RunId: "r1", JobName: "fit", StepName: "b", Attempt: 1, Status: "failed", Error: proto.String("exit status 7"),
				Code: proto.String("exit_nonzero"), StartedAt: messages.Time(at(-20 * time.Minute)), EndedAt: messages.Time(at(-5 * time.Minute)),
			},
			{DispatchId: "r0.0.1", RunId: "r0", JobName: "odd\x1b[2J", StepName: "x", Attempt: 1, Status: "succeeded", StartedAt: messages.Time(at(-30 * time.Minute)), EndedAt: messages.Time(at(-29 * time.Minute))},
		},
	}
	return map[messages.Verb]proto.Message{
		messages.VerbWorkerList:   &messages.WorkerListResult{Items: []*messages.WorkerItem{busy, leaving, gone}, Count: 3},
		messages.VerbWorkerShow:   detail,
		messages.VerbWorkerDrain:  busy,
		messages.VerbWorkerPause:  busy,
		messages.VerbWorkerResume: busy,
		messages.VerbDoctorBooks:  &messages.DoctorBooksResult{},
		messages.VerbWorkerQueueList: &messages.WorkerQueueListResult{Count: 1, Items: []*messages.QueueItem{{
			QueueId: "q1", Requirement: "labels gpu=true", Why: "waiting for a worker matching labels gpu=true: no worker is connected",
			Labels: map[string]string{"gpu": "true"}, RunId: "01957f3e-0000-7000-8000-000000000001", WorkflowName: "train", JobName: "fit",
			StepName: "a", ModelType: "command/shell", MethodName: "run", QueuedAt: messages.Time(at(-90 * time.Second)), AgeMs: 90000,
		}}},
		messages.VerbWorkerTokenCreate: &messages.WorkerTokenCreateResult{
			Name: "gpu-1", Token: "gpu-1.s3cret", ExpiresAt: messages.Time(at(24 * time.Hour)), MaxEnrollments: structpb.NewNumberValue(1),
		},
		messages.VerbWorkerTokenList: &messages.WorkerTokenListResult{Count: 2, Items: []*messages.TokenItem{
			{
				Name: "gpu-1", State: "enrolled", CreatedAt: messages.Time(at(-time.Hour)), ExpiresAt: messages.Time(at(23 * time.Hour)),
				MaxEnrollments: structpb.NewNumberValue(1), Bindings: []*messages.BindingItem{{MachineId: "9b1d", Worker: "gpu-1", EnrolledAt: messages.Time(at(-time.Hour))}},
			},
			{Name: "spot", State: "expired", CreatedAt: messages.Time(at(-48 * time.Hour)), ExpiresAt: messages.Time(at(-24 * time.Hour)), MaxEnrollments: structpb.NewStringValue("unlimited")},
		}},
		messages.VerbWorkerTokenRevoke: &messages.WorkerTokenRevokeResult{Name: "gpu-1", State: "revoked"},
		messages.VerbRunList: &messages.RunListResult{Count: 2, Items: []*messages.RunSummary{
			{RunId: "01957f3e-0000-7000-8000-000000000002", WorkflowName: "train", Status: "running", StartedAt: messages.Time(at(-65 * time.Second))},
			{RunId: "01957f3e-0000-7000-8000-000000000001", WorkflowName: "odd\x1b[2Jname", Status: "failed", StartedAt: messages.Time(at(-time.Hour)), EndedAt: messages.Time(at(-30 * time.Minute))},
		}},
		messages.VerbRunShow: &messages.RunItem{
			RunId: "01957f3e-0000-7000-8000-000000000002", WorkflowName: "train", Status: "running", CancelRequested: true, StartedAt: messages.Time(at(-65 * time.Second)),
			Jobs: []*messages.JobItem{{Name: "fit", Status: "running", Steps: []*messages.StepItem{
				{Name: "a", Status: "running", Worker: proto.String("gpu-1"), DispatchId: proto.String("d1"), Attempts: 2, Losses: 1, QueuedMs: 12300, StartedAt: messages.Time(at(-5 * time.Second))},
				{Name: "b", Status: "failed", Attempts: 1, Error: proto.String("exit status 7"), Code: proto.String("exit_nonzero"), StartedAt: messages.Time(at(-60 * time.Second)), EndedAt: messages.Time(at(-50 * time.Second))},
				{Name: "c", Status: "pending"},
			}}},
		},
		messages.VerbRunCancel:    &messages.RunCancelResult{RunId: "01957f3e-0000-7000-8000-000000000002", Status: "running", CancelRequested: true},
		messages.VerbWhy:          whyShown(at),
		messages.VerbActorInspect: inspectShown(at),
		messages.VerbActorTree: &messages.ActorTreeResult{Count: 4, Items: []*messages.ActorItem{
			{Pid: "swampd", Kind: "root", State: "supervising", StartedAt: messages.Time(at(-time.Hour))},
			{Pid: "swampd/runs", Kind: "router", State: "routing", Processed: 7, LastMessage: proto.String("route"), StartedAt: messages.Time(at(-time.Hour))},
			{Pid: "swampd/runs/r1", Kind: "run", State: "running", Mailbox: 1, Processed: 3, Restarts: 1, LastMessage: proto.String("stepEnded"), LastMessageAt: messages.Time(at(-3 * time.Second)), StartedAt: messages.Time(at(-time.Minute))},
			{Pid: "swampd/runs/r1/step/0", Kind: "step", State: "queued", Processed: 1, StartedAt: messages.Time(at(-time.Second))},
		}},
	}
}

// TestLists shows each answer as a table and as JSON.
func TestLists(t *testing.T) {
	t.Parallel()
	s := newScript(t, func(_ context.Context, verb messages.Verb, _ proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
		return shown()[verb], nil
	})
	commands := []string{
		"worker list --all", "worker show gpu-1", "worker queue", "worker drain gpu-1", "worker pause gpu-1 --for 2h", "worker resume gpu-1",
		"doctor books", "worker token create gpu-1", "worker token list", "worker token revoke gpu-1",
		"run list", "run show r", "run cancel r", "actor tree", "why r a", "actor inspect fleet/gpu-1",
	}
	for _, command := range commands {
		for _, form := range []string{"log", "json"} {
			t.Run(command+" "+form, func(t *testing.T) {
				t.Parallel()
				h := newTestHost(t, append(strings.Fields(command), "--output", form)...)
				s.use(h)
				if code := h.run(t, Swamp); code != ExitOK {
					t.Fatalf("exit %d: %s", code, h.err.String())
				}
				words := strings.Fields(command)
				name := strings.Join(words[:2], "_")
				if words[1] == "token" {
					name += "_" + words[2]
				}
				golden(t, "lists/"+name+"."+map[string]string{"log": "txt", "json": "json"}[form], h.out.String())
			})
		}
	}
}

func TestLists_NothingIsADocumentTooAndTellsWhatToDo(t *testing.T) {
	t.Parallel()
	empty := map[messages.Verb]proto.Message{
		messages.VerbWorkerList: &messages.WorkerListResult{}, messages.VerbWorkerQueueList: &messages.WorkerQueueListResult{},
		messages.VerbWorkerTokenList: &messages.WorkerTokenListResult{}, messages.VerbRunList: &messages.RunListResult{},
	}
	s := newScript(t, func(_ context.Context, verb messages.Verb, _ proto.Message, _ func(*messages.RunEvent)) (proto.Message, error) {
		return empty[verb], nil
	})
	tests := map[string]string{
		"worker list": "--all", "worker list --all": "worker token create", "worker queue": "no step waits",
		"worker token list": "worker token create", "run list": "workflow run",
	}
	for command, hint := range tests {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, strings.Fields(command)...)
			s.use(h)
			if code := h.run(t, Swamp); code != ExitOK || h.out.String() != "" || !strings.Contains(h.err.String(), hint) {
				t.Errorf("exit %d, printed %q and %q", code, h.out.String(), h.err.String())
			}
			h = newTestHost(t, append(strings.Fields(command), "--output", "json")...)
			s.use(h)
			if code := h.run(t, Swamp); code != ExitOK || !strings.HasPrefix(h.out.String(), `{"items":[],"count":0`) || h.err.String() != "" {
				t.Errorf("exit %d, printed %q and %q", code, h.out.String(), h.err.String())
			}
		})
	}
}

func TestWorkerList_TellsWhatAStatusMeans(t *testing.T) {
	t.Parallel()
	item := func(status string) *messages.WorkerItem {
		return &messages.WorkerItem{Name: "w", Status: status, Connected: true, Capacity: 1}
	}
	tests := []struct {
		name  string
		items []*messages.WorkerItem
		want  []string
	}{
		{"nothing out of the ordinary", []*messages.WorkerItem{item("idle"), item("busy")}, nil},
		{"two that drain", []*messages.WorkerItem{item("draining"), item("idle"), item("draining")}, []string{"2 draining: ", "swamp worker show NAME"}},
		{"one that is paused", []*messages.WorkerItem{item("paused")}, []string{"1 paused: ", "swamp worker resume NAME"}},
		{"one that is unhealthy", []*messages.WorkerItem{item("unhealthy")}, []string{"1 unhealthy: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScript(t, always(&messages.WorkerListResult{Items: tt.items, Count: int32(len(tt.items))}, nil))
			h := newTestHost(t, "worker", "list")
			s.use(h)
			h.Terminal = func() (int, int, bool) { return 80, 24, true }
			h.env["TERM"] = "xterm"
			if code := h.run(t, Swamp); code != ExitOK {
				t.Fatalf("exit %d: %s", code, h.err.String())
			}
			if len(tt.want) == 0 && h.err.String() != "" {
				t.Errorf("it says %q", h.err.String())
			}
			for _, want := range tt.want {
				if !strings.Contains(h.err.String(), want) {
					t.Errorf("it says %q, without %q", h.err.String(), want)
				}
			}
			for _, w := range tt.items {
				if w.GetStatus() != "idle" && w.GetStatus() != "busy" && !strings.Contains(h.out.String(), statusColor(w.GetStatus())+w.GetStatus()+sgrReset) {
					t.Errorf("%s has no colour: %q", w.GetStatus(), h.out.String())
				}
			}
			h = newTestHost(t, "worker", "list", "--output", "json")
			s.use(h)
			if h.run(t, Swamp); h.err.String() != "" {
				t.Errorf("scripts get %q besides", h.err.String())
			}
		})
	}
}

func TestColour_OnlyOnATerminalThatWantsIt(t *testing.T) {
	t.Parallel()
	s := newScript(t, always(shown()[messages.VerbWorkerList], nil))
	tests := []struct {
		name     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"a terminal", true, map[string]string{"TERM": "xterm"}, true},
		{"a pipe", false, map[string]string{"TERM": "xterm"}, false},
		{"NO_COLOR", true, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		{"an empty NO_COLOR is none", true, map[string]string{"TERM": "xterm", "NO_COLOR": ""}, true},
		{"a dumb terminal", true, map[string]string{"TERM": "dumb"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, "worker", "list")
			s.use(h)
			h.Terminal = func() (int, int, bool) { return 80, 24, tt.terminal }
			for k, v := range tt.env {
				h.env[k] = v
			}
			if code := h.run(t, Swamp); code != ExitOK {
				t.Fatalf("exit %d: %s", code, h.err.String())
			}
			if got := strings.Contains(h.out.String(), "\x1b["); got != tt.want {
				t.Errorf("colour: %t", got)
			}
		})
	}
}
