package testkit

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// stories: the events of each run tell one story, and whoever follows the run was told it whole.
func (b *books) stories() {
	followed := make(map[string][]*Run)
	b.f.mu.Lock()
	for _, r := range b.f.runs {
		followed[r.ID] = append(followed[r.ID], r)
	}
	b.f.mu.Unlock()
	for id, record := range b.runs {
		var events []*messages.RunEvent
		stored, err := b.journal.Events(id, 0, 1<<20)
		if err != nil {
			b.find("the events of run %s cannot be read: %v", id, err)
			continue
		}
		for i, e := range stored {
			r := &messages.RunEvent{}
			if err := proto.Unmarshal(e.Body, r); err != nil {
				b.find("event %d of run %s cannot be decoded: %v", e.Seq, id, err)
				continue
			}
			if e.Seq != uint64(i+1) {
				b.find("event %d of run %s has the number %d", i+1, id, e.Seq)
			}
			events = append(events, r)
		}
		for _, fault := range tellStory(events, b.f.restarted()) {
			b.find("run %s: %s", id, fault)
		}
		b.agrees(id, record, events)
		for _, r := range followed[id] {
			r.mu.Lock()
			if lost := r.lost; lost != nil {
				b.find("run %s is followed no more: %v", id, lost)
			} else if int(r.seq) != len(events) {
				b.find("run %s has %d events, and its follower was told %d", id, len(events), r.seq)
			}
			r.mu.Unlock()
		}
	}
}

// agrees compares the last word of the events with the records.
func (b *books) agrees(id string, record *messages.RunRecord, events []*messages.RunEvent) {
	last := make(map[string]string)
	for _, e := range events {
		if e.GetStep() != "" {
			last[id+"/"+e.GetJob()+"/"+e.GetStep()] = e.GetKind()
		}
	}
	for step, kind := range last {
		status := b.steps[step].GetStatus()
		if want := stepStatusAfter(kind); status != want {
			b.find("step %s is %q, and its last event is %s", step, status, kind)
		}
	}
	over := len(events) > 0 && messages.EndsRun(events[len(events)-1].GetKind())
	if over != messages.RunStatus(record.GetStatus()).Ended() {
		b.find("run %s is %s, and its last event is %s", id, record.GetStatus(), events[len(events)-1].GetKind())
	}
}

func stepStatusAfter(kind string) string {
	switch kind {
	case messages.EventStepQueued:
		return string(messages.StepQueued)
	case messages.EventStepDispatched:
		return string(messages.StepRunning)
	case messages.EventStepSucceeded:
		return string(messages.StepSucceeded)
	case messages.EventStepFailed:
		return string(messages.StepFailed)
	case messages.EventStepCancelled:
		return string(messages.StepCancelled)
	case messages.EventStepSkipped:
		return string(messages.StepSkipped)
	default:
		return "after " + kind
	}
}

// tellStory checks that the events of a run tell a story, and returns what is wrong with it. After a restart of the
// orchestrator a step that waited waits again.
func tellStory(events []*messages.RunEvent, restarted bool) []string {
	// What may follow what, for one step; "" is before its first event.
	queued, dispatched, lost := messages.EventStepQueued, messages.EventStepDispatched, messages.EventStepWorkerLost
	succeeded, failed, cancelled := messages.EventStepSucceeded, messages.EventStepFailed, messages.EventStepCancelled
	follows := map[string][]string{
		"":                        {messages.EventStepStarted, messages.EventStepSkipped, cancelled},
		messages.EventStepStarted: {queued, dispatched},
		queued:                    {dispatched, failed, cancelled},
		dispatched:                {succeeded, failed, cancelled, lost, queued},
		lost:                      {queued, failed, cancelled},
	}
	if restarted {
		follows[queued] = append(follows[queued], queued)
	}
	var faults []string
	fault := func(i int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("event %d, %s: ", i+1, events[i].GetKind())+fmt.Sprintf(format, args...))
	}
	steps, jobs := make(map[string]string), make(map[string]string)
	open := make(map[string]int) // steps of a job that have begun and not ended
	for i, e := range events {
		kind := e.GetKind()
		if (i == 0) != (kind == messages.EventRunStarted) {
			fault(i, "run_started comes first, and only there")
		}
		if messages.EndsRun(kind) && i != len(events)-1 {
			fault(i, "something follows the end of the run")
		}
		job := e.GetJob()
		switch {
		case e.GetStep() != "":
			key := job + "/" + e.GetStep()
			if !slices.Contains(follows[steps[key]], kind) {
				fault(i, "step %s had %q before", key, steps[key])
			}
			switch kind {
			case messages.EventStepStarted:
				open[job]++
			case succeeded, failed:
				open[job]--
			case cancelled:
				if steps[key] != "" {
					open[job]--
				}
			}
			steps[key] = kind
			if over := jobs[job]; over != "" && over != messages.EventJobStarted {
				fault(i, "job %s had ended with %s", job, over)
			}
		case job != "":
			before := jobs[job]
			if kind == messages.EventJobStarted && before != "" {
				fault(i, "job %s had %s before", job, before)
			}
			if kind != messages.EventJobStarted {
				if before != "" && before != messages.EventJobStarted {
					fault(i, "job %s had ended with %s", job, before)
				}
				if open[job] > 0 {
					fault(i, "job %s has %d steps that have not ended", job, open[job])
				}
			}
			jobs[job] = kind
		}
	}
	return faults
}
