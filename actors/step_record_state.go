package actors

import (
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// stepRecordID is the id of a step's record, under its run in ordinal order.
func stepRecordID(run string, ordinal uint32) string { return fmt.Sprintf("%s/%08d", run, ordinal) }

func (s stepState) write() write {
	return write{
		kind: kindStep, id: stepRecordID(s.run, s.ordinal), replaces: s.version - 1, state: string(s.status), body: s.record(),
	}
}

func (s stepState) record() *messages.StepRecord {
	return &messages.StepRecord{
		RunId: s.run, Ordinal: s.ordinal, Job: s.job, Step: s.step, Status: string(s.status), Key: stepKey(s.run, s.ordinal),
		Attempt: s.attempt, Losses: s.losses, Refusals: s.refusals, FirstQueuedSeq: s.place,
		WaitedMs: messages.Milliseconds(s.waited), QueuedMs: messages.Milliseconds(s.queuedFor),
		Episode: s.episode, QueueId: s.queueID, Dispatches: s.dispatches, DispatchId: s.dispatchID, Generation: s.generation,
		Worker: s.worker, ReadyAt: messages.Time(s.readyAt), QueuedAt: messages.Time(s.queuedAt),
		StartedAt: messages.Time(s.startedAt), EndedAt: messages.Time(s.endedAt), Error: s.errText, Code: s.code,
		Outputs: s.outputs, CancelRequestedAt: messages.Time(s.cancelAt), CancelRequestedBy: s.cancelBy, CancelForced: s.forced,
		OutputsBody: s.outputsBody,
	}
}

// foundStep is what the journal has of a step when its actor starts.
type foundStep struct {
	record  *messages.StepRecord
	version uint64
	orphan  bool // it was written before a restart, and so was the pending dispatch of a step that waits
	plan    *workflow.Plan
	limit   time.Duration // the orchestrator's queue timeout; 0: none
	grace   time.Duration
}

// stepFrom is the state of a step as its record has it.
func stepFrom(f foundStep) stepState {
	r, plan, limit := f.record, f.plan, f.limit
	def := &plan.Steps[r.GetOrdinal()]
	if def.QueueTimeout != nil {
		limit = *def.QueueTimeout
	}
	return stepState{
		version: f.version, run: r.GetRunId(), workflow: plan.Name, job: r.GetJob(), step: r.GetStep(), ordinal: r.GetOrdinal(),
		def: def, cleansUp: plan.CleansUp(int(r.GetOrdinal())), limit: limit, status: messages.StepStatus(r.GetStatus()), attempt: r.GetAttempt(), losses: r.GetLosses(),
		refusals: r.GetRefusals(), episode: r.GetEpisode(), dispatches: r.GetDispatches(), place: r.GetFirstQueuedSeq(),
		waited: messages.Duration(r.GetWaitedMs()), queuedFor: messages.Duration(r.GetQueuedMs()),
		queueID: r.GetQueueId(), pending: waitVersion(r), orphan: f.orphan && r.GetStatus() == string(messages.StepQueued), grace: f.grace, dispatchID: r.GetDispatchId(), generation: r.GetGeneration(),
		worker: r.GetWorker(), readyAt: messages.GoTime(r.GetReadyAt()), queuedAt: messages.GoTime(r.GetQueuedAt()),
		startedAt: messages.GoTime(r.GetStartedAt()), endedAt: messages.GoTime(r.GetEndedAt()), errText: r.GetError(),
		code: r.GetCode(), outputs: r.GetOutputs(), outputsBody: r.GetOutputsBody(), cancelAt: messages.GoTime(r.GetCancelRequestedAt()),
		cancelBy: r.GetCancelRequestedBy(), forced: r.GetCancelForced(),
	}
}

// waitVersion is the version of the pending dispatch that the step waits in, which never changes but by its end.
func waitVersion(r *messages.StepRecord) uint64 {
	if r.GetStatus() == string(messages.StepQueued) {
		return 1
	}
	return 0
}

// pendingWrite is the next version of the record of the step's wait episode.
func (s stepState) pendingWrite(state messages.PendingState, at moment, dispatch string) write {
	r := &messages.PendingRecord{
		QueueId: s.queueID, RunId: s.run, Ordinal: s.ordinal, Episode: s.episode, State: string(state),
		WorkflowName: s.workflow, Job: s.job, Step: s.step, ModelType: s.def.Model, MethodName: s.def.Method,
		Placement: s.def.Placement.Proto(), QueuedAt: messages.Time(s.queuedAt), BootEpoch: at.epoch,
		DispatchId: dispatch, QueuedSeq: s.place,
	}
	if state.Ended() {
		r.EndedAt = messages.Time(at.now)
	}
	return write{kind: recordPending, id: s.queueID, replaces: s.pending, state: string(state), ended: state.Ended(), body: r}
}

// stepKey is given to a step for its own idempotency: the same for each of its dispatches.
func stepKey(run string, ordinal uint32) string { return fmt.Sprintf("%s.%d", run, ordinal) }
