package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// A machine is what a runner needs of one kind of actor: its two pure functions, and how its state comes out of the
// journal. S may be a value or, for machines that change in place, a pointer.
type machine[S any] struct {
	kind string
	// load reads the state that the journal has of the actor, or that of one that does not exist yet.
	load func(sys *System, self address, at moment) (S, error)
	// begin is the first state from the message that the actor was borne with.
	begin func(msg any) (S, bool)
	// step takes one command, or with gathers a []any of all that have arrived.
	step    func(S, any, moment) (S, decision)
	gathers bool
	// waits: it waits for space by itself.
	waits bool
	// resume is what is owed.
	resume func(S, moment) []obligation
	// answers tells whether a message that starts the actor answers what it owes, which need not be told before it then.
	answers func(msg any) bool
	// start is what is to be done once, when the actor starts with a state that it has loaded.
	start func(S, moment) decision
	// word is the state in a word, for people; view is what the actor believes.
	word func(S) string
	view func(S, moment) view
}

// runner is the actor around a machine: decide, commit, act, answer. It holds no decision about the domain.
type runner[S any] struct {
	sys     *System
	machine *machine[S]
	self    address
	info    *actorInfo

	loaded  bool
	state   S
	batch   []any
	stands  bool  // a flush stands in the mailbox
	stuck   []any // commands that wait for space, in their order
	timers  timers
	owed    ledger
	viewers viewers
	ending  bool
	// leaves: it has nothing more to do, and waits for its children to leave.
	leaves bool
	left   bool // off the route: what still comes is for the next one of its name
	// going are the children that are being stopped: their names are used again only once they have terminated. held is what
	// came for their next ones meanwhile.
	going map[address]bool
	held  map[address][]any
}

// ownCommand is what an actor has sent to itself. It dies with the actor, where what others have sent does not.
type ownCommand struct{ cmd any }

// lookAgain is what an actor tells itself some time after a panic: what it was started for is lost, and it may be that
// nothing else ever comes, so it looks whether it is needed. It stays until everybody has given up who may ask again, for
// it alone knows how often it has panicked.
type lookAgain struct{}

const (
	timerLook = "look"
	lookAfter = 2 * askLimit
)

// flushBatch is what a gathering actor sends to itself, behind what has arrived.
type flushBatch struct{}

func (r *runner[S]) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		r.started(ctx)
	case *actor.Stopping, *actor.Restarting:
		r.ending = true
		r.timers.stop()
		r.owed.stop()
	case *actor.Stopped:
	case *actor.Terminated:
		r.terminated(ctx, msg.Who)
	case flushBatch:
		r.info.trail.again()
		r.flush(ctx)
		r.info.trail.done()
	case timerElapsed:
		if cmd, ok := r.timers.due(msg); ok {
			r.info.trail.take(cmd, false)
			r.guard(cmd, func() { r.take(ctx, cmd) })
			r.info.trail.done()
		}
	case ownCommand:
		if !r.left {
			r.info.trail.take(msg.cmd, false)
			r.guard(msg.cmd, func() { r.take(ctx, msg.cmd) })
			r.info.trail.done()
		}
	case owedElapsed:
		r.owed.repeat(r.sys, time.Now())
	case lookInside:
		r.looked(ctx, msg)
	case childLeft:
		// A child of a run has ended: it is stopped once it has nothing queued.
		if r.sys.stopChild(ctx, msg.child) {
			if r.going == nil {
				r.going = make(map[address]bool)
			}
			r.going[msg.child] = true
		}
	default:
		r.info.received(msg)
		if !r.sys.lose(r.self, msg) {
			r.guard(msg, func() { r.take(ctx, msg) })
		}
		r.info.trail.done()
	}
}

