package actors

import (
	"github.com/swampd/swampd/messages"
)

// modelOf takes the types off a machine.
func modelOf[S any](m modelMachine, step func(S, any, moment) (S, decision), resume func(S, moment) []obligation) *modelMachine {
	m.step = func(s, cmd any, at moment) (any, decision) {
		next, d := step(s.(S), cmd, at)
		return next, d
	}
	if resume != nil {
		m.resume = func(s any, at moment) []obligation { return resume(s.(S), at) }
	}
	return &m
}

// modelMachines are the machines with their states out of the model's store, as machines.go has them out of the journal.
func modelMachines() map[string]*modelMachine {
	return map[string]*modelMachine{
		kindScheduler: modelOf(modelMachine{load: modelScheduler}, stepScheduler, nil),
		kindWorker:    modelOf(modelMachine{load: modelWorker, start: modelWorkerStarts}, stepWorker, resumeWorker),
		kindToken: modelOf(modelMachine{
			load: modelToken, gathers: true,
			start: func(_ *world, s any, at moment) decision { return decision{effects: s.(tokenState).timers(at)} },
		}, func(t tokenState, cmd any, at moment) (tokenState, decision) { return stepToken(t, cmd.([]any), at) }, resumeToken),
		kindRun: modelOf(modelMachine{
			load: modelRunOf, gathers: true,
			start: func(_ *world, s any, at moment) decision { return s.(*runState).resume(at) },
		}, func(s *runState, cmd any, at moment) (*runState, decision) { return stepRun(s, cmd.([]any), at) }, owedByRun),
		kindStep: modelOf(modelMachine{
			load:  modelStepOf,
			begin: func(_ *world, msg any) (any, bool) { b, ok := msg.(beginStep); return b.state, ok },
			start: func(w *world, _ any, _ moment) decision {
				return decision{effects: []effect{again{rejoin{w.aliveUntil}}}}
			},
		}, stepStep, resumeStep),
		kindLease: modelOf(modelMachine{
			load:  modelLease,
			start: func(_ *world, s any, _ moment) decision { return s.(leaseState).found() },
			begin: func(w *world, msg any) (any, bool) {
				e, ok := msg.(ensureLease)
				if !ok || e.born == nil {
					return nil, false
				}
				return w.equip(*e.born), true
			},
		}, stepLease, resumeLease),
	}
}

func (w *world) equip(l leaseState) leaseState {
	l.grace = w.grace
	return l
}

func modelScheduler(w *world, _ address, _ moment) any {
	r := &messages.SchedulerRecord{}
	version := w.store.read(kindScheduler, kindScheduler, r)
	broken, err := w.store.commit(decision{writes: []write{{
		kind: kindScheduler, id: kindScheduler, replaces: version, state: "current", body: &messages.SchedulerRecord{Epoch: version + 1},
	}}})
	if broken != "" || err != nil {
		w.fatalf("a scheduler's epoch: %s%v", broken, err)
	}
	for _, kind := range []string{kindRun, kindWorker, kindLease} {
		w.tell(routerOf(kind), broadcast{schedulerStarted{version + 1}})
	}
	return newScheduler(version+1, false)
}

func modelWorker(w *world, self address, _ moment) any {
	r := &messages.WorkerRecord{}
	name := unescape(self.id)
	version := w.store.read(kindWorker, name, r)
	if version == 0 {
		return workerFrom(name, nil, 0, timing{grace: w.grace})
	}
	s := workerFrom(name, r, version, timing{grace: w.grace})
	conn := w.sessions[s.session]
	s.sessionLives = conn != nil && conn.open
	return s
}

func modelWorkerStarts(_ *world, s any, at moment) decision { return startWorker(s.(workerState), at) }

// sweep is the reconciler: leases in flight are expired, and workers that look connected are not.
func (w *world) sweep() {
	at := w.moment()
	var writes []write
	for _, id := range w.store.live(kindLease) {
		r := &messages.LeaseRecord{}
		version := w.store.read(kindLease, id, r)
		writes = append(writes, expireLease(r, version, at))
	}
	for _, id := range w.store.live(kindWorker) {
		r := &messages.WorkerRecord{}
		if version := w.store.read(kindWorker, id, r); r.GetConnected() {
			writes = append(writes, disconnectWorker(r, version, at))
		}
	}
	if broken, err := w.store.commit(decision{writes: writes}); broken != "" || err != nil {
		w.fatalf("the sweep of a boot: %s%v", broken, err)
	}
}

func modelToken(w *world, self address, _ moment) any {
	r := &messages.TokenRecord{}
	name := unescape(self.id)
	version := w.store.read(kindToken, name, r)
	if version == 0 {
		return tokenFrom(name, nil, 0, nil)
	}
	return tokenFrom(name, r, version, w.store.bindings(name, r.GetGeneration()))
}

func modelRunOf(w *world, self address, at moment) any {
	id := unescape(self.id)
	r := &messages.RunRecord{}
	version := w.store.read(kindRun, id, r)
	if version == 0 {
		return &runState{id: id}
	}
	found := foundRun{record: r, version: version, plan: w.plans[r.GetSourceDigest()], limit: w.limit}
	if !messages.RunStatus(r.GetStatus()).Ended() {
		for _, m := range w.store.steps(id) {
			rec := w.store.records[modelKey{kindStep, stepRecordID(id, m.GetOrdinal())}]
			found.steps = append(found.steps, foundStep{record: m, version: rec.version, orphan: rec.epoch < at.epoch})
		}
	}
	return runFrom(found, at)
}

func modelStepOf(w *world, self address, at moment) any {
	run, job, step, err := stepNames(self)
	if err != nil {
		w.fatalf("%v", err)
	}
	plan := w.planOf(run)
	ordinal, ok := plan.Ordinal(job, step)
	r := &messages.StepRecord{}
	version := w.store.read(kindStep, stepRecordID(run, uint32(ordinal)), r)
	if !ok || version == 0 {
		w.fatalf("step %s of run %s starts and has no record", step, run)
	}
	rec := w.store.records[modelKey{kindStep, stepRecordID(run, uint32(ordinal))}]
	return stepFrom(foundStep{record: r, version: version, orphan: rec.epoch < at.epoch, plan: plan, limit: w.limit, grace: w.grace})
}

func modelLease(w *world, self address, _ moment) any {
	id := unescape(self.id)
	r := &messages.LeaseRecord{}
	version := w.store.read(kindLease, id, r)
	if version == 0 {
		return leaseState{dispatchID: id, state: messages.LeaseExpired, stepKnows: true, slotKnows: true, unknown: id}
	}
	plan := w.planOf(r.GetRunId())
	l := leaseFrom(r, version, plan.Name, &plan.Steps[r.GetOrdinal()])
	l.adopted = l.ofRestart() && w.store.records[modelKey{kindLease, nextGeneration(l.dispatchID, l.generation)}] != nil
	if end := w.store.output[l.dispatchID]; (!l.state.Ended() || l.ofRestart() && !l.adopted) && end > l.durable {
		l.logged, l.durable, l.received = true, end, end
	}
	return w.equip(l)
}
