//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// storm is a stream of runs over a fleet whose processes are killed at random.
type storm struct {
	t      *testing.T
	f      *fleet
	ledger *ledger
	// choose is the only source of chance, and one goroutine asks it: a seed gives one sequence of choices.
	choose *rand.Rand

	workers   []*worker
	stopped   []bool   // workers that SIGSTOP holds
	networks  []*proxy // of the workers, where they have any
	mix       []chance
	runs      []*stormRun
	pending   []plannedAct
	counts    map[string]int
	submitted int
	long      time.Duration
}

// stormRun is one run of the storm.
type stormRun struct {
	submit    *process
	id        string // empty until it was accepted
	steps     []string
	writes    []string // those of them that write to an artifact
	cancelled bool     // somebody asked for it
	// shown holds, for each step that was shown as succeeded, how long the ledger was at that moment.
	shown map[string]int
	ended string // the status that was shown first as an end
}

// plannedAct is what undoes a fault.
type plannedAct struct {
	at  time.Time
	act func()
}

// chance is how often, in a hundred choices, something is done.
type chance struct {
	percent int
	act     func(which int, delay time.Duration)
}

// TestCrash kills what it can for CRASH_TIME, under a stream of runs. Afterwards the books and what the steps wrote
// down have to agree.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := newStorm(t, "CRASH", "2s")
	s.mix = []chance{
		{10, func(_ int, d time.Duration) { s.killSwampd(d / 3) }},
		{3, func(_ int, d time.Duration) { s.stopSwampd(d / 3) }},
		{12, s.killWorker},
		{4, s.drainWorker},
		{4, func(i int, d time.Duration) { s.freezeWorker(i, 2*d) }},
		{7, func(i int, _ time.Duration) { s.cancel(i) }},
	}
	s.fleet(func(string) string { return "" })
	s.rage(300 * time.Millisecond)
}

