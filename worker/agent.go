package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/swampd/swampd/messages"
)

// maxConcurrency bounds the steps of one worker.
const maxConcurrency = 10_000

// ErrUnreachable says that the orchestrator could not be reached by a worker that tries only once (exit 3).
var ErrUnreachable = errors.New("the orchestrator cannot be reached")

// Config says what a worker is.
type Config struct {
	// URL is the orchestrator's: http, https, ws or wss, without a path. Required unless Dial is set.
	URL string
	// Token is NAME.SECRET. Required unless Dial is set.
	Token messages.Secret
	// Labels are what placements can ask for.
	Labels messages.Labels
	// Concurrency is how many steps run at once; 0 is 1.
	Concurrency int
	// CacheDir holds the machine id and what belongs to running steps. Empty is [DefaultCacheDir], if it is needed: it is
	// not with both MachineID and Executor.
	CacheDir string
	// SpoolBytes bounds what the output of one step may take in CacheDir while the orchestrator does not take it; beyond it
	// the step's pipe blocks. 0 is 256 MiB. Without CacheDir the pipe blocks at once.
	SpoolBytes int64
	// MaxDispatches makes the worker admit that many dispatches, and drain when they have ended; 0 is no limit. One that it
	// refused, or could not start, does not count.
	MaxDispatches int
	// IdleTimeout makes the worker drain once it has been enrolled for that long without any dispatch; 0 is never. The time
	// stands still while it is not connected, and starts anew when it has enrolled again.
	IdleTimeout time.Duration
	// MaxUptime makes the worker drain that long after the start of Run; 0 is never.
	MaxUptime time.Duration
	// DrainTimeout bounds a drain, from its beginning, whatever it is that still goes on; 0 is no bound. What the stopped
	// steps get to clean up, and at most 5 s to report them, come on top.
	DrainTimeout time.Duration
	// DrainMode says what happens to steps that still run at that bound. Empty is DrainHandback.
	DrainMode DrainMode
	// NoReconnect makes one connection the only one. If it cannot be made, Run returns ErrUnreachable.
	NoReconnect bool
	// Version is the program's, for worker list.
	Version string
	// Executor runs the steps. nil is a [StepExecutor] on CacheDir.
	Executor Executor
	// Tools are programs that steps find under a name, before all others: absolute paths by name. With an Executor they are
	// that one's matter.
	Tools map[string]string
	// Dial connects. nil is a WebSocket to URL.
	Dial func(context.Context) (Link, error)
	// DataTransport carries the requests of steps to the orchestrator's data plane. nil is HTTP with the host of URL; with
	// neither there is no way to data, and steps get no SWAMP_DATA_URL.
	DataTransport http.RoundTripper
	// MachineID is the machine's durable id. Empty is the one in CacheDir, which is locked while the worker runs.
	MachineID string
	// Clock is what the fences of steps are read on. nil is [FenceClock], which runs on while the machine sleeps; a worker
	// in virtual time needs another one.
	Clock func() time.Duration
	// Jitter returns a number from 0 to 1, without 1, for each pause before it connects again. nil is chance.
	Jitter func() float64
	// Logger gets what is not an event. nil drops it.
	Logger *slog.Logger
	// OnEvent gets the events of the worker's life, one at a time and in order. It should not block for long, as steps
	// wait for it to begin. nil drops them.
	OnEvent func(Event)
}

func (c Config) withDefaults() (Config, error) {
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.DrainMode == "" {
		c.DrainMode = DrainHandback
	}
	if c.SpoolBytes == 0 {
		c.SpoolBytes = spoolLimit
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = FenceClock
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.CacheDir == "" && (c.MachineID == "" || c.Executor == nil) {
		dir, err := DefaultCacheDir()
		if err != nil {
			return c, err
		}
		c.CacheDir = dir
	}
	return c, nil
}

func (c Config) validate() error {
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		return fmt.Errorf("concurrency %d: want 1 to %d", c.Concurrency, maxConcurrency)
	}
	if c.SpoolBytes < 0 {
		return fmt.Errorf("spool bytes %d: it is negative", c.SpoolBytes)
	}
	if err := c.validateLife(); err != nil {
		return err
	}
	for _, l := range c.Labels {
		if !utf8.ValidString(l.Key) || !utf8.ValidString(l.Value) {
			return fmt.Errorf("label %q: want UTF-8", l.Key+"="+l.Value)
		}
	}
	if c.Dial != nil {
		return nil
	}
	if _, err := ParseURL(c.URL); err != nil {
		return err
	}
	name, secret, ok := strings.Cut(c.Token.Reveal(), ".")
	switch {
	case c.Token == "":
		return errors.New("no token")
	case !ok || name == "" || secret == "":
		return errors.New("the token is none: want NAME.SECRET, as worker token create prints it")
	}
	return nil
}

func (c Config) validateLife() error {
	if c.MaxDispatches < 0 {
		return fmt.Errorf("max dispatches %d: want at least 1, or 0 for no limit", c.MaxDispatches)
	}
	for name, d := range map[string]time.Duration{
		"idle timeout": c.IdleTimeout, "max uptime": c.MaxUptime, "drain timeout": c.DrainTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("%s %v: it is negative", name, d)
		}
	}
	if !slices.Contains(AllDrainModes(), c.DrainMode) {
		return fmt.Errorf("drain mode %q: want one of %v", c.DrainMode, AllDrainModes())
	}
	return nil
}

