package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// player plays a scenario.
type player struct {
	t      *placed
	f      *Fleet // nil before the first command that is not about how it is started
	name   string
	at     *command
	began  time.Time
	runs   map[string]*Run
	held   map[string][]*Dispatch // by worker: what it was sent and has not ended
	known  map[string]*Worker     // by the name that the scenario gives it
	set    []Option
	tokens map[string]string
	seen   int // lines of the trace that were printed
}

// fleet is the orchestrator, which starts with the first command that needs it.
func (p *player) fleet() *Fleet {
	if p.f == nil {
		p.f = Start(p.t, append(p.set, withOrder(p.name), WithTrace(10_000))...)
	}
	return p.f
}

// play plays one command, and lets what follows from it come to rest.
func (p *player) play(c *command) {
	p.t.Helper()
	commands := p.commands()
	name, refused := c.words[0], ""
	if name == "refused" {
		refused, c = c.word(1), &command{line: c.line, words: c.words[min(2, len(c.words)):], body: c.body}
		name = c.word(0)
	}
	fn := commands[name]
	if fn == nil {
		p.t.Fatalf("there is no such command; there are: %s", strings.Join(slices.Sorted(maps.Keys(commands)), " "))
	}
	err := fn(c)
	switch code := string(messages.CodeOf(err)); {
	case err == nil && refused != "":
		p.t.Fatalf("it was not refused")
	case err != nil && refused != code:
		p.t.Fatalf("it fails: %v", err)
	}
	if p.f != nil {
		p.f.Settle()
		if p.f.System() != nil {
			p.f.Advance(orderMost) // what has settled may have delays in it
		}
	}
}

func (p *player) commands() map[string]func(*command) error {
	return map[string]func(*command) error{
		"options": p.options, "worker": p.worker, "agent": p.agent, "submit": p.submit, "cancel": p.cancel, "do": p.do,
		"advance": p.advance, "crash": p.crash, "restart": p.restart, "stop": p.stop, "disk": p.disk, "expect": p.expect,
		"story": p.story, "queue": p.queue, "workers": p.workers, "trace": p.traced, "token": p.token,
		"drain": p.wish(messages.VerbWorkerDrain), "pause": p.wish(messages.VerbWorkerPause), "resume": p.wish(messages.VerbWorkerResume),
		"revoke": p.wish(messages.VerbWorkerTokenRevoke),
	}
}

// options says how the orchestrator is started: queue-timeout=D grace=D loopback=N supervised=D.
func (p *player) options(c *command) error {
	p.t.Helper()
	if p.f != nil {
		p.t.Fatalf("options come first")
	}
	for _, word := range c.words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "queue-timeout":
			p.set = append(p.set, WithQueueTimeout(p.duration(value)))
		case "grace":
			p.set = append(p.set, WithGrace(p.duration(value)))
		case "loopback":
			p.set = append(p.set, WithLoopback(p.count(value)))
		case "supervised":
			p.set = append(p.set, WithSupervisor(p.duration(value)), WithFaults())
		default:
			p.t.Fatalf("there is no option %s", name)
		}
	}
	return nil
}

// moves are what a worker can do with a dispatch, by their names in a scenario.
func (p *player) moves(list string) WorkerOption {
	p.t.Helper()
	known := map[string]Move{
		"succeed": Succeed, "busy": RefuseBusy, "draining": RefuseDraining, "cannot-start": CannotStart, "hang": Hang, "ignore": Ignore,
		"drop-before-accept": DropBeforeAccept, "drop-after-accept": DropAfterAccept, "die": Die,
		"fail": Fail(messages.CodeExitNonzero, "exit status 1"),
	}
	var moves []Move
	for _, word := range strings.Split(list, ",") {
		name, value, _ := strings.Cut(word, ":")
		switch move := known[name]; {
		case name == "slow":
			moves = append(moves, Slow(p.duration(value)))
		case move != nil:
			moves = append(moves, move)
		default:
			p.t.Fatalf("there is no move %s; there are: slow:D %s", name, strings.Join(slices.Sorted(maps.Keys(known)), " "))
		}
	}
	return Script(moves...)
}