// started is a fresh instance. After a panic it reads what it is from the journal at once, and does what it owes; at its
// birth the message that it was borne with says it.
func (r *runner[S]) started(ctx actor.Context) {
	r.self = r.sys.addressOf(ctx.Self().Id)
	r.info = r.sys.info(ctx.Self())
	r.timers.init(r.sys, ctx.Self())
	r.owed.init(r.sys, ctx.Self())
	r.info.begins()
	if r.info.again() {
		const start = "start"
		r.guard(start, func() { r.ensureLoaded(ctx, nil) })
		r.info.succeeded(start)
		r.timers.arm(arm{timerLook, lookAfter, lookAgain{}})
	}
}

// guard counts a command that panics, so that one which panics every time is taken out of the way.
func (r *runner[S]) guard(cmd any, fn func()) {
	defer func() {
		if p := recover(); p != nil {
			name, stack := commandName(cmd), string(debug.Stack())
			r.info.panicked(commandKey(cmd))
			r.info.failed(cmd, fmt.Sprint(p), stack)
			r.show(r.viewed(), "panic", cmd, func(e *messages.ActorEvent) { e.Text = optional(fmt.Sprint(p)) })
			r.sys.log.Error("actor panicked", slog.String(messages.KeyPID, r.info.pid.Id), slog.String(messages.KeyCommand, name),
				slog.Any(messages.KeyErr, p), slog.String(messages.KeyStack, stack))
			panic(p)
		}
	}()
	fn()
}

