package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Data is the data plane: artifacts and their versions, which steps and clients write and read. It has no actor: a write is one
// commit, on condition that its lease is active, and the one thing that must have happened before is the lease's own mark.
// Errors are *messages.Fault, or those of a context, or faults of ours. It is safe for concurrent use.
type Data struct {
	sys   *System
	key   credentialKey
	names nameLocks
	now   func() time.Time

	unfreed unfreed
	erased  atomic.Int64 // versions that were removed; retention takes them from here
}

func newData(sys *System) *Data {
	return &Data{sys: sys, key: newCredentialKey(), names: nameLocks{held: make(map[string]*nameLock)}, now: time.Now}
}

// Data implements Orchestrator.
func (sys *System) Data() *Data { return sys.data }

// Authenticate tells whose a credential of a dispatch is. The code is unauthorized for one that this boot did not make, and
// ended where the dispatch has no active lease any more: then nothing can be read or written with it either.
func (d *Data) Authenticate(credential string) (Writer, error) {
	dispatch, generation, ok := d.key.open(credential)
	if !ok {
		return Writer{}, messages.Faultf(messages.CodeUnauthorized, "no valid credential: it is that of a dispatch of this boot, or a server token")
	}
	l, err := d.lease(dispatch, generation)
	if err != nil {
		return Writer{}, err
	}
	return Writer{
		Dispatch: dispatch, Generation: generation, Run: l.GetRunId(), Job: l.GetJob(), Step: l.GetStep(), Worker: l.GetWorker(),
	}, nil
}

// lease reads a lease that is active, or refuses.
func (d *Data) lease(dispatch string, generation uint32) (*messages.LeaseRecord, error) {
	l := &messages.LeaseRecord{}
	version, err := d.sys.read(persistence.KindLease, leaseID(dispatch, generation), l)
	if err != nil {
		return nil, d.fault(err)
	}
	if version == 0 || messages.LeaseState(l.GetState()) != messages.LeaseActive {
		return nil, errLeaseOver(leaseID(dispatch, generation))
	}
	return l, nil
}

// mark returns once it is durable that a dispatch writes. What the journal says of it is durable; else the lease is asked,
// which answers after its commit.
func (d *Data) mark(ctx context.Context, w Writer) error {
	if w.Dispatch == "" {
		return nil
	}
	l, err := d.lease(w.Dispatch, w.Generation)
	if err != nil || l.GetHasWrites() {
		return err
	}
	id := leaseID(w.Dispatch, w.Generation)
	_, err = d.sys.ask(ctx, leaseAddress(id), func(a *answer) any { return markWrites{id, a} })
	return err
}

// fault makes an error of the journal fit for whoever asked.
func (d *Data) fault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, persistence.ErrNoSpace):
		return errNoSpace()
	case errors.Is(err, persistence.ErrClosed):
		return messages.Faultf(messages.CodeNotReady, "the orchestrator stops")
	case errors.Is(err, persistence.ErrSync):
		d.sys.distrust(err)
		return messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
	default:
		return err
	}
}

// free removes bodies that no record names. One that cannot be removed now, as beside a backup, is kept in mind for retention.
func (d *Data) free(keys ...string) {
	for _, key := range keys {
		switch err := d.sys.journal.DeleteBlob(key); {
		case err == nil, errors.Is(err, persistence.ErrClosed):
		case errors.Is(err, persistence.ErrBusy):
			d.unfreed.add(key)
		default:
			d.unfreed.add(key)
			d.sys.log.Warn("body of an artifact not removed", slog.String(messages.KeyBody, key), slog.Any(messages.KeyErr, err))
		}
	}
}

// unfreed are bodies that no record names and that are still there. A crash forgets them: the sweep of the next boot finds
// them by itself.
type unfreed struct {
	mu   sync.Mutex
	keys []string
}

func (u *unfreed) add(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys = append(u.keys, key)
}

func (u *unfreed) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	keys := u.keys
	u.keys = nil
	return keys
}

// nameLocks keep the writers of one artifact apart, from the reading of its records to the end of their commit. Records
// would be safe without them, since the journal compares versions; a file is not: an append cuts off what stands behind the
// length that it has read, which another one may just have written.
type nameLocks struct {
	mu   sync.Mutex
	held map[string]*nameLock
}

type nameLock struct {
	turn  chan struct{} // holds a value while nobody has it
	users int
}

// take waits for its turn with a name. The function that it returns has to be called.
func (n *nameLocks) take(ctx context.Context, name string) (func(), error) {
	n.mu.Lock()
	l := n.held[name]
	if l == nil {
		l = &nameLock{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		n.held[name] = l
	}
	l.users++
	n.mu.Unlock()
	leave := func() {
		n.mu.Lock()
		if l.users--; l.users == 0 {
			delete(n.held, name)
		}
		n.mu.Unlock()
	}
	select {
	case <-l.turn:
		return func() { l.turn <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
