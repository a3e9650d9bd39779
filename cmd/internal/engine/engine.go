package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/badgerstore"
	"github.com/swampd/swampd/worker"
)

// Engine makes orchestrators.
type Engine struct{}

var _ daemon.Engine = Engine{}

// Check implements daemon.Engine.
func (Engine) Check(dir string) (daemon.Report, error) {
	report, err := badgerstore.Check(badgerstore.Config{Dir: dir})
	return daemon.Report(report), err
}

// Restore implements daemon.Engine.
func (Engine) Restore(from io.ReadSeeker, dir string) (persistence.BackupInfo, error) {
	return badgerstore.Restore(badgerstore.RestoreConfig{From: from, Dir: dir})
}

// orchestrator is a running orchestrator: listener, actors, journal, and its own worker.
type orchestrator struct {
	cfg     daemon.Config
	token   messages.Secret
	gateway *gateway.Server
	journal persistence.Journal
	system  *actors.System
	own     *ownWorker

	// failed is closed when something ended that must not; err says what.
	failed   chan struct{}
	failOnce sync.Once
	err      atomic.Pointer[error]
	work     sync.WaitGroup
	stopped  chan struct{}
}

// Start implements daemon.Engine. What fails fast comes first: the address is bound
// before the store is touched, and the server token is written only by whoever holds the store's lock.
func (Engine) Start(ctx context.Context, cfg daemon.Config) (_ daemon.Orchestrator, err error) {
	o := &orchestrator{cfg: cfg, failed: make(chan struct{}), stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			// It was never up: there is nothing to wait for, and the first error is the one that counts.
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = o.Stop(ended)
		}
	}()
	token, fresh, err := adminToken(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	o.token = token
	ready := &deferredOrchestrator{}
	o.gateway, err = gateway.New(gateway.Config{
		Listen: cfg.Listen, TLSCert: cfg.TLSCert, TLSKey: cfg.TLSKey,
		AdminToken: token, Orchestrator: ready, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	if err := makeDataDir(cfg.DataDir); err != nil {
		return nil, err
	}
	store, err := badgerstore.Open(badgerstore.Config{Dir: cfg.DataDir, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	o.journal = store
	if fresh {
		if err := saveAdminToken(cfg.DataDir, token); err != nil {
			return nil, err
		}
	}
	o.work.Go(func() { // answers the probes while the actors start; ends with the gateway's shutdown
		if err := o.gateway.Serve(); err != nil {
			o.fail(err)
		}
	})
	slots := 0
	if cfg.Loopback {
		slots = runtime.NumCPU()
	}
	o.system, err = actors.Start(ctx, actors.Config{
		Journal: o.journal, Logger: cfg.Logger, QueueTimeout: cfg.QueueTimeout, Grace: cfg.Grace,
		ShipEnv: cfg.ShipEnv, LoopbackSlots: slots, Version: cfg.Version,
		Retention: actors.Retention{Runs: cfg.Retention.Runs, MaxRuns: cfg.Retention.MaxRuns, Workers: cfg.Retention.Workers},
	})
	if err != nil {
		return nil, err
	}
	o.work.Go(func() { giveBack(o.stopped) })
	o.work.Go(func() {
		select {
		case <-o.system.Failed():
			o.fail(o.system.Err())
		case <-o.stopped:
		}
	})
	if cfg.Loopback {
		if o.own, err = startOwnWorker(o.system, o.gateway, cfg, slots, o.fail); err != nil {
			return nil, err
		}
	}
	ready.set(o.system)
	cfg.Logger.Info("listening", messages.KeyAddr, o.gateway.Addr().String(), messages.KeyDir, cfg.DataDir)
	return o, nil
}

// URL implements daemon.Orchestrator.
func (o *orchestrator) URL() string { return "http://" + o.gateway.Addr().String() }

// Token implements daemon.Orchestrator.
func (o *orchestrator) Token() messages.Secret { return o.token }

// Failed implements daemon.Orchestrator.
func (o *orchestrator) Failed() <-chan struct{} { return o.failed }

// fail notes the first thing that ended without being asked to.
func (o *orchestrator) fail(err error) {
	o.failOnce.Do(func() {
		o.err.Store(&err)
		close(o.failed)
	})
}

// Failure implements daemon.Orchestrator.
func (o *orchestrator) Failure() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Stop implements daemon.Orchestrator. It ends what has been started, in reverse: first nothing new comes in, last the
// store is closed, whatever went wrong between.
func (o *orchestrator) Stop(ctx context.Context) error {
	var errs []error
	if o.system != nil {
		o.system.Quiesce()
	}
	if o.gateway != nil {
		// A peer that does not leave must not take the time of those behind it. What is cut here connects again.
		leaving, cancel := context.WithTimeout(ctx, closingTime(ctx))
		if err := o.gateway.Shutdown(leaving); err != nil && o.system != nil {
			o.cfg.Logger.Warn("connections were cut", messages.KeyErr, err)
		}
		cancel()
	}
	if o.system != nil {
		errs = append(errs, o.system.Stop(ctx))
	}
	if o.own != nil {
		// After the books have closed: what its steps say of being killed for a restart must not be written down as a loss. The
		// next start finds them as it finds those of a crash.
		errs = append(errs, o.own.stop(ctx))
	}
	close(o.stopped)
	o.work.Wait()
	if o.journal != nil {
		if err := o.journal.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store: %w", err))
		}
	}
	err := errors.Join(errs...)
	if o.system != nil && err == nil {
		o.cfg.Logger.Info("stopped")
	}
	return err
}

// closingTime is the part of what is left of ctx that the connections may take to close.
func closingTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return longestClosing
	}
	return min(time.Until(deadline)/3, longestClosing)
}

const longestClosing = 10 * time.Second

// ownWorker is the orchestrator's own worker, in this process. It takes steps that require nothing of a worker.
type ownWorker struct {
	agent  *worker.Agent
	cancel context.CancelFunc
	done   chan struct{}
}

// startOwnWorker starts it. fail is called if it ends before stop.
func startOwnWorker(o actors.Orchestrator, g *gateway.Server, cfg daemon.Config, slots int, fail func(error)) (*ownWorker, error) {
	data := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return g.DialLocal(ctx) },
		DisableCompression: true,
	}
	tools, err := daemon.StepTools()
	if err != nil {
		return nil, err
	}
	agent, err := worker.New(worker.Config{
		Concurrency: slots,
		CacheDir:    filepath.Join(cfg.DataDir, "loopback"),
		Version:     cfg.Version,
		Logger:      cfg.Logger,
		Dial: func(context.Context) (worker.Link, error) {
			return gateway.Pipe(o, actors.ConnInfo{Loopback: true, Remote: "loopback"})
		},
		DataTransport: data,
		Tools:         tools,
	})
	if err != nil {
		return nil, fmt.Errorf("start the loopback worker: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &ownWorker{agent: agent, cancel: cancel, done: make(chan struct{})}
	go func() { // ends at stop, which waits for it
		defer close(w.done)
		reason, err := agent.Run(ctx)
		if ctx.Err() == nil { // else it was stopped
			fail(fmt.Errorf("the loopback worker stopped (%s): %w", reason, err))
		}
	}()
	return w, nil
}

// stop ends it and the steps that it runs.
func (w *ownWorker) stop(ctx context.Context) error {
	w.cancel()
	w.agent.Quit()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the loopback worker: %w", context.Cause(ctx))
	}
}