// commandName is a command's type, for people. Of a batch it is the first one's.
func commandName(cmd any) string {
	if batch, ok := cmd.([]any); ok && len(batch) > 0 {
		cmd = batch[0]
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", cmd), "actors.")
}

// ensureLoaded makes the state known: from the message that the actor was borne with, or from the journal.
func (r *runner[S]) ensureLoaded(ctx actor.Context, msg any) {
	if r.loaded {
		return
	}
	at := r.sys.moment()
	if msg != nil && r.machine.begin != nil {
		if state, ok := r.machine.begin(msg); ok {
			r.state, r.loaded = state, true
			r.settle(at)
			return
		}
	}
	state, err := r.machine.load(r.sys, r.self, at)
	if err != nil {
		panic(fmt.Errorf("load %s %s: %w", r.self.kind, r.self.id, err))
	}
	r.state, r.loaded = state, true
	if r.machine.start != nil {
		r.carry(ctx, nil, state, r.machine.start(state, at), at)
	}
	if msg == nil || r.machine.answers == nil || !r.machine.answers(msg) {
		r.settle(at)
	}
}

// terminated forgets a child that has gone, and lets its next one have what was held for it.
func (r *runner[S]) terminated(ctx actor.Context, child *actor.PID) {
	at := r.sys.addressOf(child.GetId())
	r.sys.forget(child.GetId())
	delete(r.going, at)
	if r.leaves {
		r.leave(ctx)
	}
	held := r.held[at]
	delete(r.held, at)
	for _, msg := range held {
		r.sys.tell(at, msg)
	}
}

func (r *runner[S]) take(ctx actor.Context, cmd any) {
	if r.left {
		if _, ok := cmd.(wake); !ok {
			r.sys.tell(r.self, cmd)
		}
		return
	}
	r.sys.hook(pointReceived, r.self, cmd)
	r.showCommand(cmd)
	r.ensureLoaded(ctx, cmd)
	if r.ending {
		return
	}
	switch cmd.(type) {
	case wake:
		return
	case settleAgain:
		r.owed.forget()
		r.settle(r.sys.moment())
		return
	case stuckElapsed:
		r.tryStuck(ctx)
		return
	}
	if len(r.stuck) > 0 {
		r.standBehind(cmd)
		return
	}
	if r.info.isPoison(cmd) {
		r.sys.log.Error("command given up after panics", slog.String(messages.KeyPID, r.info.pid.Id), slog.String(messages.KeyCommand, commandName(cmd)))
		giveUp(cmd)
		cmd = poisoned{cmd}
	}
	if !r.machine.gathers {
		r.handle(ctx, cmd)
		return
	}
	r.batch = append(r.batch, cmd)
	if !r.stands {
		r.stands = true
		ctx.Send(ctx.Self(), flushBatch{})
	}
}

// gatherMax bounds the commands that one commit answers, well within what the journal takes: many thousand may arrive while
// one commit is under way.
const gatherMax = 256

func (r *runner[S]) flush(ctx actor.Context) {
	batch := r.batch
	r.batch, r.stands = nil, false
	if len(batch) > gatherMax {
		batch, r.batch = batch[:gatherMax:gatherMax], batch[gatherMax:]
		r.stands = true
		ctx.Send(ctx.Self(), flushBatch{})
	}
	switch {
	case len(batch) == 0 || r.ending:
	case r.info.suspect(): // one of them may be poison: each by itself shows which
		for _, cmd := range batch {
			r.guard(cmd, func() { r.handle(ctx, []any{cmd}) })
		}
		r.info.succeeded(batch)
	default:
		r.guard(batch, func() { r.handle(ctx, batch) })
	}
}

func (r *runner[S]) handle(ctx actor.Context, cmd any) {
	at := r.sys.moment()
	next, d := r.machine.step(r.state, cmd, at)
	r.carry(ctx, cmd, next, d, at)
	r.settle(at)
	r.info.succeeded(cmd)
}

// stuckElapsed has an actor try again what waits for space.
type stuckElapsed struct{}

const timerStuck = "stuck"

// keepStuck keeps a command whose commit was refused because nothing fits on the disk any more, endings included, and with
// it what comes behind it: some of that is said once and by nobody again.
func (r *runner[S]) keepStuck(cmd any) {
	if batch, ok := cmd.([]any); ok {
		r.stuck = append(r.stuck, batch...)
	} else {
		r.stuck = append(r.stuck, cmd)
	}
	r.timers.arm(arm{timerStuck, spaceTime, stuckElapsed{}})
}

// stuckMost bounds what waits behind a stuck command. Beyond it only what is repeated anyway can come.
const stuckMost = 1000

// standBehind has a command wait behind a stuck one. A worker's frames do not: it says them again until they are durable.
func (r *runner[S]) standBehind(cmd any) {
	if m, ok := cmd.(markWrites); ok { // its asker need not wait to be told that there is no space
		m.answer.give(nil, errNoSpace())
		return
	}
	if _, repeated := cmd.(leaseFrame); !repeated && len(r.stuck) < stuckMost {
		r.stuck = append(r.stuck, cmd)
	}
}

// tryStuck tries again what waits for space, up to the first command that is refused anew.
func (r *runner[S]) tryStuck(ctx actor.Context) {
	stuck := r.stuck
	r.stuck = nil
	if r.machine.gathers {
		r.handle(ctx, stuck)
		return
	}
	for i, cmd := range stuck {
		r.handle(ctx, cmd)
		if len(r.stuck) > 0 {
			r.stuck = append(r.stuck, stuck[i+1:]...)
			return
		}
	}
}

// settle looks at what the state owes now.
func (r *runner[S]) settle(at moment) {
	r.info.state.Store(r.machine.word(r.state))
	if r.machine.resume != nil && !r.ending && !r.left {
		r.owed.show = r.showDebt()
		r.owed.settle(r.sys, r.machine.resume(r.state, at), at.now)
	}
}

// carry commits a decision, takes the new state, and acts. A commit that was refused goes back to the machine.
func (r *runner[S]) carry(ctx actor.Context, cmd any, next S, d decision, at moment) {
	to := r.viewed()
	var began time.Time
	for tries := 0; ; tries++ {
		r.sys.hook(pointDecided, r.self, cmd)
		if to != nil {
			began = time.Now()
		}
		err := r.sys.commit(d)
		if err == nil {
			break
		}
		r.showRefusal(to, cmd, err)
		r.info.failed(cmd, "commit refused: "+err.Error(), "")
		if !r.refusable(err, tries) {
			return
		}
		if errors.Is(err, persistence.ErrNoSpace) && d.class == classEnding && !r.machine.waits && cmd != nil {
			r.keepStuck(cmd)
			return
		}
		refused := commitRefused{cmd: cmd, noSpace: errors.Is(err, persistence.ErrNoSpace), effects: d.effects}
		var in any = refused
		if r.machine.gathers {
			in = []any{refused}
		}
		next, d = r.machine.step(r.state, in, at)
	}
	r.state = next
	if d.durable() {
		r.sys.hook(pointCommitted, r.self, cmd)
	}
	if to != nil {
		r.showDecision(to, cmd, next, &d, time.Since(began))
	}
	for _, e := range d.effects {
		r.act(ctx, e)
	}
}

// refusable tells whether the machine can answer the refusal. A stale writer reloads by way of a panic; an error that
// belongs to no operation ends the process, since after it nothing can be believed.
func (r *runner[S]) refusable(err error, tries int) bool {
	switch {
	case errors.Is(err, persistence.ErrClosed):
		r.ending = true
		return false
	case errors.Is(err, persistence.ErrStaleWriter):
		panic(fmt.Errorf("%s %s: %w", r.self.kind, r.self.id, err))
	case r.sys.distrust(err):
		r.ending = true
		return false
	case tries >= 3:
		panic(fmt.Errorf("%s %s: commit refused again and again: %w", r.self.kind, r.self.id, err))
	default:
		return true
	}
}

// distrust ends the process after an error of a commit that belongs to no operation: what the disk holds is not known any
// more (rule P11). It tells whether it does.
func (sys *System) distrust(err error) bool {
	if persistence.OfOperation(err) || errors.Is(err, persistence.ErrClosed) {
		return false
	}
	sys.fail(fmt.Errorf("commit: %w", err))
	return true
}

func (r *runner[S]) act(ctx actor.Context, e effect) {
	switch e := e.(type) {
	case tell:
		r.sys.tell(e.to, e.msg)
	case respond:
		e.to.give(e.result, e.err)
	case transmit:
		if !r.sys.transmit(e.session, e.frame) && r.machine.kind == kindWorker {
			ctx.Send(ctx.Self(), ownCommand{sessionEnded{e.session}}) // its end may have come before its enrollment
		}
	case hangUp:
		r.sys.hangUp(e.session, e.code, e.text)
	case probe:
		r.sys.probe(e, ctx.Self())
	case arm:
		r.timers.arm(e)
	case disarm:
		r.timers.disarm(e.name)
	case again:
		ctx.Send(ctx.Self(), ownCommand(e))
	case bear:
		if r.going[e.child] || !r.sys.bear(ctx, e) {
			if r.held == nil {
				r.held = make(map[address][]any)
			}
			r.held[e.child] = append(r.held[e.child], e.msg)
		}
	case tellChildren:
		for _, child := range ctx.Children() {
			r.sys.tellPID(child, e.msg)
		}
	case closeLog:
		if err := r.sys.journal.CloseOutput(e.dispatch); err != nil {
			r.sys.log.Warn("output log not closed", slog.String(messages.KeyDispatch, e.dispatch), slog.Any(messages.KeyErr, err))
		}
	case leave:
		r.leave(ctx)
	case rest:
		if len(ctx.Children()) == 0 && len(r.batch) == 0 {
			r.leave(ctx)
		}
	}
}

// leave takes the actor off the route, once its children have left: they are stopped with it, and what stands in their
// mailboxes would be dropped (rule P8).
func (r *runner[S]) leave(ctx actor.Context) {
	r.leaves = true
	if r.left || len(ctx.Children()) > 0 {
		return
	}
	r.left = true
	r.timers.stop()
	r.owed.stop()
	r.sys.leave(ctx, r.self)
}

// commit makes a decision durable.
func (sys *System) commit(d decision) error {
	if !d.durable() {
		return nil
	}
	if d.log != nil {
		chunks := make([]persistence.Chunk, len(d.log.chunks))
		for i, c := range d.log.chunks {
			chunks[i] = persistence.Chunk{Offset: uint64(c.GetOffset()), Stream: c.GetStream(), Time: messages.GoTime(c.GetAt()), Data: c.GetData()}
		}
		if err := sys.journal.AppendOutput(d.log.dispatch, chunks); err != nil {
			return err
		}
	}
	if len(d.writes) == 0 && len(d.erases) == 0 && len(d.events) == 0 {
		return nil
	}
	c := persistence.Commit{
		Class: persistence.Class(d.class), Puts: make([]persistence.Put, len(d.writes)), Deletes: make([]persistence.Delete, len(d.erases)),
		Conditions: make([]persistence.Condition, len(d.requires)), Appends: make([]persistence.Append, len(d.events)),
	}
	// The journal copies what it is given.
	scratch, ok := sys.scratch.Get().(*[]byte)
	if !ok {
		scratch = new([]byte)
	}
	defer sys.scratch.Put(scratch)
	buf := (*scratch)[:0]
	encode := func(m proto.Message) ([]byte, error) {
		start := len(buf)
		var err error
		buf, err = proto.MarshalOptions{}.MarshalAppend(buf, m)
		*scratch = buf[:0]
		return buf[start:len(buf):len(buf)], err
	}
	if err := sys.keepOutputs(d.writes); err != nil {
		return err
	}
	for i, w := range d.writes {
		body, err := encode(withoutOutputs(w.body))
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", w.kind, w.id, err)
		}
		c.Puts[i] = persistence.Put{Kind: persistence.Kind(w.kind), ID: w.id, Expect: w.replaces, State: w.state, Ended: w.ended, Body: body}
	}
	for i, e := range d.erases {
		c.Deletes[i] = persistence.Delete{Kind: persistence.Kind(e.kind), ID: e.id}
	}
	for i, q := range d.requires {
		c.Conditions[i] = persistence.Condition{Kind: persistence.Kind(q.kind), ID: q.id, Version: q.version}
	}
	if d.alive != "" {
		c.Conditions = append(c.Conditions, persistence.Condition{Kind: persistence.KindLease, ID: d.alive, State: string(messages.LeaseActive)})
	}
	for i, e := range d.events {
		body, err := encode(eventWithoutOutputs(e, d.writes))
		if err != nil {
			return fmt.Errorf("encode event of %s: %w", d.stream, err)
		}
		value := &storyEvent{event: e}
		value.parts()
		c.Appends[i] = persistence.Append{Stream: d.stream, Body: body, New: d.newStream && i == 0, Value: value}
	}
	if _, err := sys.journal.Commit(context.Background(), c); err != nil {
		if errors.Is(err, persistence.ErrNoSpace) {
			sys.refusedAt.Store(time.Now().UnixNano())
		}
		return err
	}
	sys.counters.count(d)
	sys.ran.take(d)
	return nil
}

