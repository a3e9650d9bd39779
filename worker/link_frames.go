package worker

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// frameID is the id of the frames of one dispatch.
func frameID(dispatch string, generation uint32) string {
	return dispatch + "/" + strconv.FormatUint(uint64(generation), 10)
}

// dispatchOf is the dispatch and its generation in the id of a frame; 0 where there is none.
func dispatchOf(frame string) (id string, generation uint32) {
	i := strings.LastIndexByte(frame, '/')
	if i < 0 {
		return frame, 0
	}
	n, err := strconv.ParseUint(frame[i+1:], 10, 32)
	if err != nil {
		return frame[:i], 0
	}
	return frame[:i], uint32(n)
}

func eventFrame(id string, e *messages.Event) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Event{Event: e}}
}

func acceptedFrame(id string) *messages.Frame {
	return eventFrame(id, &messages.Event{Event: &messages.Event_Accepted{Accepted: &messages.DispatchAccepted{}}})
}

func startedFrame(id string, at time.Time) *messages.Frame {
	return eventFrame(id, &messages.Event{Event: &messages.Event_Started{
		Started: &messages.DispatchStarted{At: messages.Time(at)},
	}})
}

func outputFrame(id string, c chunk) *messages.Frame {
	return eventFrame(id, &messages.Event{Event: &messages.Event_Output{Output: &messages.OutputChunk{
		Offset: c.offset, Stream: string(c.stream), At: messages.Time(c.at), Data: c.data,
	}}})
}

func resultFrame(id string, r *messages.DispatchResult) *messages.Frame {
	return responseFrame(id, &messages.Response{Result: &messages.Response_WorkerDispatch{WorkerDispatch: r}})
}

func responseFrame(id string, r *messages.Response) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Response{Response: r}}
}

func errorFrame(id string, code messages.Code, text string) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Error{
		Error: &messages.Error{Code: string(code), Text: text},
	}}
}

func requestFrame(id string, verb messages.Verb, params proto.Message) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(verb, params)}}
}

// argsOf makes a map of a list; of two equal keys the later one counts.
func argsOf(list []*messages.KeyValue) map[string]string {
	m := make(map[string]string, len(list))
	for _, e := range list {
		m[e.GetKey()] = e.GetValue()
	}
	return m
}

// envOf makes KEY=VALUE entries of a list, in its order.
func envOf(list []*messages.KeyValue) []string {
	env := make([]string, len(list))
	for i, e := range list {
		env[i] = e.GetKey() + "=" + e.GetValue()
	}
	return env
}

// outputsOf makes a list of a step's outputs, in key order.
func outputsOf(m map[string]string, clean func(string) string) []*messages.KeyValue {
	list := make([]*messages.KeyValue, 0, len(m))
	for _, k := range slices.SortedFunc(maps.Keys(m), cmp.Compare[string]) {
		list = append(list, &messages.KeyValue{Key: clean(k), Value: clean(m[k])})
	}
	return list
}
