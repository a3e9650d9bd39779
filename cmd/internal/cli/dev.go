package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// Times of a development orchestrator.
const (
	devWorkersAfter   = time.Second      // so that one sees steps wait in an empty pool
	devWorkerPatience = 15 * time.Second // for a worker that was asked to leave: TERM, ten seconds, KILL
	devStopPatience   = 20 * time.Second
)

func (a *app) devCommand() *cobra.Command {
	workers := countValue{n: 1, max: 100}
	dir := ""
	cmd := &cobra.Command{
		Use:   "dev [FILE]",
		Short: "Try it out: an orchestrator and workers on this machine, for as long as the command runs",
		Long: "Run an orchestrator and workers on this machine, in a folder that is removed at the end.\n\n" +
			"With FILE it runs the workflow and ends with it, as workflow run does. The workers start one second after the\n" +
			"run: one for each kind of placement in the file, and at least --workers. Without FILE there are --workers\n" +
			"workers without labels until Ctrl-C, which drains them.",
		Example: "  swamp dev fleet.yaml\n  swamp dev --workers 4",
		Args:    wants("[FILE]"),
	}
	cmd.Flags().Var(&workers, "workers", "how many workers, at least")
	cmd.Flags().StringVar(&dir, "data-dir", "", "`DIR` to use and keep, instead of one that is removed")
	a.addFormat(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, _ settings) error {
		d := &dev{app: a, dir: dir}
		if len(args) > 0 {
			var err error
			if d.source, d.plan, err = a.readWorkflow(args[0]); err != nil {
				return err
			}
			d.file = args[0]
		}
		var err error
		if d.fleet, err = devFleet(d.file, d.plan, workers.n); err != nil {
			return err
		}
		if err := a.host.hideCredentials(cmd.Flags(), ""); err != nil {
			return err
		}
		return d.run(cmd.Context())
	})
}

// devWorker is one worker of a development fleet.
type devWorker struct {
	name   string
	labels messages.Labels
}

// describe is the worker for people.
func (w devWorker) describe() string {
	if len(w.labels) == 0 {
		return w.name
	}
	return w.name + " (" + w.labels.String() + ")"
}

// devFleet plans a fleet: a worker for each distinct placement of the plan, and plain ones up to n. plan may be nil.
func devFleet(file string, plan *workflow.Plan, n int) ([]devWorker, error) {
	var fleet []devWorker
	taken := map[string]bool{}
	seen := map[string]bool{}
	free := func() string {
		for i := 1; ; i++ {
			if name := fmt.Sprintf("dev-%d", i); !taken[name] {
				taken[name] = true
				return name
			}
		}
	}
	if plan != nil {
		for i := range plan.Steps {
			taken[plan.Steps[i].Placement.Target] = true
		}
		for i := range plan.Steps {
			step := &plan.Steps[i]
			p := step.Placement
			if p.IsZero() || seen[p.Key()] {
				continue
			}
			seen[p.Key()] = true
			name := p.Target
			if name == "" {
				name = free()
			}
			here := messages.Candidate{Name: name, Labels: p.Labels, Platform: runtime.GOOS, Arch: runtime.GOARCH}
			if m := p.Match(here); !m.OK {
				return nil, usagef("%s: step %s/%s wants a worker matching %s: one on this machine %s",
					file, plan.Jobs[step.Job].Name, step.Name, p.Requirement(), strings.Join(m.Lacks, ", "))
			}
			same := func(w devWorker) bool { return w.name == name }
			if at := slices.IndexFunc(fleet, same); at >= 0 {
				merged, err := mergeLabels(file, fleet[at], p.Labels)
				if err != nil {
					return nil, err
				}
				fleet[at].labels = merged
				continue
			}
			fleet = append(fleet, devWorker{name, p.Labels})
		}
	}
	for len(fleet) < n {
		fleet = append(fleet, devWorker{name: free()})
	}
	return fleet, nil
}

// mergeLabels gives a worker that several placements target the labels of all of them.
func mergeLabels(file string, w devWorker, more messages.Labels) (messages.Labels, error) {
	all := w.labels.Map()
	for _, l := range more {
		if have, ok := all[l.Key]; ok && have != l.Value {
			return nil, usagef("%s: target '%s' is wanted with %s=%s and with %s=%s: no worker can be both", file, w.name, l.Key, have, l.Key, l.Value)
		}
		all[l.Key] = l.Value
	}
	return messages.LabelsOf(all), nil
}

// dev is one call of swamp dev.
type dev struct {
	app    *app
	dir    string // given, or throw-away
	file   string
	source []byte
	plan   *workflow.Plan
	fleet  []devWorker

	log          *os.File
	logger       *slog.Logger
	orchestrator daemon.Orchestrator
	client       *client
	workers      *devWorkers
}

