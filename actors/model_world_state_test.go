package actors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// world is the orchestrator without actors, sockets, clocks and disks: the machines, mailboxes between them, a store and
// workers. Everything that happens is drawn, so that a failure shrinks to the few things that it takes.
type world struct {
	t        *rapid.T
	now      time.Time
	store    *modelStore
	machines map[string]*modelMachine
	refs     map[address]*node // where messages go
	leaving  map[address]*node // off the route, to be stopped
	routers  map[string][]any  // the mail of the routers, by kind
	sessions map[uint64]*modelSession
	agents   []*agent
	runs     map[string]*modelRun
	plans    map[string]*workflow.Plan // by source digest
	limit    time.Duration
	grace    time.Duration
	trace    []string
	running  map[string]string // step key to the dispatch that runs now
	writes   []*modelWrite     // that the data plane is at
	wrote    map[string]string // step key to the dispatch whose data is durable
	admitted map[string]int    // dispatch frames that were taken by a worker
	good     map[string]bool   // step keys with a success that was reported

	aliveUntil time.Time // of the boot before
}

// modelMachine is a machine without its types.
type modelMachine struct {
	load    func(w *world, self address, at moment) any
	begin   func(w *world, msg any) (any, bool)
	step    func(s, cmd any, at moment) (any, decision)
	gathers bool
	resume  func(s any, at moment) []obligation
	start   func(w *world, s any, at moment) decision
}

// node is one actor.
type node struct {
	addr   address
	m      *modelMachine
	loaded bool
	state  any
	mail   []any
	timers map[string]modelTimer
	armed  uint64
	owed   []modelOwed
	leaves bool
	held   []any // for the next one of that name
}

type modelTimer struct {
	number uint64
	due    time.Time
	cmd    any
	fired  bool
}

type modelOwed struct {
	obligation
	due  time.Time
	wait time.Duration
}

// fault is where a panic hits the handling of a message.
type fault int

const (
	noFault fault = iota
	panicDecided
	panicCommitted
	panicBetweenEffects
)

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	trace := w.trace
	if n := len(trace); n > 300 {
		trace = slices.Concat(trace[:200], []string{"[...]"}, trace[n-100:])
	}
	w.t.Logf("what happened:\n  %s", strings.Join(trace, "\n  "))
	w.t.Fatalf(format, args...)
}

func (w *world) tracef(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) moment() moment {
	w.store.sequence++
	return moment{now: w.now, sequence: w.store.sequence, epoch: w.store.epoch}
}

// tell sends a message. It stands in the mailbox at once where the actor lives; else its router has to start one first,
// and what is sent meanwhile may come before it. A step that does not live is answered for by its run.
func (w *world) tell(to address, msg any) {
	if to.kind == kindSession {
		for _, s := range w.sessions {
			if sessionAddress(s.number) == to {
				s.mail = append(s.mail, msg)
			}
		}
		return
	}
	if n := w.refs[to]; n != nil {
		n.mail = append(n.mail, msg)
		return
	}
	if confirms(msg) {
		return
	}
	switch to.kind {
	case kindStep:
		run, _, _ := strings.Cut(to.id, "/")
		w.tell(address{kindRun, run}, forStep{to, msg})
	case kindWorker, kindToken, kindRun, kindLease:
		w.routers[to.kind] = append(w.routers[to.kind], route{to, msg})
	case kindRouter:
		for _, kind := range []string{kindWorker, kindToken, kindRun, kindLease} {
			if routerOf(kind) == to {
				w.routers[kind] = append(w.routers[kind], msg)
			}
		}
	}
}

// route has a router handle its next message.
func (w *world) route(kind string) {
	next := w.routers[kind][0]
	w.routers[kind] = w.routers[kind][1:]
	switch msg := next.(type) {
	case broadcast:
		for _, n := range w.nodes() {
			if n.addr.kind == kind && w.refs[n.addr] == n {
				n.mail = append(n.mail, msg.msg)
			}
		}
		if _, fresh := msg.msg.(schedulerStarted); fresh && kind == kindRun {
			for _, id := range slices.Sorted(slices.Values(w.store.live(kindRun))) {
				w.tell(runAddress(id), wakeRun{})
			}
		}
	case runUp: // the model wakes all at once
	case route:
		n := w.refs[msg.to]
		if old := w.leaving[msg.to]; n == nil && old != nil {
			old.held = append(old.held, msg.msg)
			return
		}
		if n == nil {
			n = w.spawn(msg.to)
		}
		n.mail = append(n.mail, msg.msg)
	default:
		w.fatalf("a router is told %T", next)
	}
}

