package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

func (a *app) runCommand() *cobra.Command {
	return a.group("run", "Look at runs, follow and cancel them",
		a.runListCommand(), a.runShowCommand(), a.runLogsCommand(), a.runWatchCommand(), a.runCancelCommand())
}

// ask makes a short request with the flags that a command has. repeat says that asking twice is as good as once.
func (a *app) ask(ctx context.Context, from settings, verb messages.Verb, params proto.Message, repeat bool) (proto.Message, error) {
	c, err := a.newClient(from)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, verb, params, repeat)
}

// answer is ask for a result of a known type.
func answer[R proto.Message](result proto.Message, err error) (R, error) {
	var none R
	if err != nil {
		return none, err
	}
	r, ok := result.(R)
	if !ok {
		return none, fmt.Errorf("the orchestrator answered with a %T", result)
	}
	return r, nil
}

// pageSize is how many runs are asked for at a time.
const pageSize = 500

func (a *app) runListCommand() *cobra.Command {
	limit := countValue{n: 100, max: 1 << 30}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  swamp run list --limit 10",
		Args:    wants(),
	}
	cmd.Flags().Var(&limit, "limit", "how many at most; 0 is all")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		runs := &messages.RunListResult{}
		for cursor := ""; ; {
			params := &messages.RunListParams{Limit: pageSize, Cursor: cursor}
			if left := limit.n - len(runs.GetItems()); limit.n > 0 {
				params.Limit = int32(min(left, pageSize))
			}
			page, err := answer[*messages.RunListResult](c.call(cmd.Context(), messages.VerbRunList, params, true))
			if err != nil {
				return err
			}
			runs.Items = append(runs.Items, page.GetItems()...)
			cursor = page.GetCursor()
			if cursor == "" || len(page.GetItems()) == 0 || (limit.n > 0 && len(runs.GetItems()) >= limit.n) {
				break
			}
		}
		runs.Count = int32(len(runs.GetItems()))
		return a.printRuns(runs)
	})
}

func (a *app) printRuns(runs *messages.RunListResult) error {
	if a.json() {
		return printShape(a.host.Stdout, runs)
	}
	if len(runs.GetItems()) == 0 {
		fmt.Fprintln(a.host.Stderr, "no runs yet: start one with swamp workflow run FILE")
		return nil
	}
	t := table{columns: []string{"RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK"}, paint: paintStatus(2)}
	for _, r := range runs.GetItems() {
		t.add(r.GetRunId(), r.GetWorkflowName(), r.GetStatus(), clock(a.host.Now(), r.GetStartedAt()), span(a.host.Now(), r.GetStartedAt(), r.GetEndedAt()))
	}
	return t.write(a.host.Stdout, a.host.color())
}

func (a *app) runShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a run with its jobs and steps",
		Example: "  swamp run show 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f",
		Args:    wants("ID"),
	}
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		run, err := answer[*messages.RunItem](a.ask(cmd.Context(), from, messages.VerbRunShow, &messages.RunShowParams{RunId: args[0]}, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, run)
		}
		return a.printRun(run)
	})
}

func (a *app) printRun(run *messages.RunItem) error {
	now := a.host.Now()
	status := run.GetStatus()
	if run.GetCancelRequested() && !messages.RunStatus(status).Ended() {
		status += " (cancel requested)"
	}
	facts := [][2]string{
		{"run", run.GetRunId()},
		{"workflow", run.GetWorkflowName()},
		{"status", status},
		{"started", clock(a.host.Now(), run.GetStartedAt())},
		{"took", span(now, run.GetStartedAt(), run.GetEndedAt())},
	}
	if run.ParentRunId != nil {
		facts = append(facts, [2]string{"parent", run.GetParentRunId()})
	}
	if run.Error != nil {
		facts = append(facts, [2]string{"error", run.GetError()})
	}
	if err := writeFacts(a.host.Stdout, facts); err != nil {
		return err
	}
	fmt.Fprintln(a.host.Stdout)
	t := table{columns: []string{"STEP", "STATUS", "WORKER", "ATTEMPTS", "LOSSES", "QUEUED", "TOOK", "ERROR"}, paint: paintStatus(1)}
	for _, job := range run.GetJobs() {
		for _, s := range job.GetSteps() {
			t.add(job.GetName()+"/"+s.GetName(), s.GetStatus(), orDash(s.GetWorker()), fmt.Sprint(s.GetAttempts()), fmt.Sprint(s.GetLosses()),
				elapsed(messages.Duration(s.GetQueuedMs())), span(now, s.GetStartedAt(), s.GetEndedAt()), orDash(s.GetError()))
		}
	}
	return t.write(a.host.Stdout, a.host.color())
}

