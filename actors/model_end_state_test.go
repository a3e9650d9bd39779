package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// checkCommit holds the books against each other after a commit.
func (w *world) checkCommit(d decision) {
	runs := make(map[string]bool)
	if d.stream != "" {
		runs[d.stream] = true
	}
	for _, wr := range d.writes {
		if l, ok := wr.body.(*messages.LeaseRecord); ok {
			runs[l.GetRunId()] = true
		}
	}
	for run := range runs {
		if broken := w.store.checkSteps(run); broken != "" {
			w.fatalf("after a commit: %s", broken)
		}
		w.checkEvents(run)
	}
}

// checkEvents holds a run's stream to the order in which things happen, and to what the records say.
func (w *world) checkEvents(run string) {
	events := w.store.streams[run]
	ends := 0
	last := make(map[string]string) // of each step
	for i, e := range events {
		kind := e.GetKind()
		if (i == 0) != (kind == messages.EventRunStarted) {
			w.fatalf("event %d of %s is %s", i+1, run, kind)
		}
		if ends > 0 {
			w.fatalf("%s comes after the end of %s", kind, run)
		}
		if messages.EndsRun(kind) {
			ends++
		}
		if e.Step == nil {
			continue
		}
		step := e.GetJob() + "/" + e.GetStep()
		before := last[step]
		if !mayFollow(before, kind) {
			w.fatalf("%s of %s follows %q", kind, step, before)
		}
		last[step] = kind
	}
	want := map[messages.StepStatus]string{
		messages.StepQueued: messages.EventStepQueued, messages.StepRunning: messages.EventStepDispatched,
		messages.StepSucceeded: messages.EventStepSucceeded, messages.StepFailed: messages.EventStepFailed,
		messages.StepSkipped: messages.EventStepSkipped, messages.StepCancelled: messages.EventStepCancelled,
	}
	for _, s := range w.store.steps(run) {
		if got := last[s.GetJob()+"/"+s.GetStep()]; got != want[messages.StepStatus(s.GetStatus())] {
			w.fatalf("step %s of %s is %s, its last event is %q", s.GetStep(), run, s.GetStatus(), got)
		}
	}
}

// mayFollow is the order of a step's events.
func mayFollow(before, kind string) bool {
	switch kind {
	case messages.EventStepStarted, messages.EventStepSkipped:
		return before == ""
	case messages.EventStepQueued:
		// After a restart a step that waits enters a new episode.
		return before == messages.EventStepStarted || before == messages.EventStepDispatched || before == messages.EventStepWorkerLost ||
			before == messages.EventStepQueued
	case messages.EventStepDispatched:
		return before == messages.EventStepStarted || before == messages.EventStepQueued
	case messages.EventStepWorkerLost, messages.EventStepSucceeded:
		return before == messages.EventStepDispatched
	case messages.EventStepFailed:
		return before == messages.EventStepDispatched || before == messages.EventStepWorkerLost || before == messages.EventStepQueued
	case messages.EventStepCancelled:
		return before == "" || before == messages.EventStepDispatched || before == messages.EventStepQueued
	default:
		return false
	}
}

// calm is fair weather: everything that is on the way arrives, workers are there and do what they are told, nothing
// panics, and time goes by only when nothing else happens.
func (w *world) calm() {
	w.tracef("calm")
	w.store.noSpace = false
	for _, a := range w.agents {
		if a.draining || !a.alive {
			a.renew(w)
		}
		w.mint(a)
	}
	for _, r := range w.runsInOrder() {
		w.submit(r)
	}
	start := w.now
	for moves := 0; ; moves++ {
		switch {
		case moves > 30_000:
			w.fatalf("no end after %d moves in calm weather", moves)
		case w.calmMove():
		case w.done():
			return
		case w.now.Sub(start) > time.Hour:
			w.fatalf("no end after an hour of calm weather: %s", w.whatIsLeft())
		default:
			if !w.owes() {
				w.audit()
			}
			tried := w.agentsTryAgain() || w.clientsAskAgain()
			if !w.advance() && !tried {
				w.fatalf("stuck: %s", w.whatIsLeft())
			}
		}
	}
}

