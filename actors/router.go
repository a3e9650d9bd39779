package actors

import (
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/messages"
)

// route is a message on its way to an actor that may have to be started.
type route struct {
	to  address
	msg any
}

// broadcast goes to every child.
type broadcast struct{ msg any }

// childLeft says that a child has ended and has nothing more to do.
type childLeft struct{ child address }

// wake makes an actor start and read what it is.
type wake struct{}

// routerOf is the parent of all actors of one kind.
func routerOf(kind string) address {
	switch kind {
	case kindWorker:
		return address{kindRouter, "fleet"}
	case kindToken:
		return address{kindRouter, "tokens"}
	case kindRun:
		return address{kindRouter, "runs"}
	case kindLease:
		return address{kindRouter, "leases"}
	default:
		return address{kindRouter, "sessions"}
	}
}

// router spawns and routes, and does nothing else. A child that says it has ended is stopped behind what it still has
// queued; what comes for its name meanwhile is held, for the name is used again only once the child has terminated.
type router struct {
	sys      *System
	kind     string
	props    *actor.Props
	info     *actorInfo
	children map[string]*routed // by PID
	byID     map[string]*routed
	stopping bool
	wave     wave // of runs
}

type routed struct {
	address address
	pid     *actor.PID
	leaving bool
	held    []any
}

func (r *router) Receive(ctx actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			r.sys.log.Error("router panicked", slog.String(messages.KeyPID, ctx.Self().GetId()), slog.Any(messages.KeyErr, p),
				slog.String(messages.KeyStack, string(debug.Stack())))
			panic(p)
		}
		r.info.trail.done()
	}()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		r.info = r.sys.info(ctx.Self())
		r.info.state.Store("routing")
		r.children, r.byID = make(map[string]*routed), make(map[string]*routed)
		r.info.begins()
		if r.info.again() {
			r.sys.dropRefs(r.kind) // its children went with it
			if err := r.wakeLive(ctx); err != nil {
				panic(err) // tried again after a pause, and given up after ten
			}
		}
	case *actor.Stopping:
		r.stopping = true
		r.wave.stop()
	case *actor.Restarting:
		r.wave.stop()
	case *actor.Terminated:
		r.terminated(ctx, msg.Who)
	case childLeft:
		if c := r.byID[msg.child.id]; c != nil && !c.leaving {
			c.leaving = true
			ctx.Poison(c.pid)
		}
	case broadcast:
		r.info.received(msg)
		for _, c := range r.children {
			if !c.leaving {
				r.sys.tellPID(c.pid, msg.msg)
			}
		}
		if _, fresh := msg.msg.(schedulerStarted); fresh && r.kind == kindRun {
			// A new scheduler knows of nobody, and those who rest do not hear of it.
			if err := r.rouseAll(ctx); err != nil {
				panic(err) // tried again after a pause, and given up after ten
			}
		}
	case runUp:
		r.info.received(msg)
		r.runUp(ctx)
	case settleAgain: // the scheduler's line is not what waits
		r.info.received(msg)
		if r.kind == kindRun {
			r.lineUp(ctx)
		}
	case waveTick:
		r.tick(ctx)
	case lookInside:
		msg.tellFacts(r.facts()...)
	case route:
		r.info.received(msg)
		if !r.stopping {
			r.route(ctx, msg)
		}
	}
}

// facts are what the router knows.
func (r *router) facts() []fact {
	leaving, held := 0, 0
	for _, c := range r.children {
		if c.leaving {
			leaving++
		}
		held += len(c.held)
	}
	return []fact{{"children", len(r.children)}, {"leaving", leaving}, {"heldForTheirNextOnes", held}, {"stopping", r.stopping}}
}

// wakeLive starts the actors that have something to do.
func (r *router) wakeLive(ctx actor.Context) error {
	if r.kind == kindRun {
		return r.rouseAll(ctx)
	}
	return r.sys.wakeLive(r.kind)
}

func (r *router) route(ctx actor.Context, msg route) {
	c := r.byID[msg.to.id]
	if c == nil {
		info := r.sys.spawn(ctx, ctx.Self().GetId(), r.props, msg.to, msg.to.id)
		if info == nil {
			return
		}
		c = &routed{address: msg.to, pid: info.pid}
		r.byID[msg.to.id], r.children[info.pid.GetId()] = c, c
	}
	if c.leaving {
		c.held = append(c.held, msg.msg)
		return
	}
	r.sys.tellPID(c.pid, msg.msg)
}

func (r *router) terminated(ctx actor.Context, pid *actor.PID) {
	c := r.children[pid.GetId()]
	if c == nil {
		return
	}
	delete(r.children, pid.GetId())
	delete(r.byID, c.address.id)
	r.sys.forget(pid.GetId())
	if r.stopping {
		return
	}
	for _, msg := range c.held {
		r.route(ctx, route{c.address, msg})
	}
}

// leave takes an actor off the route and asks its parent to stop it.
func (sys *System) leave(ctx actor.Context, self address) {
	if i, ok := sys.refs.LoadAndDelete(self); ok {
		sys.actors.Root.Send(ctx.Parent(), childLeft{i.(*actorInfo).address})
	}
}

// bear gives a message to the actor of a step below its run, and starts it if it does not live. It is false where its
// predecessor has not gone yet.
func (sys *System) bear(ctx actor.Context, e bear) bool {
	if i, ok := sys.refs.Load(e.child); ok {
		sys.send(i.(*actorInfo), e.msg)
		return true
	}
	_, name, _ := strings.Cut(e.child.id, "/")
	info := sys.spawnWith(ctx, ctx.Self().GetId(), sys.stepProps, &actorInfo{address: e.child, started: time.Now(), plan: e.plan}, name)
	if info == nil {
		return false
	}
	sys.send(info, e.msg)
	return true
}

// stopChild stops a child that has left, behind what it has queued. It is false where there is none.
func (sys *System) stopChild(ctx actor.Context, child address) bool {
	_, name, _ := strings.Cut(child.id, "/")
	i, ok := sys.byPID.Load(ctx.Self().GetId() + "/" + name)
	if ok {
		ctx.Poison(i.(*actorInfo).pid)
	}
	return ok
}

func (sys *System) dropRefs(kind string) {
	sys.refs.Range(func(k, _ any) bool {
		if a := k.(address); a.kind == kind || (kind == kindRun && a.kind == kindStep) {
			sys.refs.Delete(k)
		}
		return true
	})
}
