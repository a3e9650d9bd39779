package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Generate makes the scenario of a seed. Each seed has some kinds of faults and not the others: what takes two faults of
// one kind would be found too rarely where all kinds are about.
func Generate(seed uint64) Scenario {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0x5ca1ab1e)), faults: make(map[Kind]bool)}
	g.s = Scenario{
		Seed:         seed,
		Grace:        pick(g, 6*time.Second, 20*time.Second, time.Minute),
		QueueTimeout: pick(g, time.Minute, 10*time.Minute, 0),
		Loopback:     pick(g, 0, 0, 2),
	}
	g.length = g.between(20*time.Second, 150*time.Second)
	g.machines()
	g.workers()
	g.submits()
	g.mishaps()
	g.more()
	slices.SortStableFunc(g.s.Ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
	return g.s
}

type generator struct {
	r      *rand.Rand
	s      Scenario
	length time.Duration
	faults map[Kind]bool
	runs   []string
	flows  map[string]*Flow
}

func pick[T any](g *generator, from ...T) T { return from[g.r.IntN(len(from))] }

func (g *generator) percent(p int) bool { return g.r.IntN(100) < p }

// upTo is a number from least to most.
func (g *generator) upTo(least, most int) int { return least + g.r.IntN(most-least+1) }

func (g *generator) between(least, most time.Duration) time.Duration {
	return least + time.Duration(g.r.Int64N(int64(most-least)))
}

func (g *generator) op(o Op) {
	if o.At == 0 {
		o.At = g.between(0, g.length)
	}
	g.s.Ops = append(g.s.Ops, o)
}

func (g *generator) machines() {
	for i := range g.upTo(1, 5) {
		m := Machine{Name: fmt.Sprintf("w%d", i+1), Platform: pick(g, "linux/amd64", "linux/amd64", "linux/arm64", "darwin/arm64"), Capacity: pick(g, 1, 1, 2, 3, 8)}
		m.Forgets = g.percent(20)
		m.Pool = g.percent(20)
		if g.percent(15) {
			m.Token = g.between(10*time.Second, time.Minute)
		}
		m.Labels = make(map[string]string)
		if g.percent(60) {
			m.Labels["gpu"] = "true"
		}
		if g.percent(40) {
			m.Labels["zone"] = pick(g, "a", "b")
		}
		g.s.Machines = append(g.s.Machines, m)
	}
}

// workers start some of the machines early, some late, and leave some to the end.
func (g *generator) workers() {
	moody := g.percent(60)
	for _, m := range g.s.Machines {
		if g.percent(20) {
			continue
		}
		at := g.between(0, 2*time.Second)
		if g.percent(40) {
			at = g.between(0, g.length)
		}
		g.op(Op{At: at, Kind: OpStart, Worker: m.Name, Mood: g.mood(moody)})
	}
}

func (g *generator) mood(moody bool) Mood {
	var m Mood
	if !moody {
		return m
	}
	for _, p := range []*int{&m.Busy, &m.CannotStart, &m.Fail, &m.Hang, &m.DropBefore, &m.DropAfter, &m.Die, &m.Deaf} {
		if g.percent(25) {
			*p = pick(g, 5, 20, 60)
		}
	}
	return m
}

func (g *generator) submits() {
	g.flows = make(map[string]*Flow)
	count, burst := g.upTo(1, 5), g.percent(15)
	if burst {
		count = g.upTo(5, 10)
	}
	together := g.between(0, g.length)
	for i := range count {
		run := fmt.Sprintf("r%d", i+1)
		flow := g.flow(run)
		g.runs = append(g.runs, run)
		g.flows[run] = flow
		at := g.between(0, g.length)
		if burst {
			at = together + g.between(0, 10*time.Millisecond)
		}
		g.op(Op{At: at, Kind: OpSubmit, Run: run, Flow: flow})
		if g.percent(25) {
			g.op(Op{At: at + g.between(0, pick(g, 2*time.Millisecond, 10*time.Second)), Kind: OpRepeat, Run: run, Flow: flow})
		}
		if g.percent(10) {
			g.op(Op{At: at + g.between(time.Second, 10*time.Second), Kind: OpConflict, Run: run, Flow: g.flow(run)})
		}
	}
}

func (g *generator) flow(run string) *Flow {
	f := &Flow{Name: run}
	queue := pick(g, []time.Duration{-1}, []time.Duration{-1, 0}, []time.Duration{0, 5 * time.Second, 30 * time.Second})
	fails := pick(g, 0, 0, 30)
	for j := range g.upTo(1, 3) {
		job := Job{Name: fmt.Sprintf("j%d", j+1)}
		for _, before := range f.Jobs {
			if g.percent(50) {
				job.After = append(job.After, before.Name)
			}
		}
		for i := range g.upTo(1, 4) {
			s := Step{
				Name: fmt.Sprintf("s%d", i+1), Where: g.where(), Queue: pick(g, queue...), Timeout: pick(g, 0, 0, 0, 3*time.Second, 40*time.Second),
				Fails: g.percent(fails),
			}
			for _, before := range job.Steps {
				if g.percent(35) {
					s.After = append(s.After, before.Name)
				}
			}
			job.Steps = append(job.Steps, s)
		}
		f.Jobs = append(f.Jobs, job)
	}
	return f
}