// newStorm makes a storm that takes its time and its seed from the environment.
func newStorm(t *testing.T, variable, grace string) *storm {
	t.Helper()
	long, err := time.ParseDuration(envOr(variable+"_TIME", "10s"))
	if err != nil {
		t.Fatalf("%s_TIME: %v", variable, err)
	}
	seed, err := strconv.ParseUint(envOr(variable+"_SEED", strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s_SEED: %v", variable, err)
	}
	t.Logf("%[1]s_SEED=%[2]d %[1]s_TIME=%[3]s", variable, seed, long)
	f := newFleet(t, "--queue-timeout", "0", "--grace-window", grace)
	return &storm{t: t, f: f, ledger: newLedger(f), choose: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, long: long}
}

// fleet starts the workers, each by the URL that is given for it; empty is the orchestrator's own.
func (s *storm) fleet(url func(name string) string) {
	for i, pool := range []string{"a", "a", "b"} {
		name := fmt.Sprintf("w%d", i)
		w := s.f.launchWorker(name, workerOptions{url: url(name)}, "--label", "pool="+pool, "--concurrency", strconv.Itoa(i+1))
		w.enrolled()
		s.workers, s.stopped = append(s.workers, w), append(s.stopped, false)
	}
}

// rage makes choices, with pauses of at most that length, until the time is over; then everything comes to its end and is
// checked.
func (s *storm) rage(pause time.Duration) {
	for end := time.Now().Add(s.long); time.Now().Before(end); {
		s.act()
		s.pause(time.Duration(s.choose.Int64N(int64(pause))))
	}
	s.calm()
	s.t.Logf("%d runs submitted; %v", s.submitted, s.counts)
	s.check()
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// pause lets time pass, looks at the runs meanwhile, and undoes the faults whose time has come.
func (s *storm) pause(d time.Duration) {
	holds(s.t, d, "the storm goes on", func() error {
		s.due(time.Now())
		s.look()
		return nil
	})
}

// due does what was planned for before now.
func (s *storm) due(now time.Time) {
	var rest []plannedAct
	for _, p := range s.pending {
		if p.at.After(now) {
			rest = append(rest, p)
			continue
		}
		p.act()
	}
	s.pending = rest
}

// later plans something. The time of day is no choice: it only says when the choice takes effect.
func (s *storm) later(d time.Duration, act func()) {
	s.pending = append(s.pending, plannedAct{time.Now().Add(d), act})
}

// act makes one choice.
func (s *storm) act() {
	// Each choice takes the same numbers from the source, whether or not it can be carried out.
	what, which, delay := s.choose.IntN(100), s.choose.IntN(len(s.workers)), time.Duration(s.choose.IntN(3000))*time.Millisecond
	plan := s.plan()
	for _, c := range s.mix {
		if what < c.percent {
			c.act(which, delay)
			return
		}
		what -= c.percent
	}
	if s.unfinished() < 25 {
		s.counts["submit"]++
		s.submit(plan)
	}
}

// plannedStep is a step of a run to come.
type plannedStep struct {
	name, yaml string
	writes     bool
}

// plan makes up a workflow of one to four steps, some of which write to an artifact.
func (s *storm) plan() []plannedStep {
	n := 1 + s.choose.IntN(4)
	steps := make([]plannedStep, 0, n)
	for i := range n {
		keys := []string{}
		switch s.choose.IntN(5) {
		case 0, 1:
			keys = append(keys, "labels: {pool: a}")
		case 2, 3:
			keys = append(keys, "labels: {pool: b}")
		}
		if i > 0 && s.choose.IntN(2) == 0 {
			keys = append(keys, fmt.Sprintf("dependsOn: [s%d]", s.choose.IntN(i)))
		}
		planned := plannedStep{name: fmt.Sprintf("s%d", i), writes: s.choose.IntN(4) == 0}
		script := s.ledger.beating(1 + s.choose.IntN(8))
		if planned.writes {
			script = s.ledger.writing(1 + s.choose.IntN(4))
		}
		planned.yaml = step(planned.name, script, keys...)
		steps = append(steps, planned)
	}
	return steps
}

// submit hands a run over, and does not wait: the answer may come before, during or after the next fault.
func (s *storm) submit(steps []plannedStep) {
	s.submitted++
	run := &stormRun{shown: map[string]int{}}
	var yaml []string
	for _, planned := range steps {
		run.steps = append(run.steps, planned.name)
		if planned.writes {
			run.writes = append(run.writes, planned.name)
		}
		yaml = append(yaml, planned.yaml)
	}
	run.submit = s.f.client("workflow", "run", s.f.write(flow(yaml...)), "--detach")
	s.runs = append(s.runs, run)
}

func (s *storm) unfinished() int {
	n := 0
	for _, r := range s.runs {
		if r.ended == "" {
			n++
		}
	}
	return n
}

func (s *storm) killSwampd(down time.Duration) {
	s.counts["kill swampd"]++
	s.f.d.kill()
	s.later(down, s.revive)
}

func (s *storm) stopSwampd(down time.Duration) {
	if s.f.d.alive() {
		s.counts["stop swampd"]++
		s.f.d.signal(syscall.SIGCONT) // it may be frozen
		s.f.d.signal(syscall.SIGTERM)
		s.f.d.wait(40 * time.Second)
	}
	s.later(down, s.revive)
}

// revive starts swampd if it is down, and does not wait: the next fault may hit its boot.
func (s *storm) revive() {
	if !s.f.d.alive() {
		s.f.launchSwampd()
	}
}

func (s *storm) killWorker(i int, down time.Duration) {
	s.counts["kill worker"]++
	s.workers[i].kill()
	s.stopped[i] = false
	s.later(down, func() { s.reviveWorker(i) })
}

func (s *storm) drainWorker(i int, down time.Duration) {
	s.counts["drain worker"]++
	s.workers[i].signal(syscall.SIGTERM)
	s.later(down, func() { s.reviveWorker(i) })
}

func (s *storm) freezeWorker(i int, long time.Duration) {
	if s.stopped[i] || !s.workers[i].alive() {
		return
	}
	s.counts["freeze worker"]++
	s.stopped[i] = true
	frozen := s.workers[i]
	frozen.signal(syscall.SIGSTOP)
	s.later(long, func() {
		frozen.signal(syscall.SIGCONT)
		if s.workers[i] == frozen {
			s.stopped[i] = false
		}
	})
}

// reviveWorker starts a worker that has ended. One that still drains is looked at again later.
func (s *storm) reviveWorker(i int) {
	switch {
	case !s.workers[i].alive():
		s.workers[i], s.stopped[i] = s.workers[i].again(), false
	case len(s.workers[i].stderr()) > 0 && strings.Contains(s.workers[i].text(), "draining"):
		s.later(200*time.Millisecond, func() { s.reviveWorker(i) })
	}
}

// cancel asks for the cancel of one of the last runs.
func (s *storm) cancel(which int) {
	for i := len(s.runs) - 1 - which; i >= 0; i-- {
		if r := s.runs[i]; r.id != "" && r.ended == "" {
			s.counts["cancel"]++
			r.cancelled = true
			s.f.client("run", "cancel", r.id)
			return
		}
	}
}

// look notes what is shown of the runs now. What has been shown must never become untrue.
func (s *storm) look() {
	for _, r := range s.runs {
		if r.id == "" && !r.submit.alive() && r.submit.code == 0 {
			r.id = strings.TrimSpace(strings.Join(r.submit.stdout(), ""))
		}
	}
	if !s.f.d.alive() {
		return
	}
	for _, r := range s.runs {
		if r.id == "" || r.ended != "" {
			continue
		}
		var shown runShown
		if s.f.call("run.show", fmt.Sprintf(`{"runId":%q}`, r.id), &shown) != nil {
			return // it starts, or has just been killed
		}
		s.note(r, shown)
	}
}

// note takes down what a run shows.
func (s *storm) note(r *stormRun, shown runShown) {
	lines := len(s.f.lines(s.ledger.path))
	for _, name := range r.steps {
		was, seen := r.shown[name]
		switch succeeded := shown.step(name).Status == "succeeded"; {
		case succeeded && !seen:
			r.shown[name] = lines
		case !succeeded && seen:
			s.t.Errorf("step %s of run %s was shown as succeeded (line %d of the ledger), and now it is %s", name, r.id, was, shown)
		}
	}
	if r.ended != "" && shown.Status != r.ended {
		s.t.Errorf("run %s was shown as %s, and now it is %s", r.id, r.ended, shown)
	}
	if shown.ended() {
		r.ended = shown.Status
	}
}

// calm undoes every fault and lets everything come to its end.
func (s *storm) calm() {
	for _, n := range s.networks {
		n.deny(false)
	}
	s.f.d.signal(syscall.SIGCONT)
	for i, w := range s.workers {
		w.signal(syscall.SIGCONT)
		s.stopped[i] = false
	}
	s.pending = nil
	s.revive()
	s.f.ready()
	eventually(s.t, 60*time.Second, "the workers are back", func() error {
		for i, w := range s.workers {
			if !w.alive() {
				s.workers[i] = w.again()
			}
		}
		return s.idle()
	})
	eventually(s.t, 120*time.Second, "every run ends", func() error {
		for i, w := range s.workers { // those that were draining
			if !w.alive() {
				s.workers[i] = w.again()
			}
		}
		s.look()
		var open []string
		for _, r := range s.runs {
			switch {
			case r.submit.alive():
				open = append(open, "a submit: "+r.submit.text())
			case r.id != "" && r.ended == "":
				open = append(open, s.f.show(r.id).String())
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("%d are not over, such as %s; queue %+v; workers %+v", len(open), open[0], s.f.queue(), s.f.workers())
		}
		return nil
	})
	eventually(s.t, 20*time.Second, "the workers are idle", s.idle)
}

// idle wants every worker connected.
func (s *storm) idle() error {
	connected := 0
	all := s.f.workers()
	for _, w := range all {
		if w.Connected && w.Intent == "none" {
			connected++
		}
	}
	if connected != len(s.workers)+1 {
		return fmt.Errorf("%d of the workers and loopback are there: %+v", connected, all)
	}
	return nil
}
