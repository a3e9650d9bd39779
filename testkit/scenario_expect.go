package testkit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// expect RUN …, RUN/STEP …, worker NAME …, or queue STEP …: what is not so yet is waited for, and time passes meanwhile.
func (p *player) expect(c *command) error {
	p.t.Helper()
	who := c.word(1)
	run, step, isStep := strings.Cut(who, "/")
	switch {
	case who == "queue":
		p.fleet().ExpectQueue(c.words[2:]...)
	case who == "worker":
		p.expectWorker(c.word(2), c.rest(3))
	case isStep:
		p.expectStep(p.run(run), step, c.rest(2))
	default:
		p.expectRun(p.run(run), c.rest(2))
	}
	return nil
}

func (p *player) expectRun(r *Run, what string) {
	p.t.Helper()
	text, fails := strings.CutPrefix(what, "fails")
	switch {
	case what == "succeeds":
		r.Succeeds()
	case what == "is cancelled":
		r.IsCancelled()
	case fails:
		r.FailsWith(strings.TrimPrefix(strings.TrimSpace(text), "with "))
	default:
		p.t.Fatalf("a run succeeds, fails [with TEXT], or is cancelled")
	}
}

func (p *player) expectStep(r *Run, step, what string) {
	p.t.Helper()
	e := r.Expect(step)
	after := func(prefix string) (string, bool) { return strings.CutPrefix(what, prefix) }
	times := func(text string) int { return p.count(strings.TrimSuffix(strings.TrimSuffix(text, " times"), " time")) }
	if rest, ok := after("waits for "); ok {
		e.WaitsFor(rest)
	} else if rest, ok := after("waits because "); ok {
		e.WaitsBecause(rest)
	} else if rest, ok := after("runs on "); ok {
		e.RunsOn(rest)
	} else if rest, ok := after("fails with "); ok {
		code, text, _ := strings.Cut(rest, " ")
		e.FailsWith(messages.Code(code), text)
	} else if rest, ok := after("was dispatched "); ok {
		e.WasDispatched(times(rest))
	} else if rest, ok := after("was lost "); ok {
		e.WasLost(times(rest))
	} else if rest, ok := after("waited "); ok {
		e.Waited(times(rest))
	} else if rest, ok := after("ran "); ok {
		if n := p.f.Executions(r, step); n != times(rest) {
			p.t.Fatalf("it ran %d times", n)
		}
	} else if rest, ok := after("printed "); ok {
		e.Printed(rest)
	} else {
		switch what {
		case "succeeds":
			e.Succeeds()
		case "is cancelled":
			e.IsCancelled()
		case "is skipped":
			e.IsSkipped()
		default:
			p.t.Fatalf("a step waits for REQUIREMENT, waits because TEXT, runs on WORKER, succeeds, fails with CODE TEXT, is cancelled, is skipped, was dispatched N times, was lost N times, waited N times, ran N times, or printed TEXT")
		}
	}
}

func (p *player) expectWorker(name, what string) {
	p.t.Helper()
	if what == "is unknown" {
		for _, w := range p.fleet().Workers() {
			if w.GetName() == name {
				p.t.Fatalf("it is known, and %s", w.GetStatus())
			}
		}
		return
	}
	e := p.fleet().Expect(name)
	if status, ok := strings.CutPrefix(what, "is "); ok {
		e.Is(messages.WorkerStatus(status))
	} else if n, ok := strings.CutPrefix(what, "runs "); ok {
		e.Runs(p.count(n))
	} else {
		p.t.Fatalf("a worker is STATUS, runs N, or is unknown")
	}
}

// since is how long the scenario has gone on, without the delays that order what happens at once.
func (p *player) since(t time.Time) time.Duration { return t.Sub(p.began).Round(time.Second) }

// story prints what has happened to a run.
func (p *player) story(c *command) error {
	var b strings.Builder
	for _, e := range p.run(c.word(1)).Events() {
		fmt.Fprintf(&b, "%s %s", p.since(messages.GoTime(e.GetAt())), e.GetKind())
		for _, name := range []string{"job", "step", "worker", "attempt", "why", "line", "error", "code"} {
			v, ok := fieldOf(e, name)
			switch {
			case !ok:
			case strings.ContainsAny(v, " \"") || v == "":
				fmt.Fprintf(&b, " %s=%q", name, v)
			default:
				fmt.Fprintf(&b, " %s=%s", name, v)
			}
		}
		b.WriteByte('\n')
	}
	c.output = b.String()
	return nil
}

// queue prints what waits.
func (p *player) queue(c *command) error {
	var b strings.Builder
	for _, q := range p.fleet().Queue() {
		fmt.Fprintf(&b, "%s/%s: %s; %s\n", q.GetRunId(), q.GetStepName(), q.GetRequirement(), q.GetWhy())
	}
	c.output = b.String()
	return nil
}

// workers prints how the orchestrator sees its workers.
func (p *player) workers(c *command) error {
	var b strings.Builder
	list := p.fleet().Workers()
	slices.SortFunc(list, func(x, y *messages.WorkerItem) int { return cmp.Compare(x.GetName(), y.GetName()) })
	for _, w := range list {
		fmt.Fprintf(&b, "%s %s %q\n", w.GetName(), w.GetStatus(), w.GetActiveDispatchIds())
	}
	c.output = b.String()
	return nil
}

// traced prints what actors have committed, and what went over the connections, since it was printed before.
func (p *player) traced(c *command) error {
	var b strings.Builder
	all := p.fleet().trace.all()
	for _, x := range all[p.seen:] {
		text := x.text
		switch {
		case text == "" && x.point.Stage != "committed":
			continue
		case text == "":
			text = fmt.Sprintf("%s %s commits after %s", x.point.Kind, x.point.ID, x.point.Command)
		}
		fmt.Fprintf(&b, "%s %s\n", p.since(x.at), text)
	}
	p.seen = len(all)
	c.output = b.String()
	return nil
}