// writeFacts writes names and values in two columns.
func writeFacts(w io.Writer, facts [][2]string) error {
	width := 0
	for _, f := range facts {
		width = max(width, len(f[0]))
	}
	for _, f := range facts {
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, f[0], oneLine(orDash(f[1]))); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) runCancelCommand() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:     "cancel ID [STEP]",
		Short:   "Cancel a run, or one step of it",
		Long:    "Cancel a run, or one step of it. The answer comes when the cancel is durable; the run ends when its steps have.",
		Example: "  swamp run cancel 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f",
		Args:    wants("ID", "[STEP]"),
	}
	cmd.Flags().BoolVar(&force, "force", false, "end it at once, without waiting for workers to answer")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		params := &messages.RunCancelParams{RunId: args[0], Force: force, By: a.user()}
		if len(args) > 1 {
			params.Step = args[1]
		}
		result, err := answer[*messages.RunCancelResult](a.ask(cmd.Context(), from, messages.VerbRunCancel, params, true))
		if err != nil {
			return err
		}
		if a.json() {
			return printShape(a.host.Stdout, result)
		}
		text := "cancel requested, the run is " + result.GetStatus()
		if messages.RunStatus(result.GetStatus()).Ended() {
			text = result.GetStatus()
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s: %s\n", result.GetRunId(), text)
		return err
	})
}

func (a *app) runWatchCommand() *cobra.Command {
	patience := durationValue{d: followPatience}
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a run to its end",
		Long: "Follow a run to its end, from its beginning. Ctrl-C only stops following. The exit code is that of the run: 0 if it\n" +
			"succeeded, else 1.",
		Example: "  swamp run watch 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f",
		Args:    wants("ID"),
	}
	addPatience(cmd, &patience)
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		return a.watch(cmd.Context(), c, args[0], patience.d)
	})
}

func (a *app) watch(ctx context.Context, c *client, id string, patience time.Duration) error {
	view := &runView{id: id}
	if !a.json() { // a view is better with the names of steps that nothing has happened to; it does without
		run, err := answer[*messages.RunItem](c.call(ctx, messages.VerbRunShow, &messages.RunShowParams{RunId: id}, true))
		switch {
		case err == nil:
			view.seedRun(run)
		case !transient(err):
			return err
		}
	}
	show := a.printer(view)
	f := newFollower(c, patience)
	f.note, f.event = show.note, show.event
	f.request = func(at position) (messages.Verb, proto.Message) {
		return messages.VerbRunWatch, &messages.RunWatchParams{RunId: id, AfterSeq: at.seq, Output: at.cursors()}
	}
	i := &interruptible{app: a, client: c, follower: f, show: show, run: id}
	return i.toEnd(ctx)
}

func (a *app) runLogsCommand() *cobra.Command {
	follow := false
	patience := durationValue{d: followPatience}
	cmd := &cobra.Command{
		Use:   "logs ID [STEP]",
		Short: "Print the output of a run's steps",
		Long: "Print the output of a run's steps, or of one (JOB/STEP, or its name where only one step has it): the bare lines of\n" +
			"both streams, in order. With -f it goes on until the run has ended; Ctrl-C only stops following.",
		Example: "  swamp run logs 01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f train/fit -f",
		Args:    wants("ID", "[STEP]"),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	addPatience(cmd, &patience)
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		params := &messages.RunLogsParams{RunId: args[0], Follow: follow}
		if len(args) > 1 {
			params.Step = args[1]
		}
		if !follow && !cmd.Flags().Changed("server-timeout") {
			patience.d = dialPatience
		}
		show := a.logPrinter(follow)
		f := newFollower(c, patience.d)
		f.at.keep = true
		f.note, f.event = show.note, show.event
		f.request = func(position) (messages.Verb, proto.Message) { return messages.VerbRunLogs, params }
		i := &interruptible{app: a, client: c, follower: f, show: show, run: args[0]}
		if err := i.toEnd(cmd.Context()); !errors.Is(err, errFailed) {
			return err
		}
		return nil // how the run ended is not how printing its output did
	})
}

// logPrinter prints output alone.
type logPrinter struct {
	app  *app
	live *liveJoiner // where it goes on with what comes
	join *joiner
}

func (a *app) logPrinter(follow bool) *logPrinter {
	clean := func(s string) string { return s }
	if _, _, terminal := a.host.Terminal(); terminal {
		clean = safeText
	}
	p := &logPrinter{app: a}
	if follow {
		p.live = &liveJoiner{w: a.host.Stdout, clean: clean}
		return p
	}
	p.join = newJoiner(joinLimit, func(_ outputKey, text string) error {
		_, err := io.WriteString(a.host.Stdout, clean(text)+"\n")
		return err
	})
	p.join.long = func(text string) error {
		_, err := io.WriteString(a.host.Stdout, clean(text))
		return err
	}
	return p
}

func (p *logPrinter) event(e *messages.RunEvent) error {
	switch {
	case e.GetKind() != messages.EventStepOutput:
		return nil
	case p.app.json():
		return printShape(p.app.host.Stdout, e)
	case p.live != nil:
		return p.live.add(e)
	}
	// What has been printed comes dispatch by dispatch: one that follows another ends its lines.
	dispatch := e.GetDispatchId()
	if err := p.join.end(func(k outputKey) bool { return k.dispatch != dispatch }); err != nil {
		return err
	}
	return p.join.add(e)
}

func (p *logPrinter) note(text string) { fmt.Fprintln(p.app.host.Stderr, text) }

func (p *logPrinter) close() error {
	if p.live != nil {
		return p.live.end()
	}
	return p.join.endAll()
}
