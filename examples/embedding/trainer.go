package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/swampd/swampd/worker"
)

// Trainer is a Go model: what the steps of the workflow do, on a worker that embeds it, in production and in tests.
type Trainer struct {
	// Epoch is how long one of the ten epochs takes.
	Epoch time.Duration
}

// Run implements [worker.Model].
func (m Trainer) Run(ctx context.Context, t worker.Task, out worker.Output) (map[string]string, error) {
	for epoch := 1; epoch <= 10; epoch++ {
		select {
		case <-time.After(m.Epoch):
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped in epoch %d: %w", epoch, context.Cause(ctx))
		}
		if err := out.Write(worker.Stdout, fmt.Appendf(nil, "epoch %d of %s\n", epoch, t.Args["region"])); err != nil {
			return nil, err
		}
	}
	return map[string]string{"loss": "0.1"}, nil
}