// agentsTryAgain has each agent do what it does when nothing comes: it sends again what is not acknowledged, connects anew
// where its enrollment was not answered, and is started anew where it was told to go.
func (w *world) agentsTryAgain() bool {
	tried := false
	for _, a := range w.agents {
		tried = a.repeat() || tried
		switch {
		case !a.alive:
			w.mint(a)
			a.renew(w)
		case !a.enrolled:
			a.lose(w, "no answer to its enrollment")
		default:
			continue
		}
		tried = true
	}
	return tried
}

// clientsAskAgain repeats the questions that nobody has answered.
func (w *world) clientsAskAgain() bool {
	asked := false
	for _, r := range w.runsInOrder() {
		for _, a := range r.answers {
			select {
			case got := <-a.ch:
				r.accepted = r.accepted || got.err == nil
			default:
			}
		}
		if !r.accepted {
			w.submit(r)
			asked = true
		}
	}
	return asked
}

// calmMove does the next thing that can be done without time going by.
func (w *world) calmMove() bool {
	for _, kind := range w.busyRouters() {
		w.route(kind)
		return true
	}
	for _, n := range w.nodes() {
		if len(n.mail) > 0 {
			w.receive(n, n.take(1), noFault)
			return true
		}
		if w.leaving[n.addr] == n {
			w.terminate(n)
			return true
		}
	}
	for _, s := range w.sessionsInOrder() {
		switch {
		case s.open && len(s.up) > 0 || len(s.mail) > 0:
			s.take(w)
			return true
		case s.open && (s.agent == nil || s.hungUp && len(s.down) == 0):
			s.closed(w)
			return true
		case !s.open && s.agent != nil:
			s.agent.lose(w, "it notices")
			return true
		}
	}
	for _, a := range w.agents {
		if a.session != nil && len(a.session.down) > 0 {
			a.read(w)
			return true
		}
		if a.alive && a.session == nil {
			a.connect(w)
			return true
		}
		for _, id := range a.dispatches() {
			if x := a.known[id]; x.running {
				a.write(x, 10)
				a.finish(w, x, outcomeSucceeded)
				return true
			}
		}
	}
	return false
}

// done tells whether every run has ended and nobody owes anything.
func (w *world) done() bool {
	for id := range w.runs {
		if r := w.store.records[modelKey{kindRun, id}]; r == nil || !r.ended {
			return false
		}
	}
	if w.owes() {
		return false
	}
	for _, a := range w.agents {
		if len(a.known) > 0 || !a.enrolled {
			return false
		}
	}
	return true
}

func (w *world) owes() bool {
	return slices.ContainsFunc(w.nodes(), func(n *node) bool { return len(n.owed) > 0 })
}

func (w *world) whatIsLeft() string {
	var left []string
	for id := range w.runs {
		if r := w.store.records[modelKey{kindRun, id}]; r == nil {
			left = append(left, "run "+id+" is not there")
		} else if !r.ended {
			left = append(left, "run "+id+" is "+r.state)
		}
	}
	for _, n := range w.nodes() {
		for _, o := range n.owed {
			left = append(left, n.addr.kind+" "+n.addr.id+" owes "+o.id+" to "+o.to.kind+" "+o.to.id)
		}
	}
	for _, a := range w.agents {
		if !a.enrolled {
			left = append(left, "agent "+a.name+" is not enrolled")
		}
		for id := range a.known {
			left = append(left, "agent "+a.name+" holds "+id)
		}
	}
	slices.Sort(left)
	return strings.Join(left, "; ")
}

