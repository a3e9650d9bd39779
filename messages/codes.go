package messages

import (
	"errors"
	"fmt"
)

// Code is the stable word of an error that crosses the wire. Scripts and workers decide by it, never by text.
type Code string

// Codes of failed requests.
const (
	CodeInvalid           Code = "invalid"              // the request, or what it carries, is wrong
	CodeNotFound          Code = "not_found"            // no such thing
	CodeExists            Code = "exists"               // there is one already
	CodeUnauthorized      Code = "unauthorized"         // no valid server token
	CodeUnknownVerb       Code = "unknown_verb"         // this side has no such verb
	CodeDuplicateID       Code = "duplicate_id"         // a request with that id is under way
	CodeOutOfOrder        Code = "out_of_order"         // not now: enroll first, or only once
	CodeMalformed         Code = "malformed"            // no frame at all
	CodeFrameTooLarge     Code = "frame_too_large"      // above MaxFrame
	CodeRunIDConflict     Code = "run_id_conflict"      // that run id was submitted with something else
	CodeEnded             Code = "ended"                // terminal is final
	CodeProtocolMismatch  Code = "protocol_mismatch"    // the ranges of versions do not meet
	CodeInvalidToken      Code = "invalid_token"        // malformed, unknown, or wrong
	CodeTokenRevoked      Code = "token_revoked"        // somebody took it back
	CodeTokenExpired      Code = "token_expired"        // its time is over
	CodeEnrollmentsSpent  Code = "enrollment_exhausted" // no place left for another machine
	CodeAlreadyConnected  Code = "already_connected"    // another instance of this machine is connected and answers
	CodeSuperseded        Code = "superseded"           // a newer socket of the same instance took over
	CodeRateLimited       Code = "rate_limited"         // too many failed enrollments
	CodeNotReady          Code = "not_ready"            // the orchestrator starts or stops
	CodeNotLeader         Code = "not_leader"           // another orchestrator leads
	CodeOverloaded        Code = "overloaded"           // too much is waiting to be accepted
	CodeNoSpace           Code = "no_space"             // the store is short of space
	CodeUnavailable       Code = "unavailable"          // no answer in time
	CodeInternal          Code = "internal"             // a fault of ours
	CodeWorkerBusy        Code = "worker_busy"          // a refusal: no slot now
	CodeWorkerDraining    Code = "worker_draining"      // a refusal: never again
	CodeWorkerCannotStart Code = "worker_cannot_start"  // a refusal: the worker's own trouble
	CodeTooManyRequests   Code = "too_many_requests"    // too many requests under way on this socket
	CodeStreamOverflow    Code = "stream_overflow"      // a client that does not read
	CodeConflict          Code = "conflict"             // it is there, but not in a state for that

	CodeDigestMismatch     Code = "digest_mismatch"     // the body is not the one that was announced
	CodePreconditionFailed Code = "precondition_failed" // the version that was expected is not the latest
)

// Codes of failed steps.
const (
	CodeExitNonzero    Code = "exit_nonzero"
	CodeTimeout        Code = "timeout"
	CodeQueueTimeout   Code = "queue_timeout"
	CodeWorkerLost     Code = "worker_lost"
	CodeLostAfterWrite Code = "lost_after_write"
	CodeCannotStart    Code = "cannot_start"
	CodeCancelled      Code = "cancelled"
	CodeOutputTooLarge Code = "output_too_large"
)

// Permanent tells for each code of a failed request whether asking again can help. A code that is not listed, as a
// newer peer may send, is transient: asking again does no harm.
func (c Code) Permanent() bool {
	switch c {
	case CodeInvalid, CodeNotFound, CodeExists, CodeUnauthorized, CodeUnknownVerb, CodeDuplicateID, CodeOutOfOrder,
		CodeMalformed, CodeFrameTooLarge, CodeRunIDConflict, CodeEnded, CodeProtocolMismatch, CodeInvalidToken,
		CodeTokenRevoked, CodeTokenExpired, CodeEnrollmentsSpent, CodeSuperseded, CodeInternal, CodeConflict,
		CodeDigestMismatch, CodePreconditionFailed:
		return true
	default:
		return false
	}
}

// AllRequestCodes returns every code of a failed request.
func AllRequestCodes() []Code {
	return []Code{
		CodeInvalid, CodeNotFound, CodeExists, CodeUnauthorized, CodeUnknownVerb, CodeDuplicateID, CodeOutOfOrder,
		CodeMalformed, CodeFrameTooLarge, CodeRunIDConflict, CodeEnded, CodeProtocolMismatch, CodeInvalidToken,
		CodeTokenRevoked, CodeTokenExpired, CodeEnrollmentsSpent, CodeAlreadyConnected, CodeSuperseded, CodeRateLimited,
		CodeNotReady, CodeNotLeader, CodeOverloaded, CodeNoSpace, CodeUnavailable, CodeInternal, CodeWorkerBusy,
		CodeWorkerDraining, CodeWorkerCannotStart, CodeTooManyRequests, CodeStreamOverflow,
		CodeConflict, CodeDigestMismatch, CodePreconditionFailed,
	}
}

// AllStepCodes returns every code of a failed step.
func AllStepCodes() []Code {
	return []Code{
		CodeExitNonzero, CodeTimeout, CodeQueueTimeout, CodeWorkerLost, CodeLostAfterWrite, CodeCannotStart, CodeCancelled,
		CodeOutputTooLarge, CodeInternal,
	}
}

// Fault is an error with a code, inside the process. On the wire it is an [Error].
type Fault struct {
	Code    Code
	Text    string
	Details []string
}

// Faultf returns a Fault with a formatted sentence.
func Faultf(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Text: fmt.Sprintf(format, args...)}
}

func (f *Fault) Error() string { return f.Text }

// Is makes errors.Is compare by code.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t.Code == f.Code && t.Text == ""
}

// CodeOf returns the code of the Fault in err's chain, or CodeInternal.
func CodeOf(err error) Code {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Code
	}
	return CodeInternal
}

// ErrorOf makes err fit for the wire. What is no Fault becomes internal, without its text: that goes to the log.
func ErrorOf(err error) *Error {
	if f, ok := errors.AsType[*Fault](err); ok {
		return &Error{Code: string(f.Code), Text: f.Text, Details: f.Details}
	}
	return &Error{Code: string(CodeInternal), Text: "internal error: see the orchestrator's log"}
}

// Fault turns an error that came over the wire into a Go error.
func (e *Error) Fault() *Fault {
	return &Fault{Code: Code(e.GetCode()), Text: e.GetText(), Details: e.GetDetails()}
}
