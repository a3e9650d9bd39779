package testkit

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/persistence/memstore"
)

// An Option changes what [Start] starts.
type Option func(*settings)

type settings struct {
	queueTimeout time.Duration
	grace        time.Duration
	loopback     int
	shipEnv      []string
	retention    actors.Retention
	auditEvery   time.Duration
	hooks        []func(*Fleet, actors.Point)
	lose         func(actors.Point) bool
	beat         func()
	journal      memstore.Options
	patience     time.Duration
	log          slog.Handler
	faults       bool // the test breaks things on purpose
	everyCommit  bool
	trace        int
	supervise    time.Duration
	jitter       bool
	twice        bool
}

func defaults() settings {
	s := settings{queueTimeout: time.Minute, grace: time.Minute, patience: 20 * time.Second, trace: traceKept}
	if inBubble() {
		s.patience = time.Hour
	}
	return s
}

// WithQueueTimeout sets how long a step waits where its workflow says nothing; 0 is for ever. Default: a minute.
func WithQueueTimeout(d time.Duration) Option { return func(s *settings) { s.queueTimeout = d } }

// WithGrace sets how long a lost connection may take to come back. Default: a minute.
func WithGrace(d time.Duration) Option { return func(s *settings) { s.grace = d } }

// WithLoopback has unplaced steps run on the orchestrator's own worker only. [Fleet.Loopback] connects it.
func WithLoopback(slots int) Option { return func(s *settings) { s.loopback = slots } }

// WithShippedEnv sets the part of the orchestrator's environment that steps get, as KEY=VALUE.
func WithShippedEnv(env ...string) Option { return func(s *settings) { s.shipEnv = env } }

// WithRetention sets how long what is over is kept.
func WithRetention(r actors.Retention) Option { return func(s *settings) { s.retention = r } }

// WithAuditEvery sets how often the orchestrator looks at its own books. Default: every 30 s.
func WithAuditEvery(d time.Duration) Option { return func(s *settings) { s.auditEvery = d } }

// WithPatience sets how long a method waits before it fails the test: 20 s by default, in a bubble an hour.
func WithPatience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// WithHook has fn called at each [actors.Point], by the actor itself: it may block or panic. The audit takes panics as
// faults unless the test says with [WithFaults] that it makes some.
func WithHook(fn func(actors.Point)) Option {
	return func(s *settings) { s.hooks = append(s.hooks, func(_ *Fleet, p actors.Point) { fn(p) }) }
}

// WithLoss loses the messages to actors that fn says, which no message inside a process ever is: it shows that a test sees
// what an orchestrator does that forgets something.
func WithLoss(fn func(actors.Point) bool) Option { return func(s *settings) { s.lose = fn } }

// WithStandstill has the process take it that it stood still for a while, from some time after its start on. What stands still
// is up to the test, for in a bubble no time passes while anything goes on.
func WithStandstill(from, while time.Duration) Option {
	return func(s *settings) {
		start := time.Now()
		var once sync.Once
		s.beat = func() {
			if time.Since(start) >= from {
				once.Do(func() { time.Sleep(while) })
			}
		}
	}
}

// WithBeat has fn called before the process notes that it does not stand still: it does stand still while fn does.
func WithBeat(fn func()) Option { return func(s *settings) { s.beat = fn } }

// WithFaults says that the test breaks things by itself: the audit gives the actors time to repair them, and does not mind
// that some have panicked.
func WithFaults() Option { return func(s *settings) { s.faults = true } }

// WithoutExecutionCheck lets a step run on two workers at once: it is for workers that go on although they are lost, where
// a real one would have killed its steps.
func WithoutExecutionCheck() Option { return func(s *settings) { s.twice = true } }

// WithJournal sets what happens in the journal: its hooks may delay a commit or let the disk fail.
func WithJournal(options memstore.Options) Option {
	return func(s *settings) { s.journal = options }
}

// WithTrace sets how many lines of the trace are kept, which is shown when the test fails. Default: 200. 0 is none.
func WithTrace(lines int) Option { return func(s *settings) { s.trace = lines } }

// WithLog sends the orchestrator's log to h. Without it, the last part of the log is shown when the test has failed.
func WithLog(h slog.Handler) Option { return func(s *settings) { s.log = h } }

// beforeAll is the stage of a Point before anything has been decided.
const beforeAll = "received"

// decidedStage is the stage of a Point before the commit.
const decidedStage = "decided"

// WithJitter delays each actor before and after each commit by up to most, by chance from a seed: who comes first changes with the
// seed. In a bubble it costs no time.
func WithJitter(seed uint64, most time.Duration) Option {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	hook := WithHook(func(p actors.Point) {
		if p.Stage == beforeAll {
			return
		}
		mu.Lock()
		wait := time.Duration(random.Int64N(int64(most) + 1))
		mu.Unlock()
		time.Sleep(wait)
	})
	return func(s *settings) {
		hook(s)
		s.jitter = true
	}
}