// audit is rule A10, once all mail has been read: the slots that the scheduler thinks taken are those of leases in
// flight, and nothing waits beside a free match.
func (w *world) audit() {
	n := w.refs[schedulerAddress()]
	s := n.state.(*schedulerState)
	taken := make(map[string]int)
	for _, id := range w.store.live(kindLease) {
		l := &messages.LeaseRecord{}
		w.store.read(kindLease, id, l)
		taken[l.GetWorker()]++
		if sl := s.taken[l.GetDispatchId()]; sl == nil || sl.worker != l.GetWorker() {
			w.fatalf("audit: lease %s is in flight, the scheduler has %+v", id, sl)
		}
	}
	for id, sl := range s.taken {
		if w.store.records[modelKey{kindLease, leaseID(id, 1)}] == nil {
			w.fatalf("audit: the slot of %s on %s is taken without a lease", id, sl.worker)
		}
	}
	for _, id := range w.store.live(recordPending) {
		p := &messages.PendingRecord{}
		w.store.read(recordPending, id, p)
		o := s.offers[id]
		if o == nil {
			w.fatalf("audit: %s waits and is not in line", id)
		}
		for _, pw := range s.workers {
			r := &messages.WorkerRecord{}
			w.store.read(kindWorker, pw.name, r)
			free := r.GetConnected() && r.GetIntent() == string(messages.IntentNone) && r.GetHealth() == string(messages.HealthOK) &&
				taken[pw.name] < int(r.GetCapacity())
			m := messages.PlacementFrom(p.GetPlacement()).Match(messages.Candidate{
				Name: r.GetName(), Instance: r.GetInstanceUuid(), Labels: messages.LabelsFrom(r.GetLabels()), Platform: r.GetPlatform(), Arch: r.GetArch(),
			})
			if free && m.OK && !w.now.Before(pw.refusedUntil) && !slices.Contains(o.class.parked, o) {
				w.fatalf("audit: %s waits beside %s, which is free", id, pw.name)
			}
		}
	}
}

// checkEnd holds the books at the end.
func (w *world) checkEnd() {
	for _, kind := range []string{kindRun, kindLease, recordPending} {
		if ids := w.store.live(kind); len(ids) > 0 {
			w.fatalf("at the end these of kind %s are unfinished: %v", kind, ids)
		}
	}
	if len(w.running) > 0 {
		w.fatalf("at the end these run: %v", w.running)
	}
	for _, r := range w.runsInOrder() {
		w.checkRun(r)
	}
	for _, n := range w.nodes() {
		if n.addr.kind == kindLease || n.addr.kind == kindStep || n.addr.kind == kindRun {
			w.fatalf("at the end %s %s still lives: %+v", n.addr.kind, n.addr.id, n.state)
		}
	}
	s := w.refs[schedulerAddress()].state.(*schedulerState)
	if len(s.taken) > 0 || len(s.offers) > 0 || len(s.classes) > 0 || s.waiting != 0 || s.parked != 0 {
		w.fatalf("at the end the scheduler has taken %v, offers %v, classes %v, waiting %d, parked %d", s.taken, s.offers, s.classes, s.waiting, s.parked)
	}
	for _, pw := range s.workers {
		if pw.taken != 0 {
			w.fatalf("at the end %d slots of %s are taken", pw.taken, pw.name)
		}
	}
	for _, a := range w.agents {
		if n := w.refs[workerAddress(a.name)]; n != nil {
			if leases := n.state.(workerState).leases; len(leases) > 0 {
				w.fatalf("at the end worker %s has leases %v", a.name, leases)
			}
		}
	}
}

// checkRun holds one run at its end: how it ended follows from its steps, and a step that is said to have succeeded did.
func (w *world) checkRun(r *modelRun) {
	rec := &messages.RunRecord{}
	w.store.read(kindRun, r.id, rec)
	events := w.store.streams[r.id]
	if n := len(events); n == 0 || !messages.EndsRun(events[n-1].GetKind()) {
		w.fatalf("the stream of %s does not end", r.id)
	}
	steps := w.store.steps(r.id)
	if len(steps) != len(w.plans[r.digest].Steps) {
		w.fatalf("run %s ended with %d of %d steps", r.id, len(steps), len(w.plans[r.digest].Steps))
	}
	status := messages.RunSucceeded
	for _, s := range steps {
		switch messages.StepStatus(s.GetStatus()) {
		case messages.StepSucceeded:
			if !w.good[stepKey(r.id, s.GetOrdinal())] {
				w.fatalf("step %s of %s succeeded, and no worker said so", s.GetStep(), r.id)
			}
		case messages.StepFailed:
			if !w.plans[r.digest].Steps[s.GetOrdinal()].AllowFailure {
				status = messages.RunFailed
			}
		case messages.StepSkipped, messages.StepCancelled:
		default:
			w.fatalf("step %s of %s is %s at the end of the run", s.GetStep(), r.id, s.GetStatus())
		}
	}
	if rec.GetCancelRequestedAt() != nil {
		status = messages.RunCancelled
	}
	if got := messages.RunStatus(rec.GetStatus()); got != status && !(got == messages.RunFailed && status == messages.RunSucceeded) {
		w.fatalf("run %s ended as %s, its steps say %s", r.id, got, status)
	}
}
