package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

const (
	// requestsKept is how long a write is known by its request id, and requestsEvery how often it is looked for older ones.
	requestsKept  = 24 * time.Hour
	requestsEvery = time.Hour
	// versionWeight is how many removals of other records the removal of a version counts for: its body may stand in it.
	versionWeight = 16
)

// data removes what the data plane has left: writes that need not be known any more, bodies of former boots that no record
// names, and those that could not be removed with their records. Versions that are too old go with the write of a new one.
func (r *retainer) data(ctx context.Context) error {
	r.removed += versionWeight * int(r.sys.data.erased.Swap(0))
	return errors.Join(r.requests(ctx), r.bodies(ctx))
}

// requests removes writes that are older than a day. Nobody writes a record that is there, so none is removed that was made
// anew.
func (r *retainer) requests(ctx context.Context) error {
	now := time.Now()
	if !r.requestsAt.IsZero() && now.Sub(r.requestsAt) < requestsEvery {
		return nil
	}
	out := removal{journal: r.sys.journal}
	defer func() { r.removed += out.removed }()
	var old []string
	err := r.sys.journal.Scan(persistence.KindDataRequest, false, "", "", func(rec persistence.Record) bool {
		if now.Sub(rec.Time) > requestsKept {
			old = append(old, rec.ID)
		}
		return ctx.Err() == nil
	})
	for _, id := range old {
		if err == nil {
			err = out.delete(ctx, persistence.KindDataRequest, id)
		}
	}
	if err == nil {
		err = out.flush(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("forget old writes: %w", err)
	}
	r.requestsAt = now
	return nil
}

// bodies sweeps once in a boot: what this one leaves behind is known. While a backup is under way they stay, and go next time.
func (r *retainer) bodies(ctx context.Context) error {
	if !r.bodiesSwept {
		sweep, err := r.sys.journal.SweepBlobs(ctx)
		if errors.Is(err, persistence.ErrBusy) {
			return nil
		}
		if err != nil {
			return err
		}
		r.bodiesSwept = true
		if sweep.Removed > 0 {
			r.sys.log.Info("bodies without a record removed", slog.Int(messages.KeyCount, sweep.Removed))
		}
	}
	r.sys.data.free(r.sys.data.unfreed.take()...)
	return nil
}
