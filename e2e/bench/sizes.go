package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
)

// stepsPerRun is how large the runs are that fill the queue.
const stepsPerRun = 1000

// with runs a measure on a swampd of its own.
func with(ctx context.Context, p plan, measure func(*server) error) error {
	s, err := newServer(p.swampd)
	if err != nil {
		return err
	}
	defer s.remove()
	if _, err := s.start(ctx); err != nil {
		return err
	}
	return measure(s)
}

// fill makes so many steps wait.
func fill(ctx context.Context, s *server, steps, perRun, classes int) error {
	source := workflowWith(perRun, classes, modelNoop)
	next := make(chan int, steps/perRun)
	for i := range steps / perRun {
		next <- i
	}
	close(next)
	failed := make(chan error, 16)
	var wg sync.WaitGroup
	for range cap(failed) {
		wg.Go(func() {
			c, err := s.connect(ctx)
			if err != nil {
				failed <- err
				return
			}
			defer c.close()
			for range next {
				if _, err := c.submit(ctx, source, false); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		return fmt.Errorf("submit: %w", <-failed)
	}
	var last error
	err := eventually(ctx, 5*time.Minute, func() bool {
		n, err := s.metric(ctx, "swamp_queue_waiting")
		last = err
		return err != nil || int(n) >= steps
	})
	if last != nil {
		return last
	}
	return err
}

// boot measures from the start of swampd to its readiness, over ended runs and steps that a crash left in flight.
func boot(ctx context.Context, p plan, records, stale int) (took time.Duration, err error) {
	return took, with(ctx, p, func(s *server) error {
		w, err := s.startWorker(ctx, p.slots, messages.Labels{benchLabel()})
		if err != nil {
			return err
		}
		b := &speed{server: s, worker: w}
		for done := 0; done < records-stale; { // each step leaves two records, its run one more
			n := min(10_000, (records-stale-done)/2)
			if _, err := b.fanOut(ctx, n); err != nil {
				return err
			}
			done += 2*n + 1
			if n == 0 {
				break
			}
		}
		w.stop()
		if w, err = s.startWorker(ctx, stale/2, messages.Labels{benchLabel()}); err != nil {
			return err
		}
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		if _, err := c.submit(ctx, workflowWith(stale/2, 1, modelHold), false); err != nil {
			return err
		}
		if _, err := w.await(ctx, stampStarted, stale/2); err != nil {
			return err
		}
		s.kill()
		w.kill()
		took, err = s.start(ctx)
		return err
	})
}

// restart measures from the start of a swampd that was killed over a full queue: to its readiness, and to the start of
// the first step on a worker that dials until it gets through.
func restart(ctx context.Context, p plan, steps, perRun int) (ready, first time.Duration, err error) {
	return ready, first, with(ctx, p, func(s *server) error {
		if err := fill(ctx, s, steps, perRun, 1); err != nil {
			return err
		}
		// A worker that enrolled before and is away, so that it needs no token anew.
		w, err := s.startWorker(ctx, 1, messages.Labels{{Key: "bench", Value: "other"}})
		if err != nil {
			return err
		}
		w.stop()
		s.kill()
		begin := time.Now()
		if ready, err = s.start(ctx); err != nil {
			return err
		}
		if w, err = s.startWorker(ctx, p.slots, messages.Labels{benchLabel()}); err != nil {
			return err
		}
		defer w.kill()
		at, err := w.await(ctx, stampStarted, 1)
		first = at.Sub(begin)
		return err
	})
}

// drained is what the drain of a full queue took.
type drained struct {
	enrolled   time.Duration // from the moment at which the worker begins to connect
	first, all time.Duration // from its enrollment
	perStep    time.Duration
	cpu        time.Duration // of swampd, each step
}

// drain measures how long a worker takes that enrolls over a full queue.
func drain(ctx context.Context, p plan, steps, perRun, classes int) (d drained, err error) {
	return d, with(ctx, p, func(s *server) error {
		if err := fill(ctx, s, steps, perRun, classes); err != nil {
			return err
		}
		cpu := s.cpu()
		w, err := s.spawnWorker(ctx, p.slots, labelsOf(classes))
		if err != nil {
			return err
		}
		defer w.stop()
		begin, err := w.await(ctx, stampConnecting, 1)
		if err != nil {
			return err
		}
		enrolled, err := w.await(ctx, stampEnrolled, 1)
		if err != nil {
			return err
		}
		first, err := w.await(ctx, stampStarted, 1)
		if err != nil {
			return err
		}
		last, err := w.await(ctx, stampStarted, steps-1)
		if err != nil {
			return err
		}
		d = drained{enrolled: enrolled.Sub(begin), first: first.Sub(enrolled), all: last.Sub(enrolled), perStep: last.Sub(first) / time.Duration(steps)}
		d.cpu = (s.cpu() - cpu) / time.Duration(steps)
		return nil
	})
}

// queueMemory measures the memory that each waiting step takes, over what a tenth of them takes with all that is there once.
// What is garbage, the process gives back a while later.
func queueMemory(ctx context.Context, p plan, steps, perRun int) (each, after float64, err error) {
	return each, after, with(ctx, p, func(s *server) error {
		few := max(steps/10, perRun)
		if err := fill(ctx, s, few, perRun, 1); err != nil {
			return err
		}
		if err := pause(ctx, settles); err != nil {
			return err
		}
		before := s.memory()
		if err := fill(ctx, s, steps, perRun, 1); err != nil {
			return err
		}
		if err := pause(ctx, settles); err != nil {
			return err
		}
		each = (s.memory() - before) / float64(steps)
		s.kill()
		if _, err := s.start(ctx); err != nil {
			return err
		}
		if err := eventually(ctx, 5*time.Minute, func() bool { // every step has its new place in line
			n, err := s.metric(ctx, "swamp_queue_waiting")
			return err == nil && int(n) == few+steps
		}); err != nil {
			return err
		}
		if err := pause(ctx, settles); err != nil {
			return err
		}
		after = (s.memory() - before) / float64(steps)
		return nil
	})
}

// settles is how long it takes until a process that has nothing to do has given back what it does not need.
const settles = 45 * time.Second

// fleetMemory measures the memory that each idle worker takes.
func fleetMemory(ctx context.Context, p plan, workers int) (each float64, err error) {
	return each, with(ctx, p, func(s *server) error {
		var f fleet
		defer f.close()
		if err := f.enroll(ctx, s, 10); err != nil {
			return err
		}
		before := s.memory()
		for range workers / 100 {
			if err := f.enroll(ctx, s, 100); err != nil {
				return err
			}
		}
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		each = (s.memory() - before) / float64(workers)
		return nil
	})
}

// storm measures how long many workers take that connect at once.
func storm(ctx context.Context, p plan, workers int) (took time.Duration, refused int64, err error) {
	return took, refused, with(ctx, p, func(s *server) error {
		var f fleet
		defer f.close()
		begin := time.Now()
		err := f.enroll(ctx, s, workers)
		took, refused = time.Since(begin), f.refused.Load()
		return err
	})
}

// printed is what the output of one step came to.
type printed struct {
	perSecond float64
	grown     float64 // memory of swampd at its highest, over what it had before
}

// output measures one step that prints, with somebody who follows it or without.
func output(ctx context.Context, p plan, lines int, followed bool) (o printed, err error) {
	return o, with(ctx, p, func(s *server) error {
		w, err := s.startWorker(ctx, p.slots, messages.Labels{benchLabel()})
		if err != nil {
			return err
		}
		defer w.stop()
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.run(ctx, printing(1)); err != nil { // warm
			return err
		}
		before, highest := s.memory(), 0.0
		watched := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			look := time.NewTicker(50 * time.Millisecond)
			defer look.Stop()
			for {
				select {
				case <-look.C:
					highest = max(highest, s.memory())
				case <-watched:
					return
				}
			}
		})
		begin := time.Now()
		got := 0
		if followed {
			c.events = func(e *messages.Event) {
				if e.GetRun().GetKind() == messages.EventStepOutput {
					got++
				}
			}
			err = c.run(ctx, printing(lines))
			if err == nil && got != lines {
				err = fmt.Errorf("%d of %d lines came", got, lines)
			}
		} else {
			err = s.runQuietly(ctx, c, printing(lines))
		}
		o.perSecond = float64(lines) / time.Since(begin).Seconds()
		close(watched)
		wg.Wait()
		o.grown = highest - before
		return err
	})
}

// runQuietly runs a workflow without following it.
func (s *server) runQuietly(ctx context.Context, c *client, source string) error {
	r, err := c.submit(ctx, source, false)
	if err != nil {
		return err
	}
	for {
		shown, err := c.call(ctx, messages.NewRequest(messages.VerbRunShow, &messages.RunShowParams{RunId: r.GetRunId()}))
		if err != nil {
			return err
		}
		if status := messages.RunStatus(shown.GetRunShow().GetStatus()); status.Ended() {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause lets something settle that gives no sign when it has.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
