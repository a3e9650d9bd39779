package messages

import "slices"

// RunStatus is the state of a run. The zero value is invalid.
//
//	pending ─> running ─> succeeded | failed | cancelled
type RunStatus string

// The states of a run.
const (
	RunPending   RunStatus = "pending"   // accepted, no step has begun
	RunRunning   RunStatus = "running"   // steps wait or run; also while a cancel is carried out
	RunSuspended RunStatus = "suspended" // waits for a person
	RunSucceeded RunStatus = "succeeded" // final: every job succeeded or was skipped
	RunFailed    RunStatus = "failed"    // final: a job failed
	RunCancelled RunStatus = "cancelled" // final: a cancel was asked for and every step has ended
)

// AllRunStatuses returns every state of a run.
func AllRunStatuses() []RunStatus {
	return []RunStatus{RunPending, RunRunning, RunSuspended, RunSucceeded, RunFailed, RunCancelled}
}

// Ended tells whether the state is final.
func (s RunStatus) Ended() bool { return s == RunSucceeded || s == RunFailed || s == RunCancelled }

// StepStatus is the state of a step, and of a job. The zero value is invalid.
//
//	pending ─> queued ─> running ─> succeeded | failed | cancelled
//	   │          └─<───────┘ (refused, lost, retried)
//	   └─> skipped
type StepStatus string

// The states of a step or job. A job is never queued.
const (
	StepPending         StepStatus = "pending"          // its needs are not met yet
	StepQueued          StepStatus = "queued"           // in a wait episode
	StepRunning         StepStatus = "running"          // dispatched: a lease is in flight
	StepWaitingApproval StepStatus = "waiting_approval" // waits for a person
	StepSucceeded       StepStatus = "succeeded"        // final
	StepFailed          StepStatus = "failed"           // final
	StepSkipped         StepStatus = "skipped"          // final: a condition it depends on can no longer hold
	StepCancelled       StepStatus = "cancelled"        // final
)

// AllStepStatuses returns every state of a step or job.
func AllStepStatuses() []StepStatus {
	return []StepStatus{
		StepPending, StepQueued, StepRunning, StepWaitingApproval,
		StepSucceeded, StepFailed, StepSkipped, StepCancelled,
	}
}

// Ended tells whether the state is final.
func (s StepStatus) Ended() bool {
	return s == StepSucceeded || s == StepFailed || s == StepSkipped || s == StepCancelled
}

// PendingState is the state of a pending dispatch, the record of one wait episode. The zero value is invalid.
//
//	waiting ─> dispatched | timed_out | cancelled | orphaned
type PendingState string

// The states of a pending dispatch. All but waiting are final.
const (
	PendingWaiting    PendingState = "waiting"    // the step stands in line
	PendingDispatched PendingState = "dispatched" // ended by the commit that created the lease
	PendingTimedOut   PendingState = "timed_out"  // its deadline passed
	PendingCancelled  PendingState = "cancelled"  // its run or step was cancelled
	PendingOrphaned   PendingState = "orphaned"   // the orchestrator died while it waited
)

// AllPendingStates returns every state of a pending dispatch.
func AllPendingStates() []PendingState {
	return []PendingState{PendingWaiting, PendingDispatched, PendingTimedOut, PendingCancelled, PendingOrphaned}
}

// Ended tells whether the state is final.
func (s PendingState) Ended() bool { return s != PendingWaiting }

// LeaseState is the state of a lease. The zero value is invalid.
//
//	active ─> fenced ─> expired | failed
//	   └────> completed | failed | expired | refused
type LeaseState string

// The states of a lease.
const (
	LeaseActive    LeaseState = "active"    // its dispatch is in flight, or may be
	LeaseFenced    LeaseState = "fenced"    // its outcome is decided, the worker has not answered: the slot stays taken
	LeaseCompleted LeaseState = "completed" // final: the worker reported a result, good or bad
	LeaseRefused   LeaseState = "refused"   // final: the worker did not take it
	LeaseExpired   LeaseState = "expired"   // final: lost without a write
	LeaseFailed    LeaseState = "failed"    // final: lost after a write, or given up
)

