package actors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/workflow"
)

// Where a step is.
const (
	whereNeeds    = "needs"    // what it needs has not succeeded
	whereBirth    = "birth"    // it is about to begin
	whereQueue    = "queue"    // it stands in line
	whereWorker   = "worker"   // a worker has it
	whereFenced   = "fenced"   // it is over, and its worker has not said so
	whereAdoption = "adoption" // a restart has ended its lease, and its worker may come back with it
	whereCancel   = "cancel"   // it will not begin: its run is being cancelled
	whereEnded    = "ended"
)

// step explains one step.
func (w *whyRun) step(o int) (*messages.WhyStep, error) {
	job, name := w.names(o)
	s := &messages.WhyStep{RunId: w.run.GetRunId(), Job: job, Step: name, Status: string(messages.StepPending)}
	r := w.records[o]
	if r == nil {
		return s, w.notBegun(o, s)
	}
	s.Status = r.GetStatus()
	switch status := messages.StepStatus(r.GetStatus()); {
	case status.Ended():
		return s, w.over(r, s)
	case status == messages.StepQueued:
		return s, w.inLine(r, s)
	default:
		return s, w.dispatched(r, s)
	}
}

func quoted(s *messages.WhyStep) string { return "Step " + s.GetJob() + "/" + s.GetStep() }

// notBegun is a step without a record.
func (w *whyRun) notBegun(o int, s *messages.WhyStep) error {
	switch {
	case w.progress == nil:
		s.Where = whereEnded
		s.Text = quoted(s) + " never began: its run has ended."
		return nil
	case w.run.GetCancelRequestedAt() != nil:
		s.Where = whereCancel
		s.Text = quoted(s) + " will not begin: its run is being cancelled."
		return nil
	}
	var needs []string
	for _, need := range w.progress.Unmet(o) {
		n := &messages.WhyNeed{Job: w.plan.Jobs[need.Job].Name}
		what, status := "job "+n.GetJob(), w.progress.JobStatus(need.Job)
		if need.Step >= 0 {
			n.Step, status = &w.plan.Steps[need.Step].Name, messages.StepPending
			if r := w.records[need.Step]; r != nil {
				status = messages.StepStatus(r.GetStatus())
			}
			what = "step " + n.GetStep()
		}
		n.Status, n.When = string(status), need.When.String()
		s.Needs = append(s.Needs, n)
		needs = append(needs, fmt.Sprintf("%s, which %s, %s", what, isNow(status), toEnd(need.When)))
	}
	if len(needs) > 0 {
		s.Where = whereNeeds
		s.Takes = []string{"that what it needs ends as it wants it"}
		s.Text = fmt.Sprintf("%s has not begun: it needs %s.", quoted(s), andAll(needs))
		return nil
	}
	s.Where = whereBirth
	s.Text = quoted(s) + " is ready, and about to begin."
	if in, err := w.sys.lookAt(w.looks, runAddress(w.run.GetRunId())); err == nil && in.view.knows("outOfSpace", true) {
		s.Takes = []string{"free space on the orchestrator's disk"}
		s.Text = quoted(s) + " is ready, and waits for space on the orchestrator's disk: below the first mark nothing new begins."
	} else if errors.Is(err, errStuck) {
		s.Text = fmt.Sprintf("%s is ready, but the actor of its run does not answer: look at it with swamp actor inspect %s.", quoted(s), w.run.GetRunId())
	}
	return nil
}

// toEnd is a condition as a verb.
func toEnd(c workflow.Condition) string {
	switch c {
	case workflow.OnSucceeded:
		return "to succeed"
	case workflow.OnFailed:
		return "to fail"
	case workflow.Always:
		return "to end"
	default:
		return "to end as " + c.String()
	}
}

// isNow is a status as a verb.
func isNow(s messages.StepStatus) string {
	switch {
	case s == messages.StepPending:
		return "has not begun"
	case s == messages.StepQueued:
		return "waits in line"
	case s == messages.StepRunning:
		return "runs"
	case s.Ended():
		return "has " + pastOf(string(s))
	default:
		return "is " + strings.ReplaceAll(string(s), "_", " ")
	}
}