// run does everything, and leaves nothing behind but a folder that somebody may want to look into.
func (d *dev) run(ctx context.Context) (err error) {
	h := d.app.host
	throwAway := d.dir == ""
	if throwAway {
		temp, _ := h.env("TMPDIR") // without it, the system's own
		if d.dir, err = os.MkdirTemp(temp, "swamp-dev-"); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	} else if d.dir, err = filepath.Abs(d.dir); err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	defer func() {
		switch {
		case err != nil && !errors.Is(err, errInterrupted):
			fmt.Fprintf(h.Stderr, "%s is kept: swampd.log and the logs of the workers are in its folder dev\n", d.dir)
		case throwAway:
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	signals, stop := h.Notify(stopSignals()...)
	defer stop()
	if err := d.start(ctx); err != nil {
		return err
	}
	if d.plan == nil {
		err = d.idle(ctx, signals)
	} else {
		err = d.runFile(ctx)
	}
	for len(signals) > 0 {
		<-signals // those that the run has seen too
	}
	return d.finish(signals, err)
}

// start starts the orchestrator and says how others find it.
func (d *dev) start(ctx context.Context) error {
	notes := filepath.Join(d.dir, "dev")
	if err := os.MkdirAll(notes, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	var err error
	d.log, err = os.OpenFile(filepath.Join(notes, "swampd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	d.logger = newLogger(d.log, "info", "text")
	d.orchestrator, err = d.app.host.Engine.Start(ctx, daemon.Config{
		Listen: "127.0.0.1:0", DataDir: d.dir, QueueTimeout: time.Minute, Grace: time.Minute, Loopback: true,
		Version: version(), Logger: d.logger,
	})
	if err != nil {
		return errors.Join(err, d.log.Close())
	}
	address := d.orchestrator.URL()
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	d.client = connectTo(u, d.orchestrator.Token(), "this command")
	d.workers = &devWorkers{host: d.app.host, client: d.client, url: address, dir: notes, note: d.note}
	out := d.app.host.Stdout
	if d.app.json() {
		out = d.app.host.Stderr
	}
	fmt.Fprintf(out, "export SWAMP_SERVER=%s SWAMP_SERVER_TOKEN=%s\n", address, d.orchestrator.Token().Reveal())
	return nil
}

func (d *dev) note(text string) { fmt.Fprintln(d.app.host.Stderr, text) }

// idle keeps a fleet until somebody interrupts.
func (d *dev) idle(ctx context.Context, signals <-chan os.Signal) error {
	if err := d.workers.start(ctx, d.fleet); err != nil {
		return err
	}
	select {
	case <-signals:
		d.note("draining; once more leaves at once")
		return nil
	case <-d.orchestrator.Failed():
		return d.orchestrator.Failure()
	case <-ctx.Done():
		return nil
	}
}

// runFile runs the workflow, and starts the workers a moment after the run.
func (d *dev) runFile(ctx context.Context) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a run id: %w", err)
	}
	view := &runView{}
	view.seedPlan(d.plan)
	show := &firstEvent{printer: d.app.printer(view), began: make(chan struct{})}
	d.workers.note = show.note
	starting, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		if err := d.startLater(starting, show.began); err != nil && starting.Err() == nil {
			show.note("the workers could not be started: " + err.Error())
		}
	})
	submit := &messages.WorkflowRunParams{RunId: id.String(), File: d.file, Source: string(d.source)}
	err = d.app.runToEnd(ctx, d.client, submit, show, followPatience)
	cancel()
	work.Wait()
	d.workers.quiet()
	return err
}

func (d *dev) startLater(ctx context.Context, began <-chan struct{}) error {
	select {
	case <-began:
	case <-ctx.Done():
		return ctx.Err()
	}
	timer := time.NewTimer(devWorkersAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return d.workers.start(ctx, d.fleet)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish drains the workers and stops the orchestrator. A signal meanwhile ends it at once.
func (d *dev) finish(signals <-chan os.Signal, err error) error {
	left := make(chan struct{})
	go func() { // ends when the workers have, which kill makes sure of
		defer close(left)
		d.workers.drain(devWorkerPatience)
	}()
	select {
	case <-left:
	case <-signals:
		d.workers.kill()
		<-left
		err = errors.Join(errFailed, err)
	}
	return errors.Join(err, stopOrchestrator(d.orchestrator, d.logger, signals, devStopPatience), d.log.Close())
}

// firstEvent tells when the first event has come.
type firstEvent struct {
	printer
	once  sync.Once
	began chan struct{}
}

func (p *firstEvent) event(e *messages.RunEvent) error {
	p.once.Do(func() { close(p.began) })
	return p.printer.event(e)
}
