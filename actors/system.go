package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Config is what a System needs.
type Config struct {
	// Journal is the durable store. It stays the caller's, who closes it after Stop.
	Journal persistence.Journal
	Logger  *slog.Logger
	// QueueTimeout is how long a step waits where its workflow says nothing; 0: for ever.
	QueueTimeout time.Duration
	// Grace is how long a lost connection may take to come back; 0 is 60 s. It is at least a second.
	Grace time.Duration
	// ShipEnv is the part of the orchestrator's environment that steps get, as KEY=VALUE.
	ShipEnv []string
	// LoopbackSlots is the capacity of the orchestrator's own worker, which takes unplaced steps; 0: there is none, and
	// unplaced steps wait for any worker.
	LoopbackSlots int
	// AuditEvery is how often the auditor compares the books; 0 is 30 s, below 0 never. Virtual time that runs for months
	// has no use for it.
	AuditEvery time.Duration
	// Retention says how long what is over is kept.
	Retention Retention
	// Version of the program, for workers and people.
	Version string
	// Hook is called by actors at points of interest. Tests panic or block in it; it is nil otherwise.
	Hook func(Point)
	// Lose tells of what an actor has received whether it is lost. It is for tests of tests, which have to see that
	// something does not arrive; it is nil otherwise.
	Lose func(Point) bool
	// Beat is called before the process notes that it is not standing still. Tests sleep in it; it is nil otherwise.
	Beat func()
}

// A Point is a place in an actor's handling of a command.
type Point struct {
	// Stage is received (before anything is decided), decided (before the commit) or committed (after it, before its
	// effects). A session commits nothing: it has decided when it has taken a frame.
	Stage string
	// Kind and ID name the actor.
	Kind, ID string
	// Command is the command's type, such as assignStep.
	Command string
}

// The stages of a Point.
const (
	pointReceived  = "received"
	pointDecided   = "decided"
	pointCommitted = "committed"
)

func (c Config) withDefaults() Config {
	if c.Grace == 0 {
		c.Grace = 60 * time.Second
	}
	if c.AuditEvery == 0 {
		c.AuditEvery = auditEvery
	}
	c.Retention = c.Retention.withDefaults()
	return c
}

func (c Config) validate() error {
	switch {
	case c.Journal == nil:
		return errors.New("actors: config lacks a journal")
	case c.Logger == nil:
		return errors.New("actors: config lacks a logger")
	case c.Grace < time.Second:
		return fmt.Errorf("actors: grace of %s is below a second", c.Grace)
	case c.QueueTimeout < 0:
		return fmt.Errorf("actors: queue timeout of %s is below zero", c.QueueTimeout)
	case c.LoopbackSlots < 0:
		return fmt.Errorf("actors: loopback capacity of %d is below zero", c.LoopbackSlots)
	}
	return nil
}

// System is the orchestrator's actor system.
type System struct {
	cfg     Config
	journal persistence.Journal
	log     *slog.Logger
	timing  timing
	started time.Time

	actors     *actor.ActorSystem
	dispatcher *dispatcher
	root       *actor.PID
	refs       sync.Map // address → *actorInfo
	byPID      sync.Map // string → *actorInfo

	schedulerProps, workerProps, tokenProps, runProps, stepProps, leaseProps, sessionProps *actor.Props

	conns    sync.Map // session number → Conn
	plans    *planCache
	sources  sourceBook
	admit    *admission
	failures *failureBook
	counters counters
	data     *Data
	scratch  sync.Pool // of *[]byte, to encode commits in
	trees    treeBook
	watches  watchBook
	// refusedAt is when a commit was last refused for want of space, in nanoseconds since 1970.
	refusedAt atomic.Int64
	ran       ranBook
	// aliveUntil is when the boot before this one was last known to be alive. It is set before any actor starts.
	aliveUntil time.Time
	// adoptionGrace is how long a step that was in flight then waits for its worker. It is set before any actor starts.
	adoptionGrace time.Duration

	pulse    pulse
	ready    atomic.Bool
	stopping atomic.Bool
	edges    edges
	failOnce sync.Once
	failed   chan struct{}
	err      error
}

var _ Orchestrator = (*System)(nil)

// counters since the start.
type counters struct {
	restarts   atomic.Uint64
	findings   atomic.Uint64 // of the auditor
	runsEnded  endedCounter[messages.RunStatus]
	stepsEnded endedCounter[messages.StepStatus]
	drains     endedCounter[string]
	runsLive   atomic.Int64
}

// Start starts the actors over what the journal holds. When it returns, connections may come.
func Start(ctx context.Context, cfg Config) (*System, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	sys := &System{
		cfg: cfg, journal: cfg.Journal, log: cfg.Logger, timing: timingOf(cfg), started: time.Now(), failed: make(chan struct{}),
		plans: newPlanCache(), failures: newFailureBook(), dispatcher: &dispatcher{},
	}
	sys.admit = newAdmission()
	sys.data = newData(sys)
	sys.edges.init()
	sys.pulse.init(sys.timing.grace)
	sys.pulse.hold = cfg.Beat
	sys.edges.run(func() { sys.pulse.run(sys.edges.ctx.Done()) })
	sys.actors = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet(cfg.Logger) }))
	sys.makeProps()
	started := newAnswer()
	info := sys.spawn(sys.actors.Root, "", sys.props(func() actor.Actor { return &rootActor{sys: sys, started: started} }), address{kindRoot, kindRoot}, "swampd")
	if info == nil {
		return nil, errors.New("actors: root not started")
	}
	sys.root = info.pid
	select {
	case a := <-started.ch:
		if a.err != nil {
			return nil, errors.Join(a.err, sys.Stop(ctx))
		}
	case <-sys.failed:
		return nil, errors.Join(sys.err, sys.Stop(ctx))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), sys.Stop(context.WithoutCancel(ctx)))
	}
	// The first run must not find a scheduler that has not begun yet.
	if _, err := sys.ask(ctx, schedulerAddress(), func(a *answer) any { return askPool{a} }); err != nil {
		return nil, errors.Join(err, sys.Stop(context.WithoutCancel(ctx)))
	}
	if cfg.AuditEvery > 0 {
		sys.edges.run(sys.auditor)
	}
	if cfg.Retention.Every > 0 {
		sys.edges.run(sys.retention)
	}
	sys.ready.Store(true)
	return sys, nil
}

