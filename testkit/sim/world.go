package sim

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/persistence/memstore"
	"github.com/swampd/swampd/testkit"
)

// Times of the end of a scenario, when all faults are over.
const (
	// patience is how long runs may take to end then. The longest pauses of an orchestrator are those of a worker that could
	// not start steps, and the longest waits those of steps that wait for its slots.
	patience = 3 * time.Hour
	// calmStep is how often it is looked whether all is over.
	calmStep = 5 * time.Second
	// auditEvery is no multiple of what else happens now and then.
	auditEvery = 30*time.Second + 700*time.Microsecond
	// retainEvery is how often it is looked what has to go, where anything has to.
	retainEvery = 11*time.Second + 130*time.Microsecond
)

// loopback is the orchestrator's own worker, which lives and dies with its process.
const loopback = actors.Loopback

var (
	errDied = errors.New("sim: the orchestrator has died")
	errDisk = errors.New("sim: input/output error")
	errOver = errors.New("sim: the scenario is over")
)

// world is one scenario while it is played.
type world struct {
	s      Scenario
	chance chance
	judge  *judge
	fleet  *testkit.Fleet
	ctx    context.Context //nolint:containedctx // the life of all that the world has started
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	calmed chan struct{} // closed when the faults are over

	mu       sync.Mutex
	calm     bool
	over     bool
	down     bool
	booting  bool
	stopping bool
	boot     context.Context //nolint:containedctx // until the present orchestrator dies
	die      context.CancelCauseFunc
	agents   map[string]*agent
	runs     map[string]*client
	order    []string // of runs
	faults   faults
	books    books
	out      spans // when the orchestrator was down, or stood still
	trace    trace
	tally    Tally
	pool     string                // the token that several machines share
	running  map[string]*execution // by step key
	history  map[string][]*execution
}

// Tally counts what has happened in a scenario, to show that the simulation gets everywhere.
type Tally struct {
	Points, Batches                        int
	Panics, Crashes, Failures, BootCrashes int
	Dispatches, Executions, Refusals       int
	Cuts, Losses, Revoked, Drained         int
	Fenced, Adopted, Expired, Stops        int
	Succeeded, Failed, Cancelled           int
	Refused, Conflicts, NoSpace, GivenUp   int
	Poisoned                               int
	Stalls, Late, Garbage, Forgotten       int
	Judged                                 int // losses
	Real                                   int // executions by the real agent
	Length                                 time.Duration
}

// play plays a scenario to its end. It has to be called in a bubble.
func play(t testing.TB, s Scenario, options ...testkit.Option) *world {
	w := &world{
		s: s, chance: chance(s.Seed), judge: newJudge(t), calmed: make(chan struct{}), agents: make(map[string]*agent),
		runs: make(map[string]*client), running: make(map[string]*execution), history: make(map[string][]*execution),
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background()) // not the test's: a scenario ends by itself
	w.boot, w.die = context.WithCancelCause(w.ctx)
	w.faults.seen = make(map[uint64]uint64)
	w.books.ended, w.books.keep = make(map[string]uint64), s.Keep
	done := make(chan struct{})
	go func() { // a goroutine of its own, as a fleet may end the one that fails
		defer close(done)
		w.live(options)
	}()
	<-done
	w.end()
	return w
}

// live is what happens while the orchestrator is there.
func (w *world) live(options []testkit.Option) {
	all := append([]testkit.Option{
		testkit.WithFaults(), testkit.WithQueueTimeout(w.s.QueueTimeout), testkit.WithGrace(w.s.Grace),
		testkit.WithLoopback(w.s.Loopback), testkit.WithHook(w.point), testkit.WithLog(ear{w}),
		testkit.WithAuditEvery(auditEvery), testkit.WithTrace(0), testkit.WithBeat(w.stalled),
		testkit.WithJournal(memstore.Options{Before: w.before, After: w.after}),
	}, options...)
	if w.s.Keep > 0 {
		all = append(all, testkit.WithRetention(actors.Retention{Runs: w.s.Keep, Workers: w.s.Keep, Every: retainEvery}))
	}
	fleet := testkit.Start(w.judge, all...)
	w.mu.Lock()
	w.fleet = fleet
	w.mu.Unlock()
	w.booted()
	for _, m := range w.s.Machines {
		w.agents[m.Name] = &agent{w: w, is: m, name: m.Name}
	}
	if w.s.Loopback > 0 {
		w.agents[loopback] = &agent{w: w, is: Machine{Name: loopback, Platform: "linux/amd64", Capacity: w.s.Loopback}, name: loopback, loopback: true}
		w.agents[loopback].start(Mood{})
	}
	began := time.Now()
	for _, o := range w.s.Ops {
		if !w.sleep(time.Until(began.Add(o.At))) {
			return
		}
		w.apply(o)
	}
	if !w.sleep(w.chance.within(time.Millisecond, time.Second, "calm")) {
		return
	}
	w.calmDown()
	if w.awaitEnds() {
		w.check()
	}
	w.tally.Length = time.Since(began)
}

