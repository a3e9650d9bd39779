package sim

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// executes notes that a step begins to run. It must not run already.
func (w *world) executes(t *task) *execution {
	ex := &execution{dispatch: t.params.GetDispatchId(), worker: t.p.a.name, from: time.Now(), p: t.p}
	w.tally.Executions++
	if other := w.running[t.key()]; other != nil {
		w.judge.find("step %s runs on %s as %s while it still runs on %s as %s", t.key(), ex.worker, ex.dispatch, other.worker, other.dispatch)
	}
	w.running[t.key()] = ex
	w.history[t.key()] = append(w.history[t.key()], ex)
	return ex
}

// checkDispatch holds a dispatch to what the orchestrator has promised: it is durable before it is told, it goes to a
// worker that fits, and to one that has a slot.
func (w *world) checkDispatch(p *process, lease string, params *messages.DispatchParams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.over {
		return
	}
	rec, err := w.fleet.Journal().Get(persistence.KindLease, lease)
	if err != nil {
		w.judge.find("worker %s is sent %s, and the journal knows no such lease: %v", p.a.is.Name, lease, err)
		return
	}
	r := &messages.LeaseRecord{}
	if err := proto.Unmarshal(rec.Body, r); err != nil || r.GetWorker() != p.name() {
		w.judge.find("worker %s is sent %s, which is %s's: %v", p.a.is.Name, lease, r.GetWorker(), err)
	}
	if p.known[params.GetDispatchId()] == nil && !p.draining && w.tally.GivenUp == 0 && rec.State == string(messages.LeaseActive) && p.busy() >= p.a.is.Capacity {
		w.judge.find("worker %s has %d slots, runs %d steps, and is sent %s", p.a.is.Name, p.a.is.Capacity, p.busy(), lease)
	}
	c := w.runs[params.GetRunId()]
	if c == nil || c.flow == nil {
		w.judge.find("worker %s is sent %s of a run that nobody has submitted", p.a.is.Name, lease)
		return
	}
	if where, ok := c.flow.where(params.GetJob(), params.GetStep()); !ok || !p.a.fits(where) {
		w.judge.find("worker %s is sent %s, which wants %s", p.a.is.Name, lease, where)
	}
}

func (p *process) name() string { return p.a.name }

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
