package actors

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// modelRun is a run that a client wants.
type modelRun struct {
	id       string
	digest   string
	answers  []*answer
	accepted bool
}

func (w *world) planOf(run string) *workflow.Plan {
	r := &messages.RunRecord{}
	if w.store.read(kindRun, run, r) == 0 {
		w.fatalf("run %s has no record", run)
	}
	return w.plans[r.GetSourceDigest()]
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), store: newModelStore(), machines: modelMachines(),
		sessions: make(map[uint64]*modelSession), runs: make(map[string]*modelRun), plans: make(map[string]*workflow.Plan),
		limit: rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(t, "queue timeout"), grace: 10 * time.Second,
		running: make(map[string]string), wrote: make(map[string]string), admitted: make(map[string]int), good: make(map[string]bool),
	}
	w.agents = []*agent{
		{name: "a1", capacity: 1, platform: "linux", labels: messages.LabelsOf(map[string]string{"gpu": "true"})},
		{name: "a2", capacity: rapid.IntRange(1, 3).Draw(t, "capacity"), platform: "darwin"},
	}
	for _, a := range w.agents {
		a.renew(w)
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "runs") {
		r := &modelRun{id: fmt.Sprintf("r%d", i+1), digest: fmt.Sprintf("source %d", i+1)}
		w.runs[r.id] = r
		w.plans[r.digest] = anyPlan(t)
	}
	w.boot()
	for _, a := range w.agents {
		w.mint(a)
	}
	return w
}

// mint creates the token of an agent.
func (w *world) mint(a *agent) {
	w.tell(tokenAddress(a.name), createToken{digest: modelDigest(a.name), duration: 1000 * time.Hour, max: 1, answer: newAnswer()})
}

// anyPlan draws a workflow: a few jobs and steps, what they need and where they may run. What no worker can take has a
// time limit.
func anyPlan(t *rapid.T) *workflow.Plan {
	p := &workflow.Plan{Name: "w"}
	for j := range rapid.IntRange(1, 2).Draw(t, "jobs") {
		job := workflow.Job{Name: fmt.Sprintf("j%d", j)}
		if j > 0 && rapid.Bool().Draw(t, "needs the job before") {
			job.Needs = []int{j - 1}
			if rapid.IntRange(0, 3).Draw(t, "cleans up") == 3 {
				job.When = []workflow.Condition{workflow.Always}
			}
		}
		first := len(p.Steps)
		for i := range rapid.IntRange(1, 3).Draw(t, "steps") {
			s := workflow.Step{Name: fmt.Sprintf("s%d", i), Job: j, Model: "command/shell", Method: "run", OnWorkerLost: messages.LostRequeue}
			if i > 0 && rapid.Bool().Draw(t, "needs the step before") {
				s.Needs = []int{first + i - 1}
				if rapid.Bool().Draw(t, "has a condition") {
					s.When = []workflow.Condition{rapid.SampledFrom([]workflow.Condition{
						workflow.Always, workflow.OnCompleted, workflow.OnFailed, workflow.OnSkipped,
					}).Draw(t, "condition")}
				}
			}
			switch rapid.IntRange(0, 4).Draw(t, "placement") {
			case 1:
				s.Placement.Target = "a1"
			case 2:
				s.Placement.Labels = messages.LabelsOf(map[string]string{"gpu": "true"})
			case 3:
				s.Placement.Platform = "darwin/amd64"
			case 4:
				s.Placement.Target = "nobody"
				limit := 5 * time.Second
				s.QueueTimeout = &limit
			}
			if rapid.IntRange(0, 4).Draw(t, "on loss") == 4 {
				s.OnWorkerLost = messages.LostFail
			}
			s.AllowFailure = rapid.IntRange(0, 4).Draw(t, "may fail") == 4
			s.Timeout = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second}).Draw(t, "timeout")
			job.Steps = append(job.Steps, len(p.Steps))
			p.Steps = append(p.Steps, s)
		}
		p.Jobs = append(p.Jobs, job)
	}
	return p
}

