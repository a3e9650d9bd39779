package testkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
)

// version is what the orchestrator of a test says of itself.
const version = "test"

// stopTime bounds how long the orchestrator may take to stop.
const stopTime = 30 * time.Second

// Fleet is an orchestrator in memory, with what a test has started on it. It ends with the test.
type Fleet struct {
	t        testing.TB
	settings settings
	bubble   bool
	ctx      context.Context //nolint:containedctx // the life of what the fleet has started
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	log      *slog.Logger
	lines    *logLines
	trace    trace
	disk     Disk

	mu       sync.Mutex
	system   *actors.System  // nil while it is down
	alive    context.Context //nolint:containedctx // the life of that process, which its clients notice the end of
	dies     context.CancelCauseFunc
	store    *memstore.Store
	snapshot memstore.Snapshot
	crashes  int
	boots    bell
	workers  []*Worker
	agents   []*Agent
	runs     []*Run
	numbers  map[string]int
	crashIn  int // batches to go; 0 and below: none
	crashFor time.Duration
	ended    bool
}

// Start starts an orchestrator with an empty journal. At the end of the test its books are audited, and everything that
// was started is stopped.
func Start(t testing.TB, options ...Option) *Fleet {
	t.Helper()
	f := &Fleet{t: t, settings: defaults(), bubble: inBubble(), lines: &logLines{}, numbers: make(map[string]int)}
	for _, o := range options {
		o(&f.settings)
	}
	f.disk.f, f.disk.space = f, persistence.Space{Free: math.MaxUint64}
	f.trace.most = f.settings.trace
	if f.settings.log == nil {
		f.settings.log = slog.NewTextHandler(f.lines, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	f.log = slog.New(f.settings.log)
	f.ctx, f.cancel = context.WithCancel(context.Background()) // not the test's: that one ends before its cleanups
	t.Cleanup(f.end)
	if err := f.boot(); err != nil {
		t.Fatalf("testkit: start the orchestrator: %v", err)
	}
	return f
}

// boot starts the orchestrator on what the journal held last.
func (f *Fleet) boot() error {
	journal := f.settings.journal
	if journal.Logger == nil {
		journal.Logger = f.log
	}
	if journal.Remember == 0 {
		journal.Remember = remembered
	}
	journal.Before = f.disk.stage("before", journal.Before)
	journal.After = f.disk.stage("after", f.watchCommits(journal.After))
	store, err := memstore.Open(f.snapshot, journal)
	if err != nil {
		return err
	}
	f.disk.mu.Lock()
	store.SetSpace(f.disk.space)
	f.disk.mu.Unlock()
	system, err := actors.Start(f.ctx, actors.Config{
		Journal: store, Logger: f.log, QueueTimeout: f.settings.queueTimeout, Grace: f.settings.grace,
		ShipEnv: f.settings.shipEnv, LoopbackSlots: f.settings.loopback, Version: version, Hook: f.hook(),
		Lose: f.settings.lose, Beat: f.settings.beat, Retention: f.settings.retention, AuditEvery: f.settings.auditEvery,
	})
	if err != nil {
		f.snapshot = store.Crash() // what the boot has committed stays
		return errors.Join(err, store.Close())
	}
	f.mu.Lock()
	f.system, f.store = system, store
	f.alive, f.dies = context.WithCancelCause(f.ctx)
	alive := f.alive
	f.mu.Unlock()
	if f.settings.supervise > 0 {
		f.run(func() { f.supervise(system, alive.Done()) })
	}
	f.boots.ring()
	return nil
}

func (f *Fleet) hook() func(actors.Point) {
	hooks := f.settings.hooks
	if len(hooks) == 0 && f.settings.trace == 0 {
		return nil
	}
	return func(p actors.Point) {
		f.trace.point(p)
		for _, h := range hooks {
			h(f, p)
		}
	}
}

// T is the test that the fleet belongs to.
func (f *Fleet) T() testing.TB { return f.t }

// System is the orchestrator itself, as the edges see it; nil after a [Fleet.Crash].
func (f *Fleet) System() *actors.System {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.system
}

// Journal is the orchestrator's journal.
func (f *Fleet) Journal() *memstore.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store
}

// up waits for an orchestrator that runs.
func (f *Fleet) up(ctx context.Context) (*actors.System, error) {
	var system *actors.System
	if f.boots.wait(ctx, func() bool { system = f.System(); return system != nil }) {
		return system, nil
	}
	return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator is down")
}

// number counts what the fleet has named.
func (f *Fleet) number(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.numbers[kind]++
	return f.numbers[kind]
}

// run runs fn in a goroutine that the end of the fleet waits for. After that it does not run.
func (f *Fleet) run(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.wg.Go(fn)
	}
}

// severAll cuts every connection of a worker.
func (f *Fleet) severAll() {
	f.mu.Lock()
	workers, agents := f.workers, f.agents
	f.mu.Unlock()
	for _, w := range workers {
		w.cut()
	}
	for _, a := range agents {
		a.sever()
	}
}

// patience bounds what the test waits for.
func (f *Fleet) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, f.settings.patience)
}

// end audits the books and stops everything.
func (f *Fleet) end() {
	if f.System() != nil && !f.t.Failed() {
		f.Audit()
	}
	if f.t.Failed() {
		f.show()
	}
	f.cancel()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.severAll()
	f.wg.Wait()
	f.mu.Lock()
	system, store := f.system, f.store
	f.mu.Unlock()
	if system != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime) // not the test's: in a cleanup that one has ended
		defer cancel()
		if err := errors.Join(system.Stop(ctx), store.Close()); err != nil {
			f.t.Errorf("testkit: stop the orchestrator: %v", err)
		}
	}
	f.awaitThrottle()
	if f.t.Failed() {
		f.t.Logf("log of the orchestrator:\n%s", f.lines)
	}
}

// logLines keeps the last part of the orchestrator's log, to be shown when the test fails.
type logLines struct {
	mu   sync.Mutex
	kept []byte
}

// logKept bounds what is kept of the log.
const logKept = 64 << 10

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, p...)
	if len(l.kept) > 2*logKept {
		l.kept = append(l.kept[:0], l.kept[len(l.kept)-logKept:]...)
	}
	return len(p), nil
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) > logKept {
		return fmt.Sprintf("[…]%s", l.kept[len(l.kept)-logKept:])
	}
	return string(l.kept)
}
