package main

import (
	"context"
	"fmt"
	"time"

	"github.com/swampd/swampd/messages"
)

// adoptions measures how long workers that come back to an orchestrator that was killed take until each of the n steps
// that they run in all is in flight again: from the first worker's return, and from the last one's.
func adoptions(ctx context.Context, p plan, n, workers int) (first, last time.Duration, err error) {
	return first, last, with(ctx, p, func(s *server) error {
		var fleet []*workerProcess
		defer func() {
			for _, w := range fleet {
				w.kill()
			}
		}()
		for range workers {
			w, err := s.startWorker(ctx, n/workers, messages.Labels{benchLabel()})
			if err != nil {
				return err
			}
			fleet = append(fleet, w)
		}
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		_, err = c.submit(ctx, workflowWith(n, 1, modelHold), false)
		c.close()
		if err != nil {
			return err
		}
		for _, w := range fleet {
			if _, err := w.await(ctx, stampStarted, n/workers); err != nil {
				return err
			}
		}
		s.kill()
		if _, err := s.start(ctx); err != nil {
			return err
		}
		var returned, latest time.Time
		for i, w := range fleet {
			at, err := w.await(ctx, stampEnrolled, 1)
			if err != nil {
				return err
			}
			if i == 0 || at.Before(returned) {
				returned = at
			}
			if at.After(latest) {
				latest = at
			}
		}
		if c, err = s.connect(ctx); err != nil {
			return err
		}
		defer c.close()
		var failed error
		have := 0
		err = eventually(ctx, time.Minute, func() bool {
			var items []*messages.WorkerItem
			items, _, failed = c.list(ctx)
			have = 0
			for _, w := range items {
				have += len(w.GetActiveDispatchIds())
			}
			return failed != nil || have == n
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("%d of %d steps are in flight again: %w", have, n, err)
		}
		now := time.Now()
		first, last = now.Sub(returned), now.Sub(latest)
		return nil
	})
}