// An Agent is one worker. Its methods are safe for concurrent use.
type Agent struct {
	cfg      Config
	instance string
	secrets  secrets
	events   sync.Mutex // so that OnEvent is never called concurrently

	performing sync.WaitGroup
	clock      func() time.Duration
	data       *dataPlane         // nil: steps have none
	toSend     chan struct{}      // for the writer: there is something to send
	changed    chan struct{}      // for serve and abandon: look again
	leaving    context.Context    //nolint:containedctx // it ends when there is no reason to connect any more; it is Run's
	leave      context.CancelFunc // ends leaving
	gone       context.Context    //nolint:containedctx // it ends when the worker leaves whatever is owed; it is Run's
	goNow      context.CancelFunc // ends gone
	flushing   *time.Timer        // runs flush
	repeating  *time.Timer        // runs repeat
	ageing     *time.Timer        // runs age
	fencing    *time.Timer        // runs fenceOff

	mu          sync.Mutex
	begun       bool
	told        bool // OnEvent has heard of the drain
	life        lifecycle
	out         outbox
	dispatches  map[string]*dispatch // those whose step runs
	pipes       map[string]*pipe     // those of the flows
	spools      int                  // how many there were
	spoolFailed bool                 // the disk took no output the last time
	fencingAt   time.Duration        // when fenceOff is due, on clock; 0: not at all
	session     *session             // nil while not enrolled
	grace       time.Duration        // as the orchestrator said last
	lastSession string               // as the orchestrator called it
	abandoning  bool                 // waitForSteps reads changed
	repeatSet   bool                 // repeating is armed
}

// New returns a worker that does nothing yet.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if cfg.Executor == nil {
		cfg.Executor, err = NewExecutor(ExecutorConfig{CacheDir: cfg.CacheDir, Logger: cfg.Logger, Tools: cfg.Tools})
		if err != nil {
			return nil, fmt.Errorf("worker: %w", err)
		}
	}
	if cfg.Dial == nil {
		u, err := ParseURL(cfg.URL)
		if err != nil {
			return nil, fmt.Errorf("worker: %w", err)
		}
		cfg.Dial = dialer(u, cfg.Version)
	}
	data, err := newDataPlane(cfg)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	_, secret, _ := strings.Cut(cfg.Token.Reveal(), ".")
	return &Agent{
		cfg: cfg, instance: newUUID(), secrets: newSecrets(secret),
		life: newLifecycle(plan{
			capacity: cfg.Concurrency, limit: cfg.MaxDispatches, idleFor: cfg.IdleTimeout, uptime: cfg.MaxUptime,
			bound: cfg.DrainTimeout, mode: cfg.DrainMode,
		}),
		out: newOutbox(cfg.Concurrency), dispatches: map[string]*dispatch{}, pipes: map[string]*pipe{}, clock: cfg.Clock,
		data: data, grace: defaultPatience,
	}, nil
}

// Run connects and works until the worker has left, and says why it did. The error tells more where that was not on
// purpose; ErrUnreachable is in its chain where no connection could be made. The end of ctx is a Kill. An Agent runs
// once.
func (a *Agent) Run(ctx context.Context) (StopReason, error) {
	if err := a.begin(); err != nil {
		return StopError, err
	}
	defer a.goNow()
	defer a.flushing.Stop()
	defer a.repeating.Stop()
	defer a.ageing.Stop()
	defer a.fencing.Stop()
	defer context.AfterFunc(ctx, a.Kill)()
	defer a.data.forget()
	reason, err := a.run()
	a.forgetAll()
	if !errors.Is(err, errStepsLeft) {
		a.performing.Wait()
	}
	a.tellDrain()
	stopped := Event{Kind: EventStopped, Reason: string(reason)}
	if err != nil {
		stopped.Error = a.secrets.clean(err.Error())
	}
	a.emit(stopped)
	return reason, err
}

// forgetAll drops what nobody will be told any more, so that nothing waits for it.
func (a *Agent) forgetAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.out.flows {
		a.out.drop(id)
	}
	a.wake()
}

// begin makes what lives as long as Run.
func (a *Agent) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun {
		return errors.New("a worker runs only once")
	}
	a.begun = true
	a.toSend, a.changed = make(chan struct{}, 1), make(chan struct{}, 1)
	a.gone, a.goNow = context.WithCancel(context.Background())
	a.leaving, a.leave = context.WithCancel(a.gone)
	a.flushing = time.AfterFunc(time.Hour, a.flush)
	a.repeating = time.AfterFunc(time.Hour, a.repeat)
	a.ageing = time.AfterFunc(time.Hour, a.age)
	a.fencing = time.AfterFunc(time.Hour, a.fenceOff)
	a.life.born = time.Now()
	a.advance()
	return nil
}

// emit gives an event to whoever wants it.
func (a *Agent) emit(e Event) {
	if a.cfg.OnEvent == nil {
		return
	}
	a.events.Lock()
	defer a.events.Unlock()
	e.At = time.Now()
	a.cfg.OnEvent(e)
}
