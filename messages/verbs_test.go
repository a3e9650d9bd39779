package messages_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/swampd/swampd/messages"
)

func TestVerbs_AreTheFieldsOfRequestAndResponse(t *testing.T) {
	t.Parallel()
	fields := func(m proto.Message, oneof protoreflect.Name) map[string]protoreflect.FieldNumber {
		numbers := map[string]protoreflect.FieldNumber{}
		list := m.ProtoReflect().Descriptor().Oneofs().ByName(oneof).Fields()
		for i := range list.Len() {
			numbers[strings.ReplaceAll(string(list.Get(i).Name()), "_", ".")] = list.Get(i).Number()
		}
		return numbers
	}
	params, results := fields(&messages.Request{}, "params"), fields(&messages.Response{}, "result")
	if diff := cmp.Diff(params, results); diff != "" {
		t.Errorf("numbers of the fields of verbs (-request +response):\n%s", diff)
	}
	if len(messages.AllVerbs()) != len(params) {
		t.Errorf("%d verbs for %d fields", len(messages.AllVerbs()), len(params))
	}
	for _, v := range messages.AllVerbs() {
		if _, ok := params[string(v)]; !ok {
			t.Errorf("verb %s has no field", v)
		}
	}
}

func TestVerbs_WhoMayAskForThemAndWhatStreams(t *testing.T) {
	t.Parallel()
	type facts struct {
		From    messages.Peer
		Streams bool
	}
	want := map[messages.Verb]facts{
		messages.VerbWorkerEnroll:      {messages.PeerWorker, false},
		messages.VerbWorkerPing:        {messages.PeerWorker, false},
		messages.VerbWorkerStatus:      {messages.PeerWorker, false},
		messages.VerbWorkerDispatch:    {messages.PeerOrchestrator, true},
		messages.VerbWorkerOrder:       {messages.PeerOrchestrator, false},
		messages.VerbWorkerGoodbye:     {messages.PeerOrchestrator, false},
		messages.VerbWorkerAbort:       {messages.PeerOrchestrator, false},
		messages.VerbWorkflowRun:       {messages.PeerClient, true},
		messages.VerbWorkflowValidate:  {messages.PeerClient, false},
		messages.VerbRunList:           {messages.PeerClient, false},
		messages.VerbRunShow:           {messages.PeerClient, false},
		messages.VerbRunWatch:          {messages.PeerClient, true},
		messages.VerbRunLogs:           {messages.PeerClient, true},
		messages.VerbRunCancel:         {messages.PeerClient, false},
		messages.VerbWorkerList:        {messages.PeerClient, false},
		messages.VerbWorkerShow:        {messages.PeerClient, false},
		messages.VerbWorkerQueueList:   {messages.PeerClient, false},
		messages.VerbWorkerTokenCreate: {messages.PeerClient, false},
		messages.VerbWorkerTokenList:   {messages.PeerClient, false},
		messages.VerbWorkerTokenRevoke: {messages.PeerClient, false},
		messages.VerbActorTree:         {messages.PeerClient, false},
		messages.VerbVersion:           {messages.PeerClient, false},
		messages.VerbDoctorBooks:       {messages.PeerClient, false},
		messages.VerbWorkerPause:       {messages.PeerClient, false},
		messages.VerbWorkerResume:      {messages.PeerClient, false},
		messages.VerbWorkerDrain:       {messages.PeerClient, false},
		messages.VerbBackup:            {messages.PeerClient, true},
		messages.VerbDataList:          {messages.PeerClient, false},
		messages.VerbDataVersions:      {messages.PeerClient, false},
		messages.VerbDataQuery:         {messages.PeerClient, false},
		messages.VerbActorInspect:      {messages.PeerClient, false},
		messages.VerbActorWatch:        {messages.PeerClient, true},
		messages.VerbActorTrace:        {messages.PeerClient, false},
		messages.VerbActorTop:          {messages.PeerClient, false},
		messages.VerbWhy:               {messages.PeerClient, false},
	}
	got := map[messages.Verb]facts{}
	for _, v := range messages.AllVerbs() {
		got[v] = facts{v.From(), v.Streams()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
}

func TestVerb_ThatIsUnknownIsNobodys(t *testing.T) {
	t.Parallel()
	for _, v := range []messages.Verb{"", "worker", "worker_list", "worker.enroll.", "Worker.List", "params", "verb"} {
		if v.From() != "" || messages.NewParams(v) != nil || v.Streams() {
			t.Errorf("unknown verb %q is somebody's", v)
		}
		r := messages.NewRequest(v, &messages.PingParams{})
		if r.GetVerb() != string(v) || r.GetParams() != nil {
			t.Errorf("request of unknown verb %q: %v", v, r)
		}
		if messages.ParamsOf(r) != nil || messages.ResultOf(v, messages.NewResponse(v, &messages.PingResult{})) != nil {
			t.Errorf("unknown verb %q has params or a result", v)
		}
	}
}

func TestVerbs_ParamsAndResultsAreFoundAgainAndNotThoseOfAnother(t *testing.T) {
	t.Parallel()
	for _, v := range messages.AllVerbs() {
		params := messages.NewParams(v)
		r := messages.NewRequest(v, params)
		if got := messages.ParamsOf(r); got == nil || got.ProtoReflect().Descriptor() != params.ProtoReflect().Descriptor() {
			t.Errorf("params of %s: %T, want %T", v, got, params)
		}
		field := (&messages.Response{}).ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(strings.ReplaceAll(string(v), ".", "_")))
		result := (&messages.Response{}).ProtoReflect().NewField(field).Message().Interface()
		answer := messages.NewResponse(v, result)
		if got := messages.ResultOf(v, answer); got == nil || got.ProtoReflect().Descriptor() != result.ProtoReflect().Descriptor() {
			t.Errorf("result of %s: %T, want %T", v, got, result)
		}
		for _, other := range messages.AllVerbs() {
			if other == v {
				continue
			}
			if messages.ResultOf(other, answer) != nil {
				t.Errorf("the result of %s is taken for one of %s", v, other)
			}
			r.Verb = string(other)
			if messages.ParamsOf(r) != nil {
				t.Errorf("the params of %s are taken for those of %s", v, other)
			}
		}
	}
}