// count counts the births and ends of a commit.
func (c *counters) count(d decision) {
	if d.drained != "" {
		c.drains.add(d.drained)
	}
	for _, w := range d.writes {
		switch {
		case w.kind == kindRun && w.ended:
			c.runsEnded.add(messages.RunStatus(w.state))
			c.runsLive.Add(-1)
		case w.kind == kindRun && w.replaces == 0:
			c.runsLive.Add(1)
		case w.kind == kindStep && messages.StepStatus(w.state).Ended():
			c.stepsEnded.add(messages.StepStatus(w.state))
		}
	}
}

// giveUp answers whoever asked with a command that is given up.
func giveUp(cmd any) {
	err := messages.Faultf(messages.CodeInternal, "internal error: see the orchestrator's log")
	switch c := cmd.(type) {
	case submitRun:
		c.answer.give(nil, err)
	case cancelRun:
		c.answer.give(nil, err)
	case createToken:
		c.answer.give(nil, err)
	case revokeToken:
		c.answer.give(nil, err)
	case drainWorker:
		c.answer.give(nil, err)
	case pauseWorker:
		c.answer.give(nil, err)
	case resumeWork:
		c.answer.give(nil, err)
	case awaitGone:
		c.answer.give(nil, err)
	case markWrites:
		c.answer.give(nil, err)
	}
}