// over is a step that has ended, from its record.
func (w *whyRun) over(r *messages.StepRecord, s *messages.WhyStep) error {
	s.Where, s.Since = whereEnded, r.GetEndedAt()
	s.Error, s.Code = optional(r.GetError()), optional(r.GetCode())
	var t sentences
	ended := messages.GoTime(r.GetEndedAt())
	end := fmt.Sprintf("%s has %s, %s ago", quoted(s), pastOf(r.GetStatus()), ago(w.now, ended))
	if r.GetWorker() != "" && r.GetStartedAt() != nil {
		end += fmt.Sprintf(", after %s on worker %s", lasted(messages.GoTime(r.GetStartedAt()), ended), r.GetWorker())
	}
	if r.GetError() != "" {
		end += ": " + strings.TrimSuffix(r.GetError(), ".")
	}
	t.add("%s.", end)
	switch {
	case r.GetCode() == string(messages.CodeQueueTimeout):
		t.add("In all it has waited %s.", spoken(messages.Duration(r.GetQueuedMs())))
	case r.GetStatus() == string(messages.StepSkipped):
		t.add("What it needed did not succeed.")
	}
	l := &messages.LeaseRecord{}
	if r.GetDispatchId() != "" {
		if _, err := w.sys.read(persistence.KindLease, leaseID(r.GetDispatchId(), r.GetGeneration()), l); err != nil {
			return err
		}
	}
	if l.GetState() == string(messages.LeaseFenced) {
		t.add("Worker %s has not said that it has ended it: its slot stays taken until it does, or is gone.", l.GetWorker())
	}
	w.tellTries(r, &t)
	s.Text = t.String()
	return nil
}

