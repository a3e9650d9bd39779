package actors

import (
	"fmt"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// rootActor starts its children in order and supervises them. Whoever Start waits for is told when the actors of all
// that is unfinished have been asked to start.
type rootActor struct {
	sys     *System
	started *answer
}

func (r *rootActor) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		r.sys.info(ctx.Self()).state.Store("supervising")
		r.started.give(nil, r.start(ctx))
	case *actor.Terminated:
		r.sys.forget(msg.Who.GetId())
	case lookInside:
		msg.tellFacts(fact{"children", len(ctx.Children())})
	}
}

func (r *rootActor) start(ctx actor.Context) error {
	sys := r.sys
	id := ctx.Self().GetId()
	if err := sys.reconcile(); err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	for _, kind := range []string{kindLease, kindRun, kindToken, kindWorker, kindSession} {
		props := sys.props(func() actor.Actor { return &router{sys: sys, kind: kind, props: sys.propsOf(kind)} })
		if sys.spawn(ctx, id, props, routerOf(kind), routerOf(kind).id) == nil {
			return fmt.Errorf("start %s", routerOf(kind).id)
		}
	}
	if sys.spawn(ctx, id, sys.schedulerProps, schedulerAddress(), kindScheduler) == nil {
		return fmt.Errorf("start %s", kindScheduler)
	}
	sys.tell(schedulerAddress(), wake{})
	for _, kind := range []string{kindWorker, kindToken} { // runs are woken once there is a scheduler
		if err := sys.wakeLive(kind); err != nil {
			return err
		}
	}
	return nil
}

func (sys *System) propsOf(kind string) *actor.Props {
	switch kind {
	case kindWorker:
		return sys.workerProps
	case kindToken:
		return sys.tokenProps
	case kindRun:
		return sys.runProps
	case kindLease:
		return sys.leaseProps
	default:
		return sys.sessionProps
	}
}

// wakeLive starts the actors of a kind that have something to do: tokens that may still expire, workers that are thought to
// be connected.
func (sys *System) wakeLive(kind string) error {
	var err error
	switch kind {
	case kindToken:
		err = sys.scan(persistence.KindToken, false, "", newBody[messages.TokenRecord], func(rec persistence.Record, m proto.Message) bool {
			if !messages.TokenState(m.(*messages.TokenRecord).GetState()).Ended() {
				sys.tell(tokenAddress(rec.ID), wake{})
			}
			return true
		})
	case kindWorker:
		err = sys.scan(persistence.KindWorker, false, "", newBody[messages.WorkerRecord], func(rec persistence.Record, m proto.Message) bool {
			if m.(*messages.WorkerRecord).GetConnected() {
				sys.tell(workerAddress(rec.ID), wake{})
			}
			return true
		})
	}
	if err != nil {
		sys.log.Error("live records not read", slog.String(messages.KeyKind, kind), slog.Any(messages.KeyErr, err))
		return fmt.Errorf("read live records of kind %s: %w", kind, err)
	}
	return nil
}

func newBody[M any, P interface {
	*M
	proto.Message
}]() proto.Message {
	return P(new(M))
}
