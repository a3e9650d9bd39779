package testkit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

// A CrashOption says what else a crash does.
type CrashOption func(*crash)

type crash struct{ tail int }

// LosingTail has the disk lose the last batches of commits, up to 64 of them, that it had said were written: as after a
// restore from a backup, or on a disk that lies. Who was told of them was told too much: runs are followed anew, and a step
// may run twice, as no worker can know.
func LosingTail(batches int) CrashOption { return func(c *crash) { c.tail = batches } }

// Crash ends the orchestrator as the death of its process would: what was committed stays, whether or not somebody was
// told, and every connection is cut.
func (f *Fleet) Crash(options ...CrashOption) {
	f.t.Helper()
	var c crash
	for _, o := range options {
		o(&c)
	}
	f.mu.Lock()
	system, store := f.system, f.store
	f.system = nil
	f.dies(messages.Faultf(messages.CodeUnavailable, "the orchestrator has died"))
	f.mu.Unlock()
	if system == nil {
		f.t.Error("testkit: the orchestrator is down already")
		return
	}
	snapshot := store.Crash()
	f.trace.say("the orchestrator dies")
	f.severAll()                                                       // nothing that a dead process still says may arrive
	ctx, cancel := context.WithTimeout(context.Background(), stopTime) // not the test's: it may be its end
	defer cancel()
	if err := errors.Join(system.Stop(ctx), store.Close()); err != nil {
		f.t.Errorf("testkit: crash: %v", err)
	}
	if c.tail > 0 {
		snapshot = snapshot.Behind(min(c.tail, snapshot.Remembered()))
		f.settings.twice = true
	}
	f.mu.Lock()
	f.snapshot = snapshot
	f.crashes++
	runs := f.runs
	f.mu.Unlock()
	if c.tail > 0 {
		for _, r := range runs {
			r.rewind()
		}
	}
}

// Stop ends the orchestrator in an orderly way, as its process does when it is asked to: everybody is told.
func (f *Fleet) Stop() {
	f.t.Helper()
	f.mu.Lock()
	system, store := f.system, f.store
	f.system = nil
	f.mu.Unlock()
	if system == nil {
		f.t.Error("testkit: the orchestrator is down already")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime) // not the test's: it may be its end
	defer cancel()
	err := system.Stop(ctx)
	f.mu.Lock()
	f.snapshot = store.Snapshot()
	f.crashes++
	f.mu.Unlock()
	if err := errors.Join(err, store.Close()); err != nil {
		f.t.Errorf("testkit: stop: %v", err)
	}
}

// Restart starts the orchestrator again on the journal that a [Fleet.Crash] or [Fleet.Stop] has left, with other options where some are
// given.
func (f *Fleet) Restart(options ...Option) {
	f.t.Helper()
	for _, o := range options {
		o(&f.settings)
	}
	if err := f.TryRestart(); err != nil {
		f.t.Errorf("testkit: restart the orchestrator: %v", err)
	}
}

// TryRestart is Restart for a boot that may fail, because the test lets the journal fail meanwhile. What it has committed
// before stays, and it may be tried again.
func (f *Fleet) TryRestart() error {
	if f.System() != nil {
		return errors.New("the orchestrator is up")
	}
	return f.boot()
}

// restarted tells whether there was a restart.
func (f *Fleet) restarted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashes > 0
}

// CrashAtBatch has the orchestrator die right after the nth batch of commits from now on, before anybody is told of it, and
// come back after a while. Meanwhile the methods that ask it something wait for it, as its clients do.
func (f *Fleet) CrashAtBatch(n int, while time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashIn, f.crashFor = n, while
}

// crashNow is called after each batch.
func (f *Fleet) crashNow(store *memstore.Store) {
	f.mu.Lock()
	f.crashIn--
	if f.crashIn == 0 && !f.ended {
		store.Crash()
		while := f.crashFor
		f.wg.Go(func() {
			f.Crash()
			if f.sleep(while) {
				f.Restart()
			}
		})
	}
	f.mu.Unlock()
}

// insist asks again while the orchestrator is down or goes down with the question in hand. Questions may be repeated: a
// run has its id.
func (f *Fleet) insist(ctx context.Context, verb messages.Verb, params proto.Message) (proto.Message, error) {
	for {
		got, err := f.Do(ctx, verb, params, nil)
		if err == nil || !gone(err) || ctx.Err() != nil || !f.sleep(askAgain) {
			return got, err
		}
	}
}

// askAgain is how long a client waits before it asks an orchestrator again that has gone.
const askAgain = 50 * time.Millisecond

// gone tells whether an error says that the orchestrator is down, or goes down.
func gone(err error) bool {
	code := messages.CodeOf(err)
	return errors.Is(err, persistence.ErrClosed) || code == messages.CodeNotReady || code == messages.CodeUnavailable
}
