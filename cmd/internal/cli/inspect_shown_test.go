package cli

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
)

// whyShown is what a scripted orchestrator says of a step that waits.
func whyShown(at func(time.Duration) time.Time) *messages.WhyResult {
	return &messages.WhyResult{
		Kind: "step", Subject: "r/fit/a", Status: "queued",
		Text: "Step fit/a stands in line for 12s now, waiting for a worker matching labels gpu=true: none of 1 connected matches; nearest is cpu-1, which lacks label gpu=true.\x1b[2J",
		Steps: []*messages.WhyStep{{
			RunId: "r", Job: "fit", Step: "a", Status: "queued", Where: "queue", Text: "It waits.", Requirement: proto.String("labels gpu=true"),
			Why: proto.String("no"), Since: messages.Time(at(-12 * time.Second)), Deadline: messages.Time(at(48 * time.Second)),
			Candidates: []*messages.WhyCandidate{{Worker: "cpu-1", Status: "idle", Capacity: 1, Lacks: []string{"lacks label gpu=true"}}},
			Takes:      []string{"another worker with labels gpu=true"},
		}},
	}
}

// inspectShown is what a scripted orchestrator has of an actor with everything.
func inspectShown(at func(time.Duration) time.Time) *messages.ActorInspectResult {
	body, err := structpb.NewStruct(map[string]any{"name": "gpu-1", "connected": true, "namedLeases": []any{"r.0.1/1"}})
	if err != nil {
		panic(err)
	}
	return &messages.ActorInspectResult{
		Pid: "swampd/fleet/gpu-1", Kind: "worker", Life: "answers", State: proto.String("busy"), Mailbox: 2, Processed: 17, Restarts: 1,
		StartedAt: messages.Time(at(-time.Hour)), Parent: proto.String("swampd/fleet"), Current: proto.String("leaseHere"), CurrentMs: proto.Float64(2500),
		Record:   &messages.JournalRecord{Kind: "worker", Id: "gpu-1", Version: 3, State: "idle", At: messages.Time(at(-time.Minute)), Body: body},
		History:  []*messages.JournalRecord{{Kind: "worker", Id: "gpu-1", Version: 2, State: "disconnected", At: messages.Time(at(-time.Hour))}},
		Events:   []*messages.RunEvent{{Kind: "step_dispatched", Seq: 4, RunId: "r", At: messages.Time(at(-time.Minute)), Job: proto.String("j"), Step: proto.String("s"), Worker: proto.String("gpu-1")}},
		Believes: body, Watchers: 1,
		Differences: []*messages.ActorDifference{{Field: "intent", Memory: structpb.NewStringValue("paused"), Journal: structpb.NewNullValue()}},
		Timers:      []*messages.ActorTimer{{Name: "idle", WaitsFor: "idleElapsed", DueAt: messages.Time(at(time.Minute)), LeftMs: 60000}},
		Owes:        []*messages.ActorDebt{{To: "swampd/scheduler", Message: "workerKnown", AgainMs: 200}},
		Children:    []*messages.ActorItem{{Pid: "swampd/fleet/gpu-1/x", Kind: "step", State: "running"}},
		Messages:    []*messages.ActorMessage{{At: messages.Time(at(-time.Second)), Name: "leaseHere"}},
		LastError:   &messages.ActorFault{At: messages.Time(at(-time.Minute)), Command: "pauseWorker", Text: "boom\x1b[2J", Stack: proto.String("goroutine 1\n\tmain.go:1\n")},
	}
}

