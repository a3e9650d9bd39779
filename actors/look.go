package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/persistence"
)

// lookLimit is how long an actor has to say what it believes. One that does not is stuck, and is shown as that.
const lookLimit = 2 * time.Second

// looksLimit is how long several actors have together.
const looksLimit = 3 * time.Second

// Errors of a look inside.
var (
	errStuck = errors.New("the actor does not answer")
	errGone  = errors.New("the actor has gone")
)

// lookInside asks an actor what it believes, in the order of its mailbox. It is no work: it is not counted, starts nobody and
// changes nothing.
type lookInside struct{ answer *answer }

// An insight answers lookInside.
type insight struct {
	view     view
	record   persistence.Record // what the journal has of it at the same moment; of the view's kind and id
	noRecord bool
	gathered int // commands that have been taken and wait for the commit that they share
	held     int // commands that wait for space
	timers   []timerView
	owes     []debtView
}

// A view is what an actor believes.
type view struct {
	// record is what its record would be, had it to be written now; nil: it has none.
	record *write
	// ahead are fields of the record in which memory may be ahead of the journal: they are written along with something else.
	ahead []string
	facts []fact
	// lease is set by a lease.
	lease *leaseView
}

// A fact is something that an actor knows beside its record.
type fact struct {
	name  string
	value any
}

type timerView struct {
	name, waitsFor string
	at             time.Time
}

type debtView struct {
	to      address
	message string
	at      time.Time
}

// look asks the actor of an entry.
func (sys *System) look(ctx context.Context, info *actorInfo) (insight, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	a := newAnswer()
	sys.actors.Root.Send(info.pid, lookInside{a})
	select {
	case got := <-a.ch:
		in, _ := got.result.(insight)
		return in, got.err
	case <-sys.failed:
		return insight{}, errStuck
	case <-ctx.Done():
		if now, ok := sys.byPID.Load(info.pid.GetId()); !ok || now != any(info) {
			return insight{}, errGone
		}
		return insight{}, errStuck
	}
}

// lookAt asks the actor of an address, if it lives.
func (sys *System) lookAt(ctx context.Context, at address) (insight, error) {
	i, ok := sys.refs.Load(at)
	if !ok {
		return insight{}, errGone
	}
	return sys.look(ctx, i.(*actorInfo))
}

// looked answers a look inside. Whatever is wrong with the answer is no harm to the actor.
func (r *runner[S]) looked(ctx actor.Context, q lookInside) {
	defer func() {
		if p := recover(); p != nil {
			q.answer.give(nil, fmt.Errorf("look inside %s: %v", ctx.Self().GetId(), p))
		}
	}()
	in := insight{gathered: len(r.batch), held: len(r.stuck), timers: r.timers.view(), owes: r.owed.view()}
	if r.loaded && r.machine.view != nil {
		in.view = r.machine.view(r.state, r.sys.moment())
	}
	if w := in.view.record; w != nil {
		var err error
		in.record, err = r.sys.journal.Get(persistence.Kind(w.kind), w.id)
		switch {
		case errors.Is(err, persistence.ErrNotFound):
			in.noRecord = true
		case err != nil:
			q.answer.give(nil, fmt.Errorf("read %s %s: %w", w.kind, w.id, err))
			return
		}
	}
	q.answer.give(in, nil)
}

// tellFacts answers a look at an actor that is no machine.
func (q lookInside) tellFacts(facts ...fact) { q.answer.give(insight{view: view{facts: facts}}, nil) }