// deferredOrchestrator stands in for the actors until they have started, so that the listener is up before them.
type deferredOrchestrator struct{ system atomic.Pointer[actors.System] }

var _ actors.Orchestrator = (*deferredOrchestrator)(nil)

func (d *deferredOrchestrator) set(s *actors.System) { d.system.Store(s) }

func (*deferredOrchestrator) notReady() error {
	return messages.Faultf(messages.CodeNotReady, "the orchestrator is starting")
}

// Connect implements actors.Orchestrator.
func (d *deferredOrchestrator) Connect(conn actors.Conn, info actors.ConnInfo) (actors.Session, error) {
	if s := d.system.Load(); s != nil {
		return s.Connect(conn, info)
	}
	return nil, d.notReady()
}

// Do implements actors.Orchestrator.
func (d *deferredOrchestrator) Do(ctx context.Context, verb messages.Verb, params proto.Message, emit actors.Emit) (proto.Message, error) {
	if s := d.system.Load(); s != nil {
		return s.Do(ctx, verb, params, emit)
	}
	return nil, d.notReady()
}

// Ready implements actors.Orchestrator.
func (d *deferredOrchestrator) Ready() bool {
	s := d.system.Load()
	return s != nil && s.Ready()
}

// PingInterval implements actors.Orchestrator.
func (d *deferredOrchestrator) PingInterval() time.Duration {
	if s := d.system.Load(); s != nil {
		return s.PingInterval()
	}
	return time.Second // nobody is connected yet
}

// Metrics implements actors.Orchestrator.
func (d *deferredOrchestrator) Metrics(ctx context.Context) (actors.Metrics, error) {
	if s := d.system.Load(); s != nil {
		return s.Metrics(ctx)
	}
	return actors.Metrics{}, d.notReady()
}

// Data implements actors.Orchestrator.
func (d *deferredOrchestrator) Data() *actors.Data {
	if s := d.system.Load(); s != nil {
		return s.Data()
	}
	return nil
}
