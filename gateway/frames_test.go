package gateway

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/messages"
)

func TestConn_AnswersComeInTheCodingOfTheirQuestion(t *testing.T) {
	t.Parallel()
	const pb, js = messages.CodingProtobuf, messages.CodingJSON
	tests := []struct {
		name  string
		asked []messages.Coding // requests 0, 1, 2, …
		// ours is the coding of frames that the orchestrator begins.
		ours messages.Coding
	}{
		{"JSON", []messages.Coding{js, js}, js},
		{"protobuf", []messages.Coding{pb, pb}, pb},
		{"JSON, then protobuf", []messages.Coding{js, pb, js, pb}, js},
		{"protobuf, then JSON", []messages.Coding{pb, js, js, pb}, pb},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, newFake(), nil).connect(t, true)
			for i, coding := range tt.asked {
				want := ping(strconv.Itoa(i))
				p.send(coding, want)
				if diff := cmp.Diff(want, take(t, p.session.frames, "a request"), protocmp.Transform()); diff != "" {
					t.Fatalf("received (-sent +got):\n%s", diff)
				}
			}
			for _, id := range []string{"d/1", "e/1"} { // between question and answer
				if err := p.session.conn.Send(dispatch(id)); err != nil {
					t.Fatal(err)
				}
				if got, coding := p.mustRead(); got.GetId() != id || coding != tt.ours {
					t.Errorf("dispatch %s came as %s in coding %d, want %d", id, got.GetId(), coding, tt.ours)
				}
			}
			for i, asked := range tt.asked {
				id := strconv.Itoa(i)
				for _, answer := range []*messages.Frame{output(id, 3), pong(id)} {
					if err := p.session.conn.Send(answer); err != nil {
						t.Fatal(err)
					}
					got, coding := p.mustRead()
					if diff := cmp.Diff(answer, got, protocmp.Transform()); diff != "" {
						t.Errorf("answer %d (-sent +got):\n%s", i, diff)
					}
					if coding != asked {
						t.Errorf("answer %d in coding %d, want %d", i, coding, asked)
					}
				}
			}
			// Answered is forgotten.
			if n := len(p.session.conn.(*conn).others); n != 0 {
				t.Errorf("%d questions are still remembered", n)
			}
		})
	}
}

func TestConn_AnIDUsedTwiceIsAnsweredTwiceInItsCoding(t *testing.T) {
	t.Parallel()
	p := serve(t, newFake(), nil).connect(t, true)
	p.send(messages.CodingProtobuf, ping("first"))
	p.send(messages.CodingJSON, ping("twice"))
	p.send(messages.CodingJSON, ping("twice"))
	for range 3 {
		_ = take(t, p.session.frames, "a request")
	}
	duplicate := errorFrame("twice", messages.Faultf(messages.CodeDuplicateID, "twice"))
	for i, answer := range []*messages.Frame{duplicate, pong("twice")} {
		if err := p.session.conn.Send(answer); err != nil {
			t.Fatal(err)
		}
		if _, coding := p.mustRead(); coding != messages.CodingJSON {
			t.Errorf("answer %d came in coding %d", i, coding)
		}
	}
}

func TestConn_QuestionsInTheOtherCodingAreBounded(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.onFrame = func(*fakeSession, *messages.Frame) {} // never answered
	p := serve(t, fake, nil).connect(t, true)
	p.send(messages.CodingProtobuf, ping("first"))
	for i := range maxOthers + 1 {
		p.send(messages.CodingJSON, ping(strconv.Itoa(i)))
	}
	got, coding := p.mustRead()
	if got.GetError().GetCode() != string(messages.CodeTooManyRequests) || got.GetId() != strconv.Itoa(maxOthers) || coding != messages.CodingJSON {
		t.Errorf("answer %v in coding %d", got, coding)
	}
}