// describe reads what a command says of a worker: labels as key=value, and slots, platform, does, delay, token, machine and
// speaks.
func (p *player) describe(words []string) []WorkerOption {
	p.t.Helper()
	labels := Labels{}
	options := []WorkerOption{labels}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "slots":
			options = append(options, Capacity(p.count(value)))
		case "platform":
			options = append(options, Platform(value))
		case "does":
			options = append(options, p.moves(value))
		case "delay":
			options = append(options, Delayed(p.duration(value)))
		case "token":
			options = append(options, WithToken(p.tokenNamed(value)))
		case "machine":
			options = append(options, Machine(value))
		case "speaks":
			options = append(options, Speaks(int32(p.count(value)), int32(p.count(value))))
		case "draining":
			options = append(options, Draining())
		case "obedient":
			options = append(options, Obedient())
		default:
			labels[name] = value
		}
	}
	return options
}

// worker NAME [label=value …] [slots=N] [platform=OS/ARCH] [does=MOVE,…] [delay=D] [token=NAME] [machine=ID] [draining]
func (p *player) worker(c *command) error {
	if c.word(1) == "loopback" {
		p.known[c.word(1)] = p.fleet().Loopback(p.describe(c.words[2:])...)
		return nil
	}
	w, err := p.fleet().Enroll(c.word(1), p.describe(c.words[2:])...)
	if err == nil {
		p.known[c.word(1)] = w
	}
	return err
}

// agent NAME [the same]: a real worker whose scripts know sleep D, echo TEXT, exit N.
func (p *player) agent(c *command) error {
	p.fleet().Agent(c.word(1), append(p.describe(c.words[2:]), Shell(littleShell))...)
	return nil
}

// littleShell does what a script says that knows three commands.
func littleShell(ctx context.Context, t worker.Task, out worker.Output) (map[string]string, error) {
	for line := range strings.Lines(t.Args["run"]) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "echo":
			if err := out.Write(worker.Stdout, []byte(rest+"\n")); err != nil {
				return nil, err
			}
		case "sleep":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return nil, err
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case "exit":
			if n, err := strconv.Atoi(rest); err != nil || n != 0 {
				return nil, errors.New("exit status " + rest)
			}
			return nil, nil
		default:
			return nil, fmt.Errorf("no such command: %s", name)
		}
	}
	return nil, nil
}

// token NAME [max=N] [for=D]: an enrollment token, for worker … token=NAME.
func (p *player) token(c *command) error {
	var options []TokenOption
	for _, word := range c.words[2:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "max":
			options = append(options, MaxEnrollments(p.count(value)))
		case "for":
			options = append(options, ValidFor(p.duration(value)))
		default:
			p.t.Fatalf("there is no %s of a token", name)
		}
	}
	p.tokens[c.word(1)] = p.fleet().Token(c.word(1), options...)
	return nil
}

// tokenNamed is a token that was made before.
func (p *player) tokenNamed(name string) string {
	p.t.Helper()
	token, ok := p.tokens[name]
	if !ok {
		p.t.Fatalf("no token %s was made", name)
	}
	return token
}

// submit RUN [FILE], or with the workflow indented below it.
func (p *player) submit(c *command) error {
	source := c.body
	if file := c.word(2); file != "" {
		b, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			p.t.Fatalf("%v", err)
		}
		source = string(b)
	}
	run, err := p.fleet().SubmitAs(c.word(1), source)
	if err == nil {
		p.runs[c.word(1)] = run
	}
	return err
}

func (p *player) run(id string) *Run {
	p.t.Helper()
	r := p.runs[id]
	if r == nil {
		p.t.Fatalf("no run %s was submitted", id)
	}
	return r
}

// cancel RUN [STEP] [force]
func (p *player) cancel(c *command) error {
	words := c.words[2:]
	force := slices.Contains(words, "force")
	step := ""
	if len(words) > 0 && words[0] != "force" {
		step = words[0]
	}
	p.run(c.word(1)).cancel(step, force)
	return nil
}

// wish is what a client wants of a worker: drain NAME, pause NAME [D], resume NAME, revoke TOKEN.
func (p *player) wish(verb messages.Verb) func(*command) error {
	return func(c *command) error {
		params := messages.NewParams(verb)
		switch w := params.(type) {
		case *messages.WorkerDrainParams:
			w.Name = c.word(1)
		case *messages.WorkerPauseParams:
			w.Name = c.word(1)
			if c.word(2) != "" {
				w.ForMs = messages.Milliseconds(p.duration(c.word(2)))
			}
		case *messages.WorkerResumeParams:
			w.Name = c.word(1)
		case *messages.WorkerTokenRevokeParams:
			w.Name = c.word(1)
		}
		_, err := p.fleet().Ask(verb, params)
		return err
	}
}

// advance D lets time pass.
func (p *player) advance(c *command) error {
	p.fleet().Advance(p.duration(c.word(1)))
	return nil
}

