package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/workflow"
)

// props makes the Props that all actors of a kind share: a Props of its own would cost each waiting step 500 bytes.
func (sys *System) props(producer actor.Producer) *actor.Props {
	return actor.PropsFromProducer(producer, actor.WithSupervisor(&supervision{sys}), actor.WithDispatcher(sys.dispatcher),
		actor.WithMailbox(func() actor.Mailbox { return &mailbox{dispatcher: sys.dispatcher} }))
}

func runnerProps[S any](sys *System, m *machine[S]) *actor.Props {
	return sys.props(func() actor.Actor { return &runner[S]{sys: sys, machine: m} })
}

func (sys *System) makeProps() {
	sys.schedulerProps = runnerProps(sys, &machine[*schedulerState]{
		kind: kindScheduler, load: loadScheduler, step: stepScheduler,
		word: func(*schedulerState) string { return "scheduling" }, view: viewScheduler,
	})
	sys.workerProps = runnerProps(sys, &machine[workerState]{
		kind: kindWorker, load: loadWorker, step: stepWorker, resume: resumeWorker, start: startWorker,
		word: func(w workerState) string {
			return string(messages.StatusOf(w.connected, w.intent, w.health, len(w.leases)))
		},
		view: viewWorker,
	})
	sys.tokenProps = runnerProps(sys, &machine[tokenState]{
		kind: kindToken, load: loadToken, gathers: true, resume: resumeToken,
		step:  func(t tokenState, cmd any, at moment) (tokenState, decision) { return stepToken(t, cmd.([]any), at) },
		start: func(t tokenState, at moment) decision { return decision{effects: t.timers(at)} },
		word:  func(t tokenState) string { return string(t.state) },
		view:  viewToken,
	})
	sys.runProps = runnerProps(sys, &machine[*runState]{
		kind: kindRun, load: loadRun, gathers: true, waits: true, resume: owedByRun,
		step:  func(s *runState, cmd any, at moment) (*runState, decision) { return stepRun(s, cmd.([]any), at) },
		start: func(s *runState, at moment) decision { return s.resume(at) },
		word:  func(s *runState) string { return string(s.status) },
		view:  viewRun,
	})
	sys.stepProps = runnerProps(sys, &machine[stepState]{
		kind: kindStep, load: loadStep, step: stepStep, resume: resumeStep,
		answers: func(msg any) bool { _, chosen := msg.(assignStep); return chosen }, // an offer
		start:   func(stepState, moment) decision { return decision{effects: []effect{again{rejoin{sys.aliveUntil}}}} },
		begin:   func(msg any) (stepState, bool) { b, ok := msg.(beginStep); return b.state, ok },
		word:    func(s stepState) string { return string(s.status) },
		view:    viewStep,
	})
	sys.leaseProps = runnerProps(sys, &machine[leaseState]{
		kind: kindLease, load: loadLease, step: stepLease, resume: resumeLease,
		begin: sys.beginLease,
		start: func(l leaseState, _ moment) decision { return l.found() },
		word:  func(l leaseState) string { return string(l.state) },
		view:  viewLease,
	})
	sys.sessionProps = sys.props(func() actor.Actor { return &session{sys: sys} })
}

