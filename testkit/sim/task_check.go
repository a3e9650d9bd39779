package sim

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// executes notes that the step begins to run; mu is held.
func (t *task) executes() *execution {
	p := t.p
	ex := &execution{dispatch: t.params.GetDispatchId(), worker: p.a.name, from: time.Now(), a: p.a, away: &p.away, life: p.ctx}
	p.a.w.executes(t.key(), ex)
	return ex
}

// executes notes that a step begins to run, which must not run already; mu is held.
func (w *world) executes(key string, ex *execution) {
	w.tally.Executions++
	if other := w.running[key]; other != nil {
		w.judge.find("step %s runs on %s as %s while it still runs on %s as %s", key, ex.worker, ex.dispatch, other.worker, other.dispatch)
	}
	w.running[key] = ex
	w.history[key] = append(w.history[key], ex)
}

// checkDispatch holds a dispatch to what the orchestrator has promised: it is durable before it is told, it goes to a
// worker that fits.
func (w *world) checkDispatch(a *agent, lease string, params *messages.DispatchParams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.over {
		return
	}
	rec, err := w.fleet.Journal().Get(persistence.KindLease, lease)
	if err != nil {
		w.judge.find("worker %s is sent %s, and the journal knows no such lease: %v", a.is.Name, lease, err)
		return
	}
	r := &messages.LeaseRecord{}
	if err := proto.Unmarshal(rec.Body, r); err != nil || r.GetWorker() != a.name {
		w.judge.find("worker %s is sent %s, which is %s's: %v", a.is.Name, lease, r.GetWorker(), err)
	}
	c := w.runs[params.GetRunId()]
	if c == nil || c.flow == nil {
		w.judge.find("worker %s is sent %s of a run that nobody has submitted", a.is.Name, lease)
		return
	}
	if where, ok := c.flow.where(params.GetJob(), params.GetStep()); !ok || !a.fits(where) {
		w.judge.find("worker %s is sent %s, which wants %s", a.is.Name, lease, where)
	}
}

// checkSlot holds a dispatch to it that its worker has a slot; mu is held.
func (p *process) checkSlot(lease string, params *messages.DispatchParams) {
	w := p.a.w
	if w.down || w.over || p.known[params.GetDispatchId()] != nil || p.draining || w.tally.GivenUp > 0 || p.busy() < p.a.is.Capacity {
		return
	}
	if rec, err := w.fleet.Journal().Get(persistence.KindLease, lease); err == nil && rec.State == string(messages.LeaseActive) {
		w.judge.find("worker %s has %d slots, runs %d steps, and is sent %s", p.a.is.Name, p.a.is.Capacity, p.busy(), lease)
	}
}

func (f Flow) where(job, step string) (Where, bool) {
	for _, j := range f.Jobs {
		for _, s := range j.Steps {
			if j.Name == job && s.Name == step {
				return s.Where, true
			}
		}
	}
	return Where{}, false
}

// fits is what a placement means, worked out anew.
func (a *agent) fits(p Where) bool {
	if p == (Where{}) {
		return a.loopback == (a.w.s.Loopback > 0)
	}
	if a.loopback || p.Target != "" && p.Target != a.is.Name {
		return false
	}
	if key, value, ok := strings.Cut(p.Label, "="); ok && a.is.Labels[key] != value {
		return false
	}
	return p.Platform == "" || p.Platform == a.is.Platform || strings.HasPrefix(a.is.Platform, p.Platform+"/")
}
