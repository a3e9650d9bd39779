package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// NoReconnect makes one connection the only one. If it cannot be made, Run returns ErrUnreachable.
	NoReconnect bool
	// Version is the program's, for worker list.
	Version string
	// Executor runs the steps. nil is a [StepExecutor] on CacheDir.
	Executor Executor
	// Dial connects. nil is a WebSocket to URL.
	Dial func(context.Context) (Link, error)
	// MachineID is the machine's durable id. Empty is the one in CacheDir, which is locked while the worker runs.
	MachineID string
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
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

// An Agent is one worker. Its methods are safe for concurrent use.
type Agent struct {
	cfg      Config
	instance string
	secrets  secrets
	events   sync.Mutex // so that OnEvent is never called concurrently

	performing sync.WaitGroup
	toSend     chan struct{}      // for the writer: there is something to send
	changed    chan struct{}      // for serve and abandon: look again
	leaving    context.Context    //nolint:containedctx // its end is the first Drain or Kill; it is Run's
	leave      context.CancelFunc // ends leaving
	killed     context.Context    //nolint:containedctx // its end is Kill; it is Run's
	killNow    context.CancelFunc // ends killed
	flushing   *time.Timer        // runs flush
	repeating  *time.Timer        // runs repeat

	mu         sync.Mutex
	begun      bool
	forced     time.Time // when Kill was called, or zero
	reason     StopReason
	life       lifecycle
	out        outbox
	dispatches map[string]*dispatch // those whose step runs
	session    *session             // nil while not enrolled
	watching   bool                 // somebody reads changed
	repeatSet  bool                 // repeating is armed
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
		cfg.Executor, err = NewExecutor(ExecutorConfig{CacheDir: cfg.CacheDir, Logger: cfg.Logger})
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
	_, secret, _ := strings.Cut(cfg.Token.Reveal(), ".")
	return &Agent{
		cfg: cfg, instance: newUUID(), secrets: newSecrets(secret),
		life: newLifecycle(cfg.Concurrency), out: newOutbox(cfg.Concurrency), dispatches: map[string]*dispatch{},
	}, nil
}

// Run connects and works until the worker has left, and says why it did. The error tells more where that was not on
// purpose; ErrUnreachable is in its chain where no connection could be made. The end of ctx is a Kill. An Agent runs
// once.
func (a *Agent) Run(ctx context.Context) (StopReason, error) {
	if err := a.begin(); err != nil {
		return StopError, err
	}
	defer a.killNow()
	defer a.flushing.Stop()
	defer a.repeating.Stop()
	defer context.AfterFunc(ctx, a.Kill)()
	reason, err := a.run()
	if !errors.Is(err, errStepsLeft) {
		a.performing.Wait()
	}
	stopped := Event{Kind: EventStopped, Reason: string(reason)}
	if err != nil {
		stopped.Error = a.secrets.clean(err.Error())
	}
	a.emit(stopped)
	return reason, err
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
	a.killed, a.killNow = context.WithCancel(context.Background())
	a.leaving, a.leave = context.WithCancel(a.killed)
	a.flushing = time.AfterFunc(time.Hour, a.flush)
	a.repeating = time.AfterFunc(time.Hour, a.repeat)
	if a.life.draining {
		a.leave()
	}
	if !a.forced.IsZero() {
		a.killNow()
	}
	return nil
}

// Drain makes the worker leave in good order: it takes nothing new, says so at once, finishes what runs, waits until
// the results are acknowledged, and goes. The first call counts. reason is signal, or tells the orchestrator's reason.
func (a *Agent) Drain(reason string) {
	if a.drain(reason) {
		a.emit(Event{Kind: EventDraining, Reason: reason})
	}
}

func (a *Agent) drain(reason string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.life.drain(reason) {
		return false
	}
	a.reason = StopDrained
	if StopReason(reason) == StopSignal {
		a.reason = StopSignal
	}
	a.watching = true
	if a.begun {
		a.leave()
		a.announce()
		a.pokeServe()
	}
	return true
}

// Kill makes the worker leave at once: it kills what runs, and tries for a second to say so.
func (a *Agent) Kill() {
	a.drain(string(StopForced))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.forced.IsZero() {
		return
	}
	a.forced, a.reason = time.Now(), StopForced
	for _, d := range a.dispatches {
		d.stop(true)
	}
	if a.begun {
		a.killNow()
	}
}

// announce tells the orchestrator what the worker wants and offers. The caller holds a.mu.
func (a *Agent) announce() {
	s := a.session
	if s == nil {
		return
	}
	s.status = s.newID()
	a.out.say(requestFrame(s.status, messages.VerbWorkerStatus, &messages.StatusParams{
		SlotsOffered: int32(a.life.slotsOffered()), Intent: string(a.life.intent()), Reason: a.life.reason,
		Health: string(messages.HealthOK),
	}))
	a.wake()
}

// patience is how long a killed worker still waits for steps that were sent KILL.
func (a *Agent) patience() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Until(a.forced.Add(forcedPatience))
}

// left tells whether the worker is to leave, and why.
func (a *Agent) left() (StopReason, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason, a.life.draining
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
