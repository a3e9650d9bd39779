package worker

import (
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// traceVariable carries the trace of a dispatch into its step, so that what the step does is a part of its run's trace.
const traceVariable = "TRACEPARENT"

// traced is a dispatch with the trace of its frame in the environment of its step. A workflow that sets the variable itself
// has the last word.
func traced(p *messages.DispatchParams, trace string) *messages.DispatchParams {
	if !messages.ValidTraceparent(trace) {
		return p
	}
	p = proto.CloneOf(p) // a frame within one process is read by both sides
	p.Env = append([]*messages.KeyValue{{Key: traceVariable, Value: trace}}, p.GetEnv()...)
	return p
}