// crash [losing N]
func (p *player) crash(c *command) error {
	if c.word(1) == "losing" {
		p.fleet().Crash(LosingTail(p.count(c.word(2))))
	} else {
		p.fleet().Crash()
	}
	return nil
}

func (p *player) restart(*command) error { return p.fleet().TryRestart() }

func (p *player) stop(*command) error {
	p.fleet().Stop()
	return nil
}

// disk fail | fail-late | slow D | roomy | no-new-work | no-output | full
func (p *player) disk(c *command) error {
	d := p.fleet().Disk()
	p.fleet().settings.faults = true
	switch what := c.word(1); what {
	case "fail":
		d.Fail()
	case "fail-late":
		d.FailLate()
	case "slow":
		d.Slow(p.duration(c.word(2)))
	case "roomy":
		d.Fill(Roomy)
	case "no-new-work":
		d.Fill(NoNewWork)
	case "no-output":
		d.Fill(NoOutput)
	case "full":
		d.Fill(Full)
	default:
		p.t.Fatalf("a disk cannot %s", what)
	}
	return nil
}

// do WORKER VERB …: what a scripted worker does, with the oldest dispatch that it has not ended where it is about one.
func (p *player) do(c *command) error {
	p.t.Helper()
	f := p.fleet()
	for _, a := range slices.Backward(f.agents) { // the last process on a machine
		if a.is.name == c.word(1) {
			return p.doAgent(a, c)
		}
	}
	w := p.known[c.word(1)]
	if w == nil {
		p.t.Fatalf("no worker %s has enrolled", c.word(1))
	}
	rest := c.rest(3)
	switch what := c.word(2); what {
	case "accept":
		p.dispatch(w, "").Accept()
	case "start":
		p.dispatch(w, "").Started()
	case "print":
		p.dispatch(w, "").Output(rest + "\n")
	case "succeed":
		p.dispatch(w, c.word(3)).Succeed()
	case "fail":
		p.dispatch(w, "").Fail(messages.CodeExitNonzero, rest)
	case "cancelled":
		p.dispatch(w, "").Cancelled()
	case "busy":
		p.dispatch(w, "").RefuseBusy()
	case "refuse-draining":
		p.dispatch(w, "").RefuseDraining()
	case "cannot-start":
		p.dispatch(w, "").CannotStart()
	case "repeat":
		p.dispatch(w, "").Repeat()
	case "has-room":
		w.SayIdle()
	case "drain":
		w.SayDraining(rest)
	case "obey":
		w.Obey()
	case "cut":
		w.Drop()
	case "half-open":
		w.HalfOpen()
	case "delay":
		w.Delay(p.duration(c.word(3)))
	case "die":
		w.Die()
		p.held[w.Name()] = nil
	case "return":
		return w.TryReconnect(p.returning(c.words[3:])...)
	case "garbage":
		for _, frame := range Garbage() {
			w.Send(frame)
		}
	default:
		p.t.Fatalf("a worker cannot %s", what)
	}
	return nil
}

func (p *player) doAgent(a *Agent, c *command) error {
	p.t.Helper()
	switch what := c.word(2); what {
	case "cut":
		a.Drop()
	case "half-open":
		a.HalfOpen()
	case "delay":
		a.Delay(p.duration(c.word(3)))
	case "drain":
		a.Drain()
	case "die":
		a.Die()
	case "return":
		a.Again()
	default:
		p.t.Fatalf("an agent cannot %s", what)
	}
	return nil
}

func (p *player) returning(words []string) []ReconnectOption {
	p.t.Helper()
	var options []ReconnectOption
	for _, word := range words {
		switch word {
		case "new":
			options = append(options, AsNewInstance())
		case "forgetting":
			options = append(options, Forgetting())
		case "draining":
			options = append(options, StillDraining())
		default:
			p.t.Fatalf("a worker cannot return %s", word)
		}
	}
	return options
}

// dispatch is the oldest one that the worker has not ended, of that step where one is named.
func (p *player) dispatch(w *Worker, step string) *Dispatch {
	p.t.Helper()
	name := w.Name()
	for {
		p.held[name] = slices.DeleteFunc(p.held[name], func(d *Dispatch) bool { return d.over() })
		for _, d := range p.held[name] {
			if step == "" || d.Step() == step {
				return d
			}
		}
		p.held[name] = append(p.held[name], w.NextDispatch())
	}
}

// over tells whether the worker has nothing to say of it any more.
func (d *Dispatch) over() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.last != nil || d.aborted || d.done
}
