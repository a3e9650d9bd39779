package journaltest

import (
	"context"
	"sync/atomic"

	"github.com/swampd/swampd/persistence"
)

// FailNth returns a journal whose nth commit from now on, counted from 1, is not made and returns err; later ones are made
// again.
func FailNth(j persistence.Journal, n uint64, err error) persistence.Journal {
	return &failing{Journal: j, n: n, err: err}
}

type failing struct {
	persistence.Journal
	n     uint64
	err   error
	count atomic.Uint64
}

func (f *failing) Commit(ctx context.Context, c persistence.Commit) ([]uint64, error) {
	if f.count.Add(1) == f.n {
		return nil, f.err
	}
	return f.Journal.Commit(ctx, c)
}