// read decodes a record into body, and returns its version; 0 where there is none.
func (sys *System) read(kind persistence.Kind, id string, body proto.Message) (uint64, error) {
	rec, err := sys.journal.Get(kind, id)
	if errors.Is(err, persistence.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := proto.Unmarshal(rec.Body, body); err != nil {
		return 0, fmt.Errorf("decode %s %s: %w", kind, id, err)
	}
	sys.fetchOutputs(body)
	return rec.Version, nil
}

// loadScheduler begins a new epoch: what was promised under an older one cannot be committed any more, and everybody
// who has a part in the pool or the line is asked to say so.
func loadScheduler(sys *System, _ address, _ moment) (*schedulerState, error) {
	version, err := sys.read(persistence.KindScheduler, kindScheduler, &messages.SchedulerRecord{})
	if err != nil {
		return nil, err
	}
	body, err := proto.Marshal(&messages.SchedulerRecord{Epoch: version + 1})
	if err != nil {
		return nil, err
	}
	_, err = sys.journal.Commit(context.Background(), persistence.Commit{Puts: []persistence.Put{
		{Kind: persistence.KindScheduler, ID: kindScheduler, Expect: version, State: "current", Body: body},
	}})
	if err != nil {
		sys.distrust(err)
		return nil, err
	}
	s := newScheduler(version+1, sys.cfg.LoopbackSlots > 0)
	// No lease can be born of an older promise any more, so these are all that there are. Workers and steps may introduce
	// themselves before the leases do, and would be given each other over slots that are taken.
	err = sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(_ persistence.Record, m proto.Message) bool {
		l := m.(*messages.LeaseRecord)
		s.take(l.GetDispatchId(), &slot{worker: l.GetWorker()})
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{kindRun, kindWorker, kindLease} {
		if i, ok := sys.refs.Load(routerOf(kind)); ok {
			sys.send(i.(*actorInfo), broadcast{schedulerStarted{version + 1}})
		}
	}
	return s, nil
}

func loadWorker(sys *System, self address, _ moment) (workerState, error) {
	r := &messages.WorkerRecord{}
	name := unescape(self.id)
	version, err := sys.read(persistence.KindWorker, name, r)
	if err != nil || version == 0 {
		return workerFrom(name, nil, 0, sys.timing), err
	}
	w := workerFrom(name, r, version, sys.timing)
	_, w.sessionLives = sys.conns.Load(w.session)
	return w, nil
}

// startWorker settles what a worker's record says of a connection: after a restart of the process there is none, and
// after one of the actor alone its leases have to introduce themselves again.
func startWorker(w workerState, at moment) decision {
	var d decision
	if w.version > 0 {
		d.then(tell{routerOf(kindLease), broadcast{workerStarted{w.name}}})
	}
	switch {
	case w.connected && !w.sessionLives:
		d.then(again{sessionEnded{w.session}})
	case !w.connected:
		if w.sessionLives { // it was to be told to go
			d.then(again{dismissAgain{}})
		}
		d.then(w.idle())
	}
	d.then(w.pauseTimer(at)...)
	if w.sessionLives { // an order may have been lost with the actor before
		_, again := w.orderAgain()
		d.then(again.effects...)
	}
	if w.health == messages.HealthUnhealthy {
		d.then(arm{timerProbation, probation(0), probationElapsed{}})
	}
	return d
}

func loadToken(sys *System, self address, _ moment) (tokenState, error) {
	r := &messages.TokenRecord{}
	name := unescape(self.id)
	version, err := sys.read(persistence.KindToken, name, r)
	if err != nil || version == 0 {
		return tokenFrom(name, nil, 0, nil), err
	}
	bindings, err := sys.bindings(name, r.GetGeneration())
	return tokenFrom(name, r, version, bindings), err
}

func (sys *System) bindings(token string, generation uint32) ([]*messages.BindingRecord, error) {
	var bindings []*messages.BindingRecord
	prefix := bindingID(token, generation, "")
	err := sys.scan(persistence.KindBinding, false, prefix, func() proto.Message { return &messages.BindingRecord{} }, func(_ persistence.Record, m proto.Message) bool {
		bindings = append(bindings, m.(*messages.BindingRecord))
		return true
	})
	return bindings, err
}

// scan decodes the records of a scan; one that cannot be decoded is an error.
func (sys *System) scan(kind persistence.Kind, ended bool, prefix string, body func() proto.Message, fn func(persistence.Record, proto.Message) bool) error {
	var decodeErr error
	err := sys.journal.Scan(kind, ended, prefix, "", func(rec persistence.Record) bool {
		m := body()
		if err := proto.Unmarshal(rec.Body, m); err != nil {
			decodeErr = fmt.Errorf("decode %s %s: %w", kind, rec.ID, err)
			return false
		}
		return fn(rec, m)
	})
	return errors.Join(err, decodeErr)
}

func loadRun(sys *System, self address, at moment) (*runState, error) {
	id := unescape(self.id)
	r := &messages.RunRecord{}
	version, err := sys.read(persistence.KindRun, id, r)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return &runState{id: id}, nil
	}
	plan, err := sys.planOf(r)
	if err != nil {
		return nil, err
	}
	found := foundRun{record: r, version: version, plan: plan, limit: sys.cfg.QueueTimeout}
	if !messages.RunStatus(r.GetStatus()).Ended() {
		err = sys.scan(persistence.KindStep, false, id+"/", newBody[messages.StepRecord], func(rec persistence.Record, m proto.Message) bool {
			found.steps = append(found.steps, foundStep{record: m.(*messages.StepRecord), version: rec.Version, orphan: rec.Epoch < at.epoch})
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return runFrom(found, at), nil
}

func (sys *System) steps(run string) ([]*messages.StepRecord, error) {
	var steps []*messages.StepRecord
	err := sys.scan(persistence.KindStep, false, run+"/", func() proto.Message { return &messages.StepRecord{} }, func(_ persistence.Record, m proto.Message) bool {
		steps = append(steps, m.(*messages.StepRecord))
		return true
	})
	return steps, err
}

// planOfRun is the plan of a run by its id.
func (sys *System) planOfRun(run string) (*workflow.Plan, error) {
	r := &messages.RunRecord{}
	version, err := sys.read(persistence.KindRun, run, r)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, fmt.Errorf("run %s: %w", run, persistence.ErrNotFound)
	}
	return sys.planOf(r)
}

func loadStep(sys *System, self address, at moment) (stepState, error) {
	run, job, step, err := stepNames(self)
	if err != nil {
		return stepState{}, err
	}
	plan := sys.guide(self)
	if plan == nil {
		if plan, err = sys.planOfRun(run); err != nil {
			return stepState{}, err
		}
	}
	ordinal, ok := plan.Ordinal(job, step)
	if !ok {
		return stepState{}, fmt.Errorf("run %s has no step %s of job %s", run, step, job)
	}
	rec, err := sys.journal.Get(persistence.KindStep, stepRecordID(run, uint32(ordinal)))
	if err != nil {
		return stepState{}, fmt.Errorf("step %s of run %s: %w", step, run, err)
	}
	found := foundStep{
		record: &messages.StepRecord{}, version: rec.Version, orphan: rec.Epoch < at.epoch, plan: plan, limit: sys.cfg.QueueTimeout,
		grace: sys.adoptionGrace,
	}
	if err := proto.Unmarshal(rec.Body, found.record); err != nil {
		return stepState{}, fmt.Errorf("decode step %s of run %s: %w", step, run, err)
	}
	sys.fetchOutputs(found.record)
	return stepFrom(found), nil
}

// guide is the plan that an actor was given at its birth.
func (sys *System) guide(self address) *workflow.Plan {
	if i, ok := sys.refs.Load(self); ok {
		return i.(*actorInfo).plan
	}
	return nil
}

// beginLease takes the state of a lease that has just been borne.
func (sys *System) beginLease(msg any) (leaseState, bool) {
	e, ok := msg.(ensureLease)
	if !ok || e.born == nil {
		return leaseState{}, false
	}
	return sys.equip(*e.born), true
}

// equip gives a lease what is the same for all.
func (sys *System) equip(l leaseState) leaseState {
	l.shipped, l.grace = sys.shipped(), sys.timing.grace
	l.credential = sys.data.key.mint(l.dispatchID, l.generation)
	return l
}

func loadLease(sys *System, self address, _ moment) (leaseState, error) {
	id := unescape(self.id)
	r := &messages.LeaseRecord{}
	version, err := sys.read(persistence.KindLease, id, r)
	if err != nil {
		return leaseState{}, err
	}
	if version == 0 { // nobody's: whatever its worker says is acknowledged, or it would repeat it for ever
		return leaseState{
			dispatchID: unescape(self.id), state: messages.LeaseExpired, stepKnows: true, slotKnows: true, unknown: id,
		}, nil
	}
	plan, err := sys.planOfRun(r.GetRunId())
	if err != nil {
		return leaseState{}, err
	}
	if int(r.GetOrdinal()) >= len(plan.Steps) {
		return leaseState{}, fmt.Errorf("lease %s: run %s has no step %d", id, r.GetRunId(), r.GetOrdinal())
	}
	l := leaseFrom(r, version, plan.Name, &plan.Steps[r.GetOrdinal()])
	if l.ofRestart() {
		next, err := sys.read(persistence.KindLease, nextGeneration(l.dispatchID, l.generation), &messages.LeaseRecord{})
		if err != nil {
			return leaseState{}, err
		}
		l.adopted = next > 0
	}
	if !l.state.Ended() || l.ofRestart() && !l.adopted {
		// The log goes ahead of the record. The worker has forgotten what was acknowledged, so the lease must not ask for it.
		end, err := sys.outputEnd(l.dispatchID, l.durable)
		if err != nil {
			return leaseState{}, err
		}
		l.logged = l.logged || end > l.durable
		l.durable, l.received = end, end
	}
	return sys.equip(l), nil
}

// outputEnd is how far the output of a dispatch is durable, which is at least from.
func (sys *System) outputEnd(dispatch string, from uint32) (uint32, error) {
	for {
		chunks, err := sys.journal.Output(dispatch, uint64(from), 256<<10)
		if err != nil || len(chunks) == 0 {
			return from, err
		}
		last := chunks[len(chunks)-1]
		from = uint32(last.Offset) + uint32(len(last.Data))
	}
}