// AllLeaseStates returns every state of a lease.
func AllLeaseStates() []LeaseState {
	return []LeaseState{LeaseActive, LeaseFenced, LeaseCompleted, LeaseRefused, LeaseExpired, LeaseFailed}
}

// Ended tells whether the state is final.
func (s LeaseState) Ended() bool { return s != LeaseActive && s != LeaseFenced }

// TokenState is the stored state of an enrollment token. What a person sees is computed from it and the clock. The
// zero value is invalid.
//
//	unused ─> enrolled ─> expired | revoked
type TokenState string

// The states of a token.
const (
	TokenUnused   TokenState = "unused"   // nobody has enrolled with it
	TokenEnrolled TokenState = "enrolled" // at least one machine is bound to it
	TokenExpired  TokenState = "expired"  // final: its time is over
	TokenRevoked  TokenState = "revoked"  // final: somebody took it back
)

// AllTokenStates returns every state of a token.
func AllTokenStates() []TokenState {
	return []TokenState{TokenUnused, TokenEnrolled, TokenExpired, TokenRevoked}
}

// Ended tells whether the state is final.
func (s TokenState) Ended() bool { return s == TokenExpired || s == TokenRevoked }

// WorkerIntent is what somebody wants of a worker. The zero value is invalid.
type WorkerIntent string

// The intents. A pause survives restarts and reconnects; a drain lasts as long as the instance.
const (
	IntentNone     WorkerIntent = "none"     // take work
	IntentPaused   WorkerIntent = "paused"   // take nothing new until resumed
	IntentDraining WorkerIntent = "draining" // finish and leave
)

// AllWorkerIntents returns every intent.
func AllWorkerIntents() []WorkerIntent {
	return []WorkerIntent{IntentNone, IntentPaused, IntentDraining}
}

// WorkerHealth is what the orchestrator thinks of a worker. The zero value is invalid.
type WorkerHealth string

// The healths.
const (
	HealthOK         WorkerHealth = "ok"
	HealthUnverified WorkerHealth = "unverified" // has to pass a probe first
	HealthUnhealthy  WorkerHealth = "unhealthy"  // could not start steps, three times in a row
)

// AllWorkerHealths returns every health.
func AllWorkerHealths() []WorkerHealth {
	return []WorkerHealth{HealthOK, HealthUnverified, HealthUnhealthy}
}

// WorkerStatus is the one word that a person sees for a worker.
type WorkerStatus string

// The statuses, in the order in which the first that holds is shown.
const (
	WorkerDisconnected WorkerStatus = "disconnected"
	WorkerDraining     WorkerStatus = "draining"
	WorkerPaused       WorkerStatus = "paused"
	WorkerUnhealthy    WorkerStatus = "unhealthy"
	WorkerUnverified   WorkerStatus = "unverified"
	WorkerBusy         WorkerStatus = "busy" // has a dispatch
	WorkerIdle         WorkerStatus = "idle"
)

// StatusOf derives the status of a worker from the facts that are kept.
func StatusOf(connected bool, intent WorkerIntent, health WorkerHealth, dispatches int) WorkerStatus {
	switch {
	case !connected:
		return WorkerDisconnected
	case intent == IntentDraining:
		return WorkerDraining
	case intent == IntentPaused:
		return WorkerPaused
	case health == HealthUnhealthy:
		return WorkerUnhealthy
	case health == HealthUnverified:
		return WorkerUnverified
	case dispatches > 0:
		return WorkerBusy
	default:
		return WorkerIdle
	}
}

// OnWorkerLost says what becomes of a step whose worker was lost before the step wrote anything.
type OnWorkerLost string

// The policies.
const (
	LostRequeue OnWorkerLost = "requeue" // it waits again, at most [MaxLosses] times
	LostFail    OnWorkerLost = "fail"    // it fails with worker_lost
)

// MaxLosses is how many times a step may lose its worker before it fails with worker_lost.
const MaxLosses = 3

// Valid tells whether s is one of all, for words that come from outside.
func Valid[S ~string](s S, all []S) bool { return slices.Contains(all, s) }
