package cli

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// history is a run whose events a test writes down one after the other.
type history struct {
	run    string
	seq    uint32
	now    time.Duration
	events []*messages.RunEvent
}

// after lets time pass.
func (h *history) after(d time.Duration) *history {
	h.now += d
	return h
}

// add appends a numbered event; change fills in what its kind has.
func (h *history) add(kind, job, step string, change func(*messages.RunEvent)) *history {
	h.seq++
	e := &messages.RunEvent{Kind: kind, Seq: h.seq, RunId: h.run, At: messages.Time(testTime(h.now))}
	if job != "" {
		e.Job = proto.String(job)
	}
	if step != "" {
		e.Step = proto.String(step)
	}
	if change != nil {
		change(e)
	}
	h.events = append(h.events, e)
	return h
}

func (h *history) started(name string) *history {
	return h.add(messages.EventRunStarted, "", "", func(e *messages.RunEvent) { e.WorkflowName = proto.String(name) })
}

func (h *history) queued(job, step, requirement, why string) *history {
	return h.add(messages.EventStepQueued, job, step, func(e *messages.RunEvent) {
		e.Requirement, e.Why, e.QueueId = proto.String(requirement), proto.String(why), proto.String("q-"+step)
	})
}

func (h *history) dispatched(job, step, worker string, attempt int32) *history {
	return h.add(messages.EventStepDispatched, job, step, func(e *messages.RunEvent) {
		e.Worker, e.DispatchId, e.Attempt = proto.String(worker), proto.String("d-"+step), proto.Int32(attempt)
	})
}

func (h *history) failed(job, step, text, code string) *history {
	return h.add(messages.EventStepFailed, job, step, func(e *messages.RunEvent) { e.Error, e.Code = proto.String(text), proto.String(code) })
}

// output appends output, which has no number of its own.
func (h *history) output(job, step, stream, line string, partial bool, offset uint32) *history {
	h.events = append(h.events, &messages.RunEvent{
		Kind: messages.EventStepOutput, Seq: h.seq, RunId: h.run, At: messages.Time(testTime(h.now)), Job: &job, Step: &step,
		DispatchId: proto.String("d-" + step), Stream: &stream, Line: &line, Partial: &partial, Offset: &offset,
	})
	return h
}

// example is a run in which much happens.
func example() *history {
	h := &history{run: "01957f3e-0000-7000-8000-000000000001"}
	h.started("train")
	h.add(messages.EventJobStarted, "prepare", "", nil)
	h.add(messages.EventStepStarted, "prepare", "fetch", nil)
	h.queued("prepare", "fetch", "labels gpu=true", "waiting for a worker matching labels gpu=true: no worker is connected")
	h.after(12*time.Second).dispatched("prepare", "fetch", "gpu-1", 1)
	h.output("prepare", "fetch", "stdout", "downloading", false, 0)
	h.output("prepare", "fetch", "stdout", "10%…", true, 12)
	h.output("prepare", "fetch", "stderr", "slow mirror", false, 18)
	h.output("prepare", "fetch", "stdout", "100%", false, 30)
	h.after(3*time.Second).add(messages.EventStepWorkerLost, "prepare", "fetch", func(e *messages.RunEvent) { e.Worker = proto.String("gpu-1") })
	h.queued("prepare", "fetch", "labels gpu=true", "1 worker matches, it is busy")
	h.after(time.Second).dispatched("prepare", "fetch", "gpu-2", 2)
	h.output("prepare", "fetch", "stdout", "no line end", true, 0)
	h.after(2*time.Second).add(messages.EventStepSucceeded, "prepare", "fetch", nil)
	h.add(messages.EventJobSucceeded, "prepare", "", nil)
	h.add(messages.EventJobStarted, "fit", "", nil)
	h.add(messages.EventStepStarted, "fit", "a", nil)
	h.add(messages.EventStepStarted, "fit", "b", nil)
	h.dispatched("fit", "a", "loopback", 1)
	h.queued("fit", "b", "target 'box-7' and platform 'linux/amd64'", "1 worker is connected, none matches: gpu-2 is not 'box-7'")
	h.after(time.Second).failed("fit", "a", "exit status 7", "exit_nonzero")
	h.after(59*time.Second).failed("fit", "b", "timed out after 60s waiting for a worker matching target 'box-7' and platform 'linux/amd64'", "queue_timeout")
	h.add(messages.EventJobFailed, "fit", "", nil)
	h.add(messages.EventStepSkipped, "report", "mail", nil)
	h.add(messages.EventJobSkipped, "report", "", nil)
	h.add(messages.EventRunFailed, "", "", func(e *messages.RunEvent) { e.Error = proto.String("2 steps failed") })
	return h
}