// end stops everything. The fleet audits its books first, where nothing was found before.
func (w *world) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	if w.fleet != nil {
		w.judge.end()
	}
	w.cancel(errOver)
	w.wg.Wait()
}

// sleep returns false where something was found, or the scenario is over: it is not played any further then.
func (w *world) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.judge.found:
		return false
	case <-w.ctx.Done():
		return false
	}
}

// apply does an operation. It never waits: what takes time does it beside the others.
func (w *world) apply(o Op) {
	a := w.agents[o.Worker]
	w.mu.Lock()
	w.trace.say("%s %s%s", o.Kind, o.Run, o.Worker)
	name := ""
	if a != nil {
		name = a.name
	}
	w.mu.Unlock()
	switch o.Kind {
	case OpSubmit, OpRepeat:
		w.wg.Go(func() { w.submit(o) })
	case OpConflict:
		w.wg.Go(func() { w.conflict(o) })
	case OpCancel:
		w.wg.Go(func() { w.cancelRun(o) })
	case OpStart:
		a.start(o.Mood)
	case OpKill:
		a.kill()
	case OpLeave:
		a.drain()
	case OpDrain:
		w.wg.Go(func() { w.wish(messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: name}) })
	case OpPause:
		w.wg.Go(func() {
			w.wish(messages.VerbWorkerPause, &messages.WorkerPauseParams{Name: name, ForMs: messages.Milliseconds(o.For)})
		})
	case OpResume:
		w.wg.Go(func() { w.wish(messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: name}) })
	case OpRevoke:
		w.wg.Go(func() { w.revoke(a) })
	case OpCut:
		a.cut()
	case OpHalf:
		a.halfOpen()
	case OpLate:
		a.late(o)
	case OpGarbage:
		a.garbage()
	case OpStall:
		w.stall(o)
	case OpStop:
		w.stop(o)
	case OpPanic, OpCrash, OpDisk, OpNoSpace, OpSlow:
		w.arm(o)
	}
}

// wish is what a client wants of a worker. That it is refused is no fault: the worker may not be there.
func (w *world) wish(verb messages.Verb, params proto.Message) { _, _ = w.ask(verb, params) }

// ask asks the orchestrator as a client does: again while it is down, or has no answer now.
func (w *world) ask(verb messages.Verb, params proto.Message) (proto.Message, error) {
	for {
		w.mu.Lock()
		boot := w.boot
		w.mu.Unlock()
		got, err := w.fleet.Do(boot, verb, params, nil)
		if boot.Err() != nil { // whatever it still says does not arrive
			err = errDied
		}
		if err == nil || !again(err) || w.ctx.Err() != nil {
			return got, err
		}
		if messages.CodeOf(err) == messages.CodeNoSpace {
			w.count(&w.tally.NoSpace)
		}
		if !w.sleep(w.chance.within(200*time.Millisecond, time.Second, string(verb), since().String())) {
			return nil, errOver
		}
	}
}

// again tells whether a question may be asked again.
func again(err error) bool {
	if errors.Is(err, persistence.ErrClosed) || errors.Is(err, errDied) {
		return true
	}
	switch messages.CodeOf(err) {
	case messages.CodeNotReady, messages.CodeUnavailable, messages.CodeNoSpace, messages.CodeOverloaded:
		return true
	default:
		return false
	}
}

func (w *world) count(n *int) {
	w.mu.Lock()
	*n++
	w.mu.Unlock()
}

// hear takes a line of the orchestrator's log.
func (w *world) hear(level slog.Level, message, text, line string) {
	w.mu.Lock()
	over := w.over || w.down
	if message == "command given up after panics" {
		w.tally.GivenUp++
	}
	w.mu.Unlock()
	ours := strings.Contains(text, injected) || strings.Contains(text, persistence.ErrNoSpace.Error()) || strings.Contains(text, persistence.ErrClosed.Error()) || strings.Contains(text, errDisk.Error())
	switch {
	case over || level < slog.LevelError:
	case message == "actor panicked" && ours, message == "command given up after panics":
	default:
		w.judge.find("the log says: %s", line)
	}
}