// where is a placement that one of the machines has.
func (g *generator) where() Where {
	m := pick(g, g.s.Machines...)
	var w Where
	what := g.r.IntN(6)
	if m.Pool && (what == 1 || what == 3) { // it has no name before it enrolls
		what = 2
	}
	switch what {
	case 0:
		return w
	case 1:
		w.Target = m.Name
	case 2:
		w.Platform = m.Platform
		if g.percent(50) {
			w.Platform = m.Platform[:5]
			if m.Platform[:6] == "darwin" {
				w.Platform = "darwin"
			}
		}
	case 3:
		w.Target, w.Platform = m.Name, m.Platform
	}
	switch {
	case m.Labels["gpu"] != "" && g.percent(70):
		w.Label = "gpu=true"
	case m.Labels["zone"] != "":
		w.Label = "zone=" + m.Labels["zone"]
	}
	return w
}

// mishaps are what goes wrong: for each kind that this seed has, a few of it.
func (g *generator) mishaps() {
	kinds := []struct {
		kind  Kind
		often int // in a hundred seeds
		most  int
		make  func() Op
	}{
		{OpCancel, 40, 3, g.cancel},
		{OpStart, 70, 5, func() Op { return Op{Worker: g.worker(), Mood: g.mood(g.percent(30))} }},
		{OpKill, 35, 3, func() Op { return Op{Worker: g.worker()} }},
		{OpLeave, 25, 2, func() Op { return Op{Worker: g.worker()} }},
		{OpDrain, 25, 2, func() Op { return Op{Worker: g.worker()} }},
		{OpPause, 25, 2, func() Op { return Op{Worker: g.worker(), For: pick(g, 0, g.between(time.Second, time.Minute))} }},
		{OpResume, 30, 3, func() Op { return Op{Worker: g.worker()} }},
		{OpRevoke, 20, 2, func() Op { return Op{Worker: g.worker()} }},
		{OpCut, 45, 5, func() Op { return Op{Worker: g.worker()} }},
		{OpHalf, 20, 2, func() Op { return Op{Worker: g.worker()} }},
		{OpPanic, 50, 5, g.panic},
		{OpCrash, 45, 2, g.crash},
		{OpStop, 15, 1, func() Op { return Op{For: g.between(100*time.Millisecond, pick(g, 3*time.Second, 40*time.Second))} }},
		{OpDisk, 10, 1, func() Op {
			return Op{Actor: g.actor(), Stage: "decided", N: g.upTo(1, 20), Disk: pick(g, "before", "after")}
		}},
		{OpNoSpace, 15, 2, func() Op { return Op{Level: pick(g, 1, 1, 2, 3), For: g.between(time.Second, 30*time.Second)} }},
		{OpSlow, 20, 2, func() Op { return Op{For: g.between(time.Second, 30*time.Second)} }},
	}
	for _, k := range kinds {
		if !g.percent(k.often) {
			continue
		}
		for range g.upTo(1, k.most) {
			o := k.make()
			o.Kind = k.kind
			g.op(o)
		}
	}
}

// more is what was added to what the seeds of before have: it comes last, so that those find again what they have found,
// as far as they have none of it.
func (g *generator) more() {
	if g.s.Seed < moreFrom {
		return
	}
	if g.percent(40) {
		for i := range g.s.Machines {
			m := &g.s.Machines[i]
			m.Real = !m.Forgets && g.percent(60)
		}
	}
	if g.percent(25) {
		for range g.upTo(1, 3) {
			g.op(Op{Kind: OpLate, Worker: g.worker(), Late: g.between(time.Millisecond, pick(g, 50*time.Millisecond, time.Second)), For: g.between(time.Second, 30*time.Second)})
		}
	}
	if g.percent(20) {
		for range g.upTo(1, 2) {
			g.op(Op{Kind: OpStall, For: g.between(time.Second, pick(g, g.s.Grace/2, g.s.Grace, 2*g.s.Grace))})
		}
	}
	if g.percent(15) {
		g.op(Op{Kind: OpGarbage, Worker: g.worker()})
	}
	if g.percent(15) {
		g.s.Keep = g.between(40*time.Second, 90*time.Second)
		g.s.Ops = slices.DeleteFunc(g.s.Ops, func(o Op) bool { return o.Kind == OpRepeat || o.Kind == OpConflict })
	}
}

// moreFrom is the first seed that has what more adds.
const moreFrom = 10_000

func (g *generator) worker() string { return pick(g, g.s.Machines...).Name }

func (g *generator) actor() string {
	return pick(g, "", "run", "step", "lease", "worker", "token", "scheduler")
}

func (g *generator) cancel() Op {
	o := Op{Run: pick(g, g.runs...), Force: g.percent(30)}
	if g.percent(35) {
		j := pick(g, g.flows[o.Run].Jobs...)
		o.Step = j.Name + "/" + pick(g, j.Steps...).Name
	}
	return o
}

// panic makes an actor panic: mostly once, sometimes until its command is given up.
func (g *generator) panic() Op {
	return Op{Actor: g.actor(), Stage: pick(g, "", "decided", "committed", "committed"), N: g.upTo(1, 25), Times: pick(g, 1, 1, 1, 1, 2, 3, 8)}
}

func (g *generator) crash() Op {
	o := Op{Actor: g.actor(), Stage: pick(g, "", "decided", "committed"), N: g.upTo(1, 30), For: g.between(100*time.Millisecond, pick(g, 3*time.Second, 2*time.Minute))}
	if g.percent(20) {
		o.Again = g.upTo(1, 3)
	}
	return o
}
