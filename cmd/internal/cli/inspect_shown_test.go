package cli

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

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