// traceShown is the story of a run that goes on.
func traceShown(at func(time.Duration) time.Time) *messages.ActorTraceResult {
	ms := func(n int) *timestamppb.Timestamp {
		return messages.Time(at(-5*time.Second + time.Duration(n)*time.Millisecond))
	}
	move := func(n int, from, to, text string) *messages.TraceMove {
		return &messages.TraceMove{At: ms(n), SinceMs: float64(n), From: from, To: to, Text: text, Job: proto.String("j"), Step: proto.String("s")}
	}
	span := func(place, name, id, parent string, from, to int, status string) *messages.TraceSpan {
		s := &messages.TraceSpan{SpanId: messages.SpanID(id), Place: place, Name: name, StartedAt: ms(from), TookMs: float64(to - from)}
		if parent != "" {
			s.ParentId = proto.String(messages.SpanID(parent))
			s.Job, s.Step = proto.String("j"), proto.String("s")
		}
		if status != "" {
			s.EndedAt, s.Status = ms(to), proto.String(status)
		}
		return s
	}
	failed := span("worker", "on gpu-1", "r.0.1", "step", 1250, 2000, "failed")
	failed.Error, failed.Worker, failed.DispatchId, failed.Attempt = proto.String("exit status 7"), proto.String("gpu-1"), proto.String("r.0.1"), proto.Int32(1)
	return &messages.ActorTraceResult{
		RunId: "r", WorkflowName: "train", Status: "running", TraceId: messages.TraceID("r"), StartedAt: ms(0),
		Moves: []*messages.TraceMove{
			move(0, "client", "run", "submits train; \"x\""), move(1, "run", "step j/s", "is ready"), move(2, "step j/s", "scheduler", "stands in line for labels gpu=true"),
			move(1200, "scheduler", "step j/s", "gives it to gpu-1"), move(1201, "leases", "worker gpu-1", "sends it"), move(1250, "worker gpu-1", "leases", "accepts"),
			move(2000, "worker gpu-1", "leases", "result: failed"),
		},
		Spans: []*messages.TraceSpan{
			span("run", "run train", "r", "", 0, 5000, ""), span("step", "step j/s", "step", "r", 1, 5000, ""),
			span("queue", "in line: labels gpu=true", "r.0.q1", "step", 2, 1200, "dispatched"), span("handover", "handover to gpu-1", "h", "step", 1200, 1250, "accepted"), failed,
		},
		Places: []*messages.TracePlace{{Place: "queue", TookMs: 1198, Count: 1}, {Place: "handover", TookMs: 50, Count: 1}, {Place: "worker", TookMs: 750, Count: 1}, {Place: "settle"}},
	}
}

// topShown is a glance at a busy fleet; more is what happened in the second after it.
func topShown(at func(time.Duration) time.Time, more int) *messages.ActorTopResult {
	n := float64(more)
	return &messages.ActorTopResult{
		At: messages.Time(at(time.Duration(more) * time.Second)), Version: "v0.1.0", StartedAt: messages.Time(at(-time.Hour)), SlotsFree: 3, SlotsTotal: 5,
		WorkersByStatus: []*messages.TopCount{{Name: "busy", Count: 1}, {Name: "idle", Count: 1}},
		Workers: []*messages.TopWorker{
			{Name: "gpu-1", Status: "busy", Taken: 2, Capacity: 4, Labels: map[string]string{"gpu": "true"}}, {Name: "cpu-1\x1b[2J", Status: "idle", Capacity: 1},
		},
		Classes: []*messages.TopClass{
			{Requirement: "labels gpu=true", Waiting: 40, OldestMs: 90_000, Why: "1 matching, all busy"}, {Requirement: "target 'edge-1'", Waiting: 2, OldestMs: 3_600_000, Why: "no worker is connected"},
		},
		Actors: []*messages.ActorItem{
			{Pid: "swampd/scheduler", Kind: "scheduler", State: "scheduling", Mailbox: 7, Processed: 900 + n, LastMessage: proto.String("offerStep"), LastMessageAt: messages.Time(at(0))},
			{Pid: "swampd/runs/r1", Kind: "run", State: "running", Mailbox: 0, Processed: 4000, LastMessage: proto.String("stepEnded"), LastMessageAt: messages.Time(at(-time.Minute))},
		},
		ActorsByKind: []*messages.TopCount{{Name: "run", Count: 12}, {Name: "worker", Count: 2}}, RunsLive: 12, Waiting: 42,
		RunsEnded:  []*messages.TopCount{{Name: "succeeded", Count: 100 + 2*n}},
		StepsEnded: []*messages.TopCount{{Name: "failed", Count: 5}, {Name: "succeeded", Count: 1000 + 30*n}},
		Commits:    5000 + 120*n, Syncs: 500 + 40*n, SyncMs: 1000 + 100*n, Restarts: 1,
	}
}
