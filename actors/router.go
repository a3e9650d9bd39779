package actors

import (
	"log/slog"
	"runtime/debug"
	"strings"

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
	}()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		r.info = r.sys.info(ctx.Self())
		r.info.state.Store("routing")
		r.children, r.byID = make(map[string]*routed), make(map[string]*routed)
		r.info.begins()
		if r.info.again() {
			r.sys.dropRefs(r.kind) // its children went with it
			if err := r.sys.wakeLive(r.kind); err != nil {
				panic(err) // tried again after a pause, and given up after ten
			}
		}
	case *actor.Stopping:
		r.stopping = true
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
	case route:
		r.info.received(msg)
		if !r.stopping {
			r.route(ctx, msg)
		}
	}
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

// bear starts the actor of a step below its run.
func (sys *System) bear(ctx actor.Context, e bear) {
	_, name, _ := strings.Cut(e.child.id, "/")
	info := sys.spawn(ctx, ctx.Self().GetId(), sys.stepProps, e.child, name)
	if info == nil {
		return
	}
	msg := e.state
	if msg == nil {
		msg = wake{}
	}
	sys.send(info, msg)
}

// stopChild stops a child that has left, behind what it has queued.
func (sys *System) stopChild(ctx actor.Context, child address) {
	_, name, _ := strings.Cut(child.id, "/")
	id := ctx.Self().GetId() + "/" + name
	if i, ok := sys.byPID.Load(id); ok {
		ctx.Poison(i.(*actorInfo).pid)
	}
}

func (sys *System) dropRefs(kind string) {
	sys.refs.Range(func(k, _ any) bool {
		if a := k.(address); a.kind == kind || (kind == kindRun && a.kind == kindStep) {
			sys.refs.Delete(k)
		}
		return true
	})
}
