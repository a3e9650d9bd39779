package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// benchPeer drives an agent with a fixed number of dispatches in flight: it answers each result with an acknowledgement
// and the next dispatch.
type benchPeer struct {
	send  func(*messages.Frame)
	left  int // to be sent
	open  int // sent and not ended
	seq   uint32
	done  chan struct{}
	bytes int
}

func (p *benchPeer) next() {
	p.left--
	p.open++
	p.seq++
	id := fmt.Sprintf("0198a5b0-0000-7000-8000-%012d", p.seq)
	p.send(requestFrame(frameID(id, 1), messages.VerbWorkerDispatch, &messages.DispatchParams{
		DispatchId: id, Generation: 1, Attempt: 1, Seq: p.seq, RunId: "0198a5b0-0000-7000-8000-000000000000",
		Workflow: "flow", Job: "main", Step: "one", StepKey: "key", ModelType: NoopModel, MethodName: "run",
	}))
}

func (p *benchPeer) onFrame(f *messages.Frame, slots int) {
	switch {
	case f.GetRequest().GetWorkerEnroll() != nil:
		p.send(responseTo(f.GetId(), messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "w", PingMs: 15_000, GraceMs: 60_000}))
		for range min(slots, p.left) {
			p.next()
		}
	case f.GetRequest().GetWorkerPing() != nil:
		p.send(responseTo(f.GetId(), messages.VerbWorkerPing, &messages.PingResult{}))
	case f.GetEvent().GetOutput() != nil:
		out := f.GetEvent().GetOutput()
		p.bytes += len(out.GetData())
		p.send(&messages.Frame{Id: f.GetId(), Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: out.GetOffset() + uint32(len(out.GetData()))}}})
	case f.GetResponse().GetWorkerDispatch() != nil:
		p.open--
		p.send(&messages.Frame{Id: f.GetId(), Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: f.GetResponse().GetWorkerDispatch().GetFinalOffset(), Done: true}}})
		if p.left > 0 {
			p.next()
		} else if p.open == 0 {
			close(p.done)
		}
	}
}

func benchAgent(b *testing.B, cfg Config, peer *benchPeer) {
	b.Helper()
	cfg.Token, cfg.MachineID = "w.0123456789abcdef", "m"
	a, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var run sync.WaitGroup
	run.Go(func() {
		if reason, err := a.Run(context.Background()); reason != StopForced {
			b.Errorf("%s, %v", reason, err)
		}
	})
	<-peer.done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "dispatches/s")
	a.Kill()
	run.Wait()
}

func noopExecutor(b *testing.B) Executor {
	b.Helper()
	e, err := NewExecutor(ExecutorConfig{CacheDir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkAgent_MemoryLink is a worker's whole hot path without a socket and without encoding.
func BenchmarkAgent_MemoryLink(b *testing.B) {
	for _, slots := range []int{1, 64} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			w, s := newMemLinks(1024)
			peer := &benchPeer{left: b.N, done: make(chan struct{})}
			peer.send = func(f *messages.Frame) { _ = s.Write(b.Context(), f) }
			var server sync.WaitGroup
			server.Go(func() {
				for {
					f, err := s.Read(context.Background())
					if err != nil {
						return
					}
					peer.onFrame(f, slots)
				}
			})
			benchAgent(b, Config{
				Concurrency: slots, Executor: noopExecutor(b),
				Dial: func(context.Context) (Link, error) { return w, nil },
			}, peer)
			_ = s.Close("", "")
			server.Wait()
		})
	}
}

// BenchmarkAgent_WebSocket is the same over a socket on loopback; the other side's encoding is on the same processors.
func BenchmarkAgent_WebSocket(b *testing.B) {
	for _, slots := range []int{1, 64} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			benchSocket(b, slots, noopExecutor(b), "")
		})
	}
}

// BenchmarkAgent_Output is a step that writes lines as fast as they are taken: few, and so many that credit runs out,
// with a disk for what there is none for, and without.
func BenchmarkAgent_Output(b *testing.B) {
	line := []byte("a line of fifty-four bytes, as a build or a test prints\n")
	for _, bb := range []struct {
		lines int
		disk  bool
	}{{1000, true}, {200_000, true}, {200_000, false}} {
		b.Run(fmt.Sprintf("lines=%d/disk=%t", bb.lines, bb.disk), func(b *testing.B) {
			b.SetBytes(int64(bb.lines * len(line)))
			dir := ""
			if bb.disk {
				dir = b.TempDir()
			}
			benchSocket(b, 1, execFunc(func(_ context.Context, _ Task, started func(), out Output) Outcome {
				started()
				for range bb.lines {
					_ = out.Write(Stdout, line)
				}
				return Outcome{Status: OutcomeSucceeded}
			}), dir)
		})
	}
}

func benchSocket(b *testing.B, slots int, e Executor, dir string) {
	b.Helper()
	peer := &benchPeer{left: b.N, done: make(chan struct{})}
	u := wsServer(b, messages.Subprotocol, func(ctx context.Context, c *websocket.Conn) {
		peer.send = func(f *messages.Frame) {
			data, err := messages.EncodeFrame(f, messages.CodingProtobuf)
			if err != nil {
				b.Error(err)
			}
			_ = c.Write(context.Background(), websocket.MessageBinary, data)
		}
		for {
			_, data, err := c.Read(context.Background())
			if err != nil {
				return
			}
			f, err := messages.DecodeFrame(data, messages.CodingProtobuf)
			if err != nil {
				b.Error(err)
				return
			}
			peer.onFrame(f, slots)
		}
	})
	benchAgent(b, Config{URL: u.String(), Concurrency: slots, Executor: e, CacheDir: dir}, peer)
}
