package cli

import (
	"time"

	"google.golang.org/protobuf/proto"

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
