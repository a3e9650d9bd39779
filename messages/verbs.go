package messages

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Verb names what a request asks for. Each is the name of a field of Request and Response, with dots for underscores,
// so the table of verbs is the protobuf file itself.
type Verb string

// The verbs.
const (
	VerbWorkerEnroll   Verb = "worker.enroll"
	VerbWorkerPing     Verb = "worker.ping"
	VerbWorkerStatus   Verb = "worker.status"
	VerbWorkerDispatch Verb = "worker.dispatch"
	VerbWorkerOrder    Verb = "worker.order"
	VerbWorkerGoodbye  Verb = "worker.goodbye"
	VerbWorkerAbort    Verb = "worker.abort"

	VerbWorkflowRun       Verb = "workflow.run"
	VerbWorkflowValidate  Verb = "workflow.validate"
	VerbRunList           Verb = "run.list"
	VerbRunShow           Verb = "run.show"
	VerbRunWatch          Verb = "run.watch"
	VerbRunLogs           Verb = "run.logs"
	VerbRunCancel         Verb = "run.cancel"
	VerbWorkerList        Verb = "worker.list"
	VerbWorkerShow        Verb = "worker.show"
	VerbWorkerQueueList   Verb = "worker.queue.list"
	VerbWorkerTokenCreate Verb = "worker.token.create"
	VerbWorkerTokenList   Verb = "worker.token.list"
	VerbWorkerTokenRevoke Verb = "worker.token.revoke"
	VerbActorTree         Verb = "actor.tree"
	VerbVersion           Verb = "version"
	VerbDoctorBooks       Verb = "doctor.books"
	VerbWorkerPause       Verb = "worker.pause"
	VerbWorkerResume      Verb = "worker.resume"
	VerbBackup            Verb = "backup"
	VerbWorkerDrain       Verb = "worker.drain"
	VerbDataList          Verb = "data.list"
	VerbDataVersions      Verb = "data.versions"
	VerbDataQuery         Verb = "data.query"
	VerbActorInspect      Verb = "actor.inspect"
	VerbActorWatch        Verb = "actor.watch"
	VerbActorTrace        Verb = "actor.trace"
	VerbActorTop          Verb = "actor.top"
	VerbWhy               Verb = "why"
)

// Peer is who may ask for a verb.
type Peer string

// The peers.
const (
	PeerWorker       Peer = "worker"       // a worker asks the orchestrator
	PeerOrchestrator Peer = "orchestrator" // the orchestrator asks a worker
	PeerClient       Peer = "client"       // a client asks the orchestrator
)

// From returns who may ask for the verb; an unknown verb is nobody's.
func (v Verb) From() Peer {
	field := requestField(v)
	switch {
	case field == nil:
		return ""
	case field.Number() < 20:
		return PeerWorker
	case field.Number() < 40:
		return PeerOrchestrator
	default:
		return PeerClient
	}
}

// Streams tells whether the verb's answer is preceded by events.
func (v Verb) Streams() bool {
	return v == VerbWorkerDispatch || v == VerbWorkflowRun || v == VerbRunWatch || v == VerbRunLogs || v == VerbBackup || v == VerbActorWatch
}

// AllVerbs returns every verb, in the order of the protobuf file.
func AllVerbs() []Verb {
	fields := paramsOneof().Fields()
	verbs := make([]Verb, fields.Len())
	for i := range verbs {
		verbs[i] = Verb(strings.ReplaceAll(string(fields.Get(i).Name()), "_", "."))
	}
	return verbs
}

// NewParams returns empty params of the verb, or nil for an unknown one.
func NewParams(v Verb) proto.Message {
	field := requestField(v)
	if field == nil {
		return nil
	}
	return (&Request{}).ProtoReflect().NewField(field).Message().Interface()
}

// NewRequest returns a request for the verb with the given params, which must be of its type.
func NewRequest(v Verb, params proto.Message) *Request {
	r := &Request{Verb: string(v)}
	if field := requestField(v); field != nil {
		r.ProtoReflect().Set(field, protoreflect.ValueOfMessage(params.ProtoReflect()))
	}
	return r
}

// ParamsOf returns the params of a request. They are nil where the request carries none, or those of another verb.
func ParamsOf(r *Request) proto.Message {
	return populated(r.ProtoReflect(), paramsOneof(), requestField(Verb(r.GetVerb())))
}

// NewResponse returns a response to the verb with the given result, which must be of its type.
func NewResponse(v Verb, result proto.Message) *Response {
	r := &Response{}
	if field := responseField(v); field != nil {
		r.ProtoReflect().Set(field, protoreflect.ValueOfMessage(result.ProtoReflect()))
	}
	return r
}

// ResultOf returns the result in a response to the verb, or nil.
func ResultOf(v Verb, r *Response) proto.Message {
	return populated(r.ProtoReflect(), resultOneof(), responseField(v))
}

func populated(m protoreflect.Message, oneof protoreflect.OneofDescriptor, want protoreflect.FieldDescriptor) proto.Message {
	field := m.WhichOneof(oneof)
	if field == nil || want == nil || field.Number() != want.Number() {
		return nil
	}
	return m.Get(field).Message().Interface()
}

func requestField(v Verb) protoreflect.FieldDescriptor {
	return fieldOf(paramsOneof(), v)
}

func responseField(v Verb) protoreflect.FieldDescriptor {
	return fieldOf(resultOneof(), v)
}

func fieldOf(oneof protoreflect.OneofDescriptor, v Verb) protoreflect.FieldDescriptor {
	if strings.Contains(string(v), "_") {
		return nil
	}
	return oneof.Fields().ByName(protoreflect.Name(strings.ReplaceAll(string(v), ".", "_")))
}

func paramsOneof() protoreflect.OneofDescriptor {
	return (&Request{}).ProtoReflect().Descriptor().Oneofs().ByName("params")
}

func resultOneof() protoreflect.OneofDescriptor {
	return (&Response{}).ProtoReflect().Descriptor().Oneofs().ByName("result")
}
