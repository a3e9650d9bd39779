package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/swampd/swampd/messages"
)

// fleet is many workers of one process that enroll and do nothing.
type fleet struct {
	mu    sync.Mutex
	conns []*websocket.Conn
	wg    sync.WaitGroup
	// answered gets one for each announcement that was answered.
	answered chan struct{}
	// refused counts the dials that were asked to come again later.
	refused atomic.Int64
}

// enroll connects n workers under one token, all at once, and returns when each has its answer.
func (f *fleet) enroll(ctx context.Context, s *server, n int) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	s.workers++
	token, err := c.token(ctx, "fleet-"+strconv.Itoa(s.workers))
	c.close()
	if err != nil {
		return err
	}
	failed := make(chan error, n)
	f.answered = make(chan struct{}, n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := f.one(ctx, s, token); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d workers did not enroll, one of them for: %w", len(failed), n, <-failed)
	}
	return nil
}

// one connects a worker. Like a real one it comes again, a random moment later, as long as the orchestrator says that
// it has too much to do just now.
func (f *fleet) one(ctx context.Context, s *server, token string) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		busy, err := f.dial(ctx, s, token)
		if !busy {
			return err
		}
		f.refused.Add(1)
		if err := pause(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
	}
}

func (f *fleet) dial(ctx context.Context, s *server, token string) (busy bool, err error) {
	conn, answered, err := websocket.Dial(ctx, s.url+messages.Path, &websocket.DialOptions{HTTPHeader: http.Header{}, Subprotocols: []string{messages.Subprotocol}})
	if err != nil {
		return answered != nil && answered.StatusCode == http.StatusServiceUnavailable, err
	}
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	request := messages.NewRequest(messages.VerbWorkerEnroll, &messages.EnrollParams{
		Token: token, MachineId: uuid.NewString(), InstanceUuid: uuid.NewString(), ProtocolMin: messages.ProtocolVersion, ProtocolMax: messages.ProtocolVersion,
		Platform: "linux", Arch: "amd64", Labels: []*messages.KeyValue{{Key: "fleet", Value: "idle"}}, Capacity: 1, SlotsOffered: 1, Version: "bench",
	})
	data, err := messages.EncodeFrame(&messages.Frame{Id: "1", Body: &messages.Frame_Request{Request: request}}, messages.CodingProtobuf)
	if err != nil {
		return false, err
	}
	if err := conn.Write(ctx, websocket.MessageBinary, data); err != nil {
		return false, err
	}
	if _, data, err = conn.Read(ctx); err != nil {
		return false, err
	}
	answer, err := messages.DecodeFrame(data, messages.CodingProtobuf)
	switch {
	case err != nil:
		return false, err
	case answer.GetError() != nil:
		return false, answer.GetError().Fault()
	case answer.GetResponse().GetWorkerEnroll() == nil:
		return false, fmt.Errorf("an enrollment was answered with %v", answer)
	}
	f.wg.Go(func() { // answers pings until the socket closes
		for {
			_, data, err := conn.Read(ctx)
			if err != nil {
				return
			}
			if frame, err := messages.DecodeFrame(data, messages.CodingProtobuf); err == nil && frame.GetId() == announcement {
				f.answered <- struct{}{}
			}
		}
	})
	return false, nil
}

func (f *fleet) close() {
	for _, c := range f.conns {
		_ = c.CloseNow()
	}
	f.wg.Wait()
}
