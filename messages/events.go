package messages

// Kinds of run events. A run's event stream is its history for people; records are the truth for machines, and both
// are written in the same commits.
const (
	EventRunStarted   = "run_started"
	EventRunSuspended = "run_suspended"
	EventRunResumed   = "run_resumed"
	EventRunSucceeded = "run_succeeded"
	EventRunFailed    = "run_failed"
	EventRunCancelled = "run_cancelled"

	EventJobStarted   = "job_started"
	EventJobSucceeded = "job_succeeded"
	EventJobFailed    = "job_failed"
	EventJobSkipped   = "job_skipped"
	EventJobCancelled = "job_cancelled"

	EventStepStarted         = "step_started"    // ready
	EventStepQueued          = "step_queued"     // a wait episode began
	EventStepDispatched      = "step_dispatched" // with the commit that creates its lease
	EventStepOutput          = "step_output"     // derived while streaming, not in the stream of numbered events
	EventStepWorkerLost      = "step_worker_lost"
	EventStepRetrying        = "step_retrying"
	EventStepWaitingApproval = "step_waiting_approval"
	EventStepSucceeded       = "step_succeeded"
	EventStepFailed          = "step_failed"
	EventStepSkipped         = "step_skipped"
	EventStepCancelled       = "step_cancelled"
)

// EventFields returns the fields, in JSON names, that an event of the kind always has. Others appear only if they are
// set.
func EventFields(kind string) []string {
	fields := []string{"kind", "seq", "runId", "at"}
	switch kind {
	case EventRunStarted:
		return append(fields, "workflowName")
	case EventRunFailed:
		return append(fields, "error")
	case EventRunSuspended, EventRunResumed, EventRunSucceeded, EventRunCancelled:
		return fields
	case EventJobStarted, EventJobSucceeded, EventJobFailed, EventJobSkipped, EventJobCancelled:
		return append(fields, "job")
	}
	fields = append(fields, "job", "step")
	switch kind {
	case EventStepQueued:
		return append(fields, "requirement", "why", "queueId")
	case EventStepDispatched:
		return append(fields, "worker", "dispatchId", "attempt")
	case EventStepOutput:
		return append(fields, "dispatchId", "offset", "stream", "line", "partial")
	case EventStepWorkerLost:
		return append(fields, "worker")
	case EventStepSucceeded:
		return append(fields, "outputs")
	case EventStepFailed:
		return append(fields, "error", "code")
	default:
		return fields
	}
}

// EndsRun tells whether an event of the kind is the last one of its run.
func EndsRun(kind string) bool {
	return kind == EventRunSucceeded || kind == EventRunFailed || kind == EventRunCancelled
}

// EndsDispatch tells whether an event of the kind says that the dispatch which the step had is over, so that its whole
// output precedes the event.
func EndsDispatch(kind string) bool {
	switch kind {
	case EventStepQueued, EventStepWorkerLost, EventStepRetrying, EventStepSucceeded, EventStepFailed, EventStepCancelled:
		return true
	default:
		return false
	}
}
