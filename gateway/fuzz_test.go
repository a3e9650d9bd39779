package gateway

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// FuzzTake feeds messages of a peer to the frame reader: whatever comes, it is either handed to the session as a frame
// that can be encoded again, or answered with one error that a peer can decode.
func FuzzTake(f *testing.F) {
	for _, seed := range []*messages.Frame{ping("1"), pong("1"), output("d/1", 10), dispatch("d/1"), errorFrame("", io.EOF), enrolled("2")} {
		for _, coding := range []messages.Coding{messages.CodingProtobuf, messages.CodingJSON} {
			data, err := messages.EncodeFrame(seed, coding)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(coding == messages.CodingJSON, data)
		}
	}
	f.Add(true, []byte(`{"id":"1","request":{"verb":"no.such"}}`))
	f.Add(true, []byte(`{"id":"1"}`))
	f.Add(true, []byte(`{"id":`+strings.Repeat("1", 100_000)+`}`)) // an error that quotes would be as long
	f.Add(false, []byte{0xff})
	f.Fuzz(func(t *testing.T, text bool, data []byte) {
		coding := messages.CodingProtobuf
		if text {
			coding = messages.CodingJSON
		}
		session := &fakeSession{o: newFake(), frames: make(chan *messages.Frame, 1)}
		c, written := offline(t)
		c.session = session
		ok := c.take(coding, data)
		if ok != (len(session.frames) == 1) {
			t.Fatalf("taken: %t, frames: %d", ok, len(session.frames))
		}
		answers := written()
		if ok {
			frame := <-session.frames
			if frame.GetBody() == nil || len(frame.GetId()) > maxID {
				t.Errorf("the session got %v", frame)
			}
			again, err := proto.Marshal(frame)
			if err != nil {
				t.Fatalf("%v cannot be encoded: %v", frame, err)
			}
			if _, err := messages.DecodeFrame(again, messages.CodingProtobuf); err != nil {
				t.Errorf("%v does not survive: %v", frame, err)
			}
			if len(answers) != 0 {
				t.Errorf("a frame was taken and answered: %q", answers)
			}
			return
		}
		if len(answers) != 1 {
			t.Fatalf("answers: %q", answers)
		}
		answer, err := messages.DecodeFrame(answers[0], coding)
		if err != nil || answer.GetError().GetCode() != string(messages.CodeMalformed) {
			t.Errorf("answer %v, %v", answer, err)
		}
	})
}

// offline returns a connection without a peer, and what ends it and returns the payloads of what was written.
func offline(t *testing.T) (*conn, func() [][]byte) {
	t.Helper()
	ours, theirs := net.Pipe()
	out := &sink{Conn: theirs}
	w := newWire(out, func() time.Duration { return 0 }, &sync.Pool{})
	ws, err := websocket.Accept(&hijacked{httptest.NewRecorder(), w}, upgrade(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.limit.Store(queueClient)
	w.detach()
	go w.write()
	c := &conn{ws: ws, wire: w, others: map[string]*question{}, log: slog.New(slog.DiscardHandler)}
	return c, func() [][]byte {
		_ = ws.CloseNow()
		<-w.done
		_ = ours.Close()
		return payloads(t, out.out.Bytes())
	}
}

// hijacked is the answer to an upgrade of a connection that no server knows.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// payloads splits what a server wrote into the payloads of its messages.
func payloads(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	for len(b) > 0 {
		n, head := int(b[1]), 2
		switch n {
		case 126:
			n, head = int(b[2])<<8|int(b[3]), 4
		case 127:
			t.Fatal("an answer of more than 64 KiB")
		}
		all = append(all, b[head:head+n])
		b = b[head+n:]
	}
	return all
}

// FuzzReadMessage reads a message from pieces of any size.
func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("x"), uint8(1), uint32(0))
	f.Add([]byte("0123456789"), uint8(3), uint32(600))
	f.Add(bytes.Repeat([]byte("y"), 1500), uint8(255), uint32(messages.MaxFrame))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8, padding uint32) {
		want := append(bytes.Clone(data), make([]byte, padding%(messages.MaxFrame+10))...)
		got, err := readMessage(bufio.NewReaderSize(&pieces{b: want, n: int(piece)*997 + 1}, 16), nil)
		if tooLarge := len(want) > messages.MaxFrame; tooLarge != (messages.CodeOf(err) == messages.CodeFrameTooLarge && err != nil) {
			t.Fatalf("%d bytes: %v", len(want), err)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("read %d bytes of %d, or others", len(got), len(want))
		}
	})
}

// pieces hands out at most n bytes at once.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}