// busyRouters are the kinds whose routers have mail.
func (w *world) busyRouters() []string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(w.routers)) {
		if len(w.routers[kind]) > 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (w *world) spawn(at address) *node {
	n := &node{addr: at, m: w.machines[at.kind], timers: make(map[string]modelTimer)}
	w.refs[at] = n
	return n
}

// nodes are all actors, in a fixed order.
func (w *world) nodes() []*node {
	all := slices.Collect(maps.Values(w.refs))
	all = slices.AppendSeq(all, maps.Values(w.leaving))
	slices.SortFunc(all, func(a, b *node) int {
		return strings.Compare(a.addr.kind+" "+a.addr.id, b.addr.kind+" "+b.addr.id)
	})
	return all
}

// take takes the next messages of a mailbox.
func (n *node) take(count int) []any {
	taken := slices.Clone(n.mail[:count])
	n.mail = slices.Delete(n.mail, 0, count)
	return taken
}

// receive handles one message of a node, or more of them where it gathers.
func (w *world) receive(n *node, picked []any, f fault) {
	var cmds []any
	for _, msg := range picked {
		switch m := msg.(type) {
		case modelElapsed:
			if set, ok := n.timers[m.name]; ok && set.number == m.number {
				delete(n.timers, m.name)
				cmds = append(cmds, set.cmd)
			}
		case ownCommand:
			cmds = append(cmds, m.cmd)
		default:
			cmds = append(cmds, msg)
		}
	}
	if len(cmds) == 0 {
		return
	}
	if w.leaving[n.addr] == n { // what still comes is for the next one of its name
		for _, msg := range picked {
			w.retell(n, msg)
		}
		return
	}
	w.tracef("%s %s takes %s%s", n.addr.kind, n.addr.id, describe(cmds), faultName(f))
	w.load(n, cmds[0])
	cmds = slices.DeleteFunc(cmds, func(c any) bool { _, ok := c.(wake); return ok })
	if len(cmds) == 0 {
		return
	}
	cmd := cmds[0]
	if n.m.gathers {
		cmd = cmds
	}
	at := w.moment()
	next, d := n.m.step(n.state, cmd, at)
	if !w.carry(n, cmd, next, d, at, f) {
		w.restart(n)
		return
	}
	w.settle(n)
}

type modelElapsed struct {
	name   string
	number uint64
}

// load makes a node's state known.
func (w *world) load(n *node, msg any) {
	if n.loaded {
		return
	}
	at := w.moment()
	if n.m.begin != nil {
		if state, ok := n.m.begin(w, msg); ok {
			n.state, n.loaded = state, true
			w.settle(n)
			return
		}
	}
	n.state, n.loaded = n.m.load(w, n.addr, at), true
	if n.m.start != nil {
		w.carry(n, nil, n.state, n.m.start(w, n.state, at), at, noFault)
	}
	if _, chosen := msg.(assignStep); !chosen {
		w.settle(n)
	}
}

// restart is what follows a panic: the message in hand is lost, the mailbox is not, a run's children go with it.
func (w *world) restart(n *node) {
	w.dropChildren(n)
	n.loaded, n.state, n.owed, n.leaves = false, nil, nil, false
	n.timers = make(map[string]modelTimer)
	w.load(n, nil)
}

func (w *world) dropChildren(n *node) {
	for _, at := range w.children(n) {
		delete(w.refs, at)
		delete(w.leaving, at)
	}
}

// carry commits and acts. It is false where the node panicked on the way.
func (w *world) carry(n *node, cmd, next any, d decision, at moment, f fault) bool {
	if f == panicDecided {
		return false
	}
	for tries := 0; ; tries++ {
		broken, err := w.store.commit(d)
		if broken != "" {
			w.fatalf("commit of %s %s: %s", n.addr.kind, n.addr.id, broken)
		}
		if err == nil {
			break
		}
		if tries == 3 {
			w.fatalf("commit of %s %s is refused again and again: %v", n.addr.kind, n.addr.id, err)
		}
		w.tracef("  refused: %v", err)
		refused := commitRefused{cmd: cmd, noSpace: errors.Is(err, errModelNoSpace), effects: d.effects}
		var in any = refused
		if n.m.gathers {
			in = []any{refused}
		}
		next, d = n.m.step(n.state, in, at)
	}
	n.state = next
	if d.durable() {
		w.checkCommit(d)
	}
	if f == panicCommitted {
		return false
	}
	for i, e := range d.effects {
		if f == panicBetweenEffects && i > 0 {
			return false
		}
		w.act(n, e)
	}
	return true
}

// act does one effect.
func (w *world) act(n *node, e effect) {
	switch e := e.(type) {
	case tell:
		w.tell(e.to, e.msg)
	case respond:
		e.to.give(e.result, e.err)
	case transmit:
		if !w.transmit(e) && n.addr.kind == kindWorker {
			n.mail = append(n.mail, ownCommand{sessionEnded{e.session}})
		}
	case hangUp:
		if s := w.sessions[e.session]; s != nil && s.open {
			s.hungUp = true
		}
	case probe:
		w.probe(n, e)
	case arm:
		n.armed++
		n.timers[e.name] = modelTimer{number: n.armed, due: w.now.Add(e.after), cmd: e.cmd}
	case disarm:
		delete(n.timers, e.name)
	case again:
		n.mail = append(n.mail, ownCommand(e))
	case bear:
		c := w.refs[e.child]
		if old := w.leaving[e.child]; c == nil && old != nil {
			old.held = append(old.held, e.msg)
			return
		}
		if c == nil {
			c = w.spawn(e.child)
		}
		c.mail = append(c.mail, e.msg)
	case tellChildren:
		for _, c := range w.nodes() {
			if c.addr.kind == kindStep && strings.HasPrefix(c.addr.id, n.addr.id+"/") {
				c.mail = append(c.mail, e.msg)
			}
		}
	case leave:
		n.leaves = true
		w.leave(n)
	case rest:
		w.leave(n)
	case closeLog:
	default:
		w.fatalf("effect %T is new here", e)
	}
}

// leave takes a node off the route, once its children have left.
func (w *world) leave(n *node) {
	if w.refs[n.addr] == n && len(w.children(n)) == 0 {
		delete(w.refs, n.addr)
		w.leaving[n.addr] = n
		n.timers, n.owed = nil, nil
		mail := n.mail
		n.mail = nil
		for _, msg := range mail { // for the next one of its name
			w.retell(n, msg)
		}
	}
}

// retell sends what came for a node that has left to the next one of its name.
func (w *world) retell(n *node, msg any) {
	switch msg.(type) {
	case modelElapsed, ownCommand, wake:
	default:
		w.tell(n.addr, msg)
	}
}

// children are the addresses of the steps below a run.
func (w *world) children(n *node) []address {
	var below []address
	for _, m := range []map[address]*node{w.refs, w.leaving} {
		for at := range m {
			if n.addr.kind == kindRun && at.kind == kindStep && strings.HasPrefix(at.id, n.addr.id+"/") {
				below = append(below, at)
			}
		}
	}
	return below
}

// terminate ends a node that has left and has no mail any more.
func (w *world) terminate(n *node) {
	delete(w.leaving, n.addr)
	run, _, _ := strings.Cut(n.addr.id, "/")
	if parent := w.refs[address{kindRun, run}]; n.addr.kind == kindStep && parent != nil && parent.leaves {
		w.leave(parent)
	}
	for _, msg := range n.held {
		w.tell(n.addr, msg)
	}
}

// settle is the ledger: what is new is told, what is not owed any more is dropped.
func (w *world) settle(n *node) {
	if n.m.resume == nil || w.leaving[n.addr] == n {
		return
	}
	old := n.owed
	n.owed = nil
	for _, o := range n.m.resume(n.state, moment{now: w.now, sequence: w.store.sequence, epoch: w.store.epoch}) {
		if i := slices.IndexFunc(old, func(e modelOwed) bool { return e.id == o.id }); i >= 0 {
			n.owed = append(n.owed, old[i])
			continue
		}
		wait := o.every
		if wait == 0 {
			wait = owedFirst
		}
		n.owed = append(n.owed, modelOwed{o, w.now.Add(wait), wait})
		if !o.told {
			w.tell(o.to, o.msg)
		}
	}
}

// repeat tells again what is due.
func (w *world) repeat(n *node) {
	for i := range n.owed {
		if e := &n.owed[i]; !e.due.After(w.now) {
			e.wait = min(2*e.wait, max(owedMax, e.every))
			e.due = w.now.Add(e.wait)
			w.tell(e.to, e.msg)
		}
	}
}

// boot starts the orchestrator over what the store has.
func (w *world) boot() {
	w.refs, w.leaving, w.routers = make(map[address]*node), make(map[address]*node), make(map[string][]any)
	w.store.epoch++
	w.sweep()
	w.spawn(schedulerAddress())
	w.tell(schedulerAddress(), wake{})
	wakes := []address{}
	for _, id := range w.store.live(kindWorker) {
		r := &messages.WorkerRecord{}
		w.store.read(kindWorker, id, r)
		if r.GetConnected() {
			wakes = append(wakes, workerAddress(id))
		}
	}
	for _, id := range w.store.live(kindToken) {
		r := &messages.TokenRecord{}
		w.store.read(kindToken, id, r)
		if !messages.TokenState(r.GetState()).Ended() {
			wakes = append(wakes, tokenAddress(id))
		}
	}
	slices.SortFunc(wakes, func(a, b address) int { return strings.Compare(a.kind+a.id, b.kind+b.id) })
	for _, at := range wakes {
		w.tell(at, wake{})
	}
}

// crash is the end of the process: what is not in the store is gone.
func (w *world) crash() {
	for _, s := range w.sessions {
		s.serverLost(w)
	}
	w.aliveUntil = w.now
	w.writes = nil
	w.boot()
}