// TestModel is rules A1, A2, A3, A9, P1 to P5 and P9 together: whatever is delayed, repeated, dropped by a panic or cut
// off, in whatever order, a step runs once at a time, the records agree after every commit, and once the weather is
// calm every run ends and nothing is owed.
func TestModel_EveryRunEndsAndTheBooksAgreeWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, modelStory)
}

func modelStory(t *rapid.T) {
	w := newWorld(t)
	for range 100*rapid.IntRange(0, 3).Draw(t, "hundreds of moves") + rapid.IntRange(0, 100).Draw(t, "moves") {
		w.move()
	}
	w.calm()
	w.checkEnd()
}

// move draws one thing that happens.
func (w *world) move() {
	t := w.t
	nodes := w.nodes()
	switch kind := rapid.IntRange(0, 59).Draw(t, "move"); {
	case kind < 28: // mail, the usual thing
		w.deliver(nodes, noFault)
	case kind < 31:
		w.deliver(nodes, rapid.SampledFrom([]fault{panicDecided, panicCommitted, panicBetweenEffects}).Draw(t, "fault"))
	case kind < 36: // a session gets something
		var busy []*modelSession
		for _, s := range w.sessionsInOrder() {
			if s.open && len(s.up) > 0 || len(s.mail) > 0 {
				busy = append(busy, s)
			}
		}
		if s, ok := pick(t, "session", busy); ok {
			s.take(w)
		}
	case kind < 41: // an agent reads
		if a, ok := pick(t, "agent", slices.DeleteFunc(slices.Clone(w.agents), func(a *agent) bool { return a.session == nil || len(a.session.down) == 0 })); ok {
			a.read(w)
		}
	case kind < 45:
		w.work()
	case kind < 48:
		if a, ok := pick(t, "agent", w.agents); ok {
			a.connect(w)
		}
	case kind == 48:
		w.weather()
	case kind == 49:
		if s, ok := pick(t, "session", slices.DeleteFunc(w.sessionsInOrder(), func(s *modelSession) bool { return !s.open })); ok {
			s.closed(w)
		}
	case kind < 53:
		if r, ok := pick(t, "run", w.runsInOrder()); ok {
			w.submit(r)
		}
	case kind == 53:
		w.cancelSomething()
	case kind < 58:
		w.advance()
	case kind == 58:
		w.store.noSpace = rapid.Bool().Draw(t, "no space")
	default:
		if rapid.IntRange(0, 3).Draw(t, "crash") == 3 {
			w.tracef("the orchestrator crashes")
			w.crash()
		}
	}
}

// pick draws one of a list.
func pick[T any](t *rapid.T, label string, list []T) (T, bool) {
	if len(list) == 0 {
		var none T
		return none, false
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(t, label)], true
}

// deliver draws a message, or for one that gathers several, and has it handled. A node that has left and has no mail
// terminates.
func (w *world) deliver(nodes []*node, f fault) {
	busy := slices.DeleteFunc(nodes, func(n *node) bool { return len(n.mail) == 0 && w.leaving[n.addr] != n })
	if kinds := w.busyRouters(); len(kinds) > 0 && rapid.IntRange(0, len(busy)+len(kinds)-1).Draw(w.t, "router") < len(kinds) {
		kind, _ := pick(w.t, "kind", kinds)
		w.route(kind)
		return
	}
	n, ok := pick(w.t, "node", busy)
	if !ok {
		return
	}
	if len(n.mail) == 0 {
		w.terminate(n)
		return
	}
	count := 1
	if n.m.gathers {
		count = rapid.IntRange(1, min(3, len(n.mail))).Draw(w.t, "gathered")
	}
	w.receive(n, n.take(count), f)
}