// tellTries says what had happened to a step before.
func (w *whyRun) tellTries(r *messages.StepRecord, t *sentences) {
	var parts []string
	if r.GetAttempt() > 1 {
		parts = append(parts, fmt.Sprintf("this was attempt %d", r.GetAttempt()))
	}
	if n := r.GetLosses(); n > 0 {
		parts = append(parts, fmt.Sprintf("its worker was lost %s", times(int(n))))
	}
	if n := r.GetRefusals(); n > 0 {
		parts = append(parts, fmt.Sprintf("it was refused %s", times(int(n))))
	}
	if len(parts) > 0 {
		text := andAll(parts)
		t.add("%s.", strings.ToUpper(text[:1])+text[1:])
	}
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

// dispatched is a step that a worker has, or had.
func (w *whyRun) dispatched(r *messages.StepRecord, s *messages.WhyStep) error {
	id := leaseID(r.GetDispatchId(), r.GetGeneration())
	l := &messages.LeaseRecord{}
	version, err := w.sys.read(persistence.KindLease, id, l)
	if err != nil {
		return err
	}
	var t sentences
	switch state := messages.LeaseState(l.GetState()); {
	case version == 0:
		s.Where = whereWorker
		t.add("%s is marked as running, but there is no lease %s: that is a fault; see swamp doctor books.", quoted(s), id)
	case state == messages.LeaseFenced:
		s.Where = whereFenced
		if s.Holder, err = w.sys.holder(w.looks, l); err != nil && !errors.Is(err, errStuck) {
			return err
		}
		t.add("%s is over (%s), but worker %s has not said that it has ended it: its slot stays taken until it does, or is gone.", quoted(s), l.GetOutcome().GetStatus(), l.GetWorker())
		w.tellConnection(s.GetHolder(), &t)
		s.Takes = []string{"that worker " + l.GetWorker() + " answers, or is gone for the grace window"}
	case state.Ended() && l.GetOutcome().GetStatus() == outcomeRestart:
		s.Where, s.Since = whereAdoption, l.GetEndedAt()
		t.add("%s was with worker %s when the orchestrator restarted, %s ago: it may come back with it, and is waited for that long as it may run it (%s).",
			quoted(s), l.GetWorker(), ago(w.now, messages.GoTime(l.GetEndedAt())), spoken(w.sys.adoptionGrace))
		s.Takes = []string{"that worker " + l.GetWorker() + " connects again, or that its time is over"}
	case state.Ended():
		s.Where = whereWorker
		t.add("%s has just ended on worker %s (%s), and its run is about to note it.", quoted(s), l.GetWorker(), l.GetOutcome().GetStatus())
	default:
		s.Where = whereWorker
		if s.Holder, err = w.sys.holder(w.looks, l); err != nil && !errors.Is(err, errStuck) {
			return err
		}
		s.Since = s.GetHolder().GetSince()
		verb := "is with worker"
		if err == nil && !s.GetHolder().GetAccepted() {
			verb = "was sent, and is not accepted yet, to worker"
		}
		t.add("%s %s %s, for %s now.", quoted(s), verb, l.GetWorker(), ago(w.now, messages.GoTime(s.GetSince())))
		w.tellConnection(s.GetHolder(), &t)
		if err != nil {
			t.add("The actor of its lease does not answer: look at it with swamp actor inspect leases/%s.", id)
		}
		if r.GetCancelRequestedAt() != nil {
			t.add("A cancel was asked for by %s %s ago: the worker has been told to end it.", r.GetCancelRequestedBy(), ago(w.now, messages.GoTime(r.GetCancelRequestedAt())))
		}
	}
	w.tellTries(r, &t)
	s.Text = t.String()
	return nil
}

func (w *whyRun) tellConnection(h *messages.WhyHolder, t *sentences) {
	switch {
	case h.GetConnected():
		t.add("The worker is connected.")
	case h.GraceLeftMs != nil:
		t.add("The worker has been disconnected for %s: it has %s left to come back, and is lost after that.",
			ago(w.now, messages.GoTime(h.GetDisconnectedAt())), spoken(messages.Duration(h.GetGraceLeftMs())))
	default:
		t.add("The worker has been disconnected for %s.", ago(w.now, messages.GoTime(h.GetDisconnectedAt())))
	}
}

// inLine is a step that waits, in the words of the scheduler.
func (w *whyRun) inLine(r *messages.StepRecord, s *messages.WhyStep) error {
	wait := &messages.PendingRecord{}
	if _, err := w.sys.read(persistence.KindPending, r.GetQueueId(), wait); err != nil {
		return err
	}
	p := messages.PlacementFrom(wait.GetPlacement())
	s.Where, s.Since = whereQueue, r.GetQueuedAt()
	requirement := p.Requirement()
	s.Requirement = &requirement
	got, err := w.sys.askScheduler(w.ctx, func(a *answer) any { return askStep{r.GetQueueId(), p, a} })
	if errors.Is(err, errStuck) {
		s.Takes = []string{"that the scheduler answers"}
		s.Text = fmt.Sprintf("%s has waited %s for a worker matching %s, and %s.", quoted(s), ago(w.now, messages.GoTime(r.GetQueuedAt())), requirement, stuckScheduler)
		return nil
	}
	if err != nil {
		return err
	}
	st := got.(stepStanding)
	s.Why, s.Ahead, s.Deadline = &st.why, int32(st.ahead), messages.Time(st.deadline)
	for _, v := range st.verdicts {
		s.Candidates = append(s.Candidates, v.candidate())
	}
	var t sentences
	waited := ago(w.now, messages.GoTime(r.GetQueuedAt()))
	switch {
	case st.chosen != "":
		t.add("%s has waited %s, and is just being given to worker %s.", quoted(s), waited, st.chosen)
		s.Text = t.String()
		return nil
	case !st.inLine:
		t.add("%s has waited %s for a worker matching %s, and is on its way into the line.", quoted(s), waited, requirement)
	default:
		t.add("%s stands in line for %s now, %s.", quoted(s), waited, st.why)
	}
	w.tellCandidates(s, &t)
	if n := st.ahead; n == 1 {
		t.add("1 step with the same requirement is ahead of it.")
	} else if n > 1 {
		t.add("%d steps with the same requirement are ahead of it.", n)
	}
	if st.parked {
		t.add("A worker has just refused it: it is offered again when the pool changes.")
	}
	s.Takes = takes(p.Target, requirement, st.verdicts)
	t.add("It would take %s.", orAny(s.GetTakes()))
	switch {
	case r.GetCancelRequestedAt() != nil:
		t.add("A cancel was asked for by %s.", r.GetCancelRequestedBy())
	case st.deadline.IsZero():
		t.add("It waits without a limit.")
	default:
		t.add("It fails with queue_timeout in %s.", spoken(st.deadline.Sub(w.now)))
	}
	w.tellTries(r, &t)
	s.Text = t.String()
	return nil
}

// nearTold is how many workers the paragraph names.
const nearTold = 3

// tellCandidates names who comes near, beyond what the reason itself has said.
func (w *whyRun) tellCandidates(s *messages.WhyStep, t *sentences) {
	var told []string
	for _, c := range s.GetCandidates() {
		switch {
		case len(told) == nearTold:
		case len(c.GetLacks()) > 0:
			told = append(told, fmt.Sprintf("%s (%s) %s", c.GetWorker(), c.GetStatus(), strings.Join(c.GetLacks(), " and ")))
		case c.But != nil:
			told = append(told, fmt.Sprintf("%s matches, but %s", c.GetWorker(), c.GetBut()))
		default:
			told = append(told, c.GetWorker()+" matches and is free")
		}
	}
	if len(told) > 1 { // one alone is the nearest, which the reason has named
		t.add("Of the workers that come nearest, %s.", strings.Join(told, "; "))
	}
}

// candidate is a verdict for people.
func (v verdict) candidate() *messages.WhyCandidate {
	c := &messages.WhyCandidate{Worker: v.worker, Status: v.statusNow(), Taken: int32(v.taken), Capacity: int32(v.capacity), Lacks: v.lacks}
	c.But = optional(v.but.text(v))
	return c
}

// statusNow is the status that people see: the scheduler's own knows no dispatches.
func (v verdict) statusNow() string {
	if v.status == messages.WorkerIdle && v.taken > 0 {
		return string(messages.WorkerBusy)
	}
	return string(v.status)
}

func (o obstacle) text(v verdict) string {
	switch o {
	case obstacleStatus:
		return "is " + string(v.status)
	case obstacleRefusal:
		return "has refused a step a moment ago"
	case obstacleBusy:
		return fmt.Sprintf("has no slot free (%d of %d taken)", v.taken, v.capacity)
	case obstacleStale:
		return "has just changed"
	case obstacleClosed:
		return "the orchestrator stops"
	default:
		return ""
	}
}

// takes says what would give the step a worker, the nearest first.
func takes(target, requirement string, verdicts []verdict) []string {
	var list []string
	var busy []string
	matches := false
	for _, v := range verdicts {
		if len(v.lacks) > 0 {
			continue
		}
		matches = true
		switch v.but {
		case obstacleBusy:
			busy = append(busy, v.worker)
		case obstacleStatus:
			switch v.status {
			case messages.WorkerPaused:
				list = append(list, fmt.Sprintf("that %s is resumed (swamp worker resume %s)", v.worker, v.worker))
			case messages.WorkerDraining:
				list = append(list, fmt.Sprintf("that %s stays (swamp worker resume %s, if its drain was ordered here)", v.worker, v.worker))
			case messages.WorkerDisconnected:
				list = append(list, "that "+v.worker+" connects again")
			default:
				list = append(list, "that "+v.worker+" is healthy again")
			}
		case obstacleRefusal, obstacleStale:
			list = append(list, "a moment")
		case obstacleClosed:
			list = append(list, "the next start of the orchestrator")
		case noObstacle:
		}
	}
	if len(busy) > 0 {
		list = append([]string{"a free slot on " + orAny(busy)}, list...)
	}
	switch {
	case target != "" && !matches:
		list = append(list, fmt.Sprintf("that a worker %s enrolls which fits %s", target, requirement))
	case target == "" && len(verdicts) == 0:
		list = append(list, "a worker with "+requirementOf(requirement))
	case target == "":
		list = append(list, "another worker with "+requirementOf(requirement))
	}
	return slices.Compact(list)
}

// requirementOf is what a new worker has to have.
func requirementOf(requirement string) string {
	if requirement == (messages.Placement{}).Requirement() {
		return "a free slot"
	}
	return requirement
}

// andAll and orAny join phrases.
func andAll(parts []string) string { return join(parts, "and") }

func orAny(parts []string) string { return join(parts, "or") }

func join(parts []string, word string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " " + word + " " + parts[last]
}

// knows tells whether an actor believes something.
func (v *view) knows(name string, value any) bool {
	return slices.ContainsFunc(v.facts, func(f fact) bool { return f.name == name && f.value == value })
}

// nearest are the names that are most like one that is not there.
func nearest(name string, all []string, most int) []string {
	list := slices.Clone(all)
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	return list[:min(len(list), most)]
}
