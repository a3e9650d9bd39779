package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// books is what was seen of the journal.
type books struct {
	ended map[string]uint64 // version of each record that has ended, by kind and id
	keep  time.Duration     // of what is over; 0: for ever
}

// applied looks at a batch that has just been made durable: what has ended never changes again.
func (w *world) applied(b *persistence.Batch) {
	w.mu.Lock()
	fleet := w.fleet
	w.mu.Unlock()
	if fleet == nil { // the first boot: nothing has ended yet
		return
	}
	store := fleet.Journal()
	for _, e := range b.Entries {
		kind, id, ok := recordOf(string(e.Key))
		if !ok {
			continue
		}
		rec, err := store.Get(kind, id)
		w.mu.Lock()
		if finding := w.books.changed(kind, id, rec, err); finding != "" {
			w.judge.find("%s", finding)
		}
		w.mu.Unlock()
	}
}

// changed notes how a record is now, and says what is wrong with that.
func (b *books) changed(kind persistence.Kind, id string, rec persistence.Record, err error) string {
	name := string(kind) + " " + id
	before, over := b.ended[name]
	switch {
	case err != nil && over && b.keep > 0:
		delete(b.ended, name) // it was kept for long enough
	case err != nil && over:
		return fmt.Sprintf("%s had ended, and is gone: %v", name, err)
	case over && rec.Version != before:
		return fmt.Sprintf("%s had ended at version %d, and is %s at version %d", name, before, rec.State, rec.Version)
	case err == nil && !over && endedState(rec):
		b.ended[name] = rec.Version
	}
	return ""
}

// recordOf reads the key of a record of a kind that ends for good.
func recordOf(key string) (persistence.Kind, string, bool) {
	if id, ok := strings.CutPrefix(key, "s/"); ok {
		return persistence.KindStep, id, true
	}
	for _, prefix := range []string{"L/", "T/"} {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		kind, id, _ := strings.Cut(rest, "/")
		if k := persistence.Kind(kind); k == persistence.KindRun || k == persistence.KindPending || k == persistence.KindLease {
			return k, id, true
		}
	}
	return "", "", false
}

func endedState(r persistence.Record) bool {
	return r.Ended || r.Kind == persistence.KindStep && messages.StepStatus(r.State).Ended()
}

// calmDown ends all faults, and gives every step a worker that it can run on.
func (w *world) calmDown() {
	w.mu.Lock()
	w.calm = true
	w.faults.armed, w.faults.disk, w.faults.slowTill, w.faults.fullTill = nil, "", time.Time{}, time.Time{}
	w.faults.stillTill = time.Time{}
	w.fill()
	w.mu.Unlock()
	close(w.calmed)
}

// awaitEnds waits until every run has ended.
func (w *world) awaitEnds() bool {
	deadline := time.Now().Add(patience)
	for step := calmStep; ; step = min(step+calmStep, time.Minute) {
		for _, m := range w.s.Machines {
			w.agents[m.Name].start(Mood{})
		}
		w.resumeAll()
		if !w.sleep(step + w.chance.within(0, time.Second, "calm", since().String())) {
			return false
		}
		left := w.left()
		if len(left) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			for _, l := range left {
				w.judge.find("%s after the faults are over: %s", patience, l)
			}
			return false
		}
	}
}

// resumeAll takes back what clients have wanted of workers.
func (w *world) resumeAll() {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return
	}
	got, err := w.ask(messages.VerbWorkerList, &messages.WorkerListParams{All: true})
	if err != nil {
		return
	}
	for _, item := range got.(*messages.WorkerListResult).GetItems() {
		if item.GetIntent() == string(messages.IntentPaused) {
			w.wish(messages.VerbWorkerResume, &messages.WorkerResumeParams{Name: item.GetName()})
		}
	}
}

// left is what has not ended.
func (w *world) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []string
	if w.down {
		left = append(left, "the orchestrator is down")
	}
	for _, id := range w.order {
		c := w.runs[id]
		switch {
		case c.asking > 0:
			left = append(left, "the submitter of run "+id+" has no answer")
		case c.run == nil:
		default:
			events := c.run.Events()
			if len(events) == 0 || !messages.EndsRun(events[len(events)-1].GetKind()) {
				last := "nothing has happened"
				if len(events) > 0 {
					last = "the last event is " + events[len(events)-1].GetKind() + " of step " + events[len(events)-1].GetStep()
				}
				left = append(left, "run "+id+" has not ended: "+last)
			}
		}
	}
	return left
}

// check looks at what has come of each run.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.order {
		c := w.runs[id]
		if c.accepted {
			w.checkRun(id, c)
		}
	}
}