// work draws what a running step does.
func (w *world) work() {
	a, ok := pick(w.t, "agent", w.agents)
	if !ok {
		return
	}
	id, ok := pick(w.t, "dispatch", a.dispatches())
	if !ok {
		return
	}
	x := a.known[id]
	switch rapid.IntRange(0, 7).Draw(w.t, "work") {
	case 6:
		if x.running {
			w.put(x)
		}
	case 7:
		w.commitData()
	case 0, 1:
		if x.running {
			a.write(x, rapid.SampledFrom([]int{1, 100, 70_000}).Draw(w.t, "bytes"))
		}
	case 2, 3:
		a.finish(w, x, outcomeSucceeded)
	case 4:
		a.finish(w, x, rapid.SampledFrom([]string{
			outcomeFailed, outcomeTimeout, outcomeLost, string(messages.CodeWorkerCannotStart),
		}).Draw(w.t, "status"))
	default:
		a.repeat()
	}
}

// weather draws what befalls a worker.
func (w *world) weather() {
	a, ok := pick(w.t, "agent", w.agents)
	if !ok {
		return
	}
	switch rapid.IntRange(0, 5).Draw(w.t, "weather") {
	case 0, 1:
		if a.session != nil {
			a.lose(w, "the socket")
		}
	case 2:
		a.renew(w)
	case 3:
		a.drain(w)
	case 4:
		a.report()
	default:
		w.tell(tokenAddress(a.name), revokeToken{answer: newAnswer()})
	}
}

func (w *world) submit(r *modelRun) {
	a := newAnswer()
	r.answers = append(r.answers, a)
	w.tell(runAddress(r.id), submitRun{
		file: "f", sourceDigest: r.digest, submitDigest: r.digest, plan: w.plans[r.digest], limit: w.limit, answer: a,
	})
}

func (w *world) cancelSomething() {
	r, ok := pick(w.t, "run", w.runsInOrder())
	if !ok {
		return
	}
	c := cancelRun{by: "somebody", force: rapid.Bool().Draw(w.t, "force"), answer: newAnswer()}
	if rapid.Bool().Draw(w.t, "one step") {
		c.step = "s0"
	}
	w.tell(runAddress(r.id), c)
}

func (w *world) runsInOrder() []*modelRun {
	var runs []*modelRun
	for _, id := range slices.Sorted(maps.Keys(w.runs)) {
		runs = append(runs, w.runs[id])
	}
	return runs
}

func (w *world) sessionsInOrder() []*modelSession {
	var list []*modelSession
	for _, n := range slices.Sorted(maps.Keys(w.sessions)) {
		list = append(list, w.sessions[n])
	}
	return list
}

// advance goes to the next thing that falls due: a timer, a repetition, or the death of what a cut-off worker runs.
func (w *world) advance() bool {
	var next time.Time
	earliest := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, n := range w.nodes() {
		for _, timer := range n.timers {
			if !timer.fired {
				earliest(timer.due)
			}
		}
		for _, o := range n.owed {
			earliest(o.due)
		}
	}
	for _, a := range w.agents {
		if !a.killBy.IsZero() {
			earliest(a.killBy)
		}
	}
	if next.IsZero() {
		return false
	}
	if next.Sub(w.now) > 10*time.Hour { // a token's end
		return false
	}
	if next.After(w.now) {
		w.now = next
	}
	w.tracef("it is %s", w.now.Format("15:04:05.000"))
	for _, a := range w.agents {
		if !a.killBy.IsZero() && !a.killBy.After(w.now) {
			a.kill(w, "its keepers killed its steps")
		}
	}
	for _, n := range w.nodes() {
		for _, name := range slices.Sorted(maps.Keys(n.timers)) {
			if timer := n.timers[name]; !timer.fired && !timer.due.After(w.now) {
				timer.fired = true
				n.timers[name] = timer
				n.mail = append(n.mail, modelElapsed{name, timer.number})
			}
		}
		if slices.ContainsFunc(n.owed, func(o modelOwed) bool { return !o.due.After(w.now) }) {
			w.repeat(n)
		}
	}
	return true
}
