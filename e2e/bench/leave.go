package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// departures measures how long an idle worker takes to be gone: from the signal to the end of its process, and to the
// moment at which the orchestrator lists it no more.
func departures(ctx context.Context, p plan, n int) (ended, unlisted quantiles, err error) {
	err = with(ctx, p, func(s *server) error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		var ends, lists []time.Duration
		for range n {
			w, err := s.startWorker(ctx, 1, messages.Labels{benchLabel()})
			if err != nil {
				return err
			}
			over := make(chan time.Time, 1)
			begin := time.Now()
			if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			go func() { // ends with the process, and the next statements wait for it
				w.wg.Wait()
				_ = w.cmd.Wait()
				over <- time.Now()
			}()
			for {
				fleet, _, err := c.list(ctx)
				if err != nil {
					return err
				}
				if len(fleet) == 0 {
					break
				}
			}
			lists = append(lists, time.Since(begin))
			ends = append(ends, (<-over).Sub(begin))
		}
		ended, unlisted = quantilesOf(ends), quantilesOf(lists)
		return nil
	})
	return ended, unlisted, err
}

// list is worker list, and how long it took.
func (c *client) list(ctx context.Context) ([]*messages.WorkerItem, time.Duration, error) {
	begin := time.Now()
	r, err := c.call(ctx, messages.NewRequest(messages.VerbWorkerList, &messages.WorkerListParams{}))
	return r.GetWorkerList().GetItems(), time.Since(begin), err
}

// exodus is what happens while a whole fleet drains at once.
type exodus struct {
	announced time.Duration // until the last of them has its answer
	gone      time.Duration // until the list is empty of them, from when they close
	longest   time.Duration // of worker list meanwhile
	before    quantiles     // of a step that another worker takes, from submit to start, before
	during    quantiles     // and while they drain and leave
}

// drainFleet lets n connected workers announce at once that they drain, and leave once that is acknowledged, while steps
// are submitted that another worker matches, and the fleet is listed again and again.
func drainFleet(ctx context.Context, p plan, n int) (x exodus, err error) {
	err = with(ctx, p, func(s *server) error {
		b := &speed{server: s}
		if b.worker, err = s.startWorker(ctx, p.slots, messages.Labels{benchLabel()}); err != nil {
			return err
		}
		defer b.worker.stop()
		var f fleet
		defer f.close()
		if err := f.enroll(ctx, s, n); err != nil {
			return err
		}
		if x.before, err = b.wakeUps(ctx, p.wakes); err != nil {
			return err
		}
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		leaving, cancel := context.WithCancel(ctx)
		defer cancel()
		var beside sync.WaitGroup
		var steps []time.Duration
		var stepErr error
		beside.Go(func() {
			for leaving.Err() == nil && stepErr == nil {
				var q quantiles
				q, stepErr = b.wakeUps(ctx, 1)
				steps = append(steps, q.p50)
			}
		})
		begin := time.Now()
		announced := make(chan error, 1)
		beside.Go(func() { announced <- f.announce(ctx) })
		var closed time.Time
		for {
			items, took, err := c.list(ctx)
			if err != nil {
				return err
			}
			x.longest = max(x.longest, took)
			select {
			case err := <-announced:
				if err != nil {
					return err
				}
				x.announced, closed = time.Since(begin), time.Now()
				f.leave()
			default:
			}
			if !closed.IsZero() && len(items) <= 1 {
				x.gone = time.Since(closed)
				break
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		cancel()
		beside.Wait()
		x.during = quantilesOf(steps)
		return stepErr
	})
	return x, err
}

// announcement is the id of the frame by which a worker of the fleet says that it drains.
const announcement = "drain"

// announce has all of them say that they drain, and returns when each has its answer.
func (f *fleet) announce(ctx context.Context) error {
	request := messages.NewRequest(messages.VerbWorkerStatus, &messages.StatusParams{Intent: string(messages.IntentDraining), Reason: "signal"})
	data, err := messages.EncodeFrame(&messages.Frame{Id: announcement, Body: &messages.Frame_Request{Request: request}}, messages.CodingProtobuf)
	if err != nil {
		return err
	}
	for _, c := range f.conns {
		if err := c.Write(ctx, websocket.MessageBinary, data); err != nil {
			return fmt.Errorf("announce a drain: %w", err)
		}
	}
	for range f.conns {
		select {
		case <-f.answered:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// leave closes all sockets the polite way, beside the caller.
func (f *fleet) leave() {
	for _, c := range f.conns {
		f.wg.Go(func() { _ = c.Close(websocket.StatusNormalClosure, "the worker leaves") })
	}
}