func (w *world) checkRun(id string, c *client) {
	store := w.fleet.Journal()
	if w.s.Keep > 0 {
		if _, err := store.Get(persistence.KindRun, id); errors.Is(err, persistence.ErrNotFound) {
			w.tally.Forgotten++
			return // its follower has seen it end
		}
	}
	stored, err := store.Events(id, 0, 1<<20)
	if err != nil {
		w.judge.find("the events of run %s cannot be read: %v", id, err)
		return
	}
	told := slices.DeleteFunc(c.run.Events(), func(e *messages.RunEvent) bool { return e.GetKind() == messages.EventStepOutput })
	var events []*messages.RunEvent
	for i, e := range stored {
		m := &messages.RunEvent{}
		if err := proto.Unmarshal(e.Body, m); err != nil {
			w.judge.find("event %d of run %s cannot be decoded: %v", e.Seq, id, err)
			return
		}
		m.Seq = uint32(e.Seq)
		events = append(events, m)
		if i >= len(told) || told[i].GetKind() != m.GetKind() || told[i].GetStep() != m.GetStep() || told[i].GetDispatchId() != m.GetDispatchId() {
			w.judge.find("event %d of run %s is %s, and its follower was told otherwise", i+1, id, m.GetKind())
		}
	}
	rec, err := store.Get(persistence.KindRun, id)
	if err != nil {
		w.judge.find("run %s was accepted, and there is no record of it: %v", id, err)
		return
	}
	switch messages.RunStatus(rec.State) {
	case messages.RunSucceeded:
		w.tally.Succeeded++
	case messages.RunFailed:
		w.tally.Failed++
	default:
		w.tally.Cancelled++
	}
	var steps int
	for _, j := range c.flow.Jobs {
		for _, s := range j.Steps {
			steps++
			w.checkStep(id, j, s, c, events, rec.State)
		}
	}
	if !c.cancelled.IsZero() {
		for _, e := range events {
			if e.GetKind() == messages.EventStepDispatched && messages.GoTime(e.GetAt()).Sub(c.cancelled) > time.Minute {
				w.judge.find("run %s was cancelled, and its step %s is handed out %s later", id, e.GetStep(), messages.GoTime(e.GetAt()).Sub(c.cancelled))
			}
		}
	}
}

// checkStep holds the events of a step against what the workers have done.
func (w *world) checkStep(run string, j Job, s Step, c *client, events []*messages.RunEvent, status string) {
	key := run + "/" + j.Name + "/" + s.Name
	sent := make(map[string]string) // dispatch to worker
	losses, last, lastKind, code := 0, "", "", ""
	for _, e := range events {
		if e.GetJob() != j.Name || e.GetStep() != s.Name {
			continue
		}
		lastKind = e.GetKind()
		switch lastKind {
		case messages.EventStepStarted:
			w.checkOrder(key, j, s, c.flow, events, e)
		case messages.EventStepDispatched:
			sent[e.GetDispatchId()] = e.GetWorker()
			last = e.GetDispatchId()
		case messages.EventStepWorkerLost:
			losses++
			w.tally.Losses++
			w.checkLoss(key, last, messages.GoTime(e.GetAt()))
		case messages.EventStepFailed:
			code = e.GetCode()
		}
	}
	if lastKind == "" {
		w.judge.find("step %s has no event at all", key)
	}
	if status == string(messages.RunSucceeded) && lastKind != messages.EventStepSucceeded {
		w.judge.find("run %s succeeded, and of its step %s the last word is %s", run, key, lastKind)
	}
	if code == string(messages.CodeInternal) {
		w.tally.Poisoned++
		if w.tally.GivenUp == 0 {
			w.judge.find("step %s failed with an internal error, and no command was given up", key)
		}
	}
	ran := make(map[string]*execution)
	for _, ex := range w.history[key] {
		if sent[ex.dispatch] != ex.worker {
			w.judge.find("worker %s ran step %s as %s, and the events say %q", ex.worker, key, ex.dispatch, sent[ex.dispatch])
		}
		if ran[ex.dispatch] != nil {
			w.judge.find("step %s was run twice as %s", key, ex.dispatch)
		}
		ran[ex.dispatch] = ex
	}
	n := 0
	for _, ex := range ran {
		if !ex.forgotten { // that it ran may never have been heard: who forgets it comes back as if it had not
			n++
		}
	}
	if n > losses+1 {
		w.judge.find("step %s was run %d times, and its worker was lost %d times", key, n, losses)
	}
	if lastKind == messages.EventStepSucceeded && (ran[last] == nil || ran[last].how != "succeeded") {
		w.judge.find("step %s succeeded as %s, and no worker ran it to its end", key, last)
	}
	if lastKind == messages.EventStepFailed && code == string(messages.CodeExitNonzero) && (ran[last] == nil || ran[last].how != "failed") {
		w.judge.find("step %s failed as %s, and no worker says so", key, last)
	}
	if lastKind == messages.EventStepCancelled && c.cancelled.IsZero() && !w.mayCancel(run) {
		w.judge.find("step %s was cancelled, and nobody has asked for it", key)
	}
}

// mayCancel tells whether the scenario has a cancel of the run.
func (w *world) mayCancel(run string) bool {
	return slices.ContainsFunc(w.s.Ops, func(o Op) bool { return o.Kind == OpCancel && o.Run == run }) || w.tally.GivenUp > 0
}

// checkOrder: a step is ready once all that it depends on has succeeded.
func (w *world) checkOrder(key string, j Job, s Step, flow *Flow, events []*messages.RunEvent, ready *messages.RunEvent) {
	succeeded := make(map[string]bool)
	for _, e := range events[:ready.GetSeq()-1] {
		if e.GetKind() == messages.EventStepSucceeded {
			succeeded[e.GetJob()+"/"+e.GetStep()] = true
		}
	}
	for _, a := range s.After {
		if !succeeded[j.Name+"/"+a] {
			w.judge.find("step %s is ready before step %s has succeeded", key, a)
		}
	}
	for _, before := range flow.Jobs {
		for _, b := range before.Steps {
			if slices.Contains(j.After, before.Name) && !succeeded[before.Name+"/"+b.Name] {
				w.judge.find("step %s is ready before step %s of job %s has succeeded", key, b.Name, before.Name)
			}
		}
	}
}