// Ready implements Orchestrator.
func (sys *System) Ready() bool { return sys.ready.Load() && !sys.stopping.Load() }

// PingInterval implements Orchestrator.
func (sys *System) PingInterval() time.Duration { return sys.timing.ping }

// Failed is closed when the process has to end: nothing that it would say could be believed.
func (sys *System) Failed() <-chan struct{} { return sys.failed }

// Err is why, once Failed is closed.
func (sys *System) Err() error {
	select {
	case <-sys.failed:
		return sys.err
	default:
		return nil
	}
}

func (sys *System) fail(err error) {
	sys.failOnce.Do(func() {
		sys.err = err
		sys.ready.Store(false)
		close(sys.failed)
	})
}

// Quiesce is the first half of a Stop: no connection and no question is accepted any more, and no step handed out, while
// what is under way goes on to be written down.
func (sys *System) Quiesce() {
	sys.ready.Store(false)
	sys.tell(schedulerAddress(), closePool{})
}

// Stop ends the sessions, the questions from the edge, and the actors, in this order. What they had committed stays; the
// rest is owed, and goes on at the next start. The journal stays open.
func (sys *System) Stop(ctx context.Context) error {
	if !sys.stopping.CompareAndSwap(false, true) {
		return nil
	}
	sys.conns.Range(func(n, c any) bool {
		conn := c.(Conn)
		_ = conn.Send(goodbye("restart", messages.CodeNotReady, "the orchestrator stops")) // it may be gone
		conn.Close(messages.CodeNotReady, "the orchestrator stops")
		return true
	})
	err := sys.edges.stop(ctx)
	stopped := sys.actors.Root.StopFuture(sys.root)
	done := make(chan error, 1)
	go func() { done <- stopped.Wait() }()
	select {
	case stopErr := <-done:
		err = errors.Join(err, stopErr)
		sys.dispatcher.stop()
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("stop actors: %w", context.Cause(ctx)))
	}
	sys.actors.Shutdown()
	return err
}

func (sys *System) moment() moment {
	now := time.Now()
	return moment{now: now, sequence: sys.journal.Sequence(), epoch: sys.journal.Epoch(), awakeSince: sys.pulse.look(now)}
}

func (sys *System) hook(stage string, self address, cmd any) {
	if sys.cfg.Hook != nil && cmd != nil {
		sys.cfg.Hook(Point{Stage: stage, Kind: self.kind, ID: unescape(self.id), Command: commandName(cmd)})
	}
}

// lose tells whether a message to an actor is lost.
func (sys *System) lose(self address, msg any) bool {
	return sys.cfg.Lose != nil && sys.cfg.Lose(Point{Stage: pointReceived, Kind: self.kind, ID: unescape(self.id), Command: commandName(msg)})
}

// timingOf derives the times of the worker protocol from the grace window: K from TERM to KILL, a margin, and a ping
// interval of which three fit into it.
func timingOf(cfg Config) timing {
	g := cfg.Grace
	return timing{
		ping: min(15*time.Second, g/6), grace: g, kill: min(killTime, g/6), margin: min(2*time.Second+g/100, g/4),
		storeID: cfg.Journal.StoreID(), version: cfg.Version, epoch: cfg.Journal.Epoch(),
	}
}

// quiet passes on what the actor library says only where a person should look: its news of single actors are ours to tell.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(levelHandler{log.Handler(), slog.LevelWarn})
}

type levelHandler struct {
	slog.Handler
	least slog.Level
}

func (h levelHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return levelHandler{h.Handler.WithAttrs(a), h.least}
}

func (h levelHandler) WithGroup(name string) slog.Handler {
	return levelHandler{h.Handler.WithGroup(name), h.least}
}

func (h levelHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.least && h.Handler.Enabled(ctx, l)
}

// edges are the goroutines that answer clients.
type edges struct {
	ctx    context.Context //nolint:containedctx // the life of all edges, ended by stop
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
	pool   dispatcher // of goroutines whose stacks have grown already
}

var errStopping = errors.New("the orchestrator stops")

func (e *edges) init() { e.ctx, e.cancel = context.WithCancelCause(context.Background()) }

// run runs fn in a goroutine that stop waits for.
func (e *edges) run(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	e.pool.start(taskFunc(func() {
		defer e.wg.Done()
		fn()
	}))
	return true
}

func (e *edges) stop(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel(errStopping)
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		e.pool.stop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop edges: %w", context.Cause(ctx))
	}
}

// endedCounter counts ends by status.
type endedCounter[S ~string] struct{ m sync.Map }

func (c *endedCounter[S]) add(s S) {
	n, ok := c.m.Load(s)
	if !ok {
		n, _ = c.m.LoadOrStore(s, new(atomic.Uint64))
	}
	n.(*atomic.Uint64).Add(1)
}

func (c *endedCounter[S]) all() map[S]uint64 {
	m := make(map[S]uint64)
	c.m.Range(func(k, v any) bool {
		m[k.(S)] = v.(*atomic.Uint64).Load()
		return true
	})
	return m
}
