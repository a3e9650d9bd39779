package gateway

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// The sizes of a hot worker's frames: an acknowledgement, an accepted dispatch, a chunk of output.
func benchFrames() map[string]*messages.Frame {
	return map[string]*messages.Frame{
		"ack":    {Id: "0197a3c2-5b1e-7d4c-9a53-1f2e3d4c5b6a/1", Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: 4096, Done: true}}},
		"result": {Id: "0197a3c2-5b1e-7d4c-9a53-1f2e3d4c5b6a/1", Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerDispatch, &messages.DispatchResult{Status: "succeeded", FinalOffset: 4096})}},
		"chunk":  output("0197a3c2-5b1e-7d4c-9a53-1f2e3d4c5b6a/1", 4<<10),
	}
}

// BenchmarkConn_Receive is frames from a peer to a session, over TCP. The peer writes what it has encoded before, so that
// its own cost is small.
func BenchmarkConn_Receive(b *testing.B) {
	for name, frame := range benchFrames() {
		for coding, opcode := range map[messages.Coding]byte{messages.CodingProtobuf: opBinary, messages.CodingJSON: opText} {
			b.Run(name+"/"+codingName(coding), func(b *testing.B) {
				fake := newFake()
				var seen atomic.Int64
				all := make(chan struct{})
				fake.onFrame = func(*fakeSession, *messages.Frame) {
					if seen.Add(1) == int64(b.N) {
						close(all)
					}
				}
				p := serve(b, fake, nil).raw(b, true)
				data, err := messages.EncodeFrame(frame, coding)
				if err != nil {
					b.Fatal(err)
				}
				const batch = 64
				block := bytes.Repeat(rawMessage(opcode, data), batch)
				one := len(block) / batch
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				b.ResetTimer()
				for left := b.N; left > 0; left -= batch {
					p.write(block[:min(left, batch)*one])
				}
				<-all
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
			})
		}
	}
}

// BenchmarkConn_Send is frames from a session to a peer that only counts bytes, over TCP.
func BenchmarkConn_Send(b *testing.B) {
	for name, frame := range benchFrames() {
		for _, coding := range []messages.Coding{messages.CodingProtobuf, messages.CodingJSON} {
			b.Run(name+"/"+codingName(coding), func(b *testing.B) {
				fake := newFake()
				p := serve(b, fake, nil).raw(b, true)
				opcode := byte(opBinary)
				if coding == messages.CodingJSON {
					opcode = opText
				}
				hello, err := messages.EncodeFrame(ping("1"), coding)
				if err != nil {
					b.Fatal(err)
				}
				p.write(rawMessage(opcode, hello)) // from now on in this coding
				_ = take(b, p.session.frames, "the first frame")
				data, err := messages.EncodeFrame(frame, coding)
				if err != nil {
					b.Fatal(err)
				}
				head := 2
				if len(data) > 125 {
					head = 4
				}
				total := int64(b.N) * int64(head+len(data))
				done := make(chan error, 1)
				go func() {
					_, err := io.CopyN(io.Discard, p.in, total)
					done <- err
				}()
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if err := p.session.conn.SendWait(b.Context(), frame); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
			})
		}
	}
}

// BenchmarkConn_Echo is one request and its answer at a time, both ways over TCP: the time that the edge adds to a question.
func BenchmarkConn_Echo(b *testing.B) {
	fake := newFake()
	fake.onFrame = func(s *fakeSession, f *messages.Frame) { _ = s.conn.Send(pong(f.GetId())) }
	p := serve(b, fake, nil).raw(b, true)
	data, err := messages.EncodeFrame(ping("1"), messages.CodingProtobuf)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := messages.EncodeFrame(pong("1"), messages.CodingProtobuf)
	if err != nil {
		b.Fatal(err)
	}
	question, got := rawMessage(opBinary, data), make([]byte, 2+len(answer))
	b.ReportAllocs()
	for b.Loop() {
		p.write(question)
		if _, err := io.ReadFull(p.in, got); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPipe is frames through the connection within the process, both ways.
func BenchmarkPipe(b *testing.B) {
	fake := newFake()
	fake.onFrame = func(s *fakeSession, f *messages.Frame) { _ = s.conn.Send(f) }
	end, err := Pipe(fake, actors.ConnInfo{Loopback: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = end.Close(messages.CodeNotReady, "done") }()
	frame := benchFrames()["result"]
	b.ReportAllocs()
	for b.Loop() {
		if err := end.Write(b.Context(), frame); err != nil {
			b.Fatal(err)
		}
		if _, err := end.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func codingName(c messages.Coding) string {
	if c == messages.CodingJSON {
		return "json"
	}
	return "protobuf"
}
