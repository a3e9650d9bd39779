package actors

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// poisonAfter is how many panics at one kind of command an actor is given before the command is given up.
const poisonAfter = 5

// actorInfo is what can be seen of an actor from outside. It outlives the instance: a restart keeps it.
type actorInfo struct {
	address address
	pid     *actor.PID
	started time.Time

	queued   atomic.Int64
	trail    trail
	restarts atomic.Int64
	starts   atomic.Int64
	state    atomicWord
	panics   map[string]int
	fault    atomic.Pointer[actorFault]
	plan     *workflow.Plan // of a step; nil: to be found by its run
	backoff  backoff
}

// actorFault is the last that went wrong with an actor: a panic, or a commit that was refused.
type actorFault struct {
	at      time.Time
	command string
	text    string
	stack   string // of a panic
}

// faultStack bounds the stack that is kept, from its beginning.
const faultStack = 8 << 10

func (i *actorInfo) failed(cmd any, text, stack string) {
	i.fault.Store(&actorFault{time.Now(), commandName(cmd), text, stack[:min(len(stack), faultStack)]})
}

type atomicWord struct{ v atomic.Pointer[string] }

func (w *atomicWord) Store(s string) {
	if old := w.v.Load(); old == nil || *old != s {
		w.v.Store(&s)
	}
}

func (w *atomicWord) Load() string {
	if s := w.v.Load(); s != nil {
		return *s
	}
	return ""
}

func (i *actorInfo) received(msg any) {
	i.queued.Add(-1)
	i.trail.take(msg, true)
}

// begins counts a start of the actor, and again tells whether it is not the first one. That is no question of its panics: a
// restart that was meant for a child may meet the one that has its name now. What the instance before had in hand is lost.
func (i *actorInfo) begins() {
	i.starts.Add(1)
	i.trail.done()
}

func (i *actorInfo) again() bool { return i.starts.Load() > 1 }

// panicked, succeeded, suspect and isPoison are called by the actor alone.
func (i *actorInfo) panicked(command string) {
	if i.panics == nil {
		i.panics = make(map[string]int)
	}
	i.panics[command]++
}

func (i *actorInfo) succeeded(cmd any) {
	if len(i.panics) > 0 {
		delete(i.panics, commandKey(cmd))
	}
}

// suspect tells whether a command that has panicked may come again.
func (i *actorInfo) suspect() bool { return len(i.panics) > 0 }

func (i *actorInfo) isPoison(cmd any) bool {
	return len(i.panics) > 0 && i.panics[commandKey(cmd)] >= poisonAfter
}

// identified is a command that is the same one when it comes again.
type identified interface{ identity() string }

// commandKey tells commands apart for the count of panics. A batch of several counts as itself, since nobody knows which of
// them it was.
func commandKey(cmd any) string {
	if batch, ok := cmd.([]any); ok {
		if len(batch) > 1 {
			return "batch"
		}
		cmd = batch[0]
	}
	if given, ok := cmd.(poisoned); ok {
		cmd = given.cmd
	}
	key := commandName(cmd)
	if c, ok := cmd.(identified); ok {
		key += " " + c.identity()
	}
	return key
}

func (i *actorInfo) item() *messages.ActorItem {
	last, _, count := i.trail.last()
	item := &messages.ActorItem{
		Pid: i.pid.GetId(), Kind: i.address.kind, State: i.state.Load(), Mailbox: int32(max(i.queued.Load(), 0)),
		Processed: float64(count), Restarts: int32(i.restarts.Load()), StartedAt: messages.Time(i.started),
	}
	if last.kind != nil {
		name := last.name()
		item.LastMessage, item.LastMessageAt = &name, messages.Time(last.at())
	}
	return item
}

// spawn starts an actor below parent. Its address is routed to from now on.
func (sys *System) spawn(parent actor.SpawnerContext, parentID string, props *actor.Props, at address, name string) *actorInfo {
	return sys.spawnWith(parent, parentID, props, &actorInfo{address: at, started: time.Now()}, name)
}

// spawnWith is spawn with what is known of the actor.
func (sys *System) spawnWith(parent actor.SpawnerContext, parentID string, props *actor.Props, info *actorInfo, name string) *actorInfo {
	id := name
	if parentID != "" {
		id = parentID + "/" + name
	}
	info.pid = actor.NewPID(sys.actors.Address(), id)
	before, had := sys.byPID.Swap(id, info)
	if _, err := parent.SpawnNamed(props, name); err != nil {
		if had {
			sys.byPID.Store(id, before)
		} else {
			sys.byPID.Delete(id)
		}
		// Its predecessor has not gone yet. Whoever wanted it asks again (rule P8).
		sys.log.Debug("actor not started", slog.String(messages.KeyPID, id), slog.Any(messages.KeyErr, err))
		return nil
	}
	sys.refs.Store(info.address, info)
	return info
}

// info is the entry of an actor that has been spawned.
func (sys *System) info(pid *actor.PID) *actorInfo {
	if i, ok := sys.byPID.Load(pid.GetId()); ok {
		return i.(*actorInfo)
	}
	return &actorInfo{pid: pid, started: time.Now()}
}

func (sys *System) addressOf(id string) address {
	if i, ok := sys.byPID.Load(id); ok {
		return i.(*actorInfo).address
	}
	return address{}
}

// forget drops an actor that has terminated.
func (sys *System) forget(id string) {
	if i, ok := sys.byPID.LoadAndDelete(id); ok {
		sys.refs.CompareAndDelete(i.(*actorInfo).address, i)
	}
}

// tell sends a message to the actor of that address. One that does not live is started by its router; a step that does
// not is answered for by its run, and a session that does not is gone. A confirmation starts nobody.
func (sys *System) tell(to address, msg any) {
	if i, ok := sys.refs.Load(to); ok {
		sys.send(i.(*actorInfo), msg)
		return
	}
	if confirms(msg) {
		return
	}
	switch to.kind {
	case kindStep:
		run, _, _ := strings.Cut(to.id, "/")
		sys.tell(address{kindRun, run}, forStep{to, msg})
	case kindWorker, kindToken, kindRun, kindLease:
		if i, ok := sys.refs.Load(routerOf(to.kind)); ok {
			sys.send(i.(*actorInfo), route{to, msg})
		}
	}
}

func (sys *System) send(i *actorInfo, msg any) {
	i.queued.Add(1)
	sys.actors.Root.Send(i.pid, msg)
}

// tellPID sends to an actor by its PID, and drops the message if it is gone.
func (sys *System) tellPID(pid *actor.PID, msg any) {
	if i, ok := sys.byPID.Load(pid.GetId()); ok {
		if counted(msg) {
			i.(*actorInfo).queued.Add(1)
		}
		sys.actors.Root.Send(pid, msg)
	}
}

// counted tells whether a message counts as work of its actor: its own timers do not.
func counted(msg any) bool {
	switch msg.(type) {
	case timerElapsed, owedElapsed, flushBatch, childLeft, waveTick:
		return false
	default:
		return true
	}
}