func TestConn_WhatIsNoFrameIsAnsweredAndTheSocketGoesOn(t *testing.T) {
	t.Parallel()
	text, binary := websocket.MessageText, websocket.MessageBinary
	tests := []struct {
		name string
		typ  websocket.MessageType
		data string
		id   string
	}{
		{"garbage as text", text, "not json", ""},
		{"garbage as binary", binary, "\xff\xff\xff\xff", ""},
		{"nothing as text", text, "", ""},
		{"nothing as binary", binary, "", ""},
		{"protobuf as text", text, "\x0a\x011\x52\x00", ""},
		{"JSON as binary", binary, `{"id":"1"}`, ""},
		{"invalid UTF-8", text, "{\"id\":\"\xff\"}", ""},
		{"another JSON value", text, `[1,2]`, ""},
		{"two JSON values", text, `{"id":"1","cancel":{}} {}`, ""},
		{"a number too large for its field", text, `{"id":"1","ack":{"offset":4294967296}}`, ""},
		{"two bodies", text, `{"id":"1","ack":{},"cancel":{}}`, ""},
		{"deep nesting", text, strings.Repeat(`{"x":`, 100_000), ""},
		{"no body", text, `{"id":"7"}`, "7"},
		{"a body of the future", text, `{"id":"7","telepathy":{}}`, "7"},
		{"no id", text, `{"request":{"verb":"worker.ping"}}`, ""},
		{"an id that is too long", text, `{"id":"` + strings.Repeat("x", maxID+1) + `","cancel":{}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, newFake(), nil).connect(t, false)
			p.sendRaw(tt.typ, []byte(tt.data))
			got, coding := p.mustRead()
			if got.GetId() != tt.id || got.GetError().GetCode() != string(messages.CodeMalformed) || got.GetError().GetText() == "" {
				t.Errorf("answer %v, want malformed with id %q", got, tt.id)
			}
			if typeOf(coding) != tt.typ {
				t.Errorf("answer in coding %d", coding)
			}
			p.exchange("after")
		})
	}
}

func TestConn_WhatTheSessionJudgesPassesThrough(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text string }{
		{"an unknown verb", `{"id":"1","request":{"verb":"no.such"}}`},
		{"a verb of the other side", `{"id":"1","request":{"verb":"worker.dispatch","workerDispatch":{}}}`},
		{"a verb with the params of another", `{"id":"1","request":{"verb":"worker.ping","runList":{}}}`},
		{"an answer to nothing", `{"id":"1","response":{"workerPing":{}}}`},
		{"an error without an id", `{"error":{"code":"malformed","text":"x"}}`},
		{"fields of the future", `{"id":"1","request":{"verb":"worker.ping","workerPing":{"mood":1}},"extra":[]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, newFake(), nil).connect(t, false)
			p.sendRaw(websocket.MessageText, []byte(tt.text))
			want, err := messages.DecodeFrame([]byte(tt.text), messages.CodingJSON)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, take(t, p.session.frames, "the frame"), protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConn_ManyMalformedFramesCloseTheSocket(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	p, other := f.connect(t, false), f.connect(t, false)
	for range maxMalformed {
		p.sendRaw(websocket.MessageText, []byte("x"))
	}
	for range maxMalformed {
		if got, _ := p.mustRead(); got.GetError().GetCode() != string(messages.CodeMalformed) {
			t.Fatalf("answer %v", got)
		}
	}
	if status, reason := p.status(); status != 4008 || reason != "malformed: 100 malformed frames" {
		t.Errorf("closed with %d %q", status, reason)
	}
	if code := messages.CodeOf(p.session.ended(t)); code != messages.CodeMalformed {
		t.Errorf("the session was told %s", code)
	}
	other.exchange("undisturbed")
}

func TestConn_LargeFrames(t *testing.T) {
	t.Parallel()
	// frameOf returns a frame whose JSON has the given size.
	frameOf := func(size int) string {
		const head, tail = `{"id":"1","cancel":{"reason":"`, `"}}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	t.Run("the largest passes", func(t *testing.T) {
		t.Parallel()
		p := serve(t, newFake(), nil).connect(t, false)
		p.sendRaw(websocket.MessageText, []byte(frameOf(messages.MaxFrame)))
		if got := take(t, p.session.frames, "the frame"); got.GetCancel() == nil {
			t.Errorf("received %v", got)
		}
		p.exchange("after")
	})
	for name, size := range map[string]int{"one byte more is answered and closes": messages.MaxFrame + 1, "much more too": 5 * messages.MaxFrame} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, newFake(), nil)
			p, other := f.connect(t, false), f.connect(t, true)
			p.sendRaw(websocket.MessageText, []byte(frameOf(size)))
			if got, _ := p.mustRead(); got.GetError().GetCode() != string(messages.CodeFrameTooLarge) || got.GetId() != "" {
				t.Errorf("answer %v", got)
			}
			if status, _ := p.status(); status != 4009 {
				t.Errorf("closed with %d", status)
			}
			if code := messages.CodeOf(p.session.ended(t)); code != messages.CodeFrameTooLarge {
				t.Errorf("the session was told %s", code)
			}
			other.exchange("undisturbed")
		})
	}
}

func TestConn_FramesThatAreTooLargeAreNotSent(t *testing.T) {
	t.Parallel()
	p := serve(t, newFake(), nil).connect(t, true)
	p.exchange("before")
	if err := p.session.conn.Send(output("1", messages.MaxFrame)); messages.CodeOf(err) != messages.CodeFrameTooLarge {
		t.Errorf("an event: %v", err)
	}
	large := &messages.Frame{Id: "2", Body: &messages.Frame_Response{
		Response: messages.NewResponse(messages.VerbRunShow, &messages.RunItem{RunId: strings.Repeat("x", messages.MaxFrame)}),
	}}
	if err := p.session.conn.Send(large); err != nil {
		t.Errorf("an answer: %v", err)
	}
	if got, _ := p.mustRead(); got.GetId() != "2" || got.GetError().GetCode() != string(messages.CodeFrameTooLarge) {
		t.Errorf("the asker is told %v", got)
	}
	p.exchange("after")
}

func dispatch(id string) *messages.Frame {
	return &messages.Frame{Id: id, Body: &messages.Frame_Request{
		Request: messages.NewRequest(messages.VerbWorkerDispatch, &messages.DispatchParams{DispatchId: "d", Generation: 1}),
	}}
}
